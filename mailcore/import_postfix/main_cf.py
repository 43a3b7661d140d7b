"""Postfix's main.cf, read as postconf(5) says: logical lines, comments, and ``$name`` in its forms.

Pure: text in, values out. Nobody needs ``postconf`` for it; the tests compare with it. Law: reading ends, whatever the text
is: a name that leads to itself, or endlessly deep, is a fault that is told and not followed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

__all__ = ["MainCf", "logical_lines", "parse_main_cf", "split_list"]

EXPANSION_DEPTH_MAX = 50  # Postfix gives up at 100; a name within a name within a name is three
EXPANSION_CHARACTERS_MAX = 1 << 20  # of one value: names in names may double with each step

_NAME = re.compile(r"[A-Za-z0-9_]+")
_ASSIGNMENT = re.compile(r"(?P<name>[^=\s][^=]*?)\s*=\s*(?P<value>.*)", re.DOTALL)
_COMPARE = re.compile(r"\s*(==|!=|<=|>=|<|>)(level)?\s*")  # "<=level" compares releases, 3.10 after 3.9


class _TooDeep(Exception):
    """A value that leads to itself."""


def logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Number of the first physical line, and the whole: a line that begins with white space goes on with the one before.

    Empty lines and those whose first other character is ``#`` are comments, also amidst a line that goes on.
    """
    first, so_far = 0, ""
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if line[0].isspace():
            if so_far:  # Postfix passes over a file that begins with white space
                so_far += " " + line.strip()
            continue
        if so_far:
            yield first, so_far
        first, so_far = number, line.rstrip()
    if so_far:
        yield first, so_far


def split_list(value: str) -> list[str]:
    """Elements between commas and white space; what stands in braces is one."""
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
    """Values as written, the line of each, and what is no setting. Of a name set twice the last counts."""
    values: dict[str, str] = {}
    lines: dict[str, int] = {}
    faults: list[str] = []
    for number, line in logical_lines(text):
        if match := _ASSIGNMENT.fullmatch(line):
            values[match["name"]] = match["value"].strip()
            lines[match["name"]] = number
        else:
            faults.append(f"main.cf:{number}: is no name = value")
    return values, lines, faults


class MainCf:
    """The parameters; ``defaults`` are Postfix's own, for those that are not set."""

    def __init__(self, text: str, defaults: Mapping[str, str] | None = None) -> None:
        self.given, self.lines, self.faults = parse_main_cf(text)
        self._defaults = defaults or {}

    def __contains__(self, name: str) -> bool:
        return name in self.given

    def raw(self, name: str) -> str:
        return self.given.get(name, self._defaults.get(name, ""))

    def value(self, name: str, overrides: Mapping[str, str] | None = None) -> str:
        """With all names put in; ``overrides`` are a service's ``-o``."""
        overrides = overrides or {}
        text = overrides[name] if name in overrides else self.raw(name)
        return self.expand(text, overrides, name)

    def list(self, name: str) -> list[str]:
        return split_list(self.value(name))

    def expand(self, text: str, overrides: Mapping[str, str] | None = None, name: str = "") -> str:
        try:
            return self._expand(text, overrides or {}, 0).strip()
        except _TooDeep:
            where = name or "a value"
            fault = f"main.cf: {where} leads to itself, or is too long, and was taken as empty"
            if fault not in self.faults:
                self.faults.append(fault)
            return ""

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
        """What the ``$`` before ``at`` stands for, and where the text goes on."""
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
        """``name``, ``name?then``, ``name:else``, ``name?{then}:{else}``, ``{a} == {b} ? {then} : {else}``."""
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
        """``?then``, ``:else`` (nothing, where the name has a value), or both."""
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
    """Numbers are compared as numbers, all else as text, as in mac_expand(3)."""
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
    """A number, or a release such as 3.6 as its parts; None when it is neither."""
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9}){0,2}" if levels else r"[0-9]{1,18}", text):
        return None
    parts = [int(part) for part in text.split(".")]
    return tuple(parts + [0] * (3 - len(parts)))


def _balanced(text: str, at: int) -> tuple[str, int]:
    """What stands between the bracket at ``at`` and its partner, and where it goes on. Without a partner: all the rest."""
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
