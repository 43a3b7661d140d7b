"""Larger messages go into the log only while a receiver has memory for them (law: inline-memory-bounded)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pytest

from mailcore.envelope import DataPlace, Envelope
from mailcore.receiver.incoming import IncomingMessage
from mailcore.receiver.inline_room import SURE_BYTES, InlineRoom
from mailcore.receiver.intake import Done, Stored
from tests.eventually import eventually
from tests.receiver.server_in_process import MemoryIntake, MemoryUpload, Serving, serving

LIMIT = 256 * 1024
SMALL = b"x" * 1000 + b"\r\n"
LARGE = b"x" * (SURE_BYTES + 1) + b"\r\n"
LARGER = b"x" * (LIMIT + 1) + b"\r\n"


def places(server: Serving) -> list[DataPlace]:
    return [envelope.data for envelope, _, _ in server.intake.messages]


def reserved(server: Serving) -> int:
    return server.server.context.inline_room.reserved_bytes


async def test_a_message_that_finds_no_memory_goes_to_the_spool_and_the_next_finds_it_again() -> None:
    async with serving(inline_limit=LIMIT, inline_memory_bytes=LIMIT) as server:
        server.intake.hold = True  # the sync of the first is under way
        first, second = await server.ready(), await server.ready()
        await first.to_data()
        await first.send(LARGE + b".\r\n")
        await eventually(lambda: server.intake.held)
        await second.to_data()
        await second.send(LARGE + b".\r\n")
        await eventually(lambda: len(server.intake.held) == 2)
        assert places(server) == [DataPlace.INLINE, DataPlace.SPOOL]
        assert reserved(server) == LIMIT
        server.intake.release()
        assert (await first.reply()).startswith(b"250")
        assert (await second.reply()).startswith(b"250")
        assert reserved(server) == 0
        server.intake.hold = False
        await first.to_data()
        await first.send(LARGE + b".\r\n")
        assert (await first.reply()).startswith(b"250")
        assert places(server)[2:] == [DataPlace.INLINE]
    assert reserved(server) == 0


async def test_small_mail_needs_no_room() -> None:
    async with serving(inline_limit=LIMIT, inline_memory_bytes=0) as server:
        client = await server.ready()
        for content in (SMALL, LARGE):
            await client.to_data()
            await client.send(content + b".\r\n")
            assert (await client.reply()).startswith(b"250")
    assert places(server) == [DataPlace.INLINE, DataPlace.SPOOL]


@pytest.mark.parametrize("end", ["sent", "refused", "left", "stored in the spool", "not stored"])
async def test_however_a_message_ends_its_room_is_given_back(end: str) -> None:
    async with serving(inline_limit=LIMIT, message_size_limit=1_000_000) as server:
        client = await server.ready()
        await client.to_data()
        await client.send(LARGE)
        await eventually(lambda: reserved(server) == LIMIT)
        if end == "refused":
            await client.send(b"bare\nLF\r\n.\r\n")
        elif end == "left":
            client.reset()
        elif end == "stored in the spool":
            await client.send(LARGER + b".\r\n")
        else:
            server.intake.raises = RuntimeError("a bug") if end == "not stored" else None
            await client.send(b".\r\n")
        await eventually(lambda: reserved(server) == 0)
        assert places(server) == {"sent": [DataPlace.INLINE], "stored in the spool": [DataPlace.SPOOL]}.get(end, [])


def test_a_limit_below_what_is_sure_needs_no_room() -> None:
    assert InlineRoom(1000, 0).sure_bytes == 1000


class Hops(MemoryUpload):
    """Counts what each hop to the disk takes; a hop ends at once."""

    def __init__(self, room: InlineRoom) -> None:
        super().__init__(MemoryIntake(), "")
        self._room = room
        self.sizes: list[int] = []
        self.reserved: list[int] = []  # while it is under way

    def write(self, blocks: Sequence[bytes], done: Done) -> None:
        self.sizes.append(sum(map(len, blocks)))
        self.reserved.append(self._room.reserved_bytes)
        done(b"")

    def complete(self, blocks: Sequence[bytes], envelope: Envelope, done: Stored) -> None:
        done(b"451 4.3.0", envelope)


def big_message(room: InlineRoom) -> tuple[IncomingMessage, Hops]:
    """Returns a message that has just begun, and what takes its data if it goes to the spool."""
    intake, hops = MemoryIntake(), Hops(room)
    intake.upload = lambda queue_id: hops  # type: ignore[method-assign]
    message = IncomingMessage(
        intake, "q", b"", size_limit=10**7, received_limit=50, inline_room=room, room=lambda: None
    )
    return message, hops


@pytest.mark.parametrize(("memory_bytes", "hop_bytes"), [(LIMIT, LIMIT), (LIMIT - 1, SURE_BYTES)])
def test_a_hop_to_the_spool_takes_as_much_as_the_log_if_there_is_room_for_it(memory_bytes: int, hop_bytes: int) -> None:
    room = InlineRoom(LIMIT, memory_bytes)
    message, hops = big_message(room)
    piece = b"x" * 1022 + b"\r\n"
    for _ in range(1_000):
        message.feed(piece)
    *full, last = hops.sizes
    assert set(full[1:]) == {hop_bytes}
    assert hop_bytes <= full[0] <= LIMIT + len(piece)
    assert last == hop_bytes
    assert max(hops.reserved) <= memory_bytes
    assert sum(hops.sizes) > 1_000 * len(piece) - LIMIT
    message.abandon()
    assert room.reserved_bytes == 0


def test_the_room_of_a_hop_that_never_was_is_given_back_when_the_file_is_complete() -> None:
    room = InlineRoom(LIMIT, LIMIT)
    message, _ = big_message(room)
    message.feed(LARGER)
    message.feed(LARGE)
    assert room.reserved_bytes == LIMIT
    message.feed(b".\r\n")
    message.store(cast(Envelope, None), (), lambda failure: None)
    assert room.reserved_bytes == 0
