"""Parses Postfix's main.cf as in postconf(5): logical lines, comments, and all forms of ``$name``.

Pure: text in, values out; ``postconf`` is needed only by the tests. Law: parsing ends for any text: a name that refers to
itself, or is nested too deeply, becomes a reported fault and is not expanded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

__all__ = ["MainCf", "logical_lines", "parse_main_cf", "split_list"]

EXPANSION_DEPTH_MAX = 50  # Postfix gives up at 100; a name within a name within a name is three
EXPANSION_CHARACTERS_MAX = 1 << 20  # of one value: nested names may double it with each step

_NAME = re.compile(r"[A-Za-z0-9_]+")
_ASSIGNMENT = re.compile(r"(?P<name>[^=\s][^=]*?)\s*=\s*(?P<value>.*)", re.DOTALL)
_COMPARE = re.compile(r"\s*(==|!=|<=|>=|<|>)(level)?\s*")  # "<=level" compares releases, 3.10 after 3.9


class _TooDeep(Exception):
    """A value refers to itself or is nested too deeply."""


def logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yields the number of the first physical line and the logical line; white space at its start continues a line.

    Empty lines and lines that start with ``#`` are comments, also between continued lines.
    """
    first, so_far = 0, ""
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if line[0].isspace():
            if so_far:  # Postfix ignores such a line at the start of a file
                so_far += " " + line.strip()
            continue
        if so_far:
            yield first, so_far
        first, so_far = number, line.rstrip()
    if so_far:
        yield first, so_far


def split_list(value: str) -> list[str]:
    """Splits at commas and white space; braces group one element."""
    found: list[str] = []
    depth, word = 0, ""
    for character in value:
        depth += {"{": 1, "}": -1}.get(character, 0)
        if depth <= 0 and (character.isspace() or character == ","):
            if word:
                found.append(word)
            word = ""
        else:
            word += character
    return [*found, word] if word else found


def parse_main_cf(text: str) -> tuple[dict[str, str], dict[str, int], list[str]]:
    """Returns the values as written, their lines, and the faults. The last of several values of a name counts."""
    values: dict[str, str] = {}
    lines: dict[str, int] = {}
    faults: list[str] = []
    for number, line in logical_lines(text):
        if match := _ASSIGNMENT.fullmatch(line):
            values[match["name"]] = match["value"].strip()
            lines[match["name"]] = number
        else:
            faults.append(f"main.cf:{number}: is not of the form name = value")
    return values, lines, faults


class MainCf:
    """The parameters; ``defaults`` apply to those that are not set."""

    def __init__(self, text: str, defaults: Mapping[str, str] | None = None) -> None:
        self.given, self.lines, self.faults = parse_main_cf(text)
        self._defaults = defaults or {}

    def __contains__(self, name: str) -> bool:
        return name in self.given

    def raw(self, name: str) -> str:
        """Returns a value as written, or its default; "" if there is neither."""
        return self.given.get(name, self._defaults.get(name, ""))

    def value(self, name: str, overrides: Mapping[str, str] | None = None) -> str:
        """Returns a value with all names expanded; ``overrides`` are the ``-o`` options of a service."""
        overrides = overrides or {}
        text = overrides[name] if name in overrides else self.raw(name)
        return self.expand(text, overrides, name)

    def list(self, name: str) -> list[str]:
        """Returns an expanded value as a list."""
        return split_list(self.value(name))

    def expand(self, text: str, overrides: Mapping[str, str] | None = None, name: str = "") -> str:
        """Expands all names in a text; "" and a fault if that does not end."""
        try:
            return self._expand(text, overrides or {}, 0).strip()
        except _TooDeep:
            line = f":{self.lines[name]}" if name in self.lines else ""
            fault = f"main.cf{line}: {name or 'a value'} refers to itself or is too long; treated as empty"
            if fault not in self.faults:
                self.faults.append(fault)
            return ""

    def fault_of(self, name: str) -> str:
        """Returns the fault of the line of a setting; "" without one."""
        return next((each for each in self.faults if each.startswith(f"main.cf:{self.lines.get(name)}: ")), "")

    def _expand(self, text: str, overrides: Mapping[str, str], depth: int) -> str:
        if depth > EXPANSION_DEPTH_MAX:
            raise _TooDeep
        if "$" not in text:
            return text
        out: list[str] = []
        length = at = 0
        while at < len(text):
            sign = text.find("$", at)
            if sign < 0:
                out.append(text[at:])
                break
            out.append(text[at:sign])
            piece, at = self._macro(text, sign + 1, overrides, depth)
            out.append(piece)
            length += len(piece)
            if length > EXPANSION_CHARACTERS_MAX:
                raise _TooDeep
        return "".join(out)

    def _macro(self, text: str, at: int, overrides: Mapping[str, str], depth: int) -> tuple[str, int]:
        """Returns the expansion of the ``$`` before ``at``, and the offset after it."""
        following = text[at : at + 1]
        if following == "$":
            return "$", at + 1
        if following in ("{", "("):
            inside, end = _balanced(text, at)
            return self._braced(inside, overrides, depth + 1), end
        if match := _NAME.match(text, at):
            return self._named(match[0], overrides, depth + 1), match.end()
        return "$", at  # Postfix warns, and takes it as it is

    def _named(self, name: str, overrides: Mapping[str, str], depth: int) -> str:
        text = overrides[name] if name in overrides else self.raw(name)
        return self._expand(text, overrides, depth)

    def _braced(self, inside: str, overrides: Mapping[str, str], depth: int) -> str:
        """Expands ``name``, ``name?then``, ``name:else``, ``name?{then}:{else}``, ``{a} == {b} ? {then} : {else}``."""
        if inside.lstrip().startswith("{"):
            return self._compared(inside.strip(), overrides, depth)
        match = _NAME.match(inside.strip())
        if match is None:
            return ""
        rest = inside.strip()[match.end() :].lstrip()
        value = self._named(match[0], overrides, depth)
        if not rest:
            return value
        return self._chosen(bool(value), rest, overrides, depth)

    def _chosen(self, true: bool, rest: str, overrides: Mapping[str, str], depth: int) -> str:
        """Expands ``?then``, ``:else`` (nothing if the name has a value), or both."""
        operator, rest = rest[:1], rest[1:]
        if operator == ":":
            return "" if true else self._expand(_unbraced(rest), overrides, depth)
        if operator != "?":
            return ""
        last = ""
        if rest.lstrip().startswith("{"):
            rest = rest.lstrip()
            then, end = _balanced(rest, 0)
            behind = rest[end:].lstrip()
            last = _unbraced(behind[1:]) if behind.startswith(":") else ""
        else:
            then = rest
        return self._expand(then.strip() if true else last, overrides, depth)

    def _compared(self, text: str, overrides: Mapping[str, str], depth: int) -> str:
        left, end = _balanced(text, 0)
        match = _COMPARE.match(text, end)
        if match is None or not text[match.end() :].startswith("{"):
            return ""
        right, end = _balanced(text, match.end())
        one = self._expand(left.strip(), overrides, depth)
        other = self._expand(right.strip(), overrides, depth)
        return self._chosen(_holds(one, match[1], other, bool(match[2])), text[end:].lstrip(), overrides, depth)


def _holds(one: str, operator: str, other: str, levels: bool) -> bool:
    """Compares numbers as numbers and everything else as text, as in mac_expand(3)."""
    left, right = _level(one, levels), _level(other, levels)
    as_text = left is None or right is None
    sign = (one > other) - (one < other) if as_text else (left > right) - (left < right)  # type: ignore[operator]
    return {
        "==": sign == 0,
        "!=": sign != 0,
        "<": sign < 0,
        "<=": sign <= 0,
        ">": sign > 0,
        ">=": sign >= 0,
    }[operator]


def _level(text: str, levels: bool) -> tuple[int, ...] | None:
    """Parses a number, or a release such as 3.6, to its parts; None if it is neither."""
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9}){0,2}" if levels else r"[0-9]{1,18}", text):
        return None
    parts = [int(part) for part in text.split(".")]
    return tuple(parts + [0] * (3 - len(parts)))


def _balanced(text: str, at: int) -> tuple[str, int]:
    """Returns the text between the bracket at ``at`` and its partner, and the offset after it; without partner, all."""
    opening = text[at]
    closing = {"{": "}", "(": ")"}[opening]
    depth = 0
    for position in range(at, len(text)):
        if text[position] == opening:
            depth += 1
        elif text[position] == closing:
            depth -= 1
            if not depth:
                return text[at + 1 : position], position + 1
    return text[at + 1 :], len(text)


def _unbraced(text: str) -> str:
    text = text.strip()
    if text.startswith("{"):
        return _balanced(text, 0)[0].strip()
    return text
