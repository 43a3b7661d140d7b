"""Checksums of an event file: Parquet's own for the pages, and two more at the end of the footer for all bytes.

Parquet has no checksum for the headers of pages and the footer, which say where pages are and how they are encoded: a flipped
bit there changes or hides rows of undamaged pages. So the footer ends with a field of ours, with the number that Parquet
reserves for extensions and that readers ignore:

```
| pages, with their headers | footer ... | 08 fe ff 03 0c | magic 4 | crc32 of pages 4 | crc32 of footer 4 | 00 |
| length of footer 4 | "PAR1" |           field, length    little-endian                                  end
```

A reader of some rows checks the footer's, which is quick; a reader of the whole file checks both. A file without the field was
written by an older version or another program; it is accepted, and a report names it. Law: this file imports the standard
library only, because the report pipeline imports it too.

Keeps law: event-damage-is-found (docs/laws.md).
"""

from __future__ import annotations

import io
import os
import struct
import zlib
from pathlib import Path
from typing import BinaryIO

__all__ = ["ChecksumError", "Summed", "check"]

# Thrift's compact protocol: type 8 (binary), its number 32767 in zigzag, 12 bytes. The number: parquet-format,
# BinaryProtocolExtensions.md.
_FIELD = b"\x08\xfe\xff\x03\x0c"
_MAGIC = b"WPS1"
_STOP = b"\x00"
_SUMS = struct.Struct("<4sII")
_LENGTH = struct.Struct("<I")
_PARQUET = b"PAR1"
_END_BYTES = _LENGTH.size + len(_PARQUET)
_OURS_BYTES = len(_FIELD) + _SUMS.size + len(_STOP)
_CHUNK_BYTES = 1 << 20


class ChecksumError(ValueError):
    """Its bytes are not those that were written."""


class Summed(io.RawIOBase):
    """A file that a Parquet writer writes to, from its first byte to its last. Between ``footer_follows`` and ``finish`` the
    writer is closed, and what it then writes is kept in memory: some kilobytes a row group."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._sum = 0
        self._at = 0
        self._footer: bytearray | None = None

    def writable(self) -> bool:
        """Returns True: the Parquet writer asks."""
        return True

    def tell(self) -> int:
        """Returns the number of bytes written."""
        return self._at

    def write(self, data: bytes) -> int:  # type: ignore[override]
        """Writes data and adds it to the checksum of the present part."""
        if self._footer is None:
            self._put(data)
        else:
            self._footer += data
        self._at += len(data)
        return len(data)

    def footer_follows(self) -> None:
        """Begins the footer: what is written from now on has its own checksum."""
        self._footer = bytearray()

    def finish(self) -> None:
        """Writes the field with both checksums and the end of the file."""
        assert self._footer is not None
        (length,) = _LENGTH.unpack_from(self._footer, len(self._footer) - _END_BYTES)
        begin = len(self._footer) - _END_BYTES - length
        self._put(bytes(self._footer[:begin]))  # indexes and the like, which writers put in front of it
        footer = bytes(self._footer[begin : -_END_BYTES - len(_STOP)])
        ours = _FIELD + _SUMS.pack(_MAGIC, self._sum, zlib.crc32(footer)) + _STOP
        self._file.write(footer + ours + _LENGTH.pack(len(footer) + len(ours)) + _PARQUET)

    def _put(self, data: bytes) -> None:
        self._sum = zlib.crc32(data, self._sum)
        self._file.write(data)


def check(path: str | Path, whole: bool) -> bool:
    """Checks the footer, or with ``whole`` all bytes; returns False for a file without checksums.

    Raises ChecksumError, OSError.
    """
    with open(path, "rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        if size < _OURS_BYTES + _END_BYTES:
            return False
        file.seek(size - _OURS_BYTES - _END_BYTES)
        end = _read(file, _OURS_BYTES + _END_BYTES)
        if not end.startswith(_FIELD + _MAGIC):
            return False
        _, pages_sum, footer_sum = _SUMS.unpack_from(end, len(_FIELD))
        (length,) = _LENGTH.unpack_from(end, _OURS_BYTES)
        begin = size - _END_BYTES - length
        if begin < 0 or length < _OURS_BYTES:
            raise ChecksumError("the length of its footer is damaged")
        file.seek(begin)
        if zlib.crc32(_read(file, length - _OURS_BYTES)) != footer_sum:
            raise ChecksumError("its footer is damaged: wrong checksum")
        if not whole:
            return True
        file.seek(0)
        found, left = 0, begin
        while left and (chunk := file.read(min(_CHUNK_BYTES, left))):
            found = zlib.crc32(chunk, found)
            left -= len(chunk)
        if left or found != pages_sum:
            raise ChecksumError("its rows are damaged: wrong checksum")
        return True


def _read(file: io.FileIO, size: int) -> bytes:
    """Reads ``size`` bytes, or up to the end of the file."""
    found = b""
    while len(found) < size and (chunk := file.read(size - len(found))):
        found += chunk
    return found
