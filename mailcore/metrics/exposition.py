"""Metric families and their text: Prometheus' exposition format 0.0.4. Pure.

Written here and not with a library: decision 0040 compares it with prometheus-client.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

__all__ = ["CONTENT_TYPE", "Family", "text_of"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_NAME = re.compile(r"waypost_[a-z][a-z0-9_]*\Z")


@dataclass(slots=True)
class Family:
    """One metric: a counter or a gauge, with a value for each set of labels."""

    name: str
    help: str
    kind: str = "gauge"
    samples: list[tuple[dict[str, str], float]] = field(default_factory=list)

    def add(self, value: float | None, **labels: str) -> None:
        """Adds a value; None adds nothing."""
        if value is not None:
            self.samples.append((labels, float(value)))

    def check(self) -> None:
        """Raises ValueError if the name is against Prometheus' rules."""
        if not _NAME.match(self.name) or (self.kind == "counter") != self.name.endswith("_total"):
            raise ValueError(self.name)


def text_of(families: Iterable[Family]) -> str:
    """Returns the text; families without a value are left out."""
    lines: list[str] = []
    for family in families:
        family.check()
        if not family.samples:
            continue
        lines.append(f"# HELP {family.name} {_escaped(family.help)}")
        lines.append(f"# TYPE {family.name} {family.kind}")
        lines += [f"{family.name}{_labels(labels)} {_number(value)}" for labels, value in family.samples]
    return "\n".join(lines) + "\n"


def _labels(labels: Mapping[str, str]) -> str:
    inside = ",".join(f'{name}="{_quoted(value)}"' for name, value in labels.items())
    return f"{{{inside}}}" if inside else ""


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _quoted(text: str) -> str:
    return _escaped(text.encode("utf-8", "backslashreplace").decode()).replace('"', '\\"')


def _number(value: float) -> str:
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
