"""Cut-through when a process is killed, or the client goes: never 250 for a message that is nowhere, and never a copy by us."""

from __future__ import annotations

import asyncio
import smtplib
import socket
from pathlib import Path

import pytest

from mailcore.lab.lab import Lab
from tests.deliverer.scripted_server import Act, Answer, ScriptedServer, serving
from tests.end_to_end.appliance import LINES_AS_THEY_ARE, Appliance
from tests.end_to_end.judge import judged
from tests.end_to_end.test_cut_through import (
    DATA,
    NEVER_S,
    TO,
    balance,
    cutting,
    on_disk,
    queue_id_of,
    sent,
    until_open,
)
from tests.eventually import PATIENCE_S, eventually
from tests.ledger.client import LoadClient
from tests.ledger.corpus import Corpus
from tests.ledger.ledger import Ledger
from tests.running.running_core import RunningCore, Sections

LOST = (-1, "")  # the reply of a connection that broke
KEPT_S = 60  # of checkpoints: nothing is synced in the time of a test
SILENT_AT: dict[str, dict[str, Answer]] = {"RCPT": {"RCPT": Act.SILENCE}, "DOT": {"DOT": Act.SILENCE}}


async def answer_of(core: RunningCore) -> tuple[int, str]:
    try:
        return await sent(core)
    except (smtplib.SMTPServerDisconnected, OSError):
        return LOST


async def until_passed_on(appliance: Appliance, ledger: Ledger, name: str) -> None:
    """Sends single messages until one is passed on, and waits until those before it have left the queue."""

    async def passed_on() -> bool:
        client = LoadClient(appliance.address, ledger, name=f"{name}-{len(ledger.sent)}-", timeout_s=PATIENCE_S)
        await client.send(Corpus(1, seed=len(ledger.sent)))
        return "passed on" in ledger.acknowledged[-1].reply

    await eventually(passed_on, "a message that is passed on")
    await appliance.until_empty()


async def until_at(server: ScriptedServer, stage: str) -> None:
    """Until the next hop is silent there."""

    def there() -> bool:
        return any(("." if stage == "DOT" else stage) in session.verbs for session in server.sessions)

    await eventually(there, f"a silence at {stage}")


@pytest.mark.parametrize("stage", ["RCPT", "DOT"])
@pytest.mark.parametrize("name", ["deliverer.0", "manager", "receiver.0", "supervisor"])
async def test_whoever_is_killed_the_client_keeps_the_message_and_we_send_no_copy(
    tmp_path: Path, name: str, stage: str
) -> None:
    async with (
        serving(ScriptedServer(dict(SILENT_AT[stage]), keywords=())) as server,
        cutting(tmp_path, server) as core,
    ):
        asked = asyncio.create_task(answer_of(core))
        await until_at(server, stage)
        await core.kill(name)
        await core.insist(lambda: until_open(core))
        code, _ = answer = await asked
        assert code == 421 or answer == LOST
        if name in ("deliverer.0", "manager"):
            assert code == 421  # the receiver lives: it says so at once
        if name == "receiver.0":  # the delivery is over when the next hop answers
            server.sessions[-1].writer.write(b"250 late\r\n")  # type: ignore[union-attr]
            if stage == "RCPT":
                await eventually(lambda: len(server.messages) == 1, "the delivery that goes on")
        server.answers.clear()
        code, reply = await sent(core)  # the client repeats it
        assert code == 250
        await core.until_removed(queue_id_of(reply) or reply.split()[-1])
        await core.until_empty()
        arrived = [message for message in server.messages if message.data]
        assert len(arrived) == (
            2 if stage == "DOT" or name == "receiver.0" else 1
        )  # one for each time the client sent it
        await balance(core)


@pytest.mark.parametrize("name", ["deliverer.0", "manager"])
async def test_mail_is_passed_on_again_after_a_kill(tmp_path: Path, name: str) -> None:
    async with serving(ScriptedServer()) as server, cutting(tmp_path, server) as core:
        await core.kill(name)

        async def passed() -> bool:
            _, reply = await sent(core)
            return reply.split()[2] == "passed"

        await core.eventually(passed, "a message that is passed on")


@pytest.mark.parametrize("stage", ["RCPT", "DOT"])
async def test_a_client_that_goes_leaves_no_second_copy_behind(tmp_path: Path, stage: str) -> None:
    async with (
        serving(ScriptedServer(dict(SILENT_AT[stage]), keywords=())) as server,
        cutting(tmp_path, server) as core,
    ):
        with socket.create_connection(("127.0.0.1", core.port), PATIENCE_S) as client:
            file = client.makefile("rb")
            for line in (
                b"",
                b"EHLO client\r\n",
                b"MAIL FROM:<a@b.example>\r\n",
                b"RCPT TO:<%b>\r\n" % TO.encode(),
                b"DATA\r\n",
            ):
                client.sendall(line)
                while (await asyncio.to_thread(file.readline))[3:4] == b"-":
                    pass
            client.sendall(DATA + b".\r\n")
            await until_at(server, stage)
        server.sessions[-1].writer.write(b"250 late\r\n")  # type: ignore[union-attr]

        async def delivered() -> bool:
            return (await balance(core))["delivered"] == 1

        await core.eventually(delivered, "the message to be delivered")
        await core.until_empty()
        assert len(server.messages) == 1
        assert on_disk(core) == []


async def test_a_record_that_is_lost_loses_the_arrival_and_the_end_together(tmp_path: Path) -> None:
    sections: Sections = {"queue": {"checkpoint_interval_s": KEPT_S}}
    async with serving(ScriptedServer()) as server, cutting(tmp_path, server, sections=sections) as core:
        assert (await sent(core))[1].split()[2] == "passed"
        before = await balance(core)
        assert (before["accepted"], before["delivered"]) == (1, 1)
        await core.again()
        after = await balance(core)
        assert after["accepted"] == after["delivered"] == 0
        assert after["queued"] == 0


async def test_a_record_behind_the_last_checkpoint_counts_after_a_kill(tmp_path: Path) -> None:
    sections: Sections = {"queue": {"checkpoint_interval_s": KEPT_S}}
    async with serving(ScriptedServer()) as server, cutting(tmp_path, server, sections=sections) as core:
        _, reply = await sent(core)
        server.answers["RCPT"] = [b"450 4.2.0 not now\r\n", b"250 Ok\r\n"]
        queued = (await sent(core))[1].split()[-1]  # its DELIVERY is synced, and the record before it
        await core.until_removed(queued)
        log = core.home / "log"
        for name in ("mail.log", "mail.jsonl"):
            (log / name).write_text("")  # the lines were not written before the kill, say
        await core.again()
        after = await balance(core)
        assert (after["accepted"], after["delivered"], after["queued"]) == (2, 2, 0)
        await core.until_removed(queue_id_of(reply))
        lines = [line["event"] for line in core.log() if line.get("queue_id") == queue_id_of(reply)]
        assert lines == ["accepted", "delivery", "removed"]


async def test_without_a_manager_mail_is_stored(tmp_path: Path) -> None:
    async with serving(ScriptedServer()) as server, cutting(tmp_path, server) as core:
        await core.kill_now("manager")
        code, reply = await sent(core)  # the receiver may not know yet that it is away
        assert (code, reply.split()[2]) in ((250, "queued"), (250, "passed")) or code == 421
        await core.ready()
        await core.until_empty()
        assert len(server.messages) == (code == 250)


async def test_under_load_nothing_is_lost_and_nothing_comes_twice_that_its_client_did_not_repeat(
    tmp_path: Path,
) -> None:
    """All of it is passed on when a process is killed. The client gives what it repeats a new number, so none arrives twice.

    Mail that comes before there is a deliverer is queued, and what is queued may come twice after a kill: so the
    load begins when mail is passed on.
    """
    ledger = Ledger()
    wide = {
        "cut_through": True,
        "cut_through_wait_s": NEVER_S,
        "initial_destination_concurrency": 500,
        "destination_concurrency_limit": 500,
    }
    async with Lab(["slow(0.02):127.0.0.1:0"]) as lab:
        appliance = Appliance(
            tmp_path,
            {"*": "smtp:[{}]:{}".format(*lab.hops[0].address)},
            {"transports.smtp": {**wide, "process_limit": 500, **LINES_AS_THEY_ARE}},
        )
        try:
            await appliance.start()
            for number, name in enumerate(["deliverer.0", "manager", "receiver.0", "control", "supervisor"]):
                await until_passed_on(appliance, ledger, f"first{number}")
                client = LoadClient(appliance.address, ledger, name=f"k{number}-", timeout_s=PATIENCE_S)
                load = asyncio.create_task(client.send(Corpus(60, seed=number, recipients_max=20)))
                await lab.wait_for(len(lab.messages) + 5)
                await appliance.kill(name)
                await load
                await appliance.until_empty()
            comparison = await judged(appliance, ledger, lab)
            async with appliance.client() as control:
                state = await control.call("state")
        finally:
            appliance.stop()
    assert sum(entry.id.startswith("k") for entry in ledger.acknowledged) == 5 * 60
    assert comparison.clean, comparison
    assert state["balance"]["recipients"]["difference"] == 0
    assert state["balance"]["messages"]["difference"] == 0
