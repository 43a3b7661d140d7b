"""Data that waits for milters, on a real disk."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mailcore.log.data_blocks import BLOCK_BYTES, DataDamaged
from mailcore.log.disk import Disk
from mailcore.receiver.scratch import Scratch, ScratchFile
from tests.eventually import eventually


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as pool:
        yield pool


def descriptors() -> int:
    gc.collect()  # what earlier tests left
    return len(os.listdir("/proc/self/fd"))


async def test_a_file_has_no_name_and_gives_back_what_was_written(tmp_path: Path, threads: ThreadPoolExecutor) -> None:
    loop = asyncio.get_running_loop()
    path = tmp_path / "2a" / "ID"
    scratch = Scratch(lambda: ScratchFile(Disk(), str(path), loop, threads), 1000)
    data = os.urandom(3 * BLOCK_BYTES + 7)
    before = descriptors()
    for at in range(0, len(data), 999):
        await scratch.append(data[at : at + 999])
    assert os.listdir(path.parent) == []
    assert descriptors() == before + 1
    for at in (0, 1, 999, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 5, len(data) - 3, len(data)):
        assert b"".join([block async for block in scratch.blocks(at)]) == data[at:]
    scratch.close()
    await eventually(lambda: descriptors() == before)


async def test_small_data_stays_in_memory(tmp_path: Path) -> None:
    def no_file() -> ScratchFile:
        raise AssertionError

    scratch = Scratch(no_file, 10)
    await scratch.append(b"01234")
    await scratch.append(b"56789")
    assert b"".join([block async for block in scratch.blocks(3)]) == b"3456789"
    scratch.close()


async def test_a_file_that_is_closed_during_a_write_is_closed_after_it(
    tmp_path: Path, threads: ThreadPoolExecutor
) -> None:
    before = descriptors()
    file = ScratchFile(Disk(), str(tmp_path / "2a" / "ID"), asyncio.get_running_loop(), threads)
    writing = file.write([os.urandom(1 << 20)])
    file.close()
    await writing
    await eventually(lambda: descriptors() == before)


async def test_data_that_the_disk_changed_is_not_used(tmp_path: Path, threads: ThreadPoolExecutor) -> None:
    class Bad(Disk):
        def read(self, fd: int, length: int, offset: int) -> bytes:
            return super().read(fd, length, offset).replace(b"a", b"b")

    file = ScratchFile(Bad(), str(tmp_path / "2a" / "ID"), asyncio.get_running_loop(), threads)
    await file.write([b"data"])
    with pytest.raises(DataDamaged):
        await file.read(0)
    file.close()


async def test_a_full_disk_is_the_error_of_the_write(tmp_path: Path, threads: ThreadPoolExecutor) -> None:
    class Full(Disk):
        def create(self, path: str) -> int:
            raise OSError(errno.ENOSPC, "no space")

    file = ScratchFile(Full(), str(tmp_path / "2a" / "ID"), asyncio.get_running_loop(), threads)
    with pytest.raises(OSError, match="no space"):
        await file.write([b"data"])
    file.close()
