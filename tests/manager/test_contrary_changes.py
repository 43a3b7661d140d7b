"""Two operators change the same recipients at once, in contrary ways, and the manager is killed meanwhile.

Both answers add up, each recipient ends in the state that one of them ordered, and no other recipient changes."""

from __future__ import annotations

import asyncio
import smtplib
from pathlib import Path
from typing import Any

import pytest

from mailcore.control.client import AsyncControlClient, ControlError
from mailcore.lab.lab import Lab
from tests.eventually import PATIENCE_S
from tests.running.running_core import DATA, RunningCore, Sections, recipients_of, running

MESSAGES = 300
TIMES = 6
NEVER = "reject(1, 451)"
LONG: Sections = {
    "queue": {"retry_ladder_s": [600]},
    "scheduler": {"minimal_backoff_time": 600, "maximal_backoff_time": 600},
}


def x(number: int) -> str:
    return f"x{number}@one.example"


def y(number: int) -> str:
    return f"y{number}@two.example"


def send_all(port: int) -> None:
    with smtplib.SMTP("127.0.0.1", port, timeout=PATIENCE_S) as client:
        for number in range(MESSAGES):
            assert not client.sendmail("author@sender.example", [x(number), y(number)], DATA)


async def until_at_rest(core: RunningCore) -> None:
    """Waits until no message moves: a released recipient is tried again, and then waits again."""

    async def resting() -> bool:
        items = [*await core.listed(), *await core.listed(lane="deleted")]
        return len(items) == MESSAGES and all(item["state"] != "active" for item in items)

    await core.eventually(resting, "all messages to rest")


async def states(core: RunningCore) -> dict[str, str]:
    """The state of each queued recipient by address: "held", "deleted", or "" of the others."""
    found: dict[str, str] = {}
    for item in [*await core.listed(), *await core.listed(lane="deleted")]:
        parts = [part async for part in core.control.parts("show", {"queue_id": item["queue_id"]})]
        for each in (each for part in parts for each in part.get("recipients") or ()):
            assert each["address"] not in found, f"{each['address']} is there twice"
            found[each["address"]] = each["state"] if each["state"] in ("held", "deleted") else ""
    return found


async def operator(core: RunningCore, change: str) -> list[dict[str, Any]]:
    """One change to all that match, made until it changed something twice, also when the manager goes away under it."""
    client = AsyncControlClient(core.home / "run" / "control.sock", who=change, timeout_s=PATIENCE_S)
    answers: list[dict[str, Any]] = []
    try:
        while len(answers) < TIMES and sum(made["changed"] > 0 for made in answers) < 2:
            try:
                given = {"change": change, "filter": {"recipient": "x*"}}
                made: dict[str, Any] = await client.call("change_matching", given, why=f"{change} it")
            except ControlError:
                await core.ready()
                continue
            assert made["changed"] + made["failed"] == made["matched"] <= MESSAGES, made
            assert made["changed_recipients"] <= made["matched_recipients"] == made["matched"], made
            answers.append(made)
    finally:
        await client.close()
    return answers


@pytest.mark.parametrize(("first", "second"), [("hold", "delete"), ("hold", "release"), ("delete", "undelete")])
async def test_each_recipient_ends_as_one_of_two_operators_said(tmp_path: Path, first: str, second: str) -> None:
    async with Lab([f"{NEVER}:127.0.0.1:0"]) as lab, running(tmp_path, lab, LONG) as core:
        await asyncio.to_thread(send_all, core.port)

        async def resting() -> bool:
            lanes = (await core.ask("size"))["lanes"]
            return bool(list(lanes) == ["retry.600"] and lanes["retry.600"]["messages"] == MESSAGES)

        await core.eventually(resting, "all messages in the retry lane")
        both = [asyncio.create_task(operator(core, change)) for change in (first, second)]

        async def begun() -> bool:
            return bool(sum(line["event"] == "administered" for line in core.log()) > MESSAGES // 2)

        await core.eventually(begun, "half of the first change")
        await core.kill("manager")
        answers = await asyncio.gather(*both)
        told = [(made["matched"], made["changed"], made["failed"]) for some in answers for made in some]
        await until_at_rest(core)
        found = await states(core)
        assert found.keys() == {of(number) for number in range(MESSAGES) for of in (x, y)}
        assert {found[y(number)] for number in range(MESSAGES)} == {""}
        ends = {"hold": "held", "delete": "deleted"}
        assert {found[x(number)] for number in range(MESSAGES)} <= {ends.get(first, ""), ends.get(second, "")}
        await lab.hops[0].set_behaviour("accept")
        await core.ask("change_matching", change="retry", filter={"recipient": "y*"})
        await core.ask(
            "change_matching", change="retry", filter={"recipient": "x*"}
        )  # those who wait in a message that is due
        free = [address for address, state in found.items() if not state]

        async def delivered() -> bool:
            return len(recipients_of(lab.messages)) >= len(free)

        await core.eventually(delivered, f"{len(free)} deliveries after {told}")
        assert recipients_of(lab.messages) == sorted(free)
        held = sum(state == "held" for state in found.values())

        async def counted() -> bool:
            return int((await core.size())["recipients"]) == held

        await core.eventually(counted, f"{held} recipients held and nothing else")
        balance = (await core.ask("state"))["balance"]
        assert balance["recipients"]["difference"] == balance["messages"]["difference"] == 0
