"""Header checks: a file of patterns, which are compared with each header field; the first that is found says what to do.

As Postfix's header_checks(5) with tables of regexp_table(5). A line is ``/PATTERN/FLAGS ACTION TEXT``, with ``!`` in front for
"does not match"; ``if /PATTERN/`` ... ``endif`` surround lines for fields that match. ``$1`` to ``$9`` in TEXT are
groups. A field is compared as one text, folded lines joined by LF; case does not matter, and a dot is any character, LF too.

Laws
- A file is read as a whole or not at all; a fault names file and line.
- All patterns together have the time of a ``Budget`` for a message, and each has PATTERN_TIMEOUT_S for a field.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import regex

from mailcore.counted import counted
from mailcore.rewriting.actions import Action, Deed
from mailcore.rewriting.address_map import GROUP, PATTERNS_MAX, REGEXP, filled
from mailcore.rewriting.budget import PATTERN_TIMEOUT_S, Budget, PatternTooSlow
from mailcore.rewriting.map_text import MapFault, logical_lines, read_text
from mailcore.routing.address import is_mailbox

__all__ = ["HeaderChecks", "read_checks"]

FLAGS = {"i": regex.IGNORECASE, "m": regex.MULTILINE, "s": regex.DOTALL}  # each letter switches
FLAGS_AT_FIRST = regex.IGNORECASE | regex.DOTALL  # as pcre_table(5)
IFS_MAX = 100  # nested

_PATTERN = re.compile(r"(!?)\s*([^\w\s!])((?:\\.|(?!\2)[^\\])+)\2([A-Za-z]*)(?:\s+(.*))?", re.DOTALL)


_NEED_TEXT = (Deed.PREPEND, Deed.REPLACE)
_NEED_ADDRESS = (Deed.BCC, Deed.REDIRECT)


class _Line(NamedTuple):
    pattern: regex.Pattern[str] | None  # None: endif
    negated: bool
    action: Action | None  # None: if, or endif
    place: str


class HeaderChecks:
    """Holds the lines of one file."""

    def __init__(self, lines: list[_Line]) -> None:
        self._lines = lines
        self._ends = _ends(lines)

    def __len__(self) -> int:
        return len(self._lines)

    def find(self, field: str, budget: Budget) -> Action | None:
        """Returns what the first line that matches says; None if none does. Raises PatternTooSlow."""
        at, lines = 0, self._lines
        while at < len(lines):
            line = lines[at]
            if line.pattern is not None:
                match = _search(line, field, budget)
                if (match is not None) is not line.negated:
                    if line.action is not None:
                        text = line.action.text
                        return line.action._replace(text=filled(text, match)) if match is not None else line.action
                elif line.action is None:
                    at = self._ends[at]
            at += 1
        return None


def _search(line: _Line, field: str, budget: Budget) -> regex.Match[str] | None:
    assert line.pattern is not None
    seconds = budget.for_pattern()
    try:
        if seconds > 0:
            return line.pattern.search(field, timeout=seconds)
    except TimeoutError:
        pass
    if seconds < PATTERN_TIMEOUT_S:  # the rest of the message's time: others had used it
        why = "the patterns take too long for the header of the message"
    else:
        why = f"the pattern takes too long for {field[:100]!a}"
    raise PatternTooSlow(f"{line.place}: {why}")


def _ends(lines: list[_Line]) -> dict[int, int]:
    """Returns for each ``if`` the index of its ``endif``. Raises MapFault."""
    ends: dict[int, int] = {}
    begun: list[int] = []
    for index, line in enumerate(lines):
        if line.action is not None:
            continue
        if line.pattern is not None:
            begun.append(index)
            if len(begun) > IFS_MAX:
                raise MapFault(f"{line.place}: more than {IFS_MAX} nested 'if'")
        elif not begun:
            raise MapFault(f"{line.place}: 'endif' without 'if'")
        else:
            ends[begun.pop()] = index
    if begun:
        raise MapFault(f"{lines[begun[-1]].place}: 'if' without 'endif'")
    return ends


def read_checks(name: str) -> HeaderChecks:
    """Reads a file. ``name`` is its path; ``regexp:`` in front may be left out. Raises MapFault."""
    path = name.removeprefix(REGEXP)
    faults: list[str] = []
    lines: list[_Line] = []
    for number, text in logical_lines(read_text(path)):
        place = f"{path}:{number}"
        try:
            lines.append(_line(text, place))
        except ValueError as error:
            faults.append(f"{place}: {error}")
    if len(lines) > PATTERNS_MAX:
        faults.append(f"{path}: has {counted(len(lines), 'pattern')}; at most {PATTERNS_MAX} are allowed")
    if faults:
        raise MapFault("\n".join(faults))
    return HeaderChecks(lines)


def _line(text: str, place: str) -> _Line:
    word, _, rest = text.partition(" ")
    if word.lower() == "endif":
        return _Line(None, False, None, place)
    is_if = word.lower() == "if"
    match = _PATTERN.fullmatch(rest.strip() if is_if else text)
    if match is None:
        raise ValueError("must be /PATTERN/ and an action, 'if /PATTERN/' or 'endif'")
    pattern = _compiled(match[3].replace(f"\\{match[2]}", match[2]), match[4])
    negated = bool(match[1])
    if is_if:
        if match[5]:
            raise ValueError(f"{match[5]!a} after 'if /PATTERN/'; the action is a line of its own")
        return _Line(pattern, negated, None, place)
    return _Line(pattern, negated, _action(match[5] or "", 0 if negated else pattern.groups, place), place)


def _compiled(text: str, letters: str) -> regex.Pattern[str]:
    flags = FLAGS_AT_FIRST
    for letter in letters:
        if letter not in FLAGS:
            raise ValueError(f"the flag {letter!a} is not supported; allowed: {', '.join(FLAGS)}")
        flags ^= FLAGS[letter]
    try:
        return regex.compile(text, flags)
    except regex.error as error:
        raise ValueError(f"not a regular expression: {error}") from None


def _action(text: str, groups: int, place: str) -> Action:
    name, _, rest = text.partition(" ")
    try:
        deed = Deed(name.lower())
    except ValueError:
        allowed = ", ".join(each.name for each in Deed)
        raise ValueError(f"{name!a} is not an action; allowed: {allowed}") from None
    rest = rest.strip()
    for group in GROUP.finditer(rest):
        number = int(group[1] or group[2] or group[3] or 0)
        if number > groups:
            raise ValueError(f"${number}: the pattern has {counted(groups, 'group')}")
    if not rest and deed in _NEED_TEXT:
        raise ValueError(f"{deed.name} needs a header field")
    if deed in _NEED_ADDRESS and not GROUP.search(rest) and not is_mailbox(rest):
        raise ValueError(f"{deed.name}: {rest!a} is not an address")
    return Action(deed, rest, place)
