"""The time in the header of a segment, by which a search for a queue id passes over segments that ended before its message
arrived.

Ids do not go back when the clock is set back (law: ids-never-reused), so neither may this time: else a search for a message
would pass over the segment that has it, for as long as the segment is kept.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable

from mailcore.log.disk import Disk
from mailcore.queue.lanes import is_incoming
from mailcore.queue.reserved_time import AHEAD_S, NAME, OF_CONTROL, ReservedTooNew, read_reserved

__all__ = ["reserved_files", "segment_clock"]


def segment_clock(clock: Callable[[], float], disk: Disk, files: Callable[[], Iterable[str]]) -> Callable[[], float]:
    """Returns the clock of the headers of a lane: ``clock``, or the time of the newest queue ids in the lane if that is later.

    ``files`` returns the paths of the reserved times of all writers whose messages are in the lane. In good weather they are
    AHEAD_S ahead of the clock at most.
    """

    def now() -> float:
        times = [clock()]
        with contextlib.suppress(OSError):
            for path in files():
                with contextlib.suppress(OSError, ReservedTooNew):  # both are reported where ids are given out
                    times.append(read_reserved(disk, path) / 1e6 - AHEAD_S)
        return max(times)

    return now


def reserved_files(disk: Disk, queue_directory: str) -> list[str]:
    """Returns the paths of the reserved times of all writers of a queue. Raises OSError."""
    lanes = [lane for lane in disk.list(queue_directory) if is_incoming(lane)]
    return [os.path.join(queue_directory, OF_CONTROL), *(os.path.join(queue_directory, lane, NAME) for lane in lanes)]
