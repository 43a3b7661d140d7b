"""The line of each key of a TOML text, and the report of a file's faults with their lines.

tomllib checks the text but keeps no positions, and neither does tomlkit. So this walks the tokens of a text that tomllib has
accepted, and leaves every spelling of a key to tomllib.

Law: every key, table and array element that tomllib returns has a line here; the first line wins when a table is opened
in several places. Knows no setting.

Keeps law: faults-name-their-line (docs/laws.md).
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

__all__ = ["FAULTS_SHOWN_MAX", "Fault", "Path", "key_lines", "located", "report"]

FAULTS_SHOWN_MAX = 20  # about one screen

Path = tuple[str | int, ...]

_TOKEN = re.compile(
    r"""(?P<string>  \"{3} (?: \\[\s\S] | [^\\] )*? \"{3} (?!\")   # the last quotes of a run close it
                   | '{3} [\s\S]*? '{3} (?!')
                   | \" (?: \\. | [^\"\\\n] )* \"
                   | ' [^'\n]* ' )
      | (?P<comment> \#[^\n]* )
      | (?P<newline> \n )
      | (?P<space>   [ \t\r]+ )
      | (?P<mark>    [][{}=,] )
      | (?P<bare>    [^][{}=,\#"'\s]+ )   # keys with their dots, numbers, dates, booleans
    """,
    re.VERBOSE,
)


class _Token(NamedTuple):
    kind: str
    text: str
    line: int


_END = _Token("newline", "\n", 0)


def key_lines(text: str) -> dict[Path, int]:
    """Returns the line (from 1) of each key, table and array element of a valid TOML text. ``("a", "b", 0)`` is a.b[0].

    ``[[a]]`` gives ``("a",)`` for the first and ``("a", 0)`` for each: a key below it is ``("a", 0, "b")``.
    """
    return _Walk(text).lines()


def _tokens(text: str) -> list[_Token]:
    found = []
    line = 1
    for match in _TOKEN.finditer(text):
        if match.lastgroup not in ("comment", "space"):
            found.append(_Token(match.lastgroup or "", match.group(), line))
        line += match.group().count("\n")
    return found


class _Walk:
    """Walks the tokens once, with recursion into arrays and inline tables, no deeper than tomllib did."""

    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._at = 0
        self._lines: dict[Path, int] = {}
        self._counts: dict[Path, int] = {}  # of arrays of tables: how many have begun

    def lines(self) -> dict[Path, int]:
        table: Path = ()
        while self._at < len(self._tokens):
            token = self._peek()
            if token.kind == "newline":
                self._at += 1
            elif token.text == "[":
                table = self._header()
            else:
                self._pair(table)
        return self._lines

    def _peek(self) -> _Token:
        return self._tokens[self._at] if self._at < len(self._tokens) else _END

    def _take(self) -> _Token:
        token = self._peek()
        self._at += 1
        return token

    def _skip(self, *texts: str) -> None:
        while self._at < len(self._tokens) and self._peek().text in texts:
            self._at += 1

    def _header(self) -> Path:
        line = self._take().line
        is_array = self._peek().text == "["
        self._skip("[")
        path = self._numbered(self._key((), until="]"), is_array, line)
        self._skip("]")
        return path

    def _numbered(self, path: Path, is_array: bool, line: int) -> Path:
        """Returns the path of a header with the number of each array of tables in it; ``is_array``: it begins one more."""
        found: Path = ()
        for place, part in enumerate(path, 1):
            found = (*found, part)
            if is_array and place == len(path):
                self._counts[found] = self._counts.get(found, 0) + 1
            if found in self._counts:
                found = (*found, self._counts[found] - 1)
            self._lines.setdefault(found, line)
        return found

    def _key(self, table: Path, until: str) -> Path:
        """Reads a dotted key up to ``until``; each part of it gets this line unless it had one before."""
        line = self._peek().line
        raw = ""
        while (token := self._take()).text != until:
            raw += token.text
        path = table
        level: Any = tomllib.loads(f"{raw} = 0")
        while isinstance(level, dict):
            (part,) = level
            path = (*path, part)
            self._lines.setdefault(path, line)
            level = level[part]
        return path

    def _pair(self, table: Path) -> None:
        self._value(self._key(table, until="="))

    def _value(self, path: Path) -> None:
        token = self._take()
        if token.text == "[":
            index = 0
            self._skip("\n", ",")
            while self._peek().text != "]":
                self._lines.setdefault((*path, index), self._peek().line)
                self._value((*path, index))
                index += 1
                self._skip("\n", ",")
            self._at += 1
        elif token.text == "{":
            self._skip("\n", ",")
            while self._peek().text != "}":
                self._pair(path)
                self._skip("\n", ",")
            self._at += 1
        else:
            while self._peek().kind == "bare":  # "1979-05-27 07:32:00" is one value of two tokens
                self._at += 1


class Fault(NamedTuple):
    """One fault of a file: the key at fault, the reason it is refused, and the line, from 1 (0: not known yet)."""

    key: Path
    reason: str
    line: int = 0

    @property
    def section(self) -> str:
        """Returns the section of the key with dots, "" at the top of the file; list elements are left out."""
        return ".".join(self._names[:-1])

    @property
    def name(self) -> str:
        """Returns the key's own name."""
        return self._names[-1]

    @property
    def _names(self) -> list[str]:
        return [part for part in self.key if isinstance(part, str)] or [""]

    def __str__(self) -> str:
        section = f"[{self.section}] " if self.section else ""
        if len(self.key) > 2 and isinstance(self.key[1], int):
            section = f"[[{self.section}]] "
        return f"{section}{self.name} {self.reason}"


def located(text: str, faults: Iterable[Fault]) -> list[Fault]:
    """Returns the faults in the order of their lines. The fault of a missing key has the line of its section."""
    lines = key_lines(text)

    def line(key: Path) -> int:
        while key and key not in lines:
            key = key[:-1]
        return lines.get(key, 1)

    placed = [fault._replace(line=line(fault.key)) for fault in faults]
    return sorted(placed, key=lambda fault: (fault.line, str(fault)))


def report(file: os.PathLike[str] | str, faults: Sequence[Fault]) -> str:
    """Returns one line for each located fault, "FILE:LINE: [section] name reason", at most FAULTS_SHOWN_MAX of them."""
    rows = [f"{file}:{fault.line}: {fault}" for fault in faults[:FAULTS_SHOWN_MAX]]
    if len(faults) > FAULTS_SHOWN_MAX:
        rows.append(f"{file}: and {len(faults) - FAULTS_SHOWN_MAX} more")
    return "\n".join(rows)
