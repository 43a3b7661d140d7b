"""Lines of ``mail.jsonl`` that were written before: the last that match, read backwards, over its rotations.

A piece of the file is read at a time, from the end on, and in it the lines in their order; so a sender matches the later lines
of its messages as far as they are in one piece. A place is an inode and an offset: it stays good when the file is rotated.
Files that are compressed are not read.

Must not know: who asks.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from mailcore.lookup.log_selection import Selection

__all__ = ["BUDGET_BYTES", "Line", "Lines", "PlaceError", "last", "newer"]

PIECE_BYTES = 4 << 20
BUDGET_BYTES = 32 << 20  # of one answer, about a second
COMPRESSED = (".gz", ".xz", ".zst", ".bz2")


class PlaceError(ValueError):
    """A place that is none."""


class Line(NamedTuple):
    """A line that matches, and its place."""

    place: str
    values: dict[str, Any]


class Lines(NamedTuple):
    """The lines that match, oldest first, and how many bytes were examined.

    ``older``: the place in front of which to continue; "" at the beginning. ``newest``: the end of what was read, to ask from
    there for newer ones.
    """

    lines: list[Line]
    older: str
    newest: str
    examined: int


class _File(NamedTuple):
    inode: int
    path: Path
    size: int


def last(path: Path, selection: Callable[[], Selection], limit: int, before: str = "") -> Lines:
    """Returns the last ``limit`` lines that match, in front of a place. Raises OSError, PlaceError.

    ``selection`` makes a new one for each piece.
    """
    files = _files(path)
    newest = f"{files[-1].inode}:{files[-1].size}" if files else ""
    at, end = _start(files, before)
    found: list[Line] = []
    examined = 0
    while at >= 0:
        file = files[at]
        start, begin, data = _piece(file, end)
        if data is not None:
            mine: deque[Line] = deque(maxlen=limit - len(found))
            chosen, matches = selection(), 0
            for offset, line in _lines(data[begin:]):
                if chosen.matches(line):
                    mine.append(Line(f"{file.inode}:{start + begin + offset}", line))
                    matches += 1
            found = [*mine, *found]
            examined += len(data)
            if matches > len(mine) or (len(found) == limit and matches):
                return Lines(found, found[0].place, newest, examined)
            end = start + begin if start else 0
        else:
            end = 0
        if end <= 0:
            at -= 1
            end = files[at].size if at >= 0 else 0
        if examined >= BUDGET_BYTES or len(found) >= limit:
            break
    return Lines(found, f"{files[at].inode}:{end}" if at >= 0 else "", newest, examined)


def newer(path: Path, selection: Selection, limit: int, after: str) -> Lines:
    """Returns the lines that were written after a place and match, the last ``limit`` of them. Raises OSError, PlaceError."""
    files = _files(path)
    inode, offset = _place(after)
    at = next((number for number, file in enumerate(files) if file.inode == inode), None)
    if at is None:  # compressed or deleted since
        at, offset = 0, 0
    found: deque[Line] = deque(maxlen=limit)
    newest, examined = after, 0
    for file in files[at:]:
        end = min(file.size, offset + BUDGET_BYTES - examined)
        data = _read(file, offset, end)
        if data is not None:
            whole = data[: data.rfind(b"\n") + 1]
            for where, line in _lines(whole):
                if selection.matches(line):
                    found.append(Line(f"{file.inode}:{offset + where}", line))
            newest = f"{file.inode}:{offset + len(whole)}"
            examined += len(data)
        if examined >= BUDGET_BYTES:
            break
        offset = 0
    return Lines(list(found), "", newest, examined)


def _files(path: Path) -> list[_File]:
    """Returns the file and those that had its name before, oldest first."""
    found: list[tuple[bool, float, _File]] = []
    with contextlib.suppress(FileNotFoundError):
        for entry in os.scandir(path.parent):
            is_it = entry.name == path.name
            if not is_it and not entry.name.startswith((f"{path.name}.", f"{path.name}-")):
                continue
            if entry.name.endswith(COMPRESSED):
                continue
            with contextlib.suppress(FileNotFoundError):
                status = entry.stat()
                if entry.is_file():
                    found.append((is_it, status.st_mtime, _File(status.st_ino, Path(entry.path), status.st_size)))
    return [file for _, _, file in sorted(found, key=lambda each: each[:2])]


def _place(text: str) -> tuple[int, int]:
    inode, colon, offset = text.partition(":")
    if not (colon and inode.isascii() and inode.isdecimal() and offset.isascii() and offset.isdecimal()):
        raise PlaceError(f"{text[:50]!r} is not a place in the log")
    return int(inode), int(offset)


def _start(files: list[_File], before: str) -> tuple[int, int]:
    """Returns the index of the file to begin with, and the end in it; -1 without one."""
    if not before:
        return len(files) - 1, files[-1].size if files else 0
    inode, offset = _place(before)
    for number, file in enumerate(files):
        if file.inode == inode:
            return number, min(offset, file.size)
    return -1, 0  # compressed or deleted since


def _read(file: _File, start: int, end: int) -> bytes | None:
    """Returns the bytes of a file; None if it is gone or another by now."""
    try:
        fd = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        return os.pread(fd, max(end - start, 0), start) if os.fstat(fd).st_ino == file.inode else None
    finally:
        os.close(fd)


def _piece(file: _File, end: int) -> tuple[int, int, bytes | None]:
    """Returns the last piece in front of ``end``: where it starts, how much of it is of a line that begins before it, and its
    bytes; None if the file is gone. It is longer than PIECE_BYTES if a line is."""
    size = PIECE_BYTES
    while True:
        start = max(end - size, 0)
        data = _read(file, start, end)
        if data is None or start == 0:
            return start, 0, data
        begin = data.find(b"\n") + 1
        if 0 < begin < len(data):
            return start, begin, data
        size *= 2


def _lines(data: bytes) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields the offset and the values of each whole line; the last before a crash may be torn."""
    offset = 0
    for raw in data.split(b"\n")[:-1]:
        with contextlib.suppress(ValueError):
            line = json.loads(raw)
            if isinstance(line, dict):
                yield offset, line
        offset += len(raw) + 1
