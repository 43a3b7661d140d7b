"""How far the events of each lane are exported, and what follows from it: which segments may go (law 10).

Written by the export alone (``mailcore/events``), read by the manager in front of deleting: once a checkpoint, and only when
there is something to delete. The file is ``positions.json`` below ``events/_exported``, replaced atomically and synced, after
the event files it speaks of are.

Laws
- A segment goes when all of it is exported, but for two cases, which are told: not exported is more than ``bytes_max``, or the
  disk is full. Mail goes before events.
- What can't be read counts as nothing exported.

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

EXPORTED = "_exported"  # below the events; a reader of these passes over what begins so
NAME = "positions.json"
UNEXPORTED = (HOLD, DELETED)  # lanes nobody arrives in, and nothing is said in


class ExportedLane(msgspec.Struct, frozen=True, omit_defaults=True):
    """``at``: exported up to there. ``to``: beyond it, the end of a stretch that has been begun. ``keep``: the first of the
    RECIPIENTS records at the end of what is exported, whose ENVELOPE is still to come; -1: none."""

    at: int
    to: int = 0
    keep: int = -1

    @property
    def needed(self) -> int:
        """What lies below may go."""
        return self.at if self.keep < 0 else min(self.at, self.keep)


class ExportedPositions(msgspec.Struct, frozen=True, omit_defaults=True):
    lanes: dict[str, ExportedLane] = {}
    cut_at: float = 0.0  # wall clock, of the last cut that nobody had asked for
    zone: str = ""  # whose midnights have a cut, too: the portal said so
    pins: dict[str, int] = {}  # lane -> offset: somebody counts what lies from there on
    pinned_until: float = 0.0  # wall clock; who counts may have been killed
    version: int = 1


def read_exported(disk: Disk, directory: str) -> ExportedPositions | None:
    """None when nothing was ever exported. Raises OSError, or ValueError for what can't be read."""
    path = os.path.join(directory, NAME)
    try:
        return msgspec.json.decode(disk.read_whole(path), type=ExportedPositions)
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError as error:
        raise ValueError(f"{path}: {error}") from error


def write_exported(disk: Disk, directory: str, positions: ExportedPositions) -> None:
    """Atomic and synced. Raises OSError; what was there stays then."""
    data = msgspec.json.format(msgspec.json.encode(positions), indent=1) + b"\n"
    disk.write_whole(os.path.join(directory, NAME), data)


class Candidate(NamedTuple):
    """A segment that mail needs no longer."""

    lane: str
    base: int
    following: int  # the base of the next one


class Keeper:
    """Says which of them may go. ``lost`` hears of each whose events go with it, and why."""

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
        """``candidates``: of each lane the oldest first."""
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
        excess = sum(each.following - each.base for each in kept) - self._bytes_max
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
