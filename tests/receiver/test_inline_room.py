"""Larger messages go into the log only while a receiver has memory for them (law: inline-memory-bounded)."""

from __future__ import annotations

import pytest

from mailcore.envelope import DataPlace
from mailcore.receiver.inline_room import SURE_BYTES, InlineRoom
from tests.eventually import eventually
from tests.receiver.server_in_process import Serving, serving

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
