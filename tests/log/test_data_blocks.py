"""Checksums of message data: made from any pieces, and no block is returned that does not match."""

from __future__ import annotations

import os
import random
from pathlib import Path

import google_crc32c
import pytest

from mailcore.log.data_blocks import (
    BLOCK_BYTES,
    BlockSums,
    DataDamaged,
    check_size,
    is_good,
    read_block,
    read_blocks,
    sums_of,
)
from mailcore.log.disk import Disk

SIZES = [1, 100, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, 3 * BLOCK_BYTES, 3 * BLOCK_BYTES + 5]


class ForgetfulDisk(Disk):
    """The real one; its cache has other bytes than the disk until it is dropped."""

    dropped = False

    def read(self, fd: int, length: int, offset: int) -> bytes:
        data = super().read(fd, length, offset)
        return data if self.dropped else bytes([data[0] ^ 1]) + data[1:]

    def drop_cache(self, fd: int) -> None:
        self.dropped = True


def stored(path: Path, content: bytes) -> int:
    path.write_bytes(b"head" + content + b"tail")
    return Disk().open_read(str(path))


@pytest.mark.parametrize("size", [0, *SIZES])
def test_the_sums_are_those_of_the_blocks_whatever_the_pieces(size: int) -> None:
    data = os.urandom(size)
    expected = b"".join(
        google_crc32c.value(data[at : at + BLOCK_BYTES]).to_bytes(4, "little") for at in range(0, size, BLOCK_BYTES)
    )
    assert sums_of(data) == expected
    chance = random.Random(size)
    for most in (7 if size <= 1000 else 5000, BLOCK_BYTES, 3 * BLOCK_BYTES):
        sums, at = BlockSums(), 0
        while at < size:
            piece = data[at : at + chance.randrange(most + 1)]
            sums.feed(piece)
            at += len(piece)
            assert len(sums.sums) == -(-at // BLOCK_BYTES) * 4  # they may be asked for at any time
        assert sums.sums == expected


@pytest.mark.parametrize("size", SIZES)
def test_each_block_is_returned_as_it_was_stored(tmp_path: Path, size: int) -> None:
    data = os.urandom(size)
    fd = stored(tmp_path / "file", data)
    sums = sums_of(data)
    for start in range(0, size, BLOCK_BYTES):
        assert read_block(Disk(), fd, 4, size, start, sums) == data[start : start + BLOCK_BYTES]
    for upto in (0, 1, BLOCK_BYTES, BLOCK_BYTES + 1, size, 2 * size):
        assert read_blocks(Disk(), fd, 4, size, sums, upto) == data[:upto]
    os.close(fd)


@pytest.mark.parametrize("size", SIZES)
def test_no_changed_bit_gets_through(tmp_path: Path, size: int) -> None:
    data = os.urandom(size)
    sums = sums_of(data)
    last = (size - 1) // BLOCK_BYTES * BLOCK_BYTES
    for at in {0, size // 2, last, size - 1, min(BLOCK_BYTES, size) - 1}:
        for bit in range(8):
            changed = data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]
            fd = stored(tmp_path / "file", changed)
            start = at // BLOCK_BYTES * BLOCK_BYTES
            with pytest.raises(DataDamaged, match=f"bytes {start} to "):
                read_block(Disk(), fd, 4, size, start, sums)
            with pytest.raises(DataDamaged):
                read_blocks(Disk(), fd, 4, size, sums, size)
            os.close(fd)


def test_blocks_in_another_order_and_the_sums_of_other_data_do_not_match(tmp_path: Path) -> None:
    data = os.urandom(2 * BLOCK_BYTES)
    fd = stored(tmp_path / "file", data[BLOCK_BYTES:] + data[:BLOCK_BYTES])
    with pytest.raises(DataDamaged):
        read_block(Disk(), fd, 4, len(data), 0, sums_of(data))
    os.close(fd)
    assert not is_good(sums_of(data[:BLOCK_BYTES]), BLOCK_BYTES, data[BLOCK_BYTES:])  # too few sums


@pytest.mark.parametrize("sums", [True, False])
def test_a_file_that_ends_too_early_is_damaged_also_without_sums(tmp_path: Path, sums: bool) -> None:
    data = os.urandom(BLOCK_BYTES + 100)
    fd = stored(tmp_path / "file", data)
    os.truncate(tmp_path / "file", 4 + BLOCK_BYTES + 99)
    some = sums_of(data) if sums else b""
    assert read_block(Disk(), fd, 4, len(data), 0, some) == data[:BLOCK_BYTES]
    with pytest.raises(DataDamaged, match="the file ends at byte"):
        read_block(Disk(), fd, 4, len(data), BLOCK_BYTES, some)
    os.close(fd)


def test_a_file_of_another_size_is_damaged_if_its_size_is_known() -> None:
    check_size(100, 100)
    check_size(100, 0)
    for size in (99, 101):
        with pytest.raises(DataDamaged):
            check_size(size, 100)


def test_data_of_an_older_version_has_no_sums_and_is_read_as_it_is(tmp_path: Path) -> None:
    fd = stored(tmp_path / "file", b"whatever")
    assert read_block(Disk(), fd, 4, 8, 0, b"") == b"whatever"
    os.close(fd)


def test_what_the_cache_has_wrong_and_the_disk_right_is_read_right(tmp_path: Path) -> None:
    data = os.urandom(1000)
    fd = stored(tmp_path / "file", data)
    disk = ForgetfulDisk()
    assert read_block(disk, fd, 4, 1000, 0, sums_of(data)) == data
    assert disk.dropped
    os.close(fd)
