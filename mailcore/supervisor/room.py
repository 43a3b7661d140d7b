"""Room to start on a full disk: what a Waypost has set aside, and the refusal of a start without any room."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from mailcore.config.settings import Settings
from mailcore.counted import counted
from mailcore.log.disk import Disk
from mailcore.queue.ballast import Ballast, Held

__all__ = ["DiskFull", "ballast_of", "refuse_without_room", "room_for_sockets"]

START_BYTES_MIN, START_INODES_MIN = 64 << 10, 8  # with less, the manager could not write what a recovery writes


class DiskFull(Exception):
    """Raised if there is no room to start; the message says where, and what to do."""


def ballast_of(settings: Settings, disk: Disk) -> Ballast:
    """Returns the ballasts of a Waypost with these settings."""
    wanted = Held(settings.queue.ballast_bytes, settings.queue.ballast_inodes)
    return Ballast(disk, settings.ballast_directories, wanted)


def room_for_sockets(settings: Settings) -> Callable[[Path], bool]:
    """Returns a function that gives back an inode on the disk of a path; it returns False if there is none."""
    disk = Disk()
    ballast = ballast_of(settings, disk)
    return lambda path: ballast.relieve(disk.device(str(path.parent)), 0, 1)


def refuse_without_room(settings: Settings) -> None:
    """Raises DiskFull if there is no room to start, in the ballast either; OSError."""
    ballast = ballast_of(settings, Disk())
    for directory in (settings.queue_directory, settings.spool_directory, settings.home):
        room = ballast.room(str(directory))
        if room.delivery_bytes < START_BYTES_MIN or room.delivery_inodes < START_INODES_MIN:
            raise DiskFull(
                f"the disk of {directory} is full: {room.free_bytes} bytes and {counted(room.free_inodes, 'inode')} free, "
                "and nothing is left of what was set aside"
            )
