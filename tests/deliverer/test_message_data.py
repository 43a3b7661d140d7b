"""Data read in pieces from segments and spool files: descriptors kept for a while, and given back."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from mailcore.deliverer import message_data
from mailcore.deliverer.message_data import CHUNK_BYTES, DataError, DataFiles
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
        assert data.read(3, 10) == data.whole[3:]
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
    content = os.urandom(3 * CHUNK_BYTES)
    path = tmp_path / "spooled"
    path.write_bytes(content)
    data = files.open(str(path), 10, len(content) - 20)
    assert data.whole is None
    assert data.read(0, 7) == content[10:17]
    assert data.read(len(content) - 25, CHUNK_BYTES) == content[-15:-10]  # no further than the data
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


@pytest.mark.parametrize("length", [20, 2 * CHUNK_BYTES])
async def test_data_beyond_the_end_of_its_file_is_an_error(tmp_path: Path, files: DataFiles, length: int) -> None:
    path = tmp_path / "segment"
    path.write_bytes(b"x" * (length - 1))
    with pytest.raises(DataError, match=str(path)):
        files.open(str(path), 0, length)


async def test_a_failing_disk_is_an_error_that_names_the_file(
    tmp_path: Path, disk: CountingDisk, files: DataFiles
) -> None:
    path = tmp_path / "spooled"
    path.write_bytes(b"x" * 3 * CHUNK_BYTES)
    data = files.open(str(path), 0, 3 * CHUNK_BYTES)
    disk.fails = True
    with pytest.raises(DataError, match=f"{path}: Input/output error"):
        data.read(0, CHUNK_BYTES)
    data.close()
    with pytest.raises(DataError, match="No such file"):
        files.open(str(tmp_path / "absent"), 0, 1)
