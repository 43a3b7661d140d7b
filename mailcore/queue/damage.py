"""Damage in a lane: reported once, and recorded in a file beside the segment, which is then never deleted.

Keeps law: damage-set-aside (docs/laws.md).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable

from mailcore.log.disk import Disk
from mailcore.log.segment import SUFFIX, Damage

__all__ = ["DAMAGED_SUFFIX", "SetAside", "damaged_path", "lane_of"]

DAMAGED_SUFFIX = ".damaged"

SEEN_MAX = 10_000  # places remembered; a disk with more damage than that is broken as a whole
FILE_BYTES_MAX = 65_536  # size of the file beside a segment: about a thousand places


def damaged_path(segment_path: str) -> str:
    """Returns the path of the file that keeps a segment from being deleted and says why.

    For a lane whose segments are missing, it is a file in the lane's directory.
    """
    if not segment_path.endswith(SUFFIX):
        return os.path.join(segment_path, "lane" + DAMAGED_SUFFIX)
    return segment_path.removesuffix(SUFFIX) + DAMAGED_SUFFIX


def lane_of(damage: Damage) -> str:
    """Returns the name of the damaged lane."""
    path = damage.path
    return os.path.basename(os.path.dirname(path) if path.endswith(SUFFIX) else path)


class SetAside:
    """Records each Damage it is called with, and calls ``report`` once per place."""

    def __init__(self, disk: Disk, report: Callable[[Damage], None]) -> None:
        self.disk = disk
        self._report = report
        self._seen: set[tuple[str, int]] = set()

    def __call__(self, damage: Damage) -> None:
        key = (damage.path, damage.offset)
        if key in self._seen:
            return
        if len(self._seen) >= SEEN_MAX:
            self._seen.clear()  # some places will be reported again
        self._seen.add(key)
        self._report(damage)
        if damage.path.endswith(SUFFIX) or self.disk.is_directory(damage.path):
            with contextlib.suppress(OSError):  # the damage itself has been reported
                self._write_down(damage)

    def _write_down(self, damage: Damage) -> None:
        path = damaged_path(damage.path)
        line = f"{damage.offset} {damage.end} {damage.what}\n".encode()
        found = self.disk.exists(path)
        fd = self.disk.open_write(path) if found else self.disk.create(path)
        try:
            size = self.disk.size(fd)
            if size > FILE_BYTES_MAX or line in self.disk.read(fd, size, 0):
                return
            self.disk.write(fd, [line], size)
            self.disk.sync(fd)
        finally:
            self.disk.close(fd)
        if not found:
            self.disk.sync_directory(os.path.dirname(path))
