"""How far the events of each lane are exported, and therefore which segments may be deleted.

Only the export (``mailcore/events``) writes it. The manager reads it before it deletes: once per checkpoint, and only if there
is something to delete. The file is ``positions.json`` below ``events/_exported``; it is replaced atomically and synced, after
the event files that it covers.

Laws
- A segment is deleted only after all of it is exported. Two exceptions are reported: more than ``bytes_max`` is not exported,
  or the disk is full. Mail is more important than events.
- If the file cannot be read, nothing counts as exported.

Keeps law: export-before-delete (docs/laws.md).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from mailcore.log.disk import Disk
from mailcore.queue.lanes import DELETED, HOLD

__all__ = [
    "EXPORTED",
    "UNEXPORTED",
    "Candidate",
    "ExportedLane",
    "ExportedPositions",
    "Keeper",
    "read_exported",
    "write_exported",
]

EXPORTED = "_exported"  # directory below the events; readers of events skip names that begin with an underscore
NAME = "positions.json"
UNEXPORTED = (HOLD, DELETED)  # lanes in which no mail arrives and no verdict is recorded


class ExportedLane(msgspec.Struct, frozen=True, omit_defaults=True):
    """Says how far one lane is exported, in lane offsets.

    The lane is exported up to ``at``. ``to``, if beyond it, is the end of a stretch in progress. ``keep`` is the first of the
    RECIPIENTS records at the end of the exported part whose ENVELOPE follows later; -1: none. ``counts`` are the counters of
    the rows exported from ``since`` up to ``at`` (``mailcore/events/schema.py``); a ``since`` of -1: they were not counted.
    """

    at: int
    to: int = 0
    keep: int = -1
    since: int = -1
    counts: dict[str, int] = {}

    @property
    def needed(self) -> int:
        """Returns the offset below which the export needs nothing."""
        return self.at if self.keep < 0 else min(self.at, self.keep)


class ExportedPositions(msgspec.Struct, frozen=True, omit_defaults=True):
    """Holds the contents of ``positions.json``."""

    lanes: dict[str, ExportedLane] = {}
    cut_at: float = 0.0  # wall clock, of the last cut that was not requested
    zone: str = ""  # time zone, named by the portal, whose midnights have a cut, too
    pins: dict[str, int] = {}  # lane -> offset from which a cut is being counted
    pinned_until: float = 0.0  # wall clock; the counting process may have been killed
    version: int = 1


def read_exported(disk: Disk, directory: str) -> ExportedPositions | None:
    """Reads the positions; None if nothing was ever exported. Raises OSError, or ValueError for a damaged file."""
    path = os.path.join(directory, NAME)
    try:
        return msgspec.json.decode(disk.read_whole(path), type=ExportedPositions)
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError as error:
        raise ValueError(f"{path}: {error}") from error


def write_exported(disk: Disk, directory: str, positions: ExportedPositions) -> None:
    """Writes the positions atomically and synced. Raises OSError; the old file then stays."""
    data = msgspec.json.format(msgspec.json.encode(positions), indent=1) + b"\n"
    disk.write_whole(os.path.join(directory, NAME), data)


class Candidate(NamedTuple):
    """Names a segment that the mail does not need any more."""

    lane: str
    base: int
    following: int  # the base of the next segment


class Keeper:
    """Decides which segments may be deleted. Calls ``lost`` for each that is deleted before its export, with the reason."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        bytes_max: int,
        clock: Callable[[], float],
        lost: Callable[[Candidate, str], None],
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._bytes_max = bytes_max
        self._clock = clock
        self._lost = lost
        self.disk_full = False

    def allowed(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Returns the candidates that may be deleted. ``candidates`` are ordered by age within each lane, the oldest first."""
        if not candidates:
            return []
        try:
            exported = read_exported(self._disk, self._directory) or ExportedPositions()
        except (OSError, ValueError):
            exported = ExportedPositions()
        pins = exported.pins if self._clock() < exported.pinned_until else {}
        may: list[Candidate] = []
        kept: list[Candidate] = []
        for candidate in candidates:
            lane = exported.lanes.get(candidate.lane)
            needed = lane.needed if lane is not None else 0
            if candidate.lane in UNEXPORTED:
                needed = candidate.following
            pinned = candidate.following > pins.get(candidate.lane, candidate.following)
            (kept if candidate.following > needed or pinned else may).append(candidate)
        excess = sum(candidate.following - candidate.base for candidate in kept) - self._bytes_max
        for candidate in kept:
            if excess <= 0 and not self.disk_full:
                break
            excess -= candidate.following - candidate.base
            may.append(candidate)
            lane = exported.lanes.get(candidate.lane)
            if candidate.lane not in UNEXPORTED and candidate.following > (lane.needed if lane is not None else 0):
                self._lost(
                    candidate,
                    "the disk is full" if self.disk_full else f"more than {self._bytes_max} bytes are not exported",
                )
        return may
