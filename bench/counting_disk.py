"""A disk that counts what is asked of it and syncs nothing: for counting, never for timing."""

from __future__ import annotations

from collections.abc import Sequence

from mailcore.log.disk import Buffer, Disk

__all__ = ["PAGE_BYTES", "CountingDisk"]

PAGE_BYTES = 4096


class CountingDisk(Disk):
    """Counts syncs, bytes written and read, and the pages that a sync would write."""

    def __init__(self) -> None:
        super().__init__()
        self.syncs = 0  # of files and directories
        self.written_bytes = 0
        self.page_bytes = 0  # of pages that were dirty at a sync of their file
        self.read_bytes = 0
        self._paths: dict[int, str] = {}
        self._dirty: dict[str, set[int]] = {}

    def create(self, path: str) -> int:
        fd = super().create(path)
        self._paths[fd] = path
        return fd

    def open_write(self, path: str) -> int:
        fd = super().open_write(path)
        self._paths[fd] = path
        return fd

    def close(self, fd: int) -> None:
        self._paths.pop(fd, None)
        super().close(fd)

    def write(self, fd: int, buffers: Sequence[Buffer], offset: int) -> None:
        super().write(fd, buffers, offset)
        length = sum(map(len, buffers))
        self.written_bytes += length
        pages = range(offset // PAGE_BYTES, (offset + length - 1) // PAGE_BYTES + 1)
        self._dirty.setdefault(self._paths[fd], set()).update(pages)

    def read(self, fd: int, length: int, offset: int) -> bytes:
        data = super().read(fd, length, offset)
        self.read_bytes += len(data)
        return data

    def sync(self, fd: int) -> None:
        self.sync_path(self._paths[fd])

    def sync_path(self, path: str) -> None:
        """Counts a sync of the file, and its dirty pages as written."""
        self.syncs += 1
        self.page_bytes += len(self._dirty.pop(path, ())) * PAGE_BYTES

    def sync_directory(self, path: str) -> None:
        del path
        self.syncs += 1

    def unlink(self, path: str) -> None:
        self._dirty.pop(path, None)
        super().unlink(path)
