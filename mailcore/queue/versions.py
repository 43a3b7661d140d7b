"""Checks that this Waypost may write here. The supervisor asks before it starts any process (decision 0016).

Our processes do not read files that a newer Waypost wrote, and write nothing beside them. Damage is not checked here: the
process that reads a damaged file sets it aside and reports it.

Keeps law: newer-format-refused (docs/laws.md).
"""

from __future__ import annotations

import contextlib
import os

from mailcore.log.disk import Disk
from mailcore.log.positions import PositionsTooNew, read_all_positions
from mailcore.log.segment import SegmentDamaged, SegmentTooNew, base_of, name_of, read_header
from mailcore.queue.exported import ExportedPositions, read_exported
from mailcore.queue.reserved_time import NAME as RESERVED
from mailcore.queue.reserved_time import OF_CONTROL, ReservedTooNew, read_reserved
from mailcore.queue.restored import RestoredDamaged, read_restored

__all__ = ["RESTORING", "NotOurs", "look_at_versions"]

RESTORING = "restoring"  # file in the home while a restore moves its files into place


class NotOurs(Exception):
    """Raised if a newer Waypost wrote the home, or a restore is incomplete; the message says what to do."""


def look_at_versions(disk: Disk, home: str, queue_directory: str, exported_directory: str) -> None:
    """Checks the home: reads a header of each lane and some small files. Raises NotOurs, OSError."""
    if disk.exists(os.path.join(home, RESTORING)):
        raise NotOurs(f"a restore into {home} is incomplete; run it again with --move-aside")
    try:
        with contextlib.suppress(FileNotFoundError):
            read_all_positions(disk, queue_directory)
        read_restored(disk, queue_directory)
        read_reserved(disk, os.path.join(queue_directory, OF_CONTROL))
        for lane in disk.list(queue_directory):
            _newest_segment(disk, os.path.join(queue_directory, lane))
            with contextlib.suppress(NotADirectoryError):
                read_reserved(disk, os.path.join(queue_directory, lane, RESERVED))
    except (PositionsTooNew, SegmentTooNew, RestoredDamaged, ReservedTooNew) as error:
        raise NotOurs(f"{error}; nothing was started or written") from error
    with contextlib.suppress(ValueError):  # damaged ones count as none
        exported = read_exported(disk, exported_directory)
        if exported is not None and exported.version > ExportedPositions().version:
            raise NotOurs(
                f"{exported_directory} has format version {exported.version}, this Waypost reads up to "
                f"{ExportedPositions().version}; nothing was started or written"
            )


def _newest_segment(disk: Disk, directory: str) -> None:
    """Checks the header of the newest segment: a newer Waypost begins a segment of its own with its first write."""
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
