"""Reserves time for the queue ids of one writer, so that no id is given out twice over a restart.

An id names its arrival in microseconds. After a restart with a clock that was set back, the same times come again; a message
with the id of another would end with it. So the writer reserves the next seconds before it gives out an id of them, and begins
behind all that was reserved before.

A ``Keeper`` keeps the end of the reserved time: a file (``ReservedFile``), or a place that several nodes share.

The file has two blocks that are written in turn and in place: a block that is torn leaves the other, and a full disk need not
give a new one. Format: mailcore/log/FORMAT.md.

Laws
- No id has a time that is not reserved, and synced.
- A failed sync ends the use of the file; another replaces it.

Keeps law: ids-never-reused, law: no-sync-retry (docs/laws.md).
"""

from __future__ import annotations

import contextlib
import errno
import struct
import threading
from typing import Protocol

import google_crc32c

from mailcore.log.disk import Disk

__all__ = ["AHEAD_S", "NAME", "OF_CONTROL", "Keeper", "ReservedFile", "ReservedTime", "ReservedTooNew", "read_reserved"]

NAME = "ids"  # in the directory of a lane whose writer gives out ids
OF_CONTROL = "ids.control"  # in the queue: of the control process, which writes no lane
AHEAD_S = 10.0  # reserved at once: after a restart ids are at most this much ahead of the clock
_AHEAD = int(AHEAD_S * 1e6)
_BEHIND = 100_000  # while the clock is behind what was reserved, ids are a microsecond apart and need little more
_MAGIC = b"WAYIDS\0\0"
_VERSION = 1
_BLOCK = struct.Struct("<8sHHIQ")  # magic, version, 0, CRC-32C of the rest, the time in microseconds
_BLOCK_BYTES = 4096  # a block of the disk, so that one write damages one of them only


class ReservedTooNew(Exception):
    """Raised if a newer Waypost wrote the file; the message names it."""


class Keeper(Protocol):
    """Keeps the end of the time that is reserved, over any failure. Times are microseconds since 1970."""

    def read(self) -> int:
        """Returns up to where time is reserved; 0 if none is. Raises OSError, ReservedTooNew."""

    def keep(self, until: int) -> None:
        """Reserves time up to ``until``, and returns when that is safe. Raises OSError."""


class ReservedTime:
    """The reserved time of one writer, in microseconds since 1970."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
        self._lock = threading.Lock()
        self.floor = -1  # end of the time that earlier processes reserved; -1: not read yet
        self.until = -1  # ids up to here may be given out
        self.soon = -1  # from here on more is to be reserved

    def begin(self) -> int:
        """Returns up to where time was reserved before this process. Raises OSError, ReservedTooNew."""
        if self.floor < 0:
            self.floor = self._keeper.read()
        return self.floor

    def extend(self, clock: int, now: int) -> None:
        """Reserves what the next ids need; blocks until it is safe. Raises OSError, and then nothing more is reserved.

        ``now`` is the time of the next id, which is beyond ``clock`` if the clock is behind what was reserved.
        """
        with self._lock:
            until = max(clock + _AHEAD, now + _BEHIND)
            if until <= self.until:
                return
            self._keeper.keep(until)
            self.soon = (max(now, self.until) + until) // 2
            self.until = until


class ReservedFile:
    """Keeps the reserved time in a file. The caller holds the lock of the writer."""

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._fd = -1
        self._turn = 0

    def read(self) -> int:
        """Returns up to where the file reserves time. Raises OSError, ReservedTooNew."""
        return read_reserved(self._disk, self._path)

    def keep(self, until: int) -> None:
        """Reserves time; blocks for a sync. Raises OSError."""
        block = _encoded(until)
        try:
            if self._fd < 0:
                self._replace(block)
            else:
                self._turn ^= 1
                self._disk.write(self._fd, [block], self._turn * _BLOCK_BYTES)
                self._disk.sync(self._fd)
        except OSError:
            self._give_up()
            raise

    def _replace(self, block: bytes) -> None:
        self._disk.write_whole(self._path, block.ljust(_BLOCK_BYTES, b"\0") * 2)
        self._fd = self._disk.open_write(self._path)

    def _give_up(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            with contextlib.suppress(OSError):
                self._disk.close(fd)


def read_reserved(disk: Disk, path: str) -> int:
    """Returns the time that a file reserves, in microseconds; 0 if there is no file, or both its blocks are damaged.

    Raises ReservedTooNew, OSError.
    """
    try:
        content = disk.read_whole(path)
    except FileNotFoundError:
        return 0
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        return 0  # a block of the file cannot be read, which is damage
    return max(_decoded(content[at : at + _BLOCK.size], path) for at in (0, _BLOCK_BYTES))


def _encoded(until: int) -> bytes:
    return _BLOCK.pack(_MAGIC, _VERSION, 0, _sum(_VERSION, until), until)


def _decoded(block: bytes, path: str) -> int:
    if len(block) < _BLOCK.size:
        return 0
    magic, version, _, checksum, until = _BLOCK.unpack(block)
    if magic != _MAGIC or checksum != _sum(version, until):
        return 0
    if version > _VERSION:
        raise ReservedTooNew(f"{path} has format version {version}, this Waypost reads up to {_VERSION}")
    return int(until)


def _sum(version: int, until: int) -> int:
    return int(google_crc32c.value(_BLOCK.pack(_MAGIC, version, 0, 0, until)))
