"""The segments of a lane on disk, and why each is not deleted yet; for display.

Reads names, sizes and index headers only, never a record. Must not know: the manager; its values come as arguments.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field

from mailcore.log.disk import Disk
from mailcore.log.index import count_entries, index_path
from mailcore.log.segment import base_of, name_of
from mailcore.lookup.answers import Keeper, LaneSegments, Segment
from mailcore.queue.damage import damaged_path
from mailcore.queue.lanes import DELETED, HOLD, JOURNAL

__all__ = ["SEGMENTS_SHOWN", "Keeper", "LanePlaces", "LaneSegments", "Segment", "lane_segments"]

SEGMENTS_SHOWN = (
    200  # of a lane: the oldest ones, which keep the others, and the newest; 6 GB of segments of the default size
)


SENTENCES: Mapping[Keeper, str] = {
    Keeper.DAMAGE: "it holds a damaged record, which was set aside",
    Keeper.NEWEST: "it is the newest segment, which is being written",
    Keeper.EXPORT: "its events, which are not exported yet",
    Keeper.NOTHING: "nothing; it is about to be deleted",
    Keeper.POSITIONS: "restart positions still name it; the next checkpoints let it go",
    Keeper.SUFFIX: "the working suffix: what a start would have to read",
    Keeper.HELD: "held messages may be in it",
    Keeper.DELETED: "deletes that can still be undone",
    Keeper.UNREAD: "messages that the runner has not read yet",
    Keeper.ACTIVE: "messages being worked on",
    Keeper.OLDER: "an older segment that is needed; they go in the order they were written",
    Keeper.UNKNOWN: "messages being worked on in it or in an older one",
}


@dataclass(frozen=True, slots=True)
class LanePlaces:
    """Holds the positions of a lane. For the journal, ``browse`` and ``runner`` are the start of the working suffix."""

    browse: int  # the first envelope that may be alive
    runner: int
    needed: int  # the restart positions on disk need nothing below this offset
    held: Mapping[int, int] | None = field(default=None)  # base -> messages being worked on; None: not known
    exported: int | None = None  # offset up to which events are exported; None: they are not exported


def lane_segments(disk: Disk, directory: str, places: LanePlaces) -> LaneSegments:
    """Returns the segments of the lane in ``directory``. Raises OSError."""
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
        keeper = _kept_by(lane, base, following, places, live, damaged=disk.exists(damaged_path(path)))
        segments.append(
            Segment(
                base=base,
                bytes=sizes[base],
                sealed=following is not None,
                messages=None if lane == JOURNAL else count_entries(disk, index_path(path)),
                live=live,
                kept_by=keeper,
                sentence=SENTENCES[keeper],
            )
        )
    first = bases[0] if bases else 0
    return LaneSegments(
        segments=segments,
        segments_left_out=len(bases) - len(shown),
        garbage_prefix_bytes=max(places.browse - first, 0) if bases else 0,
        bytes_on_disk=sum(sizes.values()),
    )


def _size(disk: Disk, path: str) -> int:
    try:
        return disk.size_of(path)
    except FileNotFoundError:
        return 0  # deleted between the two looks


def _live(lane: str, base: int, following: int | None, places: LanePlaces) -> int | None:
    """Returns the messages being worked on, for a segment that the runner has passed; None if unknown."""
    if lane in (JOURNAL, HOLD, DELETED) or places.held is None or following is None or following > places.runner:
        return None
    return places.held.get(base, 0)


def _kept_by(
    lane: str, base: int, following: int | None, places: LanePlaces, live: int | None, *, damaged: bool
) -> Keeper:
    if damaged:
        return Keeper.DAMAGE
    if following is None:
        return Keeper.NEWEST
    if following <= places.needed:
        if places.exported is not None and following > places.exported:
            return Keeper.EXPORT
        return Keeper.NOTHING
    if following <= places.browse:
        return Keeper.POSITIONS
    if lane == JOURNAL:
        return Keeper.SUFFIX
    if following > places.runner:
        return {HOLD: Keeper.HELD, DELETED: Keeper.DELETED}.get(lane, Keeper.UNREAD)
    if live:
        return Keeper.ACTIVE
    return Keeper.OLDER if live == 0 else Keeper.UNKNOWN
