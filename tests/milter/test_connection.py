"""A connection to a milter: packets that are not answered go out together, and each wait has its own end."""

from __future__ import annotations

import asyncio

import pytest

from mailcore.milter.connection import UNSENT_BYTES_MAX, Connection, MilterFailed
from mailcore.milter.protocol import Packet, Step, packet


class Transport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writes.append(bytes(data))

    def is_closing(self) -> bool:
        return False

    def close(self) -> None:
        self.writes.append(b"(closed)")

    def abort(self) -> None:
        self.writes.append(b"(aborted)")


def connected() -> tuple[Connection, Transport]:
    connection, transport = Connection(), Transport()
    connection.connection_made(transport)
    return connection, transport


async def test_packets_without_an_answer_are_one_write_with_the_next_that_has_one() -> None:
    connection, transport = connected()
    connection.put(b"MAIL")
    connection.put(b"RCPT")
    assert transport.writes == []
    connection.send(b"END")
    assert transport.writes == [b"MAILRCPTEND"]
    connection.put(b"MORE")
    connection.close(packet(Step.QUIT))
    assert transport.writes[1:] == [b"MORE" + packet(Step.QUIT), b"(closed)"]
    with pytest.raises(MilterFailed, match="was closed"):
        connection.put(b"x")


async def test_what_waits_to_be_sent_is_bounded() -> None:
    connection, transport = connected()
    for _ in range(10):
        connection.put(UNSENT_BYTES_MAX // 2 * b"x")
    assert max(map(len, transport.writes)) <= 2 * UNSENT_BYTES_MAX
    assert sum(map(len, transport.writes)) >= 4 * UNSENT_BYTES_MAX


async def test_a_shorter_wait_behind_a_longer_one_ends_in_its_own_time_and_a_longer_one_does_not_end_early() -> None:
    connection, _ = connected()
    connection.data_received(b"\0\0\0\1c")
    assert await connection.receive(60.0) == Packet(ord("c"), b"")
    waiting = asyncio.ensure_future(connection.receive(60.0))
    await asyncio.sleep(0)
    connection.data_received(b"\0\0\0\1c")
    await waiting  # its timer stays, for the next
    with pytest.raises(MilterFailed, match=r"did not answer within 0\.01 s"):
        await connection.receive(0.01)
    other, _ = connected()
    waiting = asyncio.ensure_future(other.receive(0.01))
    await asyncio.sleep(0)
    other.data_received(b"\0\0\0\1c")
    await waiting
    waiting = asyncio.ensure_future(other.receive(60.0))
    await asyncio.sleep(0.05)  # beyond the timer of the first wait
    assert not waiting.done()
    other.data_received(b"\0\0\0\1d")
    assert (await waiting).code == ord("d")
    other.close()


async def test_the_waits_for_one_message_have_an_end_together_and_the_next_message_has_its_own_time() -> None:
    connection, _ = connected()
    loop = asyncio.get_running_loop()
    connection.allow(60.0)
    loop.call_later(0.01, connection.data_received, b"\0\0\0\1p")
    assert (await connection.receive(60.0)).code == ord("p")
    assert connection._left_s < 60.0
    connection.allow(60.0)
    assert connection._left_s == 60.0
    connection.allow(0.01)

    async def answer() -> None:
        while True:
            loop.call_later(0.001, connection.data_received, b"\0\0\0\1p")
            await connection.receive(60.0)

    with pytest.raises(MilterFailed, match=r"took more than 0\.01 s for one message"):
        await answer()
    connection.close()
