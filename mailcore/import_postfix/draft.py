"""What becomes of Postfix's settings: a waypost.toml in the making, and a line about each of them.

Law: every setting of the old machine has a finding: taken over, changed (and why), or not taken over (and what that means).

Keeps law: every-setting-has-a-finding (docs/laws.md).
"""

from __future__ import annotations

import enum
import json
import typing
from dataclasses import dataclass, field, fields
from typing import Any

from mailcore.config.settings import SECTIONS, Transport
from mailcore.import_postfix.values import number, seconds
from mailcore.scheduler.feedback import Feedback

__all__ = ["Draft", "Fate", "Finding", "Take"]


class Fate(enum.Enum):
    TAKEN = "taken over"
    CHANGED = "changed"
    LEFT = "not taken over"


@dataclass(frozen=True, slots=True)
class Finding:
    """``where``: "main.cf:12"; ``what``: the setting as it stands there; ``said``: what became of it."""

    fate: Fate
    where: str
    what: str
    said: str


@dataclass(frozen=True, slots=True)
class Take:
    """How a value is read. ``unit``: of a time without one, "" for a number, "feedback" or "flag". ``zero``: what 0 means,
    where it is no number like any other: "unlimited"."""

    unit: str = ""
    zero: str = ""


@dataclass
class Draft:
    """``sections``, ``transports`` and ``routes`` are tables of the file."""

    sections: dict[str, dict[str, Any]] = field(default_factory=dict)
    transports: dict[str, dict[str, Any]] = field(default_factory=dict)
    routes: dict[str, str] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    # What is said

    def taken(self, where: str, what: str, said: str) -> None:
        self.findings.append(Finding(Fate.TAKEN, where, what, said))

    def changed(self, where: str, what: str, said: str) -> None:
        self.findings.append(Finding(Fate.CHANGED, where, what, said))

    def left(self, where: str, what: str, said: str) -> None:
        self.findings.append(Finding(Fate.LEFT, where, what, said))

    # What is set

    def put(self, section: str, key: str, value: Any) -> None:
        self.sections.setdefault(section, {})[key] = value

    def measure(self, section: str, key: str, text: str, take: Take, where: str, what: str) -> None:
        """A number or time into a section, within its bounds; and what is said about it."""
        kind = SECTIONS[section]
        target = self.sections.setdefault(section, {})
        self._bounded(target, f"[{section}]", kind, key, text, take, where, what)

    def tune(self, transport: str, key: str, text: str, take: Take, where: str, what: str) -> None:
        """The same for a parameter of a transport."""
        target = self.transports.setdefault(transport, {})
        self._bounded(target, f"[transports.{transport}]", Transport, key, text, take, where, what)

    def _bounded(
        self,
        target: dict[str, Any],
        table: str,
        kind: type,
        key: str,
        text: str,
        take: Take,
        where: str,
        what: str,
    ) -> None:
        try:
            value, note = _read(kind, key, text, take)
        except ValueError as error:
            default = "Waypost's default holds"
            self.left(where, what, f"{error}; {default}")
            return
        target[key] = value
        said = f"{table} {key} = {_toml(value)}"
        if note:
            self.changed(where, what, f"{said}: {note}")
        else:
            self.taken(where, what, said)

    # The file

    def toml(self, home: str, head: list[str]) -> str:
        lines = [*(f"# {line}".rstrip() for line in head), "", f"home = {_toml(home)}"]
        for name, table in self.sections.items():
            lines += _table(name, table)
        for name, table in self.transports.items():
            lines += _table(f"transports.{name}", table)
        lines += _table("routes", self.routes, quoted=True)
        return "\n".join(lines) + "\n"


def _read(kind: type, key: str, text: str, take: Take) -> tuple[Any, str]:
    """The value within the bounds of the setting, and why it is another than in Postfix. Raises ValueError."""
    if take.unit == "feedback":
        return str(Feedback.parse(text)), ""
    if take.unit == "flag":
        return text.strip().lower() == "yes", ""
    given = seconds(text, take.unit) if take.unit else number(text)
    (metadata,) = (each.metadata for each in fields(kind) if each.name == key)
    low, high = metadata["low"], metadata["high"]
    whole = typing.get_type_hints(kind)[key] is int
    value: float = given
    note = ""
    if take.zero and not given:
        value, note = high, f"0 is {take.zero} in Postfix; this is the most Waypost allows"
    elif given < low:
        value, note = low, f"{given} is less than Waypost allows"
    elif given > high:
        value, note = high, f"{given} is more than Waypost allows"
    return (int(value) if whole else float(value)), note


def _table(name: str, table: dict[str, Any], quoted: bool = False) -> list[str]:
    if not table:
        return []
    rows = [f"{_toml(key) if quoted else key} = {_toml(value)}" for key, value in table.items()]
    return ["", f"[{name}]", *rows]


def _toml(value: Any) -> str:
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, str):
        return json.dumps(value).replace("\x7f", "\\u007f")
    return json.dumps(value)
