"""The result of a translation: a waypost.toml under construction, and a finding about each setting of Postfix.

Law: every setting of the old host has a finding: taken over, changed (and why), or not taken over (and the consequence).

Keeps law: every-setting-has-a-finding (docs/laws.md).
"""

from __future__ import annotations

import enum
import json
from dataclasses import dataclass, field
from typing import Any

from mailcore.bounds import Kind, bounds_by_name
from mailcore.config.settings import SECTIONS, Transport
from mailcore.import_postfix.values import number, seconds
from mailcore.scheduler.feedback import Feedback

__all__ = ["Draft", "Fate", "Finding", "Take"]


class Fate(enum.Enum):
    """The result for a setting."""

    TAKEN = "taken over"
    CHANGED = "changed"
    LEFT = "not taken over"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result for one setting. ``where``: "main.cf:12"; ``what``: the setting as written; ``said``: the explanation."""

    fate: Fate
    where: str
    what: str
    said: str


@dataclass(frozen=True, slots=True)
class Take:
    """How a value is parsed. ``unit``: default unit of a time, "" for a number, "feedback" or "flag".

    ``zero``: the special meaning of 0, such as "unlimited".
    """

    unit: str = ""
    zero: str = ""


@dataclass
class Draft:
    """The tables of the new file, and the findings."""

    sections: dict[str, dict[str, Any]] = field(default_factory=dict)
    transports: dict[str, dict[str, Any]] = field(default_factory=dict)
    tls_policies: dict[str, dict[str, Any]] = field(default_factory=dict)  # by pattern
    milters: dict[str, dict[str, Any]] = field(default_factory=dict)  # by address
    listeners: list[dict[str, Any]] = field(default_factory=list)
    keywords: dict[str, dict[str, Any]] = field(default_factory=dict)  # tables of masked keywords, by network
    routes: dict[str, str] = field(default_factory=dict)
    sender_routes: dict[str, str] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    # Findings

    def taken(self, where: str, what: str, said: str) -> None:
        """Adds a finding: taken over."""
        self.findings.append(Finding(Fate.TAKEN, where, what, said))

    def changed(self, where: str, what: str, said: str) -> None:
        """Adds a finding: taken over with a change."""
        self.findings.append(Finding(Fate.CHANGED, where, what, said))

    def left(self, where: str, what: str, said: str) -> None:
        """Adds a finding: not taken over."""
        self.findings.append(Finding(Fate.LEFT, where, what, said))

    # Settings

    def put(self, section: str, key: str, value: Any) -> None:
        """Sets a value of a section, without a finding."""
        self.sections.setdefault(section, {})[key] = value

    def measure(self, section: str, key: str, text: str, take: Take, where: str, what: str) -> None:
        """Sets a number or time of a section within its bounds, and adds a finding."""
        kind = SECTIONS[section]
        target = self.sections.setdefault(section, {})
        self._bounded(target, f"[{section}]", kind, key, text, take, where, what)

    def tune(self, transport: str, key: str, text: str, take: Take, where: str, what: str) -> None:
        """Sets a parameter of a transport within its bounds, and adds a finding."""
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
            default = "Waypost uses its default"
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
        """Returns the text of the file; ``head`` are lines of its first comment."""
        lines = [*(f"# {line}".rstrip() for line in head), "", f"home = {_toml(home)}"]
        for name, table in self.sections.items():
            lines += _table(name, table)
        for name, table in self.transports.items():
            lines += _table(f"transports.{name}", table)
        for pattern, table in self.tls_policies.items():
            lines += _table(f"tls_policy.{_toml(pattern)}", table)
        for table in self.listeners:
            lines += _table("[listener]", table)
        for address, table in self.milters.items():
            lines += _table("[milter]", {"address": address, **table})
        for name, table in self.keywords.items():
            lines += _table(name, table, quoted=True)
        lines += _table("routes", self.routes, quoted=True)
        lines += _table("sender_routes", self.sender_routes, quoted=True)
        return "\n".join(lines) + "\n"


def _read(kind: type, key: str, text: str, take: Take) -> tuple[Any, str]:
    """Returns the value within the bounds of the setting, and why it differs from Postfix's. Raises ValueError."""
    if take.unit == "feedback":
        return str(Feedback.parse(text)), ""
    if take.unit == "flag":
        return text.strip().lower() == "yes", ""
    given = seconds(text, take.unit) if take.unit else number(text)
    bounds = bounds_by_name(kind)[key]
    low, high = bounds.low, bounds.high
    value: float = given
    note = ""
    if take.zero and not given:
        value, note = high, f"0 means {take.zero} in Postfix; this is the maximum of Waypost"
    elif given < low:
        value, note = low, f"{given} is below the minimum of Waypost"
    elif given > high:
        value, note = high, f"{given} is above the maximum of Waypost"
    return (int(value) if bounds.kind is Kind.WHOLE else float(value)), note


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
