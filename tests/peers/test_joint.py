"""The first frame of a connection, and two connections that are joined."""

from __future__ import annotations

import asyncio
import socket

import pytest

from mailcore.frames import ForClient, Response, WireError, encode
from mailcore.peers.first_frame import take_frame
from mailcore.peers.joint import Side, join
from tests.eventually import PATIENCE_S, eventually

FIRST = ForClient(2, "anna", 1000, False, False)


def test_the_first_frame_is_taken_when_it_is_whole_and_the_rest_stays() -> None:
    data = encode(FIRST) + encode(Response(1)) + b"rest"
    buffer = bytearray()
    for byte in data[: len(encode(FIRST)) - 1]:
        buffer.append(byte)
        assert take_frame(buffer, 4096) is None
    buffer += data[len(buffer) :]
    assert take_frame(buffer, 4096) == FIRST
    assert take_frame(buffer, 4096) == Response(1)
    assert buffer == b"rest"


def test_a_first_frame_that_is_too_long_or_none_is_an_error() -> None:
    with pytest.raises(WireError, match="at most 10"):
        take_frame(bytearray(encode(FIRST)), 10)
    with pytest.raises(WireError, match="not a frame"):
        take_frame(bytearray(b"\x03\x00\x00\x00abc"), 4096)


async def joined() -> tuple[socket.socket, socket.socket, Side, Side]:
    """The far ends of two connections, and the sides that are joined."""
    loop = asyncio.get_running_loop()
    ends, sides = [], []
    for _ in range(2):
        ours, theirs = socket.socketpair()
        side = Side()
        ours.setblocking(False)
        theirs.setblocking(False)
        await loop.create_unix_connection(lambda: side, sock=ours)  # noqa: B023
        ends.append(theirs)
        sides.append(side)
    join(*sides)
    return ends[0], ends[1], sides[0], sides[1]


async def test_all_is_passed_on_in_order_and_the_end_comes_behind_it() -> None:
    one, two, *_ = await joined()
    loop = asyncio.get_running_loop()
    sent = bytes(range(256)) * 20_000  # more than all buffers together
    sending = asyncio.create_task(loop.sock_sendall(one, sent))
    heard = bytearray()
    while len(heard) < len(sent):
        heard += await asyncio.wait_for(loop.sock_recv(two, 1 << 16), PATIENCE_S)
    await sending
    assert heard == sent
    await loop.sock_sendall(two, b"back")
    assert await loop.sock_recv(one, 100) == b"back"
    one.close()
    assert await asyncio.wait_for(loop.sock_recv(two, 100), PATIENCE_S) == b""
    two.close()


async def test_a_side_that_does_not_read_is_not_written_to_without_end() -> None:
    one, two, _, side = await joined()
    sent, full = 0, 0
    while full < 10:  # looks in a row at which nothing more was taken
        try:
            sent, full = sent + one.send(b"x" * 65_536), 0
        except BlockingIOError:
            full += 1
        assert sent < 64 << 20, "it takes all"
        await asyncio.sleep(0.001)
    assert side.transport is not None
    assert side.transport.get_write_buffer_size() < 1 << 20
    one.close()
    two.close()


async def test_sides_that_are_joined_when_one_has_ended_end_both() -> None:
    loop = asyncio.get_running_loop()
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    side, ended = Side(), Side()
    ended.is_over = True
    await loop.create_unix_connection(lambda: side, sock=ours)
    join(side, ended)
    await eventually(lambda: side.is_over, "the end")
    theirs.close()
