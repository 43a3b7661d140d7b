"""Restart positions: where each runner resumes, where the working suffix starts, what lay in the lanes then.

Two files, ``restart`` and ``restart.previous``, each checksummed; the newest that can be believed counts. Law 9: whoever
writes them has taken them first, synced every lane and the journal since, and only then calls ``write``. Law 10 builds on
``previous`` too: nothing is deleted that the older of the two still needs, so that either may be damaged.
"""

from __future__ import annotations

import contextlib
import errno
import os
import struct

import google_crc32c
import msgspec

from mailcore.log.disk import Disk

__all__ = [
    "Counts",
    "LanePosition",
    "PositionsDamaged",
    "PositionsTooNew",
    "RestartPositions",
    "read_all_positions",
    "read_positions",
    "write_positions",
]

_MAGIC = b"WAYREST\0"
VERSION = 1
_HEAD = struct.Struct("<8sHHII")  # magic, version, 0, length, CRC-32C of all that, without itself, and the body
_CHECKED = _HEAD.size - 4
NAME = "restart"
PREVIOUS = "restart.previous"
DAMAGED = "restart.damaged"  # set aside, for people to look at (law 11)


class PositionsDamaged(Exception):
    """There are restart positions, but none can be believed; the message names the files."""


class PositionsTooNew(Exception):
    """They were written by a newer Waypost; going back to older ones would deliver mail again."""


class LanePosition(msgspec.Struct, frozen=True, array_like=True):
    """``runner``: the first offset whose envelope has no START yet. ``end``: of a lane the manager writes, how far it
    counts (recovery step 3); of a receiver's lane, how far it was known to be durable. ``browse``: the first envelope that
    may still be alive, be it worked on or resting; browsing starts there."""

    runner: int
    end: int
    browse: int = 0


class Counts(msgspec.Struct, frozen=True, array_like=True):
    """What rests in one lane behind its runner's position."""

    messages: int = 0
    recipients: int = 0


class RestartPositions(msgspec.Struct, frozen=True, array_like=True):
    sequence: int  # +1 with each writing; the higher one is the newer
    written_at: float  # wall clock
    lanes: dict[str, LanePosition]
    suffix: int  # journal offset where the working suffix starts
    journal_end: int  # records above it are newer than ``counts``
    counts: dict[str, Counts] = {}  # lane -> what rests there, for lanes the manager writes
    destinations: dict[str, int] = {}  # destination -> recipients resting in those lanes, bounded by names_counted
    other_destinations: int = 0  # recipients of destinations beyond that


def write_positions(disk: Disk, directory: str, positions: RestartPositions) -> None:
    """Atomic and synced; the one before stays as ``restart.previous``. OSError leaves what was there valid."""
    body = msgspec.msgpack.encode(positions)
    head = _HEAD.pack(_MAGIC, VERSION, 0, len(body), 0)[:_CHECKED]
    data = head + struct.pack("<I", google_crc32c.extend(google_crc32c.value(head), body)) + body
    new = os.path.join(directory, f"{NAME}.new")
    with contextlib.suppress(FileNotFoundError):
        disk.unlink(new)
    fd = disk.create(new)
    try:
        disk.write(fd, [data], 0)
        disk.sync(fd)
    finally:
        disk.close(fd)
    current = os.path.join(directory, NAME)
    if disk.exists(current):
        # Damaged ones may not take the place of those before, which are all there is until ``new`` has its name.
        kept = PREVIOUS if _read(disk, current) is not None else DAMAGED
        disk.replace(current, os.path.join(directory, kept))
    disk.replace(new, current)
    disk.sync_directory(directory)


def read_positions(disk: Disk, directory: str) -> RestartPositions | None:
    """The newest valid ones; None on a new queue. Raises PositionsDamaged when files are there and none is valid,
    PositionsTooNew when a newer Waypost wrote one of them."""
    found, damaged = _found(disk, directory)
    if found:
        return max(found, key=lambda positions: positions.sequence)
    if damaged:
        raise PositionsDamaged(f"no restart positions can be believed: {' and '.join(damaged)} are damaged")
    return None


def read_all_positions(disk: Disk, directory: str) -> list[RestartPositions]:
    """Those that can be believed, the older first: at most two. Raises as ``read_positions``, but for damage."""
    return sorted(_found(disk, directory)[0], key=lambda positions: positions.sequence)


def _found(disk: Disk, directory: str) -> tuple[list[RestartPositions], list[str]]:
    """What can be believed, and the paths of what is damaged."""
    found: list[RestartPositions] = []
    damaged: list[str] = []
    for name in (NAME, PREVIOUS):
        path = os.path.join(directory, name)
        if not disk.exists(path):
            continue
        positions = _read(disk, path)
        if positions is None:
            damaged.append(path)
        else:
            found.append(positions)
    return found, damaged


def _read(disk: Disk, path: str) -> RestartPositions | None:
    """None when they are damaged. Raises PositionsTooNew, OSError."""
    try:
        return _decode(disk.read_whole(path), path)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        return None  # a block of it can't be read any more, which is damage


def _decode(data: bytes, path: str) -> RestartPositions | None:
    if len(data) < _HEAD.size:
        return None
    magic, version, _, length, crc = _HEAD.unpack_from(data)
    body = data[_HEAD.size : _HEAD.size + length]
    if magic != _MAGIC or len(body) < length or google_crc32c.extend(google_crc32c.value(data[:_CHECKED]), body) != crc:
        return None
    if version > VERSION:
        raise PositionsTooNew(f"{path} has format version {version}, this Waypost reads up to {VERSION}")
    try:
        return msgspec.msgpack.decode(body, type=RestartPositions)
    except msgspec.MsgspecError:
        return None
