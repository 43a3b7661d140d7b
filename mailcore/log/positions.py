"""Restart positions: where each runner resumes, where the working suffix starts, and how much mail lay in each lane.

They are kept in two files, ``restart`` and ``restart.previous``, each with a checksum; the newest valid one counts. The caller
takes the positions first, then syncs every lane and the journal, and only then calls ``write_positions``. Nothing is deleted
that the older of the two files still needs, so that either may be damaged.

Keeps law: positions-after-sync, law: delete-after-both-positions (docs/laws.md).
"""

from __future__ import annotations

import contextlib
import errno
import os
import struct

import google_crc32c
import msgspec

from mailcore.log.disk import Disk
from mailcore.log.store import Changes, Store

__all__ = [
    "DAMAGED",
    "NAME",
    "Counts",
    "LanePosition",
    "Pair",
    "PositionsDamaged",
    "PositionsTooNew",
    "Recount",
    "RestartPositions",
    "Totals",
    "add_positions",
    "damaged_positions",
    "read_all_positions",
    "read_positions",
    "write_positions",
]

_MAGIC = b"WAYREST\0"
VERSION = 3
WITHOUT_REFERENCES = 2  # a recipient may be aside, but no message refers to data in another record
WITHOUT_ASIDE = 1  # the version that is written as long as every version can read the queue
_HEAD = struct.Struct("<8sHHII")  # magic, version, 0, length, CRC-32C of all that, without itself, and the body
_CHECKED = _HEAD.size - 4
NAME = "restart"
PREVIOUS = "restart.previous"
DAMAGED = "restart.damaged"  # set aside for an operator (law: damage-set-aside)


class PositionsDamaged(Exception):
    """Raised if all restart positions are damaged; the message names the files."""


class PositionsTooNew(Exception):
    """Raised if a newer Waypost wrote the positions: going back to older ones would deliver mail again."""


class LanePosition(msgspec.Struct, frozen=True, array_like=True):
    """Holds the positions of one lane, as lane offsets.

    ``runner`` is the first offset whose envelope has no START yet. ``end`` is, for a lane that the manager writes, the offset
    below which its records count (law: end-decides); for a receiver's lane, the offset up to which it was known to be durable.
    ``browse`` is the first envelope that may still be alive, resting or being worked on; browsing starts there.
    """

    runner: int
    end: int
    browse: int = 0


class Counts(msgspec.Struct, frozen=True, array_like=True):
    """Counts the mail that rests in one lane behind its runner's position."""

    messages: int = 0
    recipients: int = 0


class Recount(msgspec.Struct, frozen=True, array_like=True):
    """Counts the mail of a damaged lane that came after the damage was found: once the runner has passed ``end``, it is all
    that the lane holds."""

    end: int  # lane offset: mail from here on is counted
    messages: int = 0
    recipients: int = 0


Pair = tuple[int, int]  # messages, recipients


class Totals(msgspec.Struct, frozen=True, array_like=True):
    """Counts mail since ``since``, over restarts of the manager (``mailcore.balance``). Fields are only added at the end.

    Everything appended below ``journal_end`` and below the ends of the lanes is counted, and nothing else.
    """

    since: float  # wall clock
    note: str  # why nothing before is counted; "" in a new queue
    at_start: Pair = (0, 0)  # queued then
    accepted: dict[int, Pair] = {}  # by ``Origin``
    added: int = 0  # recipients that operators added to queued messages
    undeleted: Pair = (0, 0)
    deleted: Pair = (0, 0)
    finished: int = 0  # messages
    by_status: dict[int, int] = {}  # recipients by ``Status``; deferred ones as often as they were
    lost: Pair = (0, 0)  # lost to damage: their envelopes cannot be read, and they are not in the sizes


class RestartPositions(msgspec.Struct, frozen=True, array_like=True):
    """Holds one set of restart positions, as stored. Fields are only added at the end, with a default."""

    sequence: int  # +1 with each write; the highest is the newest
    written_at: float  # wall clock
    lanes: dict[str, LanePosition]
    suffix: int  # journal offset where the working suffix starts
    journal_end: int  # records above it are newer than ``counts``
    counts: dict[str, Counts] = {}  # lane -> what rests there, for lanes the manager writes
    destinations: dict[str, int] = {}  # destination -> recipients resting in those lanes, bounded by names_counted
    other_destinations: int = 0  # recipients of destinations beyond that
    aside: bool = False  # a recipient may be held or deleted while others of its message are tried; from version 2 on
    totals: Totals | None = None  # None: written by a version that kept no totals
    recounts: dict[str, Recount] = {}  # lane -> mail behind damage that its runner has not passed
    refers: bool = False  # a message may refer to data in the record of another envelope; from version 3 on


def write_positions(disk: Disk, directory: str, positions: RestartPositions, *, synced: bool = True) -> None:
    """Writes the positions atomically, and keeps the previous ones. Raises OSError; the old ones are then valid.

    ``synced`` is False if a store keeps them.
    """
    new = os.path.join(directory, f"{NAME}.new")
    with contextlib.suppress(FileNotFoundError):
        disk.unlink(new)
    fd = disk.create(new)
    try:
        disk.write(fd, [_encode(positions)], 0)
        if synced:
            disk.sync(fd)
    finally:
        disk.close(fd)
    current = os.path.join(directory, NAME)
    if disk.exists(current):
        # Damaged positions must not replace the previous ones, which are the only valid ones until ``new`` is renamed.
        kept = PREVIOUS if _read(disk, current) is not None else DAMAGED
        disk.replace(current, os.path.join(directory, kept))
    disk.replace(new, current)
    if synced:
        disk.sync_directory(directory)


def add_positions(
    changes: Changes, store: Store, directory: str, positions: RestartPositions, previous: RestartPositions
) -> None:
    """Adds to a commit what ``write_positions`` will leave in the directory; ``previous`` are written there now."""
    changes.put(store.name(os.path.join(directory, NAME)), _encode(positions))
    if previous.sequence:
        changes.put(store.name(os.path.join(directory, PREVIOUS)), _encode(previous))


def _encode(positions: RestartPositions) -> bytes:
    body = msgspec.msgpack.encode(positions)
    version = VERSION if positions.refers else WITHOUT_REFERENCES if positions.aside else WITHOUT_ASIDE
    head = _HEAD.pack(_MAGIC, version, 0, len(body), 0)[:_CHECKED]
    return head + struct.pack("<I", google_crc32c.extend(google_crc32c.value(head), body)) + body


def read_positions(disk: Disk, directory: str) -> RestartPositions | None:
    """Returns the newest valid positions; None on a new queue.

    Raises PositionsDamaged if files exist and none is valid, PositionsTooNew if a newer Waypost wrote one of them.
    """
    found, damaged = _found(disk, directory)
    if found:
        return max(found, key=lambda positions: positions.sequence)
    if damaged:
        raise PositionsDamaged(f"no restart positions can be believed: {' and '.join(damaged)} are damaged")
    return None


def damaged_positions(disk: Disk, directory: str) -> list[str]:
    """Returns the paths of the positions that are damaged. Raises PositionsTooNew, OSError."""
    return _found(disk, directory)[1]


def read_all_positions(disk: Disk, directory: str) -> list[RestartPositions]:
    """Returns the valid positions, the older first: at most two. Raises PositionsTooNew; damage raises nothing."""
    return sorted(_found(disk, directory)[0], key=lambda positions: positions.sequence)


def _found(disk: Disk, directory: str) -> tuple[list[RestartPositions], list[str]]:
    """Returns the valid positions, and the paths of the damaged files."""
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
    """Returns None if they are damaged. Raises PositionsTooNew, OSError."""
    try:
        return _decode(disk.read_whole(path), path)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        return None  # a block of the file cannot be read, which is damage


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
