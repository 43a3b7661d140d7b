"""Data read in pieces from segments and spool files: descriptors kept for a while, and given back."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from mailcore.deliverer import message_data
from mailcore.deliverer.message_data import DamagedError, DataError, DataFiles
from mailcore.log.data_blocks import BLOCK_BYTES, sums_of
from mailcore.log.disk import Disk


class CountingDisk(Disk):
    """The real one; counts what is open, and fails reads when told."""

    def __init__(self) -> None:
        self.open: set[int] = set()
        self.opened = 0
        self.fails = False

    def open_read(self, path: str) -> int:
        fd = super().open_read(path)
        self.open.add(fd)
        self.opened += 1
        return fd

    def close(self, fd: int) -> None:
        self.open.remove(fd)
        super().close(fd)

    def read(self, fd: int, length: int, offset: int) -> bytes:
        if self.fails:
            raise OSError(5, os.strerror(5))
        return super().read(fd, length, offset)


@pytest.fixture
def disk() -> Iterator[CountingDisk]:
    disk = CountingDisk()
    yield disk
    assert not disk.open


@pytest.fixture
async def files(disk: CountingDisk) -> AsyncIterator[DataFiles]:
    files = DataFiles(disk, asyncio.get_running_loop())
    yield files
    files.close()


async def test_small_data_is_read_whole_and_its_file_opened_once(
    tmp_path: Path, disk: CountingDisk, files: DataFiles
) -> None:
    path = tmp_path / "segment"
    path.write_bytes(b"0123456789")
    for offset in range(5):
        data = files.open(str(path), offset, 5)
        assert data.whole == b"0123456789"[offset : offset + 5]
        assert data.read(0) == data.whole
        data.close()
    assert disk.opened == 1


async def test_a_segment_that_grew_is_read_through_the_same_descriptor(
    tmp_path: Path, disk: CountingDisk, files: DataFiles
) -> None:
    path = tmp_path / "segment"
    path.write_bytes(b"first")
    files.open(str(path), 0, 5).close()
    with path.open("ab") as segment:
        segment.write(b"second")
    assert files.open(str(path), 5, 6).whole == b"second"
    assert disk.opened == 1


async def test_big_data_comes_in_pieces_and_its_file_is_closed_after_it(
    tmp_path: Path, disk: CountingDisk, files: DataFiles
) -> None:
    content = os.urandom(3 * BLOCK_BYTES)
    path = tmp_path / "spooled"
    path.write_bytes(content)
    data = files.open(str(path), 10, len(content) - 20)
    assert data.whole is None
    assert data.read(0) == content[10 : 10 + BLOCK_BYTES]
    assert data.read(2 * BLOCK_BYTES) == content[10 + 2 * BLOCK_BYTES : -10]  # no further than the data
    data.close()
    assert not disk.open


async def test_no_more_files_are_kept_than_the_bound(
    tmp_path: Path, disk: CountingDisk, files: DataFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_data, "FILES_KEPT", 3)
    for number in range(10):
        path = tmp_path / str(number)
        path.write_bytes(b"x")
        files.open(str(path), 0, 1)
        assert len(disk.open) <= 3


async def test_a_file_not_used_for_a_while_is_closed_so_that_a_deleted_one_gives_its_space_back(
    tmp_path: Path, disk: CountingDisk, files: DataFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_data, "KEPT_S", 0.02)
    path = tmp_path / "segment"
    path.write_bytes(b"x")
    files.open(str(path), 0, 1)
    path.unlink()
    for _ in range(500):
        if not disk.open:
            break
        await asyncio.sleep(0.01)
    assert not disk.open


@pytest.mark.parametrize("length", [20, 2 * BLOCK_BYTES])
async def test_data_beyond_the_end_of_its_file_is_damage(tmp_path: Path, files: DataFiles, length: int) -> None:
    path = tmp_path / "segment"
    path.write_bytes(b"x" * (length - 1))
    with pytest.raises(DamagedError, match=str(path)):
        files.open(str(path), 0, length)


@pytest.mark.parametrize("length", [20, BLOCK_BYTES, 2 * BLOCK_BYTES + 5])
@pytest.mark.parametrize("changed", [-1, 1])
async def test_a_file_of_another_size_than_was_written_is_damage(
    tmp_path: Path, files: DataFiles, length: int, changed: int
) -> None:
    content = os.urandom(length)
    path = tmp_path / "spooled"
    path.write_bytes(b"head" + content + b"tail")
    files.open(str(path), 4, length, sums_of(content), length + 8).close()
    with path.open("r+b") as file:
        file.truncate(length + 8 + changed)
    with pytest.raises(DamagedError, match=str(path)):
        files.open(str(path), 4, length, sums_of(content), length + 8)


@pytest.mark.parametrize("length", [1, 100, BLOCK_BYTES])
async def test_small_data_that_does_not_match_is_not_opened(tmp_path: Path, files: DataFiles, length: int) -> None:
    content = os.urandom(length)
    path = tmp_path / "segment"
    for at in {0, length // 2, length - 1}:
        path.write_bytes(b"before" + content[:at] + bytes([content[at] ^ 0x10]) + content[at + 1 :] + b"behind")
        with pytest.raises(DamagedError, match=str(path)):
            files.open(str(path), 6, length, sums_of(content))
    path.write_bytes(b"BEFORE" + content + b"BEHIND")  # other messages are no affair of this one
    assert files.open(str(path), 6, length, sums_of(content)).whole == content


async def test_a_block_of_big_data_that_does_not_match_is_not_returned(tmp_path: Path, files: DataFiles) -> None:
    content = os.urandom(3 * BLOCK_BYTES + 7)
    path = tmp_path / "spooled"
    for at in (0, BLOCK_BYTES - 1, BLOCK_BYTES, 2 * BLOCK_BYTES + 9, len(content) - 1):
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        data = files.open(str(path), 0, len(content), sums_of(content))
        for start in range(0, len(content), BLOCK_BYTES):
            if start <= at < start + BLOCK_BYTES:
                with pytest.raises(DamagedError, match=str(path)):
                    data.read(start)
            else:
                assert data.read(start) == content[start : start + BLOCK_BYTES]
        data.close()


async def test_a_failing_disk_is_an_error_that_names_the_file(
    tmp_path: Path, disk: CountingDisk, files: DataFiles
) -> None:
    path = tmp_path / "spooled"
    path.write_bytes(b"x" * 3 * BLOCK_BYTES)
    data = files.open(str(path), 0, 3 * BLOCK_BYTES)
    disk.fails = True
    with pytest.raises(DataError, match=f"{path}: Input/output error"):
        data.read(0)
    data.close()
    with pytest.raises(DataError, match="No such file"):
        files.open(str(tmp_path / "absent"), 0, 1)
