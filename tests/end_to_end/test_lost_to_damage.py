"""A damaged envelope in a lane that always holds mail: the balance names its recipients as lost before the lane is empty."""

from __future__ import annotations

import asyncio
import smtplib
from pathlib import Path
from typing import Any

import pytest

from mailcore.lab.lab import Lab
from tests.eventually import PATIENCE_S
from tests.running.running_core import SENDER, RunningCore, running

ACTIVE = 10  # messages at once: all others wait in their lane
FIRST = 90  # messages that wait behind each other at the beginning
DAMAGED = 80  # the place of the damaged one among them: sent last, so that the manager has not read it yet
WAITING = 30  # messages at least, all the time
AT_ONCE = 2  # deliveries of 0.2 s: it takes longer to deliver WAITING messages than to send them
PER_MESSAGE = 3  # recipients


def send(port: int, messages: int) -> list[str]:
    found = []
    with smtplib.SMTP("127.0.0.1", port, timeout=PATIENCE_S) as client:
        client.ehlo("client.example")
        for number in range(messages):
            assert client.mail(SENDER)[0] == 250
            for each in range(PER_MESSAGE):
                assert client.rcpt(f"reader{number}-{each}@example.org")[0] == 250
            code, reply = client.data(b"Subject: one\r\n\r\nbody\r\n")
            assert code == 250
            found.append(reply.decode().split()[-1])
    return found


def damage(core: RunningCore, queue_id: str) -> None:
    for path in (core.home / "queue").glob("incoming.*/*.seg"):
        if (at := path.read_bytes().find(queue_id.encode())) >= 0:
            with path.open("r+b") as file:
                file.seek(at)
                file.write(b"?")
            return
    raise AssertionError(f"{queue_id} is in no lane")


@pytest.mark.long
async def test_recipients_lost_to_damage_are_named_while_their_lane_holds_mail(tmp_path: Path) -> None:
    settings = {
        "scheduler": {"message_active_limit": ACTIVE},
        "receiver": {"processes": 1},
        "transports.smtp": {"initial_destination_concurrency": AT_ONCE, "destination_concurrency_limit": AT_ONCE},
    }
    async with Lab(["slow(0.2):127.0.0.1:0"]) as lab, running(tmp_path, lab, settings) as core:
        queue_ids = await asyncio.to_thread(send, core.port, FIRST)
        damage(core, queue_ids[DAMAGED])
        sent = FIRST

        async def lost() -> dict[str, Any] | None:
            nonlocal sent
            size = await core.size()
            if size["messages"] < 3 * WAITING:
                await asyncio.to_thread(send, core.port, WAITING)
                sent += WAITING
            assert (await core.size())["messages"] > WAITING, "the lane is never empty"
            state: dict[str, Any] = await core.ask("state")
            for scope in ("recipients", "messages"):
                assert state["balance"][scope]["difference"] == 0, state["balance"]
            return state if state["balance"]["recipients"]["lost"] else None

        state = await core.eventually(lost, "the damage to be counted")
        recipients, messages = state["balance"]["recipients"], state["balance"]["messages"]
        assert (messages["lost"], recipients["lost"]) == (1, PER_MESSAGE)
        assert messages["queued"] > WAITING
        assert recipients["delivered"] + recipients["queued"] == recipients["accepted"] - PER_MESSAGE
        assert state["totals"]["recipients_lost"] == PER_MESSAGE
        await core.again()  # killed with mail in the lane: the next start continues these counts
        await core.until_empty()
        state = await core.ask("state")
        recipients = state["balance"]["recipients"]
        assert state["counted_note"] == ""
        assert (recipients["difference"], recipients["lost"], recipients["queued"]) == (0, PER_MESSAGE, 0)
        assert (recipients["accepted"], recipients["delivered"]) == (sent * 3, (sent - 1) * 3)
        assert {each.split("@")[0] for message in lab.messages for each in message.recipients} >= {"reader0-0"}
