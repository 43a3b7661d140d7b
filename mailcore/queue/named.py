"""The end of what restart positions name in a lane that the manager does not write.

Keeps law: positions-never-reused (docs/laws.md).
"""

from __future__ import annotations

from mailcore.log.disk import Disk
from mailcore.log.positions import PositionsDamaged, read_positions

__all__ = ["named_end"]


def named_end(disk: Disk, queue_directory: str, lane: str) -> int:
    """Returns the offset beyond every position of the lane that was ever named, even if its files are gone."""
    try:
        positions = read_positions(disk, queue_directory)
    except (OSError, PositionsDamaged):  # the manager says so; the lane's own files tell as well
        return 0
    known = positions.lanes.get(lane) if positions is not None else None
    return max(known.runner, known.end) if known is not None else 0
