"""Output of commands: tables for people, JSON for programs.

Law: addresses and replies come from untrusted servers and clients. Only printable characters that keep their order reach the
terminal; control characters, escape sequences and direction marks are escaped. JSON is ASCII: one document per command,
or for a list one object a line (``JsonLines``).

Keeps law: terminal-output-is-safe (docs/laws.md).
"""

from __future__ import annotations

import json
import shutil
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

import msgspec

from mailcore.faults import Fault

__all__ = [
    "JsonLines",
    "complain",
    "complain_fault",
    "cut",
    "plain",
    "print_json",
    "rows_to_lines",
    "say",
    "set_json_errors",
    "size_shown",
    "table",
    "whole_table",
    "width",
]

WIDTH = 80  # if the output is a pipe or a file
GAP = "  "
SHORTENED = "…"
COLUMN_MIN = 4  # narrower columns are unreadable

# Cc control, Cf format (with the bidirectional controls), Cs surrogate, Co private, Cn unassigned, Zl and Zp separators.
_UNSAFE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def plain(text: object) -> str:
    """Returns text with every character escaped that could move the cursor or reorder other text."""
    string = str(text)
    if string.isascii() and string.isprintable():
        return string
    return "".join(_escaped(character) if _is_unsafe(character) else character for character in string)


def _is_unsafe(character: str) -> bool:
    # Letters written from right to left reorder the text beside them.
    return unicodedata.category(character) in _UNSAFE or unicodedata.bidirectional(character) in ("R", "AL", "AN")


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")


def width(stream: TextIO) -> int:
    """Returns the number of columns of the terminal; WIDTH if the stream is not a terminal."""
    return shutil.get_terminal_size((WIDTH, 24)).columns if stream.isatty() else WIDTH


def table(heads: Sequence[str], rows: Iterable[Sequence[object]], columns: int, right: frozenset[int]) -> list[str]:
    """Formats a table that fits into ``columns``; the widest columns are shortened.

    ``right`` holds the indexes of right-aligned columns. Each row is one line.
    """
    cells = [list(heads)] + [[plain(cell) for cell in row] for row in rows]
    widths = [max(_columns(row[index]) for row in cells) for index in range(len(heads))]
    room = columns - len(GAP) * (len(widths) - 1)
    while sum(widths) > room and max(widths) > COLUMN_MIN:
        widths[widths.index(max(widths))] -= 1
    lines = []
    for row in cells:
        fitted = [_fit(cell, widths[index], index in right) for index, cell in enumerate(row)]
        lines.append(GAP.join(fitted).rstrip())
    return lines


def whole_table(heads: Sequence[str], rows: Iterable[Sequence[object]], columns: int) -> list[str]:
    """Formats a table without shortening cells; a last cell that does not fit is put on the next line."""
    cells = [list(heads)] + [[plain(cell) for cell in row] for row in rows]
    widths = [max(_columns(row[index]) for row in cells) for index in range(len(heads) - 1)]
    room = columns - sum(widths) - len(GAP) * len(widths)
    lines = []
    for *first, last in cells:
        line = GAP.join(_fit(cell, wide, False) for cell, wide in zip(first, widths, strict=True))
        if _columns(last) <= room:
            lines.append(f"{line}{GAP}{last}".rstrip())
        else:
            lines += [line.rstrip() if room >= 0 else GAP.join(first), f"{2 * GAP}{last}"]
    return lines


def cut(text: str, columns: int) -> str:
    """Shortens text, which must be plain already, to at most ``columns``."""
    return text if _columns(text) <= columns else _fit(text, columns, False)


def size_shown(size_bytes: float) -> str:
    """Formats a size in decimal units: 4 kB, 1.2 MB."""
    if size_bytes < 1000:
        return f"{size_bytes:.0f} B"
    for unit in ("kB", "MB", "GB"):
        size_bytes /= 1000
        if size_bytes < 999.5 or unit == "GB":
            break
    return f"{size_bytes:.1f} {unit}" if size_bytes < 9.95 else f"{size_bytes:.0f} {unit}"


def rows_to_lines(pairs: Iterable[tuple[str, object]]) -> list[str]:
    """Formats names and values, one pair per line, with aligned values."""
    listed = [(name, plain(value)) for name, value in pairs]
    longest = max((len(name) for name, _ in listed), default=0)
    return [f"{name + ':':<{longest + 1}} {value}".rstrip() for name, value in listed]


def _columns(text: str) -> int:
    if text.isascii():
        return len(text)
    return sum(_character_columns(character) for character in text)


def _character_columns(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1


def _fit(text: str, columns: int, right: bool) -> str:
    have = _columns(text)
    if have <= columns:
        gap = " " * (columns - have)
        return gap + text if right else text + gap
    kept = ""
    used = 0
    for character in text:
        wide = _character_columns(character)
        if used + wide > columns - 1:
            break
        kept += character
        used += wide
    return kept + SHORTENED + " " * (columns - 1 - used)


def say(text: str = "") -> None:
    """Prints a line on stdout; characters outside its encoding are escaped."""
    encoding = sys.stdout.encoding or "ascii"
    print(text.encode(encoding, "backslashreplace").decode(encoding))


class _Errors:
    """How errors and notes are printed: as text, or as a JSON object a line."""

    as_json = False


def set_json_errors(as_json: bool) -> None:
    """Sets how ``complain`` and ``complain_fault`` print from now on."""
    _Errors.as_json = as_json


def complain(text: object) -> None:
    """Prints a note or an error as one line on stderr; with --json ``{"note": ...}``."""
    one_line = "; ".join(str(text).splitlines())
    if _Errors.as_json:
        print(json.dumps({"note": one_line}), file=sys.stderr)
    else:
        print(f"waypost: {plain(one_line)}".encode("ascii", "backslashreplace").decode(), file=sys.stderr)


def complain_fault(fault: Fault) -> None:
    """Prints an error as one line on stderr; with --json ``{"error": {"code": ..., "message": ..., "argument": ...}}``."""
    if _Errors.as_json:
        print(json.dumps({"error": msgspec.to_builtins(fault)}), file=sys.stderr)
    else:
        complain(fault.message)


def print_json(value: Any) -> None:
    """Prints one JSON document in ASCII; keys keep their order."""
    print(json.dumps(msgspec.to_builtins(value), ensure_ascii=True))


class JsonLines:
    """Prints a list as JSON lines: an object a line, and a last line ``{"end": {...}}`` that says how the list ended.

    Of ``end``: ``complete`` (nothing that was asked for is missing), ``count``, ``more`` (a limit ended the list), ``cursor``
    (where it continues; None at the end, or where the list has no cursor) and ``error``. A list without this line was cut off.
    """

    def __init__(self) -> None:
        self.count = 0

    def item(self, value: Any) -> None:
        """Prints an item."""
        print(json.dumps(msgspec.to_builtins(value), ensure_ascii=True))
        self.count += 1

    def end(
        self,
        *,
        complete: bool = True,
        more: bool = False,
        cursor: str | None = None,
        error: Fault | None = None,
        **rest: Any,
    ) -> None:
        """Prints the last line; ``rest`` are further keys of it."""
        end = {"complete": complete, "count": self.count, "more": more, "cursor": cursor, "error": error, **rest}
        print_json({"end": end})
        sys.stdout.flush()
