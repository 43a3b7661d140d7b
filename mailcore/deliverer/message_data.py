"""A message's data where it lies, read in blocks: never more than one of it in memory.

Segments are read again and again, so their descriptors are kept for a while; a spool file is opened for one transaction.
Laws: at most FILES_KEPT descriptors are kept, none unused for longer than KEPT_S, so that a deleted segment gives its space
back; a descriptor is closed only when no transaction reads from it. A file that is missing or can't be read is a DataError: an
error of this host, not of the site. A block that does not match its checksum, or a file of another size than was written, is a
DamagedError; no byte of such a block is returned.

Keeps law: data-matches-checksums (docs/laws.md).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from mailcore.deliverer.deadline import OVER, Deadline
from mailcore.deliverer.gate import LATE, Gate
from mailcore.deliverer.shared_ends import SHARE_OVER
from mailcore.log.data_blocks import BLOCK_BYTES, DataDamaged, check_size, read_block, sums_of
from mailcore.log.disk import Disk
from mailcore.log.retired import open_either

__all__ = ["DamagedError", "DataError", "DataFiles", "MessageData"]

FILES_KEPT = 64  # more than the segments a process reads from at one time
KEPT_S = 5.0


class DataError(Exception):
    """The data cannot be read; the message says what and where. ``reply`` is the text for its recipients."""

    reply = "local data error: cannot read the message"
    event = "data_unreadable"  # in the log


class DamagedError(DataError):
    """The data is not what was stored."""

    reply = "local data error: the message is damaged"
    event = "data_damaged"


class _File:
    __slots__ = ("fd", "path", "readers", "used")

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self.fd = fd
        self.readers = 0
        self.used = True  # since the last tick


class MessageData:
    """``length`` bytes of a file from ``offset`` on. A message of one block is in memory whole (``whole``), and one that is
    passed on while its client waits (``gate``)."""

    __slots__ = (
        "_before", "_file", "_sums", "files", "gate", "length", "offset", "seven_bit", "share", "unbroken", "unsigned",
        "variant", "whole",
    )  # fmt: skip

    def __init__(
        self,
        files: DataFiles,
        file: _File | None,
        offset: int,
        length: int,
        sums: bytes,
        whole: bytes | None,
        before: bytes = b"",
    ) -> None:
        self.files = files
        self._file = file
        self._sums = sums
        self._before = before  # is sent in front of what is in the file
        self.offset = offset
        self.length = len(before) + length
        self.whole = whole
        self.unsigned: MessageData | None = None  # this without signatures; None: there are none in it
        self.unbroken: MessageData | None = (
            None  # this with its long lines; None: this is it; mailcore.deliverer.long_lines
        )
        self.variant = ""  # tells the signatures of changed data from those of the data as it is stored
        self.seven_bit: MessageData | str | None = (
            None  # its conversion, or why there is none; mailcore.deliverer.conversion
        )
        self.share: Callable[[], bool] | None = None  # says whether the share of the destination lets the final dot go
        self.gate: Gate | None = None  # in front of the final dot, if the client waits for it

    def read(self, start: int) -> bytes:
        """Returns the block that begins at ``start`` of the data. Raises DataError, also if it is damaged."""
        if self.whole is not None:
            assert start == 0
            return self.whole
        assert self._file is not None  # only whole data has no file
        before = len(self._before)
        stored = self.files.read(self._file, self.offset, self.length - before, max(start - before, 0), self._sums)
        return stored if start else self._before + stored

    def behind(self, before: bytes) -> MessageData:
        """Returns this data with other bytes in front of it. Close this data, not the one that is returned."""
        whole = None if self.whole is None else before + self.whole
        signed = MessageData(self.files, self._file, self.offset, self.length, self._sums, whole, before)
        signed.unsigned = self
        signed.gate, signed.share = self.gate, self.share
        return signed

    def instead(self, whole: bytes) -> MessageData:
        """Returns other data, which is in memory."""
        made = MessageData(self.files, None, 0, len(whole), b"", whole)
        made.gate, made.share = self.gate, self.share
        return made

    def why_no_dot(self) -> str:
        """Returns why the final dot must not be sent now; "" if it may, and then it counts as sent."""
        if self.files.deadline.is_over:
            return OVER
        if self.share is not None and not self.share():
            return SHARE_OVER
        return LATE if self.gate is not None and not self.gate.opens() else ""

    def close(self) -> None:
        """Releases the file; a second call does nothing."""
        if self._file is not None:
            self.files.release(self._file)
            self._file = None


class DataFiles:
    """Opens data, through ``disk``. ``deadline`` is that of all deliveries."""

    def __init__(self, disk: Disk, loop: asyncio.AbstractEventLoop, deadline: Deadline | None = None) -> None:
        self.deadline = deadline or Deadline()
        self._disk = disk
        self._loop = loop
        self._kept: dict[str, _File] = {}
        self._ticking = False

    def open(self, path: str, offset: int, length: int, sums: bytes = b"", file_bytes: int = 0) -> MessageData:
        """Opens data, which the caller closes. ``sums`` and ``file_bytes`` are those of the envelope.

        Raises DataError when the file is missing; when it has another size than was written, or is too short for the data;
        and when the data is one block and does not match its checksum.
        """
        if length <= BLOCK_BYTES:
            file = self._kept.get(path) or self._keep(path)
            file.used = True
            if file_bytes:
                self._check_size(file, 0, file_bytes)
            return MessageData(self, None, offset, length, sums, self.read(file, offset, length, 0, sums))
        file = self._open(path)
        file.readers = 1
        try:
            self._check_size(file, offset + length, file_bytes)
        except DataError:
            self.release(file)
            raise
        return MessageData(self, file, offset, length, sums, None)

    def given(self, whole: bytes, sums: bytes) -> MessageData:
        """Returns data that came with its entry, and lies in no file. Raises DataError if it does not match its checksums."""
        if sums and sums_of(whole) != sums:
            raise DamagedError("the message does not match its checksums")
        return MessageData(self, None, 0, len(whole), sums, whole)

    def read(self, file: _File, offset: int, length: int, start: int, sums: bytes) -> bytes:
        """Returns the block at ``start`` of the data, which is ``length`` bytes of ``file`` from ``offset`` on.

        Raises DataError.
        """
        try:
            return read_block(self._disk, file.fd, offset, length, start, sums)
        except OSError as error:
            raise DataError(f"{file.path}: {error.strerror}") from error
        except DataDamaged as damage:
            raise DamagedError(f"{file.path}: {damage}") from damage

    def _check_size(self, file: _File, least: int, file_bytes: int) -> None:
        try:
            size = self._disk.size(file.fd)
            check_size(size, file_bytes)
        except OSError as error:
            raise DataError(f"{file.path}: {error.strerror}") from error
        except DataDamaged as damage:
            raise DamagedError(f"{file.path}: {damage}") from damage
        if size < least:
            raise DamagedError(f"{file.path}: the file ends at byte {size}, the data at {least}")

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
            return _File(path, open_either(self._disk.open_read, path))
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
