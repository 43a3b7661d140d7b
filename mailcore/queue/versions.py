"""Whether this Waypost may write here: asked by the supervisor before anything is started (decision 0016).

What a newer Waypost wrote is read by none of our processes, and nothing is written beside it. What is damaged is no matter of
this look: it is set aside, and told, by who reads it.

Keeps law: newer-format-refused (docs/laws.md).
"""

from __future__ import annotations

import contextlib
import os

from mailcore.log.disk import Disk
from mailcore.log.positions import PositionsTooNew, read_all_positions
from mailcore.log.segment import SegmentDamaged, SegmentTooNew, base_of, name_of, read_header
from mailcore.queue.exported import ExportedPositions, read_exported
from mailcore.queue.restored import RestoredDamaged, read_restored

__all__ = ["RESTORING", "NotOurs", "look_at_versions"]

RESTORING = "restoring"  # in the home, while a restore puts things into their places


class NotOurs(Exception):
    """The home is a newer Waypost's, or not whole; the message says what to do."""


def look_at_versions(disk: Disk, home: str, queue_directory: str, exported_directory: str) -> None:
    """Raises NotOurs, OSError. Reads a header of each lane and three small files."""
    if disk.exists(os.path.join(home, RESTORING)):
        raise NotOurs(f"a restore into {home} has not come to its end; do it again with --move-aside")
    try:
        with contextlib.suppress(FileNotFoundError):
            read_all_positions(disk, queue_directory)
        read_restored(disk, queue_directory)
        for lane in disk.list(queue_directory):
            _newest_segment(disk, os.path.join(queue_directory, lane))
    except (PositionsTooNew, SegmentTooNew, RestoredDamaged) as error:
        raise NotOurs(f"{error}; nothing was started, nothing written") from error
    with contextlib.suppress(ValueError):  # damaged ones count as none
        exported = read_exported(disk, exported_directory)
        if exported is not None and exported.version > ExportedPositions().version:
            raise NotOurs(
                f"{exported_directory} has format version {exported.version}, this Waypost reads up to "
                f"{ExportedPositions().version}; nothing was started, nothing written"
            )


def _newest_segment(disk: Disk, directory: str) -> None:
    """A newer Waypost begins a segment of its own with the first thing it writes."""
    if not disk.is_directory(directory):
        return
    bases = [base for base in map(base_of, disk.list(directory)) if base is not None]
    if not bases:
        return
    path = os.path.join(directory, name_of(bases[-1]))
    with contextlib.suppress(FileNotFoundError, SegmentDamaged):
        fd = disk.open_read(path)
        try:
            read_header(disk, fd, path)
        finally:
            disk.close(fd)
