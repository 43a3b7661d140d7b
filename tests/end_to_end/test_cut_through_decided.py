"""Which messages are passed on: the scheduler decides as for any other, and what must wait, or owes a report, is stored."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import dkim
import pytest

from mailcore.dkim.key import new_key
from tests.deliverer.lmtp_server import LmtpServer, storing
from tests.deliverer.scripted_server import Act, ScriptedServer, server_tls, serving
from tests.end_to_end.test_cut_through import DATA, MARK, TO, balance, cutting, on_disk, queue_id_of, sent, until_open
from tests.end_to_end.test_dkim import section
from tests.eventually import eventually
from tests.milter.scripted import CONTINUE, add_header, milter, quarantine
from tests.running.running_core import RunningCore, Sections

CALLS = "fsync,fdatasync,sync_file_range,syncfs,msync,write,writev,pwrite64,pwritev,pwritev2,sendto,sendmsg"


async def counters(core: RunningCore) -> dict[str, int]:
    state: dict[str, Any] = await core.ask("state")
    return {name: state["counters"].get(name, 0) for name in ("passed_on", "cut_through_refused", "cut_through_failed")}


def destination_of(server: ScriptedServer) -> str:
    return f"smtp:[127.0.0.1]:{server.port}"


async def is_stored(core: RunningCore, *recipients: str, **how: Any) -> str:
    """Sends a message that must be stored; its queue id."""
    code, reply = await sent(core, *recipients, **how)
    assert (code, reply.split()[2]) == (250, "queued"), reply
    return reply.split()[-1]


async def is_passed_on(core: RunningCore, *recipients: str, **how: Any) -> str:
    code, reply = await sent(core, *recipients, **how)
    assert (code, reply.split()[2]) == (250, "passed"), reply
    return queue_id_of(reply)


@pytest.mark.parametrize("limit", ["destination_concurrency_limit", "process_limit"])
async def test_a_message_beyond_the_window_is_stored_and_waits(tmp_path: Path, limit: str) -> None:
    narrow: dict[str, Any] = {limit: 1}
    server = ScriptedServer({"DOT": [Act.SILENCE, b"250 Ok\r\n"]})
    async with serving(server), cutting(tmp_path, server, **narrow) as core:
        first = asyncio.create_task(sent(core))
        await eventually(lambda: len(server.messages) == 1, "the first message")
        second = await is_stored(core)
        assert len(server.messages) == 1
        assert (await core.ask("state"))["deliverers"][0]["in_flight"] == 1
        server.sessions[0].writer.write(b"250 late\r\n")  # type: ignore[union-attr]
        assert (await first)[1].startswith("2.0.0 Ok: passed on")
        await core.until_removed(second)
        await core.until_empty()
        assert [message.recipients for message in server.messages] == [[f"<{TO}>"]] * 2  # each of them once
        assert (await core.ask("state"))["scheduler"]["active_messages"] == 0


async def test_a_dead_destination_is_not_tried(tmp_path: Path) -> None:
    server = ScriptedServer({"GREETING": Act.HANG_UP})
    dying: dict[str, Any] = {"initial_destination_concurrency": 1, "destination_concurrency_limit": 1}
    sections: Sections = {"scheduler": {"minimal_backoff_time": 600, "maximal_backoff_time": 600}}
    async with serving(server), cutting(tmp_path, server, sections=sections, **dying) as core:
        await is_stored(core)
        tried = len(server.sessions)
        assert tried == 1  # the failure counted, so the stored message was put off without an attempt
        await is_stored(core)
        assert len(server.sessions) == tried
        assert await counters(core) == {"passed_on": 0, "cut_through_refused": 1, "cut_through_failed": 1}


async def test_a_suspended_destination_is_not_tried_until_it_is_resumed(tmp_path: Path) -> None:
    async with serving(ScriptedServer()) as server, cutting(tmp_path, server) as core:
        await core.ask("suspend", destination=destination_of(server))
        queue_id = await is_stored(core)
        assert server.sessions == []
        await core.ask("resume", destination=destination_of(server))
        await core.until_removed(queue_id)
        await is_passed_on(core)


async def test_a_rate_holds(tmp_path: Path) -> None:
    async with serving(ScriptedServer()) as server, cutting(tmp_path, server, destination_rate_delay=600) as core:
        await is_passed_on(core)
        await is_stored(core)
        assert len(server.messages) == 1


async def test_mail_that_waits_for_the_destination_goes_first(tmp_path: Path) -> None:
    """With a window of one, a message that waits is selected when the window opens; an offer at that moment is stored."""
    server = ScriptedServer({"DOT": [Act.SILENCE, Act.SILENCE, b"250 Ok\r\n"]})
    async with serving(server), cutting(tmp_path, server, destination_concurrency_limit=1) as core:
        first = asyncio.create_task(sent(core))
        await eventually(lambda: len(server.messages) == 1, "the first message")
        second = await is_stored(core)
        server.sessions[0].writer.write(b"250 late\r\n")  # type: ignore[union-attr]
        await first
        await eventually(lambda: len(server.messages) == 2, "the second message")
        third = await is_stored(core)
        server.sessions[-1].writer.write(b"250 late\r\n")  # type: ignore[union-attr]
        await core.until_removed(second, third)


@pytest.mark.parametrize("limit", [1, 2])
async def test_more_recipients_than_a_delivery_may_have_are_stored(tmp_path: Path, limit: int) -> None:
    async with (
        serving(ScriptedServer()) as server,
        cutting(tmp_path, server, destination_recipient_limit=limit) as core,
    ):
        await is_passed_on(core, "a@passed.example")
        queue_id = await is_stored(core, *(f"{each}@passed.example" for each in "abc"))
        await core.until_removed(queue_id)
        assert (await balance(core))["delivered"] == 4


async def test_several_recipients_over_lmtp_are_stored(tmp_path: Path) -> None:
    path = tmp_path / "lmtp"
    async with storing(LmtpServer(), path) as store, serving(ScriptedServer()) as server:
        sections: Sections = {"routes": {"passed.example": f"smtp:unix:{path}"}}
        async with cutting(tmp_path, server, sections=sections, protocol="lmtp") as core:
            await is_passed_on(core, "a@passed.example")
            queue_id = await is_stored(core, "a@passed.example", "b@passed.example")
            await core.until_removed(queue_id)
            assert len(store.messages) == 2


async def test_a_held_route_holds(tmp_path: Path) -> None:
    held: Sections = {"routes": {"held.example": "hold"}}
    async with serving(ScriptedServer()) as server, cutting(tmp_path, server, sections=held) as core:
        queue_id = await is_stored(core, "to@held.example")
        await core.until_in(queue_id, "hold")
        assert server.messages == []


async def test_a_message_above_the_inline_limit_is_stored(tmp_path: Path) -> None:
    small: Sections = {"queue": {"inline_limit": 20_000}}
    async with serving(ScriptedServer()) as server, cutting(tmp_path, server, sections=small) as core:
        await is_passed_on(core, data=DATA + b"x" * 15_000)
        await is_stored(core, data=DATA + b"x\r\n" * 10_000)


@pytest.mark.parametrize("keywords", [("PIPELINING",), ("PIPELINING", "DSN")])
async def test_a_message_that_asks_for_a_notice_of_success_is_stored_and_gets_it(
    tmp_path: Path, keywords: tuple[str, ...]
) -> None:
    async with serving(ScriptedServer(keywords=keywords)) as server, cutting(tmp_path, server) as core:
        await is_passed_on(core, TO, rcpt=("NOTIFY=FAILURE,DELAY", f"ORCPT=rfc822;{TO}"))
        queue_id = await is_stored(core, TO, rcpt=("NOTIFY=SUCCESS",))
        await core.until_removed(queue_id)
        await core.until_empty()
        reports = [message for message in server.messages if message.sender.startswith("<>")]
        assert len(reports) == ("DSN" not in keywords)


async def test_aliases_decide_about_the_destination(tmp_path: Path) -> None:
    aliases = tmp_path / "aliases"
    aliases.write_text(
        "one@passed.example to@passed.example\nboth@passed.example to@passed.example, to@other.example\n"
    )
    async with serving(ScriptedServer()) as server, serving(ScriptedServer()) as other:
        sections: Sections = {
            "routes": {"other.example": destination_of(other)},
            "rewriting": {"virtual_alias_maps": [str(aliases)]},
        }
        async with cutting(tmp_path, server, sections=sections) as core:
            await is_passed_on(core, "one@passed.example")
            assert server.messages[0].recipients[0].startswith("<to@passed.example>")
            queue_id = await is_stored(core, "both@passed.example")
            await core.until_removed(queue_id)
            assert (len(server.messages), len(other.messages)) == (2, 1)


async def test_what_milters_made_of_it_is_passed_on_and_what_they_hold_is_stored(tmp_path: Path) -> None:
    adds = add_header("X-Milter", b"yes") + CONTINUE
    async with serving(ScriptedServer()) as server, milter(script={"E": adds}) as adding:
        sections: Sections = {"receiver": {"milters": [adding.address]}}
        async with cutting(tmp_path, server, sections=sections) as core:
            await is_passed_on(core)
            assert b"\r\nX-Milter: yes\r\n" in server.messages[0].data
            adding.script = {"E": quarantine(b"look at it") + CONTINUE}
            queue_id = await is_stored(core)
            await core.until_in(queue_id, "hold")
            assert len(server.messages) == 1


async def test_it_leaves_signed_and_encrypted_as_any_other(tmp_path: Path) -> None:
    key = new_key("ed25519")
    path = tmp_path / "key.pem"
    path.write_bytes(key.pem)
    path.chmod(0o640)
    server = ScriptedServer(keywords=("PIPELINING", "STARTTLS"), tls=server_tls(tmp_path))
    async with serving(server):
        core = RunningCore(
            tmp_path, {"*": destination_of(server)}, {"transports.smtp": {"cut_through": True, "tls": "encrypt"}}
        )
        core.config.write_text(core.config.read_text() + section(path, "2026"))
        await core.start()
        try:
            await until_open(core)
            queue_id = await is_passed_on(core, data=b"From: a@example.org\r\n" + DATA)
            assert server.sessions[0].tls
            record = key.record.encode()
            assert dkim.DKIM(server.messages[0].data.replace(b"\r\n..", b"\r\n.")).verify(
                dnsfunc=lambda name, timeout=5: record
            )
            await core.until_removed(queue_id)
            (line,) = [line for line in core.log() if line["event"] == "delivery"]
            assert line["tls"].startswith("TLSv1.3")
            server.keywords = server.keywords[:1]  # TLS that is demanded and not offered
            await core.ask("state")
            await asyncio.sleep(0.5)  # for the kept connection to go
            await is_stored(core, data=b"From: a@example.org\r\n" + DATA)
            assert len(server.messages) == 1
        finally:
            await core.control.close()
            core.stop()


async def test_nothing_is_stored_or_synced_for_messages_that_are_passed_on(tmp_path: Path) -> None:
    sections: Sections = {"queue": {"checkpoint_interval_s": 60, "reserve_bytes": 0, "reserve_inodes": 0}}
    async with serving(ScriptedServer()) as server, cutting(tmp_path, server, sections=sections) as core:
        trace = tmp_path / "trace"
        pids = core.processes()
        strace = await asyncio.create_subprocess_exec(
            *("strace", "-f", "-y", "-s", "65536", "-e", f"trace={CALLS}", "-o", str(trace)),
            *(argument for name in ("receiver.0", "manager", "deliverer.0") for argument in ("-p", str(pids[name]))),
            stderr=asyncio.subprocess.PIPE,
        )
        assert strace.stderr is not None
        for _ in range(3):
            assert b"attached" in await strace.stderr.readline()
        try:
            for _ in range(5):
                await is_passed_on(core)
        finally:
            strace.terminate()
            await strace.communicate()
        calls = trace.read_text(errors="replace").splitlines()
        with_data = [line for line in calls if MARK.decode() in line]
        assert len(with_data) >= 5 * 3, "the trace has the data: from receiver to manager to deliverer to the next hop"
        assert [
            line for line in with_data if str(core.home) in line.partition(">")[0]
        ] == []  # a socket's name has no path
        syncs = [line for line in calls if "sync" in line.partition("(")[0]]
        assert [line for line in syncs if ".ballast" not in line] == []  # that is made after a start
        assert on_disk(core) == []
        assert len(server.messages) == 5
