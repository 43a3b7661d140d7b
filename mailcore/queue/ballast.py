"""The ballast: disk space and inodes that are allocated in advance, so that a full disk cannot stop delivery.

On a full disk only delivery frees space, and it needs some: a DELIVERY record, restart positions, a spool file for what is
deferred. Free space that is merely compared with a number is gone when another program fills the disk. So the manager keeps
files that occupy it, and gives them back when a write of its own finds the disk full (``Disk.relief``): as much as that write
needs, at the moment when it needs it. Space that is given back earlier is the other program's. It refills the ballast as soon
as more than LEFT_BYTES and LEFT_INODES are free.

    QUEUE/.ballast/space        allocated bytes; shortened from its end
    QUEUE/.ballast/inode.00000  empty; each holds an inode

There is one on each file system that holds the queue, the spool, the home or the events: in the first of them that lies there.

Laws
- The files are the state. Each step is one call of the kernel, so that a kill anywhere leaves a smaller or a larger ballast,
  and the next look continues from there.
- Giving back never needs space.

Must not know: lanes, messages, the loop. Its methods may run in any thread.

Keeps law: delivery-has-room (docs/laws.md).
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from mailcore.log.disk import Disk, is_full

__all__ = [
    "INTAKE_BYTES",
    "INTAKE_INODES",
    "LEFT_BYTES",
    "LEFT_INODES",
    "NAME",
    "NOTHING",
    "STALL_BYTES",
    "STALL_INODES",
    "Ballast",
    "Held",
    "Place",
    "Room",
    "held",
    "places",
]

NAME = ".ballast"  # no lane, and hidden from backups, as all names with a dot
SPACE = "space"
INODE = "inode."
GIVE_BYTES = (
    16 << 10
)  # at least this much is given back at once: blocks of 4 kB for data, its directory and its extents
TAKE_BYTES = 256 << 10  # and this much refilled, unless less is missing
# Stays free when the ballast is refilled: the log's lines, restart positions, sockets of a process that is started again.
LEFT_BYTES, LEFT_INODES = 512 << 10, 32
# Above that, so that there is no new mail before the ballast is whole. Below STALL, deliveries go out one at a time.
STALL_BYTES, STALL_INODES = 768 << 10, 48
INTAKE_BYTES, INTAKE_INODES = 1 << 20, 64


class Held(NamedTuple):
    """Holds the contents of a ballast."""

    space_bytes: int
    inodes: int


class Place(NamedTuple):
    """A directory with a ballast of its own, and what that should hold."""

    directory: str
    device: int
    wanted: Held


class Room(NamedTuple):
    """The room on the disk of a directory: free, and in the ballast."""

    directory: str
    free_bytes: int
    free_inodes: int
    ballast: Held

    @property
    def delivery_bytes(self) -> int:
        """Returns the bytes that delivery may use."""
        return self.free_bytes + self.ballast.space_bytes

    @property
    def delivery_inodes(self) -> int:
        """Returns the number of files that delivery may create."""
        return self.free_inodes + self.ballast.inodes


NOTHING = Held(0, 0)


def held(disk: Disk, directory: str) -> Held:
    """Returns what the ballast in a directory holds; nothing if there is none. Raises OSError."""
    ballast = os.path.join(directory, NAME)
    names = disk.list(ballast)
    space = disk.allocated(os.path.join(ballast, SPACE)) if SPACE in names else 0
    return Held(space, sum(name.startswith(INODE) for name in names))


def places(disk: Disk, directories: Iterable[str], wanted: Held) -> list[Place]:
    """Returns the directories with a ballast: the first on each file system. Those that do not exist are left out.

    One that has a ballast and should have none, because its disk was another one before, is among them.
    """
    found: dict[int, Place] = {}
    others: list[Place] = []
    for directory in directories:
        with contextlib.suppress(FileNotFoundError):
            device = disk.device(directory)
            if device not in found:
                found[device] = Place(directory, device, wanted)
            elif disk.exists(os.path.join(directory, NAME)):
                others.append(Place(directory, device, NOTHING))
    return [*others, *found.values()]


class Ballast:
    """Takes and gives back the ballasts of one Waypost."""

    def __init__(self, disk: Disk, directories: Sequence[str], wanted: Held) -> None:
        self._disk = disk
        self._directories = directories  # of which those on one file system share a ballast; the first has it
        self.wanted = wanted
        self._lock = threading.RLock()
        self._taking = False

    def room(self, directory: str) -> Room:
        """Returns the room on the disk of a directory. Raises OSError."""
        disk = self._disk
        device = disk.device(directory)
        there = [held(disk, place.directory) for place in self._places() if place.device == device]
        ballast = Held(sum(each.space_bytes for each in there), sum(each.inodes for each in there))
        return Room(directory, disk.free_bytes(directory), disk.free_inodes(directory), ballast)

    def make_room(self) -> None:
        """Gives back until LEFT_BYTES and LEFT_INODES are free on each disk, or nothing is left. Raises OSError.

        For what does not ask for it: a sync that finds the disk full, and processes without a ballast.
        """
        with self._lock:
            for place in self._places():
                free_bytes = self._disk.free_bytes(place.directory)
                free_inodes = self._disk.free_inodes(place.directory)
                self._give(place, LEFT_BYTES - free_bytes, LEFT_INODES - free_inodes)

    def keep(self) -> None:
        """Refills the ballast as far as there is room, on each disk, and gives back what is more than wanted. Raises OSError.

        A disk that cannot be used does not keep the others from it.
        """
        errors: list[OSError] = []
        for place in self._places():
            try:
                with self._lock:
                    there = held(self._disk, place.directory)
                    self._give(place, there.space_bytes - place.wanted.space_bytes, there.inodes - place.wanted.inodes)
                    self._taking = True  # for what it allocates itself, nothing is given back
                    try:
                        self._take(place)
                    finally:
                        self._taking = False
            except OSError as error:
                if not is_full(error):  # another program was quicker
                    errors.append(error)
        if errors:
            raise errors[0]

    def relieve(self, device: int, space_bytes: int, inodes: int) -> bool:
        """Gives back what a call of the kernel needs that found the disk full; False if there is nothing. Raises nothing."""
        with self._lock:
            if self._taking:
                return False
            try:
                return self._relieve([each for each in self._places() if each.device == device], space_bytes, inodes)
            except OSError:  # the disk is missing: the caller gets its own error
                return False

    # -- inside

    def _relieve(self, here: Sequence[Place], space_bytes: int, inodes: int) -> bool:
        """Gives back what is short; if that is not to be seen, of everything. Raises OSError."""
        for place in here:
            short = space_bytes or self._disk.free_bytes(place.directory) < GIVE_BYTES
            if self._give(place, space_bytes + GIVE_BYTES if short else 0, inodes and inodes + 1):
                return True
        return any(self._give(place, GIVE_BYTES, 1) for place in here)

    def _places(self) -> list[Place]:
        return places(self._disk, self._directories, self.wanted)

    def _room(self, place: Place) -> Room:
        disk, directory = self._disk, place.directory
        return Room(directory, disk.free_bytes(directory), disk.free_inodes(directory), held(disk, directory))

    def _give(self, place: Place, space_bytes: int, inodes: int) -> bool:
        """Frees about this much; returns whether it freed anything. Raises OSError."""
        disk, ballast = self._disk, os.path.join(place.directory, NAME)
        there = held(disk, place.directory)
        given = False
        if space_bytes > 0 and there.space_bytes:
            fd = disk.open_write(os.path.join(ballast, SPACE))
            try:
                disk.shorten(fd, max(0, there.space_bytes - space_bytes))
            finally:
                disk.close(fd)
            given = True
        if inodes > 0 and there.inodes:
            for name in [name for name in disk.list(ballast) if name.startswith(INODE)][-inodes:]:
                disk.unlink(os.path.join(ballast, name))
            given = True
        return given

    def _take(self, place: Place) -> None:
        """Allocates what is missing, as far as enough stays free. Raises OSError."""
        disk, ballast = self._disk, os.path.join(place.directory, NAME)
        room = self._room(place)
        there, wanted = room.ballast, place.wanted
        inodes = min(wanted.inodes - there.inodes, room.free_inodes - LEFT_INODES)
        space = min(wanted.space_bytes - there.space_bytes, room.free_bytes - LEFT_BYTES)
        if space < min(TAKE_BYTES, wanted.space_bytes - there.space_bytes):
            space = 0
        if inodes <= 0 and space <= 0:
            return
        disk.make_directory(ballast)
        if space > 0:
            path = os.path.join(ballast, SPACE)
            fd = disk.open_write(path) if disk.exists(path) else disk.create(path)
            try:
                if disk.size(fd) > there.space_bytes:  # beyond, nothing is really allocated
                    disk.shorten(fd, there.space_bytes)
                disk.allocate(fd, there.space_bytes + space)
                disk.sync(fd)
            finally:
                disk.close(fd)
        if inodes > 0:
            names = set(disk.list(ballast))
            missing = (name for number in range(wanted.inodes) if (name := f"{INODE}{number:05d}") not in names)
            for name, _ in zip(missing, range(inodes), strict=False):
                disk.close(disk.create(os.path.join(ballast, name)))
        disk.sync_directory(ballast)
