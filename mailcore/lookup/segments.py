"""What lies on disk of a lane, segment by segment, and what keeps each from being deleted; for people.

Reads names, sizes and index headers only, never a record. Must not know: the manager; what it says comes as arguments.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mailcore.log.disk import Disk
from mailcore.log.index import count_entries, index_path
from mailcore.log.segment import base_of, name_of
from mailcore.queue.damage import damaged_path
from mailcore.queue.lanes import DELETED, HOLD, JOURNAL

__all__ = ["SEGMENTS_SHOWN", "LanePlaces", "lane_segments"]

SEGMENTS_SHOWN = 200  # of a lane: the oldest, which say what keeps the others, and the newest; 6 GB of usual segments


@dataclass(frozen=True, slots=True)
class LanePlaces:
    """Where a lane is read. Of the journal, ``browse`` and ``runner`` are the start of the working suffix."""

    browse: int  # the first envelope that may be alive
    runner: int
    needed: int  # what restart positions on disk allow to be deleted lies below
    held: Mapping[int, int] | None = field(default=None)  # base -> messages being worked on; None: not known
    exported: int | None = None  # events are, up to there; None: nobody waits for them


def lane_segments(disk: Disk, directory: str, places: LanePlaces) -> dict[str, Any]:
    """``segments``, how many were left out, and the bytes of all of them. Raises OSError."""
    bases = [base for base in map(base_of, disk.list(directory)) if base is not None]
    sizes = {base: _size(disk, os.path.join(directory, name_of(base))) for base in bases}
    shown = bases if len(bases) <= SEGMENTS_SHOWN else [*bases[: SEGMENTS_SHOWN - 1], bases[-1]]
    lane = os.path.basename(directory)
    segments = []
    for base in shown:
        path = os.path.join(directory, name_of(base))
        at = bisect_right(bases, base)
        following = bases[at] if at < len(bases) else None
        live = _live(lane, base, following, places)
        segments.append(
            {
                "base": base,
                "bytes": sizes[base],
                "sealed": following is not None,
                "messages": None if lane == JOURNAL else count_entries(disk, index_path(path)),
                "live": live,
                "kept_by": _kept_by(lane, base, following, places, live, damaged=disk.exists(damaged_path(path))),
            }
        )
    first = bases[0] if bases else 0
    return {
        "segments": segments,
        "segments_left_out": len(bases) - len(shown),
        "garbage_prefix_bytes": max(places.browse - first, 0) if bases else 0,
        "bytes_on_disk": sum(sizes.values()),
    }


def _size(disk: Disk, path: str) -> int:
    try:
        return disk.size_of(path)
    except FileNotFoundError:
        return 0  # deleted between the two looks


def _live(lane: str, base: int, following: int | None, places: LanePlaces) -> int | None:
    """Known of what the runner has passed: there, what lives is being worked on. What is held is not counted there."""
    if lane in (JOURNAL, HOLD, DELETED) or places.held is None or following is None or following > places.runner:
        return None
    return places.held.get(base, 0)


def _kept_by(
    lane: str, base: int, following: int | None, places: LanePlaces, live: int | None, *, damaged: bool
) -> str:
    if damaged:
        return "a damaged record in it was set aside for people to look at"
    if following is None:
        return "it is the newest, where writing goes on"
    if following <= places.needed:
        if places.exported is not None and following > places.exported:
            return "its events, which are not exported yet"
        return "nothing; it is about to be deleted"
    if lane == JOURNAL:
        if following <= places.browse:
            return "restart positions still name it; the next checkpoints let it go"
        return "the working suffix: what a start would have to read"
    if following <= places.browse:
        return "restart positions still name it; the next checkpoints let it go"
    if following > places.runner:
        return {
            HOLD: "held messages may be in it",
            DELETED: "deletes that can still be undone",
        }.get(lane, "messages that the runner has not read yet")
    if live:
        return "1 message being worked on" if live == 1 else f"{live} messages being worked on"
    if live == 0:
        return "an older segment that is needed; they go in the order they were written"
    return "messages being worked on in it or in an older one"
