"""The marker with which all mail of a shard is held, because it may have been delivered since: it is that of a restored queue.

Keeps law: restored-is-held, law: never-back-in-time (docs/laws.md).
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping

from mailcore.log.disk import Disk
from mailcore.log.positions import PositionsDamaged, read_positions
from mailcore.log.reader import LaneReader
from mailcore.queue.fold import fold
from mailcore.queue.lanes import DELETED, HOLD, JOURNAL
from mailcore.queue.restored import Restored, read_restored

__all__ = ["marker_of"]


def marker_of(disk: Disk, queue_directory: str, ends: Mapping[str, int]) -> Restored:
    """Returns the marker for the files of a queue. ``ends``: where the lanes end, as far as is known.

    Raises OSError, RestoredDamaged.
    """
    before = read_restored(disk, queue_directory)
    lanes = {lane: end for lane, end in ends.items() if lane != JOURNAL}
    taken: dict[str, int] = dict(before.taken)
    at = time.time()
    try:
        positions = read_positions(disk, queue_directory)
    except PositionsDamaged:
        positions = None
    if positions is not None:
        at = positions.written_at
        for lane, position in positions.lanes.items():
            lanes[lane] = max(lanes.get(lane, 0), position.end, position.runner)
    reader = LaneReader(disk, os.path.join(queue_directory, JOURNAL), lambda damage: None)
    try:
        folded = fold(reader.records(positions.suffix if positions is not None else 0), 0)
    finally:
        reader.close()
    for known in folded.messages.values():
        if known.place.lane in (HOLD, DELETED):
            taken[known.queue_id] = known.generation
    for lane, end in before.lanes.items():
        lanes[lane] = max(lanes.get(lane, 0), end)
    return Restored(at, time.time(), lanes, taken, max(1, before.version), before.maildrop)
