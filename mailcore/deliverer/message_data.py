"""A message's data where it lies, read in pieces: never more than CHUNK_BYTES of it in memory.

Segments are read again and again, so their descriptors are kept for a while; a spool file is opened for one transaction.
Laws: at most FILES_KEPT descriptors are kept, none unused for longer than KEPT_S, so that a deleted segment gives its space
back; a descriptor is closed only when no transaction reads from it. A file that is missing, or shorter than it should be, is a
DataError: an error of this host, not of the site.
"""

from __future__ import annotations

import asyncio

from mailcore.log.disk import Disk

__all__ = ["CHUNK_BYTES", "DataError", "DataFiles", "MessageData"]

CHUNK_BYTES = 64 * 1024  # of one read and one write; 100 deliveries of 30 MB at once cost 100 of these
FILES_KEPT = 64  # more than the segments a process reads from at one time
KEPT_S = 5.0


class DataError(Exception):
    """The data cannot be read; the message says what and where."""


class _File:
    __slots__ = ("fd", "path", "readers", "used")

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self.fd = fd
        self.readers = 0
        self.used = True  # since the last tick


class MessageData:
    """``length`` bytes of a file from ``offset`` on. A small message is in memory whole (``whole``)."""

    __slots__ = ("_file", "_files", "length", "offset", "whole")

    def __init__(self, files: DataFiles, file: _File | None, offset: int, length: int, whole: bytes | None) -> None:
        self._files = files
        self._file = file
        self.offset = offset
        self.length = length
        self.whole = whole

    def read(self, start: int, length: int) -> bytes:
        """Returns ``length`` bytes from position ``start`` of the data. Raises DataError if they are not there."""
        if self.whole is not None:
            return self.whole[start : start + length]
        assert self._file is not None  # only whole data has no file
        return self._files.read(self._file, self.offset + start, min(length, self.length - start))

    def close(self) -> None:
        """Releases the file; a second call does nothing."""
        if self._file is not None:
            self._files.release(self._file)
            self._file = None


class DataFiles:
    """Opens data, through ``disk``."""

    def __init__(self, disk: Disk, loop: asyncio.AbstractEventLoop) -> None:
        self._disk = disk
        self._loop = loop
        self._kept: dict[str, _File] = {}
        self._ticking = False

    def open(self, path: str, offset: int, length: int) -> MessageData:
        """Opens data, which the caller closes. Raises DataError when the file is missing or ends too early."""
        if length <= CHUNK_BYTES:
            file = self._kept.get(path) or self._keep(path)
            file.used = True
            return MessageData(self, None, offset, length, self.read(file, offset, length))
        file = self._open(path)
        file.readers = 1
        try:
            size = self._disk.size(file.fd)
        except OSError as error:
            self.release(file)
            raise DataError(f"{path}: {error.strerror}") from error
        if size < offset + length:
            self.release(file)
            raise DataError(f"{path} ends at {size}, the data of {length} bytes at {offset} does not")
        return MessageData(self, file, offset, length, None)

    def read(self, file: _File, offset: int, length: int) -> bytes:
        """Returns exactly ``length`` bytes of ``file`` from ``offset`` on. Raises DataError when they are not there."""
        try:
            data = self._disk.read(file.fd, length, offset)
        except OSError as error:
            raise DataError(f"{file.path}: {error.strerror}") from error
        if len(data) < length:
            raise DataError(f"{file.path} ends at {offset + len(data)}, {length} bytes at {offset} are needed")
        return data

    def release(self, file: _File) -> None:
        """Closes the file when no other delivery reads it."""
        file.readers -= 1
        if not file.readers:
            self._disk.close(file.fd)

    def close(self) -> None:
        """Closes the files that are kept open."""
        for file in self._kept.values():
            self._disk.close(file.fd)
        self._kept.clear()

    def _open(self, path: str) -> _File:
        try:
            return _File(path, self._disk.open_read(path))
        except OSError as error:
            raise DataError(f"{path}: {error.strerror}") from error

    def _keep(self, path: str) -> _File:
        file = self._open(path)
        while len(self._kept) >= FILES_KEPT:
            self._disk.close(self._kept.pop(next(iter(self._kept))).fd)
        self._kept[path] = file
        if not self._ticking:
            self._ticking = True
            self._loop.call_later(KEPT_S, self._tick)
        return file

    def _tick(self) -> None:
        for file in list(self._kept.values()):
            if file.used:
                file.used = False
            else:
                del self._kept[file.path]
                self._disk.close(file.fd)
        self._ticking = bool(self._kept)
        if self._ticking:
            self._loop.call_later(KEPT_S, self._tick)
