"""Makes the files of a directory what the database says, from any state: nothing, less, more, or something else.

- law: files-as-the-database-says. A process that starts first makes its files equal to the snapshot: bytes that are missing or
  different are fetched, bytes beyond a file's end are cut off, and files that no row names are deleted. A local file is never
  believed.

Each chunk is compared by its checksum, so only what differs travels. A local file may have marks, which the chunks do not: the
marked bytes are compared as they were appended, and written again. Nothing is synced, because the next start compares again.

It may be interrupted anywhere and run again.
"""

from __future__ import annotations

import contextlib
import os
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import google_crc32c

from mailcore.log.disk import Disk
from mailcore.log.record import LIVE
from mailcore.replication.batch import offsets_in
from mailcore.replication.faults import StoreError
from mailcore.replication.snapshot import ChunkPlace, Part, Snapshot, StoredFile

__all__ = ["Changes", "NameRefused", "extend", "make_equal"]

ZEROS_BYTES = 1 << 20  # compared or written at once


class NameRefused(StoreError):
    """Raised if the database names a file that would lie outside of the directory, or files that exclude each other."""


@dataclass
class Changes:
    """The changes that were made, by names of files relative to the directory."""

    made: list[str] = field(default_factory=list)  # were missing, or something else than a file
    fetched: list[str] = field(default_factory=list)  # had bytes that differ, or too few
    cut: list[str] = field(default_factory=list)  # had more than the database
    deleted: list[str] = field(default_factory=list)  # are named by no row
    bytes_fetched: int = 0
    bytes_kept: int = 0

    @property
    def any(self) -> bool:
        """Returns True if a file was not what the database says."""
        return bool(self.made or self.fetched or self.cut or self.deleted)


def make_equal(snapshot: Snapshot | Part, disk: Disk, directory: str, concerns: Callable[[str], bool]) -> Changes:
    """Makes those files of the directory that ``concerns`` names equal to the snapshot, and leaves the others alone.

    A thing that is in the way of a file is removed, with all that it has. Raises OSError if the local disk fails, Lost if the
    connection does, ChunkDamaged, NameRefused.
    """
    changes = Changes()
    disk.make_directory(directory)
    local = _local_files(disk, directory, "")
    name = next(local, None)
    for file in _checked(snapshot.files()):
        if not concerns(file.name):
            continue
        while name is not None and os.fsencode(name) < file.name.encode():
            _delete(disk, directory, name, concerns, changes)
            name = next(local, None)
        if name == file.name:
            name = next(local, None)
        _FileMaker(snapshot, disk, directory, file, changes).make()
    while name is not None:
        _delete(disk, directory, name, concerns, changes)
        name = next(local, None)
    return changes


def extend(snapshot: Snapshot | Part, disk: Disk, directory: str, concerns: Callable[[str], bool]) -> Changes:
    """Writes what files that are only appended to lack behind their end, and changes no byte that is here.

    For a process that begins again while others run: the bytes here were committed, and another process may have marked some of
    them, which no store has yet. As ``make_equal`` otherwise; a name below another directory is not expected.
    """
    changes = Changes()
    disk.make_directory(directory)
    for file in _checked(snapshot.files()):
        if not concerns(file.name) or file.data is not None:
            continue
        path = os.path.join(directory, file.name)
        size = disk.size_of(path) if disk.exists(path) else -1
        if size >= file.length:
            continue
        if size < 0:
            fd = disk.create(path)
            changes.made.append(file.name)
        else:
            fd = disk.open_write(path)
            changes.fetched.append(file.name)
        try:
            here = max(size, 0)
            missing = [place for place in file.chunks if place.at + place.length > here]
            for place, data in snapshot.fetch(missing):
                skipped = max(0, here - place.at)
                disk.write(fd, [data[skipped:]], place.at + skipped)
                changes.bytes_fetched += place.length - skipped
        finally:
            disk.close(fd)
    return changes


def _checked(files: Iterator[StoredFile]) -> Iterator[StoredFile]:
    """Yields the files. Raises NameRefused for one that cannot be below the directory beside those before it."""
    before: list[str] = []  # those names before that this one begins with
    for file in files:
        name = file.name
        if any(part in ("", ".", "..") for part in name.split("/")) or "\0" in name:
            raise NameRefused(f"The database names a file {name!r}, which is not below the shard's directory.")
        before = [each for each in before if name.startswith(each)]
        for each in before:
            if name == each or name.startswith(f"{each}/"):
                raise NameRefused(
                    f"The database names a file {each!r}, and another one {name!r}: both cannot be there."
                )
        before.append(name)
        yield file


def _local_files(disk: Disk, directory: str, prefix: str) -> Iterator[str]:
    """Yields everything but directories, in the order of the bytes of the names: a directory sorts with its slash."""
    here = os.path.join(directory, prefix) if prefix else directory
    if prefix and not disk.is_own_directory(here.rstrip("/")):
        return  # it was in the way of a file, and is gone
    entries = []
    for name in disk.list(here):
        is_directory = disk.is_own_directory(os.path.join(directory, prefix, name))
        entries.append(f"{name}/" if is_directory else name)
    for name in sorted(entries, key=os.fsencode):
        if name.endswith("/"):
            yield from _local_files(disk, directory, prefix + name)
        else:
            yield prefix + name


def _delete(disk: Disk, directory: str, name: str, concerns: Callable[[str], bool], changes: Changes) -> None:
    if concerns(name):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):  # it was in the way of a file, and is gone
            disk.unlink(os.path.join(directory, name))
            changes.deleted.append(name)


def _clear(disk: Disk, path: str) -> None:
    """Removes from the place of a file: a link, a socket, a directory with all its content."""
    if disk.is_own_directory(path):
        for name in disk.list(path):
            _clear(disk, os.path.join(path, name))
        disk.remove_directory(path)
    else:
        with contextlib.suppress(FileNotFoundError):
            disk.unlink(path)


class _FileMaker:
    """Makes one file equal."""

    def __init__(
        self, snapshot: Snapshot | Part, disk: Disk, directory: str, file: StoredFile, changes: Changes
    ) -> None:
        self._snapshot = snapshot
        self._disk = disk
        self._directory = directory
        self._path = os.path.join(directory, file.name)
        self._file = file
        self._changes = changes
        self._fetched = False
        self._offsets: list[int] = []  # of marks, sorted

    def make(self) -> None:
        """Creates the file, or changes what differs."""
        is_new = not self._is_in_place()
        if is_new:
            self._make_directories()
            _clear(self._disk, self._path)
            fd = self._disk.create(self._path)
            self._changes.made.append(self._file.name)
        else:
            fd = self._disk.open_write(self._path)
        try:
            if self._disk.size(fd) > self._file.length:
                self._disk.shorten(fd, self._file.length)
                self._changes.cut.append(self._file.name)
            self._fill(fd)
        finally:
            self._disk.close(fd)
        if self._fetched and not is_new:
            self._changes.fetched.append(self._file.name)

    def _is_in_place(self) -> bool:
        """Returns True if the file is a plain one, and no directory above it is a link."""
        parts = self._file.name.split("/")[:-1]
        above = (os.path.join(self._directory, *parts[:count]) for count in range(1, len(parts) + 1))
        return all(map(self._disk.is_own_directory, above)) and self._disk.is_own_file(self._path)

    def _make_directories(self) -> None:
        path = self._directory
        for part in self._file.name.split("/")[:-1]:
            path = os.path.join(path, part)
            if not self._disk.is_own_directory(path):
                _clear(self._disk, path)
                self._disk.make_directory(path)

    def _fill(self, fd: int) -> None:
        if self._file.data is not None:
            self._make_small(fd, self._file.data)
            return
        marks = self._marks()
        chunks = self._file.chunks
        end, overlaps = 0, False
        for place in chunks:
            self._make_zeros(fd, end, place.at)
            overlaps = overlaps or place.at < end
            end = max(end, place.at + place.length)
        if overlaps:  # bytes that were written twice: only the order of the chunks says which count
            wanted = sorted(chunks, key=lambda place: (place.n, place.part))
        else:
            wanted = [place for place in chunks if not self._has(fd, place)]
        for place, data in self._snapshot.fetch(wanted):
            self._disk.write(fd, [data], place.at)
            self._changes.bytes_fetched += place.length
            self._fetched = True
        self._changes.bytes_kept += max(0, self._file.length - sum(place.length for place in wanted))
        for offset, value in marks.items():
            if offset < self._file.length and self._read(fd, 1, offset) != bytes([value]):
                self._disk.write(fd, [bytes([value])], offset)
                self._fetched = True

    def _make_small(self, fd: int, data: bytes) -> None:
        if self._read(fd, len(data), 0) != data:
            self._disk.write(fd, [data], 0)
            self._fetched = True

    def _marks(self) -> dict[int, int]:
        """Returns offset -> value; the last one of an offset counts."""
        marks: dict[int, int] = {}
        if self._file.marked:
            for value, offsets in self._snapshot.marks(self._file.name):
                marks |= dict.fromkeys(offsets_in(offsets), value)
        self._offsets = sorted(marks)
        return marks

    def _has(self, fd: int, place: ChunkPlace) -> bool:
        """Returns True if the file has the bytes of a chunk, except for marks."""
        data = self._read(fd, place.length, place.at)
        if data is None or len(data) < place.length:
            return False
        if google_crc32c.value(data) == place.crc:
            return True
        first = bisect_left(self._offsets, place.at)
        inside = self._offsets[first : bisect_left(self._offsets, place.at + place.length)]
        if not inside:
            return False
        unmarked = bytearray(data)
        for offset in inside:
            unmarked[offset - place.at] = LIVE
        found: int = google_crc32c.value(bytes(unmarked))
        return found == place.crc

    def _make_zeros(self, fd: int, start: int, stop: int) -> None:
        """Makes bytes that no chunk has zeros, as they are in a file that was made from the chunks alone."""
        for at in range(start, stop, ZEROS_BYTES):
            length = min(ZEROS_BYTES, stop - at)
            data = self._read(fd, length, at)
            if data is None or data.strip(b"\0"):
                self._disk.write(fd, [bytes(length)], at)
                self._fetched = True

    def _read(self, fd: int, length: int, at: int) -> bytes | None:
        """Returns bytes of the file; None if they cannot be read. They may be written nevertheless."""
        try:
            return self._disk.read(fd, length, at)
        except OSError:
            return None
