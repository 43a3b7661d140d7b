"""Follows a log as it is written, over its rotations, without losing a line.

A writer looks once a second whether its file was renamed, so that it writes into the old file for a moment: the old one is read
on for OLD_S. A file that was rotated twice between two looks is found by its inode among the files beside it.

Must not know: what is in a line.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["LINE_BYTES_MAX", "Followed", "last_lines"]

OLD_S = 60.0  # a writer that is stopped for longer than this loses the line of that moment, for this reader only
READ_BYTES = 1 << 20
LINE_BYTES_MAX = 16 << 20  # a longer line is passed on in pieces


@dataclass(slots=True)
class _File:
    fd: int
    inode: int
    begun: bytes = b""  # of a line whose end is not written yet
    old_since: float | None = None  # monotonic; None: it has the name

    def lines(self) -> Iterator[bytes]:
        """Yields the lines that are whole, without their ends."""
        position = os.lseek(self.fd, 0, os.SEEK_CUR)
        if os.fstat(self.fd).st_size < position:  # cut to length by a program that copies and truncates
            os.lseek(self.fd, 0, os.SEEK_SET)
            self.begun = b""
        while data := os.read(self.fd, READ_BYTES):
            *whole, self.begun = (self.begun + data).split(b"\n")
            yield from whole
            if len(self.begun) > LINE_BYTES_MAX:
                yield self.begun
                self.begun = b""


class Followed:
    """One log that is followed from its end on, or with ``from_start`` from its beginning."""

    def __init__(
        self, path: Path, *, from_start: bool = False, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._path = path
        self._monotonic = monotonic
        self._files: list[_File] = []
        self._known = set() if from_start else self._beside()
        self.begun_at = 0  # offset in the file that has the name
        self._find(at_end=not from_start)

    def lines(self) -> Iterator[bytes]:
        """Yields what was written since the last call; older files first. Raises OSError."""
        for file in self._files:
            yield from file.lines()
        if self._find():
            for file in self._files:  # the old one once more: it was written to until it was renamed
                yield from file.lines()
        now = self._monotonic()
        for file in [each for each in self._files if each.old_since is not None and now - each.old_since > OLD_S]:
            os.close(file.fd)
            self._files.remove(file)

    def close(self) -> None:
        """Closes all files."""
        for file in self._files:
            os.close(file.fd)
        self._files.clear()

    def _find(self, *, at_end: bool = False) -> bool:
        """Opens the file that has the name now, and those that had it since the last look; returns whether there are any."""
        try:
            inode: int | None = os.stat(self._path).st_ino
        except FileNotFoundError:
            inode = None  # renamed, and not created again yet: but one that came and went since the last look is found below
        if inode is not None and any(file.inode == inode and file.old_since is None for file in self._files):
            return False
        now = self._monotonic()
        for file in self._files:
            if file.old_since is None and inode is not None:  # without a new one, the writers still have this one
                file.old_since = now
        open_now = {file.inode for file in self._files}
        found = self._beside_by_age()
        for beside, path in found:
            if beside not in open_now and beside not in self._known and beside != inode:
                self._open(path, old_since=now)
        # Those that were deleted are left out, because a new file may get the inode of one.
        self._known = {beside for beside, _ in found}
        if inode is not None:
            self._open(self._path)
            self._known.add(inode)
        if at_end and self._files:
            self.begun_at = os.lseek(self._files[-1].fd, 0, os.SEEK_END)
        return True

    def _open(self, path: Path, old_since: float | None = None) -> None:
        with contextlib.suppress(FileNotFoundError):
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            inode = os.fstat(fd).st_ino
            if any(file.inode == inode for file in self._files):
                os.close(fd)
                return
            self._files.append(_File(fd, inode, old_since=old_since))

    def _beside_by_age(self) -> list[tuple[int, Path]]:
        found: list[tuple[float, int, Path]] = []
        with contextlib.suppress(FileNotFoundError):
            for entry in os.scandir(self._path.parent):
                if entry.name.startswith((f"{self._path.name}.", f"{self._path.name}-")) and entry.is_file():
                    with contextlib.suppress(FileNotFoundError):
                        status = entry.stat()
                        if not entry.name.endswith((".gz", ".xz", ".zst", ".bz2")):
                            found.append((status.st_mtime, status.st_ino, Path(entry.path)))
        return [(inode, path) for _, inode, path in sorted(found)]

    def _beside(self) -> set[int]:
        known = {inode for inode, _ in self._beside_by_age()}
        with contextlib.suppress(FileNotFoundError):
            known.add(os.stat(self._path).st_ino)
        return known


def last_lines(path: Path, count: int, end: int) -> list[bytes]:
    """Returns the last whole lines of a file before the offset ``end``; [] if it does not exist. Raises OSError."""
    if count <= 0:
        return []
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return []
    try:
        at = min(end, os.fstat(fd).st_size)
        data = b""
        while at > 0 and data.count(b"\n") <= count and len(data) < LINE_BYTES_MAX:
            size = min(READ_BYTES, at)
            at -= size
            data = os.pread(fd, size, at) + data
        lines = data.split(b"\n")[:-1]
        return lines[-count:] if at == 0 or len(lines) > count else lines[1:]
    finally:
        os.close(fd)
