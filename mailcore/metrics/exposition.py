"""Metric families and their text: Prometheus' exposition format 0.0.4, or OpenMetrics 1.0 if the scraper asks. Pure.

Written here and not with a library: decision 0040 compares it with prometheus-client.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat

__all__ = ["CONTENT_TYPE", "OPEN_CONTENT_TYPE", "Family", "text_of"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OPEN_CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
_NAME = re.compile(r"waypost_[a-z][a-z0-9_]*\Z")


@dataclass(slots=True)
class Family:
    """One metric: a counter, a gauge or a histogram, with a value for each set of labels."""

    name: str
    help: str
    kind: str = "gauge"
    samples: list[tuple[dict[str, str], float]] = field(default_factory=list)
    parts: list[str] = field(default_factory=list)  # of a histogram: what is behind the name, for each sample

    def add(self, value: float | None, **labels: str) -> None:
        """Adds a value; None adds nothing."""
        if value is not None:
            self.samples.append((labels, float(value)))

    def add_histogram(self, bounds: Sequence[float], counts: Sequence[int], total: float, **labels: str) -> None:
        """Adds a histogram; ``counts`` has one more than ``bounds``."""
        below = 0
        for bound, count in zip((*bounds, float("inf")), counts, strict=True):
            below += count
            self._part("_bucket", below, labels | {"le": "+Inf" if bound == float("inf") else repr(float(bound))})
        self._part("_sum", total, labels)
        self._part("_count", below, labels)

    def _part(self, part: str, value: float, labels: dict[str, str]) -> None:
        self.parts.append(part)
        self.samples.append((labels, float(value)))

    def check(self) -> None:
        """Raises ValueError if the name is against Prometheus' rules."""
        if not _NAME.match(self.name) or (self.kind == "counter") != self.name.endswith("_total"):
            raise ValueError(self.name)


def text_of(families: Iterable[Family], *, is_open: bool = False) -> str:
    """Returns the text; families without a value are left out. ``is_open``: as OpenMetrics."""
    lines: list[str] = []
    for family in families:
        family.check()
        if not family.samples:
            continue
        name = family.name.removesuffix("_total") if is_open else family.name
        help_text = _escaped(family.help)
        lines.append(f"# HELP {name} " + (help_text.replace('"', '\\"') if is_open else help_text))
        lines.append(f"# TYPE {name} {family.kind}")
        parts = family.parts or repeat("")
        lines += [
            f"{family.name}{part}{_labels(labels)} {_number(value)}"
            for part, (labels, value) in zip(parts, family.samples, strict=False)
        ]
    if is_open:
        lines.append("# EOF")
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
