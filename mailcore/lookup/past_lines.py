"""Lines of ``mail.jsonl`` that were written before: the last that match, read backwards, over its rotations.

A piece of the file is read at a time, from the end on, and in it the lines in their order; so a sender matches the later lines
of its messages as far as they are in one piece. A compressed file is read from its beginning for each answer, and only lines in
which the given words occur are decoded. ``log_files`` has the files and their places.

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

from mailcore.counted import counted
from mailcore.lookup.log_files import DAMAGED, LogFile, PlaceError, log_files, pieces_of, place_of
from mailcore.lookup.log_selection import Selection

__all__ = ["BUDGET_BYTES", "Line", "Lines", "PlaceError", "last", "newer"]

PIECE_BYTES = 4 << 20
BUDGET_BYTES = 32 << 20  # of one answer, about a second
COMPRESSED_BYTES_MAX = 2 << 30  # of one compressed file, decompressed; the lines behind are left out


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
    note: str = ""  # why it is not complete; "" if it is


def last(path: Path, selection: Callable[[], Selection], limit: int, before: str = "") -> Lines:
    """Returns the last ``limit`` lines that match, in front of a place. Raises OSError, PlaceError.

    ``selection`` makes a new one for each piece.
    """
    files = log_files(path)
    newest = f"{files[-1].number}:{files[-1].size}" if files else ""
    at, end = _start(files, before)
    found: list[Line] = []
    examined, note = 0, ""
    while at >= 0:
        file = files[at]
        if file.is_compressed:
            kept, matches, read, words = _in_compressed(file, end, selection(), limit - len(found))
            found, examined, note = [*kept, *found], examined + read, words or note
            if matches > len(kept):
                return Lines(found, found[0].place, newest, examined, note)
            at -= 1
            end = files[at].size if at >= 0 else 0
            if examined >= BUDGET_BYTES or len(found) >= limit:
                break
            continue
        start, begin, data = _piece(file, end)
        if data is not None:
            mine: deque[Line] = deque(maxlen=limit - len(found))
            chosen, matches = selection(), 0
            for offset, line in _lines(data[begin:]):
                if chosen.matches(line):
                    mine.append(Line(f"{file.number}:{start + begin + offset}", line))
                    matches += 1
            found = [*mine, *found]
            examined += len(data)
            if matches > len(mine) or (len(found) == limit and matches):
                return Lines(found, found[0].place, newest, examined, note)
            end = start + begin if start else 0
        else:
            end = 0
        if end <= 0:
            at -= 1
            end = files[at].size if at >= 0 else 0
        if examined >= BUDGET_BYTES or len(found) >= limit:
            break
    return Lines(found, f"{files[at].number}:{end}" if at >= 0 else "", newest, examined, note)


def newer(path: Path, selection: Selection, limit: int, after: str) -> Lines:
    """Returns the lines that were written after a place and match, the last ``limit`` of them. Raises OSError, PlaceError.

    If there are more, the note says how many, and ``older`` is the place in front of which they are.
    """
    files = log_files(path)
    number, offset = place_of(after)
    at = next((index for index, file in enumerate(files) if number in (file.number, file.inode)), None)
    notes = []
    if at is None:
        at, offset = 0, 0
        notes.append("the file of this place is deleted; lines that were written since may be missing")
    found: deque[Line] = deque(maxlen=limit)
    newest, examined, matches = after, 0, 0
    for file in files[at:]:
        if file.is_compressed:
            notes.append(f"{file.path.name} was compressed since; its lines are left out")
            offset = 0
            continue
        end = min(file.size, offset + BUDGET_BYTES - examined)
        data = _read(file, offset, end)
        if data is not None:
            whole = data[: data.rfind(b"\n") + 1]
            for where, line in _lines(whole):
                if selection.matches(line):
                    found.append(Line(f"{file.number}:{offset + where}", line))
                    matches += 1
            newest = f"{file.number}:{offset + len(whole)}"
            examined += len(data)
        if examined >= BUDGET_BYTES:
            break
        offset = 0
    if matches > len(found):
        notes.append(f"{counted(matches - len(found), 'more line')} matched and came before these")
    older = found[0].place if notes and found else ""
    return Lines(list(found), older, newest, examined, "; ".join(notes))


def _start(files: list[LogFile], before: str) -> tuple[int, int]:
    """Returns the index of the file to begin with, and the end in it; -1 without one."""
    if not before:
        return len(files) - 1, files[-1].size if files else 0
    number, offset = place_of(before)
    for index, file in enumerate(files):
        if number in (file.number, file.inode):
            return index, min(offset, file.size)
    return -1, 0  # deleted since


def _read(file: LogFile, start: int, end: int) -> bytes | None:
    """Returns the bytes of a file; None if it is gone or another by now."""
    try:
        fd = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        return os.pread(fd, max(end - start, 0), start) if os.fstat(fd).st_ino == file.inode else None
    finally:
        os.close(fd)


def _in_compressed(file: LogFile, end: int, selection: Selection, limit: int) -> tuple[list[Line], int, int, str]:
    """Returns the last lines in front of ``end`` that match, how many match, the bytes that were read, and "" or why not all
    were."""
    found: deque[tuple[int, bytes, dict[str, Any] | None]] = deque(maxlen=limit)
    words = [word.encode() for word in selection.words]
    matches, read, note = 0, 0, ""
    try:
        for start, lines in pieces_of(file, end):
            at = start
            for raw in lines:
                if raw and all(word in raw for word in words):
                    line = None if selection.is_everything else _decoded(raw)
                    if selection.is_everything or (line is not None and selection.matches(line)):
                        found.append((at, raw, line))
                        matches += 1
                at += len(raw) + 1
            read = at
            if read > COMPRESSED_BYTES_MAX:
                note = f"{file.path.name} is longer than {COMPRESSED_BYTES_MAX >> 30} GB; its last lines are left out"
                break
    except DAMAGED as error:
        note = f"{file.path.name}: {str(error) or type(error).__name__}"
    kept = ((at, _decoded(raw) if line is None else line) for at, raw, line in found)
    return [Line(f"{file.number}:{at}", line) for at, line in kept if line is not None], matches, read, note


def _decoded(raw: bytes) -> dict[str, Any] | None:
    with contextlib.suppress(ValueError):
        line = json.loads(raw)
        if isinstance(line, dict):
            return line
    return None


def _piece(file: LogFile, end: int) -> tuple[int, int, bytes | None]:
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
