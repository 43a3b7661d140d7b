"""The faults of what is to stay free on the disks: with more than is free, receivers would refuse all mail."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from mailcore.config.settings import Settings
from mailcore.control.protocol.settings import KeyFault
from mailcore.counted import counted
from mailcore.log.disk import Disk

__all__ = ["room_faults"]


def room_faults(old: Settings, new: Settings, disk: Disk) -> list[KeyFault]:
    """Returns a fault for each value that a change raises above what the disks of queue and spool have. Raises OSError."""
    return [fault for each in (_of_bytes, _of_inodes) for fault in each(old, new, disk)][:1]


def _of_bytes(old: Settings, new: Settings, disk: Disk) -> Iterator[KeyFault]:
    raised = [
        name for name in ("reserve_bytes", "ballast_bytes") if getattr(new.queue, name) > getattr(old.queue, name)
    ]
    needed = new.queue.reserve_bytes + max(0, new.queue.ballast_bytes - old.queue.ballast_bytes)
    for directory in _directories(new) if raised else ():
        free = disk.free_bytes(str(directory))
        if needed > free:
            yield _fault(raised[0], counted(free, "byte"), str(directory))


def _of_inodes(old: Settings, new: Settings, disk: Disk) -> Iterator[KeyFault]:
    raised = [
        name for name in ("reserve_inodes", "ballast_inodes") if getattr(new.queue, name) > getattr(old.queue, name)
    ]
    needed = new.queue.reserve_inodes + max(0, new.queue.ballast_inodes - old.queue.ballast_inodes)
    for directory in _directories(new) if raised else ():
        free = disk.free_inodes(str(directory))
        if needed > free:
            yield _fault(raised[0], counted(free, "inode"), str(directory))


def _directories(settings: Settings) -> list[Path]:
    """Returns those that are there: a node that has had no shard yet lacks both."""
    return [each for each in (settings.queue_directory, settings.spool_directory) if each.is_dir()]


def _fault(name: str, free: str, directory: str) -> KeyFault:
    return KeyFault(
        key=f"queue.{name}",
        reason=f"must be less: the disk of {directory} has {free} free, and all new mail would be refused",
    )
