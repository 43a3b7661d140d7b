"""Numbers, shares, durations and sizes as the mail writes them, in the reader's way: 1,234.5 or 1.234,5 or 1 234,5."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import Any

from appliance.core.templatetags.waypost import size, span, visible
from appliance.reports.tables import Kind

__all__ = ["Writing"]

_SIGNS = {"en": (",", "."), "de": (".", ","), "fr": ("\u202f", ",")}  # between thousands, before decimals


@dataclass(frozen=True)
class Writing:
    language: str = "en"
    zone: tzinfo = UTC

    def value(self, kind: Kind, value: Any) -> str:
        """Of a cell; strangers' text made harmless, but not escaped."""
        if value is None:
            return "–"
        if kind is Kind.SHARE:
            return f"{self.number(round(float(value) * 100, 1))} %"
        if kind is Kind.SPAN:
            return self._decimals(span(float(value))) if value else "0 s"
        if kind is Kind.SIZE:
            return self._decimals(size(float(value)))
        if kind is Kind.TIME:
            at = value if isinstance(value, datetime) else datetime.fromtimestamp(float(value), UTC)
            return (at if at.tzinfo else at.replace(tzinfo=UTC)).astimezone(self.zone).strftime("%Y-%m-%d %H:%M")
        if kind is Kind.FLAG:
            return "yes" if value else "no"
        return self.number(value) if kind is Kind.NUMBER else visible(value)

    def plain(self, text: object) -> str:
        """A stranger's text made harmless."""
        return visible(text)

    def number(self, value: float) -> str:
        thousands, point = _SIGNS.get(self.language, _SIGNS["en"])
        text = (
            f"{value:,.0f}" if float(value).is_integer() else f"{value:,.1f}" if abs(value) >= 10 else f"{value:,.3g}"
        )
        return text.translate(str.maketrans(",.", thousands + point))

    def _decimals(self, text: str) -> str:
        """ "4.2 s", as ``span`` and ``size`` say it, with our own point."""
        return text.replace(".", _SIGNS.get(self.language, _SIGNS["en"])[1])
