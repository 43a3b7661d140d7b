"""A deliverer that passes a message on while its client waits: what it says of it, whatever happens on the way."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest

from mailcore.config.settings import Settings, Transport
from mailcore.deliverer import conversion
from mailcore.deliverer.connection import Connection
from mailcore.deliverer.connection_cache import ConnectionCache
from mailcore.deliverer.deliverer import Deliverer
from mailcore.envelope import Status
from mailcore.frames import Deliver, Fate, NextHop, PassedOn, PassOn
from mailcore.log.data_blocks import sums_of
from tests.deliverer.scripted_server import Act, Answer, ScriptedServer, serving
from tests.eventually import eventually

PLAIN = ("PIPELINING", "8BITMIME")
SHORT = b"Subject: one\r\n\r\nhello\r\n"
EIGHT_BIT = b"Subject: one\r\n\r\n\xc3\xa4\r\n"
LONG_LINE = b"Subject: one\r\n\r\n" + b"x" * 2_000 + b"\r\n"


def deliverer(directory: Path, **transport: Any) -> Deliverer:
    settings = Settings(
        home=directory,
        queue_directory=directory / "queue",
        spool_directory=directory / "spool",
        run_directory=directory / "run",
        log_directory=directory / "log",
        transports={"smtp": Transport(**transport)},
        routes={"*": "smtp"},
    )
    return Deliverer(settings, 0, asyncio.get_running_loop())


async def passed(
    deliverer: Deliverer,
    server: ScriptedServer,
    data: bytes = SHORT,
    wait_s: float = 60.0,
    to: tuple[str, ...] = ("to@example.org",),
) -> PassedOn:
    """What it says of a message; fails if it says nothing."""
    work = Deliver(
        1, "Q1", "smtp", NextHop("127.0.0.1", server.port, False), "from@example.net", tuple(enumerate(to)),
        "cut-through/Q1", 0, len(data), not data.isascii(), False, data_sums=sums_of(data),
    )  # fmt: skip
    async with asyncio.timeout(30):
        return await deliverer.pass_on(PassOn(work, data, wait_s))


@pytest.mark.parametrize("data", [SHORT, EIGHT_BIT, LONG_LINE], ids=["as it is", "in 7 bits", "in short lines"])
@pytest.mark.parametrize("act", [Act.RESET, b"250 2.0.0 Ok\r\n", b"450 4.2.0 no\r\n"])
async def test_changed_data_has_the_same_gate(tmp_path: Path, data: bytes, act: Answer) -> None:
    """A dot that is sent without it would count as not sent, and the message would be stored and sent again."""
    keywords = PLAIN if data is not EIGHT_BIT else ("PIPELINING",)
    async with serving(ScriptedServer({"DOT": act}, keywords=keywords)) as server:
        found = await passed(deliverer(tmp_path), server, data)
        assert len(server.messages) == 1
        assert server.messages[0].data != data or data is SHORT
        wanted = {Act.RESET: Fate.UNCERTAIN, b"250 2.0.0 Ok\r\n": Fate.PASSED_ON}
        assert found.fate is wanted.get(act, Fate.REFUSED)


@pytest.mark.parametrize("stage", ["GREETING", "EHLO", "MAIL", "RCPT", "DATA"])
async def test_a_message_that_is_late_leaves_no_connection_behind(tmp_path: Path, stage: str) -> None:
    async with serving(ScriptedServer({stage: Act.SILENCE}, keywords=())) as server:
        found = await passed(deliverer(tmp_path), server, wait_s=0.2)
        assert (found.fate, found.is_late) == (Fate.REFUSED, True)
        assert [verdict.status for verdict in found.result.verdicts] == [Status.DEFERRED]
        await asyncio.wait_for(server.sessions[0].ended.wait(), 10)
        assert server.messages == []


async def test_a_message_that_is_late_while_it_is_converted_leaves_no_connection_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def endless(data: object) -> bool:
        await asyncio.Event().wait()
        return False

    monkeypatch.setattr(conversion, "_is_seven_bit", endless)
    async with serving(ScriptedServer(keywords=("PIPELINING",))) as server:
        found = await passed(deliverer(tmp_path), server, EIGHT_BIT, wait_s=0.2)
        assert (found.fate, found.is_late) == (Fate.REFUSED, True)
        await asyncio.wait_for(server.sessions[0].ended.wait(), 10)


@pytest.mark.parametrize(("how", "reads"), [("DATA", True), ("DATA", False), ("BDAT", True)])
async def test_a_server_that_reads_slowly_gets_no_dot_when_the_time_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, reads: bool
) -> None:
    """Time ends at the dot: all that comes before it must be with the system by then, not in our own memory."""
    made = Connection.connection_made

    def with_small_buffer(self: Connection, transport: asyncio.BaseTransport) -> None:
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        made(self, transport)

    monkeypatch.setattr(Connection, "connection_made", with_small_buffer)
    big = b"Subject: big\r\n\r\n" + (b"x" * 62 + b"\r\n") * 16_000
    keywords = (*PLAIN, "CHUNKING") if how == "BDAT" else PLAIN
    async with serving(ScriptedServer(keywords=keywords)) as server:
        assert server._server is not None
        server._server.sockets[0].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        if not reads:
            server.data_go_on.clear()
        mine = deliverer(tmp_path, chunking="preferred" if how == "BDAT" else "needed")
        found = await passed(mine, server, big, wait_s=60.0 if reads else 0.5)
        if reads:
            assert found.fate is Fate.PASSED_ON
            assert server.messages[0].data.count(b"\r\n") == big.count(b"\r\n")
            return
        assert (found.fate, found.is_late) == (Fate.REFUSED, True)
        server.data_go_on.set()
        await asyncio.wait_for(server.sessions[0].ended.wait(), 10)
        assert server.messages == []


async def test_an_error_of_ours_behind_the_250_does_not_store_the_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next hop has it: stored, it would come twice although no client repeats it."""

    def broken(*_: object) -> None:
        raise ValueError("a bug of ours")

    monkeypatch.setattr(ConnectionCache, "put", broken)
    async with serving(ScriptedServer()) as server:
        found = await passed(deliverer(tmp_path), server)
        assert len(server.messages) == 1
        assert found.fate is Fate.UNCERTAIN


async def test_an_error_of_ours_before_the_dot_stores_the_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ValueError("a bug of ours")

    monkeypatch.setattr("mailcore.deliverer.client.transact", broken)
    async with serving(ScriptedServer()) as server:
        assert (await passed(deliverer(tmp_path), server)).fate is Fate.REFUSED
        assert server.messages == []


@pytest.mark.parametrize("reply", [b"250 2.0.0 go on\r\n", b"354 go on\r\n", b"399 go on\r\n"])
async def test_a_server_that_may_wait_for_data_is_left_if_a_recipient_was_refused(tmp_path: Path, reply: bytes) -> None:
    server = ScriptedServer({"DATA": [reply, b"354 go on\r\n"]}, refuse={"b@example.org": b"550 5.1.1 no\r\n"})
    async with serving(server):
        mine = deliverer(tmp_path)
        assert (await passed(mine, server, to=("a@example.org", "b@example.org"))).fate is Fate.REFUSED
        assert server.messages == []
        assert (await passed(mine, server)).fate is Fate.PASSED_ON
        assert len(server.sessions) == 2


async def test_a_lost_manager_ends_what_is_passed_on(tmp_path: Path) -> None:
    async with serving(ScriptedServer({"RCPT": Act.SILENCE}, keywords=())) as server:
        task = asyncio.create_task(passed(deliverer(tmp_path), server))
        await eventually(lambda: bool(server.sessions and "RCPT" in server.sessions[0].verbs), "the recipient")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(server.sessions[0].ended.wait(), 10)
