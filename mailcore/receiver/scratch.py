"""Data that waits for milters: in memory up to a limit, beyond it in a file without a name on the disk of the spool.

Laws: one call of a file at a time; memory is at most the limit and what is on its way to the disk. A file is removed from
its directory as soon as it exists, so a crash leaves at most an empty spool file, which the sweep removes.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

from mailcore.log.data_blocks import BLOCK_BYTES, BlockSums, read_block
from mailcore.log.disk import Disk

__all__ = ["Scratch", "ScratchFile", "ScratchStore"]

_T = TypeVar("_T")


class ScratchStore(Protocol):
    """A file that holds data for a time. One call at a time; ``close`` at any time."""

    def write(self, blocks: Sequence[bytes]) -> asyncio.Future[None]:
        """Appends the blocks. The result is OSError if it fails."""

    def read(self, start: int) -> asyncio.Future[bytes]:
        """Reads the block of BLOCK_BYTES at ``start``, a multiple of that. The result is OSError or DataDamaged if it fails."""

    def close(self) -> None:
        """Gives the file back."""


class ScratchFile:
    """A ``ScratchStore`` on the disk, used through threads. ``path`` is free: no file has it, or will have it for long."""

    def __init__(self, disk: Disk, path: str, loop: asyncio.AbstractEventLoop, threads: ThreadPoolExecutor) -> None:
        self._disk = disk
        self._path = path
        self._loop = loop
        self._threads = threads
        self._fd = -1
        self._size = 0
        self._sums = BlockSums()
        self._is_running = False
        self._is_closed = False

    def write(self, blocks: Sequence[bytes]) -> asyncio.Future[None]:
        """Appends the blocks in a thread."""
        return self._run(lambda: self._write(blocks))

    def read(self, start: int) -> asyncio.Future[bytes]:
        """Reads a block in a thread, and compares it with its checksum."""
        sums = self._sums.sums
        return self._run(lambda: read_block(self._disk, self._fd, 0, self._size, start, sums))

    def close(self) -> None:
        """Closes the file, after the call that is under way."""
        self._is_closed = True
        if not self._is_running and self._fd >= 0:
            fd, self._fd = self._fd, -1
            self._threads.submit(self._disk.close, fd)

    def _write(self, blocks: Sequence[bytes]) -> None:
        disk = self._disk
        if self._fd < 0:
            disk.make_directory(os.path.dirname(self._path))
            self._fd = disk.create(self._path)
            disk.unlink(self._path)
        disk.write(self._fd, list(blocks), self._size)
        for block in blocks:
            self._sums.feed(block)
            self._size += len(block)

    def _run(self, job: Callable[[], _T]) -> asyncio.Future[_T]:
        assert not self._is_running  # one call at a time
        self._is_running = True
        future = self._loop.run_in_executor(self._threads, job)
        future.add_done_callback(self._finished)
        return future

    def _finished(self, _: object) -> None:
        self._is_running = False
        if self._is_closed:
            self.close()


class Scratch:
    """Data that is written once, from its beginning, and then read."""

    def __init__(self, new_file: Callable[[], ScratchStore], memory_limit: int) -> None:
        self.size = 0
        self._new_file = new_file
        self._memory_limit = memory_limit
        self._memory = b""  # the end, which is not in the file
        self._file: ScratchStore | None = None

    @classmethod
    def of(cls, data: bytes) -> Scratch:
        """Returns data that is in memory."""
        scratch = cls(_no_file, len(data))
        scratch._memory = data
        scratch.size = len(data)
        return scratch

    @classmethod
    def of_file(cls, file: ScratchStore, size: int) -> Scratch:
        """Returns data that is in a file."""
        scratch = cls(_no_file, 0)
        scratch._file = file
        scratch.size = size
        return scratch

    async def append(self, block: bytes) -> None:
        """Takes the next bytes. Raises OSError."""
        self.size += len(block)
        self._memory += block
        if len(self._memory) > self._memory_limit:
            memory, self._memory = self._memory, b""
            if self._file is None:
                self._file = self._new_file()
            await self._file.write([memory])

    async def blocks(self, at: int = 0) -> AsyncGenerator[bytes, None]:
        """Yields the data from ``at`` on. Raises OSError, DataDamaged."""
        in_file = self.size - len(self._memory)
        start = at - at % BLOCK_BYTES
        while self._file is not None and start < in_file:
            block = await self._file.read(start)
            yield block[at - start :] if start < at else block
            start += BLOCK_BYTES
        if self.size > max(at, in_file):
            yield self._memory[max(0, at - in_file) :]

    def close(self) -> None:
        """Throws the data away."""
        self._memory = b""
        if self._file is not None:
            self._file.close()
            self._file = None


def _no_file() -> ScratchStore:
    raise AssertionError("data that is complete is not appended to")
