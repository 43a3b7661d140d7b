"""Retired segments: how many there are, their bytes, and how many of these are data of mail that still waits; for display.

Only the headers of records are read, up to 11 ms for a segment, and once for each time it was written to. Must not know: the
manager.
"""

from __future__ import annotations

import contextlib
import os

from mailcore.log.disk import Disk
from mailcore.log.segment import Segment, SegmentDamaged, retired_base_of, retired_name_of
from mailcore.lookup.answers import Retired
from mailcore.queue.retiring import living_data

__all__ = ["RetiredLook"]

READ_MAX = 100  # segments in one look: about half a second of a thread


class RetiredLook:
    """Looks at the retired segments of lanes, and remembers what it has read."""

    def __init__(self, disk: Disk, queue_directory: str, read_max: int = READ_MAX) -> None:
        """``read_max``: segments that one ``begin`` allows to be read."""
        self._disk = disk
        self._directory = queue_directory
        self._read_max = read_max
        self._left = read_max
        self._known: dict[str, tuple[float, int, int]] = {}  # path -> (when it was written, bytes, bytes needed)

    def begin(self) -> None:
        """Begins another look, which may read ``read_max`` segments."""
        self._left = self._read_max
        for path in [path for path in list(self._known) if not self._disk.exists(path)]:
            self._known.pop(path, None)  # another thread may have done it

    def lanes(self) -> list[str]:
        """Returns the names of all lanes. Raises OSError."""
        names = self._disk.list(self._directory)
        return [name for name in names if self._disk.is_directory(os.path.join(self._directory, name))]

    def of(self, lane: str) -> Retired:
        """Returns the retired segments of a lane. Raises OSError."""
        directory = os.path.join(self._directory, lane)
        with_base = ((retired_base_of(name), name) for name in self._disk.list(directory))
        bases = sorted(base for base, _ in with_base if base is not None)
        paths = [os.path.join(directory, retired_name_of(base)) for base in bases]
        found = [self._look(path) for path in paths]
        sizes = [size for size, _ in found]
        needed = [each for _, each in found if each is not None]
        unneeded = [
            self._known[path][0]
            for path, (_, each) in zip(paths, found, strict=True)
            if each == 0 and path in self._known
        ]
        return Retired(
            segments=len(bases),
            bytes=sum(sizes),
            needed_bytes=sum(needed) if len(needed) == len(bases) else None,
            unneeded_since=min(unneeded, default=0.0),
            oldest_at=self._created(paths[0]) if paths else 0.0,
        )

    def _look(self, path: str) -> tuple[int, int | None]:
        """Returns the bytes of a segment, and those of records that are needed; None if it cannot be read, or not now."""
        try:
            written, size = self._disk.modified(path), self._disk.size_of(path)
        except FileNotFoundError:
            return 0, 0  # deleted between the two looks
        known = self._known.get(path)
        if known is not None and known[:2] == (written, size):
            return size, known[2]
        if not self._left:
            return size, None
        self._left -= 1
        with contextlib.suppress(OSError, SegmentDamaged):
            segment = Segment(self._disk, path)
            try:
                needed, _ = living_data(segment, segment.file_end)
            finally:
                segment.close()
            self._known[path] = written, size, needed
            return size, needed
        return size, None

    def _created(self, path: str) -> float:
        """Returns when a segment was begun, wall clock; 0.0 if it cannot be read."""
        with contextlib.suppress(OSError, SegmentDamaged):
            segment = Segment(self._disk, path)
            segment.close()
            return segment.header.created
        return 0.0
