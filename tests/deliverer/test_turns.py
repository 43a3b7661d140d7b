"""How big data goes out: as much in a turn as the socket takes, and never so much that others wait for it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from mailcore.deliverer.message_data import DataFiles
from mailcore.deliverer.transaction import TURN_BYTES, _copy
from mailcore.log.data_blocks import BLOCK_BYTES, sums_of
from mailcore.log.disk import Disk

BIG = b"x" * 76 + b"\r\n"
BIG *= 2_000_000 // len(BIG)


class Socket:
    """A connection that takes everything at once, or nothing; counts the bytes of each turn."""

    def __init__(self, *, is_taking: bool) -> None:
        self.is_taking = is_taking
        self.turns = [b""]

    def send(self, data: bytes) -> None:
        self.turns[-1] += data

    async def room(self, timeout_s: float) -> bool:
        self.turns.append(b"")
        return True


@pytest.mark.parametrize(("is_taking", "turn_bytes"), [(True, TURN_BYTES), (False, BLOCK_BYTES)])
async def test_a_turn_ends_when_the_socket_is_full_or_others_have_waited(
    tmp_path: Path, is_taking: bool, turn_bytes: int
) -> None:
    (tmp_path / "data").write_bytes(BIG)
    files = DataFiles(Disk(), asyncio.get_running_loop())
    data = files.open(str(tmp_path / "data"), 0, len(BIG), sums_of(BIG))
    socket = Socket(is_taking=is_taking)
    assert await _copy(socket, data, 1.0) == b"\r\n"  # type: ignore[arg-type]
    data.close()
    assert b"".join(socket.turns) == BIG
    assert {len(turn) for turn in socket.turns[:-2]} == {turn_bytes}
