"""Behind the end of a lease nothing begins and no dot is sent; a renewal lets deliveries continue (law: no-dot-after-lease)."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from mailcore.deliverer.connection import Connection
from mailcore.deliverer.deadline import OVER, Deadline, boot_time
from mailcore.deliverer.deliverer import Deliverer, ManagerLink
from mailcore.deliverer.message_data import MessageData
from mailcore.envelope import Status
from mailcore.frames import Deliver, Delivered, Lease, NextHop, encode
from mailcore.log.data_blocks import sums_of
from tests.deliverer.scripted_server import ScriptedServer, serving
from tests.deliverer.test_pass_on import EIGHT_BIT, LONG_LINE, SHORT, deliverer

PLAIN = ("PIPELINING", "8BITMIME")
BIG = b"Subject: big\r\n\r\n" + (b"x" * 62 + b"\r\n") * 16_000


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def leased(directory: Path, clock: Clock, until: float | None, **transport: object) -> Deliverer:
    made = deliverer(directory, **transport)
    made.deadline = made._files.deadline = Deadline(clock)
    made.deadline.until = until
    return made


async def delivered(made: Deliverer, server: ScriptedServer, directory: Path, data: bytes = SHORT) -> Delivered:
    (directory / "queue").mkdir(exist_ok=True)
    path = directory / "queue" / "data"
    path.write_bytes(data)
    work = Deliver(
        1, "Q1", "smtp", NextHop("127.0.0.1", server.port, False), "from@example.net", ((0, "to@example.org"),),
        str(path), 0, len(data), not data.isascii(), False, data_sums=sums_of(data),
    )  # fmt: skip
    return await made.deliver(work)


def outcome(result: Delivered) -> tuple[Status, str, str]:
    (verdict,) = result.verdicts
    return verdict.status, verdict.dsn, verdict.reply


async def test_without_a_lease_there_is_no_end(tmp_path: Path) -> None:
    async with serving(ScriptedServer(keywords=PLAIN)) as server:
        result = await delivered(leased(tmp_path, Clock(), None), server, tmp_path)
        assert outcome(result)[0] is Status.DELIVERED


async def test_nothing_begins_behind_the_end_and_a_renewal_lets_it_begin(tmp_path: Path) -> None:
    clock = Clock()
    made = leased(tmp_path, clock, clock.now)
    async with serving(ScriptedServer(keywords=PLAIN)) as server:
        assert outcome(await delivered(made, server, tmp_path)) == (Status.DEFERRED, "4.3.0", OVER)
        assert server.sessions == []
        made.deadline.until = clock.now + 6
        assert outcome(await delivered(made, server, tmp_path))[0] is Status.DELIVERED


@pytest.mark.parametrize(
    "data", [SHORT, EIGHT_BIT, LONG_LINE, BIG], ids=["short", "in 7 bits", "in short lines", "big"]
)
@pytest.mark.parametrize("how", ["DATA", "BDAT"])
async def test_no_dot_is_sent_behind_the_end_and_the_connection_goes(tmp_path: Path, how: str, data: bytes) -> None:
    """The lease ends while the server thinks about DATA, or about a chunk that is not the last."""
    clock = Clock()
    made = leased(tmp_path, clock, clock.now + 6, chunking="preferred" if how == "BDAT" else "needed")
    keywords = ("PIPELINING",) if data is EIGHT_BIT else PLAIN
    server = ScriptedServer(keywords=(*keywords, "CHUNKING") if how == "BDAT" else keywords)
    read = MessageData.why_no_dot

    def late(self: MessageData) -> str:
        clock.now += 6  # everything but the dot is sent
        return read(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MessageData, "why_no_dot", late)
        async with serving(server):
            assert outcome(await delivered(made, server, tmp_path, data)) == (Status.DEFERRED, "4.4.2", OVER)
            await asyncio.wait_for(server.sessions[0].ended.wait(), 10)
            assert server.messages == []
            assert len(server.sessions) == 1, "no other host is asked"


@pytest.mark.parametrize("data", [BIG, LONG_LINE * 400], ids=["from the file", "from memory"])
async def test_the_dot_is_decided_on_when_the_system_has_all_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes
) -> None:
    """Behind data in our own memory it would leave when the server reads on, however late that is."""
    left: list[int] = []
    made, read = Connection.connection_made, MessageData.why_no_dot
    connections: list[Connection] = []

    def with_small_buffer(self: Connection, transport: asyncio.BaseTransport) -> None:
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        connections.append(self)
        made(self, transport)

    def look(self: MessageData) -> str:
        left.append(connections[-1]._write_buffer_size())
        return read(self)

    monkeypatch.setattr(Connection, "connection_made", with_small_buffer)
    monkeypatch.setattr(MessageData, "why_no_dot", look)
    clock = Clock()
    async with serving(ScriptedServer(keywords=PLAIN)) as server:
        assert server._server is not None
        server._server.sockets[0].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        result = await delivered(leased(tmp_path, clock, clock.now + 6), server, tmp_path, data)
        assert outcome(result)[0] is Status.DELIVERED
        assert left == [0]
        assert server.messages[0].data.count(b"\r\n") >= data.count(b"\r\n")


async def test_the_manager_says_until_when(tmp_path: Path) -> None:
    made = deliverer(tmp_path)
    link = ManagerLink(made, asyncio.get_running_loop())

    class Transport(asyncio.Transport):
        def write(self, data: object) -> None:
            pass

        def abort(self) -> None:
            raise AssertionError("the frame is for a deliverer")

    link.connection_made(Transport())
    found = [made.deadline.is_over]
    for until in (boot_time() - 1, boot_time() + 3600):
        link.data_received(encode(Lease(until)))
        found.append(made.deadline.is_over)
    assert found == [False, True, False]
