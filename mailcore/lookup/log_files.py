"""The files of ``mail.jsonl``: the one that is written, and those that had its name before, compressed ones too.

A place is a number made of the first line of its file, and an offset in it: it stays good when the file is rotated, and when it
is compressed. A file without a whole line has its inode as number.

Must not know: which lines are wanted.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import json
import lzma
import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["DAMAGED", "WHOLE", "LogFile", "PlaceError", "log_files", "pieces_of", "place_of", "time_of_first"]

FIRST_BYTES = 64 << 10  # that hold the first line
PIECE_BYTES = 1 << 20  # of a compressed file
WHOLE = 1 << 62  # the size of a compressed file, which is not known before it is read
COMPRESSED: dict[str, Callable[[Path], Any]] = {".gz": gzip.GzipFile, ".xz": lzma.LZMAFile, ".bz2": bz2.BZ2File}
NOT_READ = (".zst", ".lz4", ".zip")  # Python has no reader of these
DAMAGED = (OSError, EOFError, lzma.LZMAError, zlib.error)  # errors of reading a compressed file


class PlaceError(ValueError):
    """A place that is none."""


class LogFile(NamedTuple):
    """One file."""

    number: int
    inode: int
    path: Path
    size: int  # WHOLE if it is compressed

    @property
    def is_compressed(self) -> bool:
        """Returns whether the file has to be read from its beginning."""
        return self.path.suffix in COMPRESSED


def log_files(path: Path) -> list[LogFile]:
    """Returns the file and those that had its name before, oldest first. A file that is just being compressed comes once."""
    found: list[tuple[bool, float, LogFile]] = []
    with contextlib.suppress(FileNotFoundError):
        for entry in os.scandir(path.parent):
            is_it = entry.name == path.name
            if not is_it and not entry.name.startswith((f"{path.name}.", f"{path.name}-")):
                continue
            if entry.name.endswith(NOT_READ):
                continue
            with contextlib.suppress(FileNotFoundError):
                status = entry.stat()
                if entry.is_file():
                    file = Path(entry.path)
                    size = WHOLE if file.suffix in COMPRESSED else status.st_size
                    number = _number(_first_line(file), status.st_ino)
                    found.append((is_it, status.st_mtime, LogFile(number, status.st_ino, file, size)))
    plain = {file.number for *_, file in found if not file.is_compressed}
    ordered = [file for *_, file in sorted(found, key=lambda each: each[:2])]
    return [file for file in ordered if not (file.is_compressed and file.number in plain)]


def place_of(text: str) -> tuple[int, int]:
    """Returns number and offset of a place. Raises PlaceError."""
    number, colon, offset = text.partition(":")
    if not (colon and number.isascii() and number.isdecimal() and offset.isascii() and offset.isdecimal()):
        raise PlaceError(f"{text[:50]!r} is not a place in the log")
    return int(number), int(offset)


def pieces_of(file: LogFile, end: int) -> Iterator[tuple[int, list[bytes]]]:
    """Yields the whole lines of a compressed file in front of ``end``, in pieces: the offset of the first, and they.

    Raises what is in DAMAGED.
    """
    at, rest = 0, b""
    with COMPRESSED[file.path.suffix](file.path) as opened:
        while at + len(rest) < end and (data := opened.read(PIECE_BYTES)):
            *lines, rest_after = (rest + data).split(b"\n")
            length = sum(map(len, lines)) + len(lines)
            if at + length > end:
                lines = _in_front(lines, end - at)
            yield at, lines
            at, rest = at + length, rest_after


def time_of_first(path: Path) -> float | None:
    """Returns the time of the oldest line that is left in files; None without one."""
    for file in log_files(path):
        with contextlib.suppress(ValueError):
            line: Any = json.loads(_first_line(file.path))
            if isinstance(line, dict) and isinstance(at := line.get("time"), int | float):
                return float(at)
    return None


def _in_front(lines: list[bytes], length: int) -> list[bytes]:
    kept = []
    for line in lines:
        length -= len(line) + 1
        if length < 0:
            break
        kept.append(line)
    return kept


def _first_line(path: Path) -> bytes:
    """Returns the first line; b"" if it is not whole, or cannot be read."""
    opener = COMPRESSED.get(path.suffix)
    try:
        with opener(path) if opener is not None else path.open("rb", buffering=0) as file:
            line, newline, _ = file.read(FIRST_BYTES).partition(b"\n")
    except DAMAGED:
        return b""
    return line if newline else b""


def _number(first: bytes, inode: int) -> int:
    return zlib.crc32(first) | 1 << 32 if first else inode
