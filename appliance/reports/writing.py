"""Numbers, shares, durations, sizes and dates as page and mail write them: numbers in the reader's way, 1,234.5 or 1.234,5 or
1 234,5. All words are English, those of dates, too, so that a page or a mail is in one language.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, tzinfo
from typing import Any

from appliance.common.templatetags.waypost import size, span, visible
from appliance.reports.report_store import Period
from appliance.reports.tables import Kind

__all__ = ["LANGUAGES", "Writing"]


@dataclass(frozen=True)
class _Language:
    name: str
    thousands: str
    point: str
    percent: str


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


LANGUAGES = {
    "en": _Language("English", ",", ".", "%"),
    "de": _Language("German", ".", ",", "\u00a0%"),
    "fr": _Language("French", "\u202f", ",", "\u00a0%"),
}
MONTHS = _words("January February March April May June July August September October November December")
DAYS = _words("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
SHORT = 3  # letters of a month or a day in short


@dataclass(frozen=True)
class Writing:
    """How numbers and times are written: the language whose numbers they are, and the time zone."""

    language: str = "en"
    zone: tzinfo = UTC

    @property
    def _words(self) -> _Language:
        return LANGUAGES.get(self.language, LANGUAGES["en"])

    @property
    def thousands(self) -> str:
        """Returns the separator between thousands."""
        return self._words.thousands

    @property
    def example(self) -> str:
        """Returns numbers as an example."""
        return f"{self.number(1234.5)}, {self.share(0.995)}"

    def value(self, kind: Kind, value: Any) -> str:
        """Returns a cell; untrusted text is made harmless but not escaped."""
        if value is None:
            return "–"
        if kind is Kind.SHARE:
            return self.share(float(value))
        if kind is Kind.SPAN:
            return self._decimals(span(float(value))) if value else "0 s"
        if kind is Kind.SIZE:
            return self._decimals(size(float(value)))
        if kind is Kind.TIME:
            at = value if isinstance(value, datetime) else datetime.fromtimestamp(float(value), UTC)
            return (at if at.tzinfo else at.replace(tzinfo=UTC)).astimezone(self.zone).strftime("%Y-%m-%d %H:%M")
        if kind is Kind.FLAG:
            return "yes" if value else "no"
        if kind is Kind.DECIMAL:
            return self._translated(f"{float(value):,.2f}")
        return self.number(value) if kind in (Kind.NUMBER, Kind.MEASURE) else visible(value)

    def plain(self, text: object) -> str:
        """Returns untrusted text, made harmless."""
        return visible(text)

    def number(self, value: float) -> str:
        """Returns a number; below 10 with three significant digits."""
        return self._translated(
            f"{value:,.0f}" if float(value).is_integer() else f"{value:,.1f}" if abs(value) >= 10 else f"{value:,.3g}"
        )

    def share(self, value: float) -> str:
        """Returns a percentage with one decimal; only exactly all and nothing are written as 100 and 0."""
        sign, value = (">", 0.999) if 0.9995 <= value < 1 else ("<", 0.001) if 0 < value < 0.0005 else ("", value)
        return f"{sign}{self._translated(f'{value * 100:,.1f}')}{self._words.percent}"

    def points(self, difference: float) -> str:
        """Returns the difference of two shares in percentage points, "+1.2 points"."""
        points = round(difference * 100, 1)
        if not points:
            return "no change"
        sign = "+" if points > 0 else "\u2212"
        return f"{sign}{self._translated(f'{abs(points):,.1f}')} points"

    # -- dates

    def day(self, day: date) -> str:
        """Formats a day: "Friday 20 November 2026"."""
        return f"{DAYS[day.weekday()]} {_in_month(day)} {day.year}"

    def short_day(self, day: date) -> str:
        """Formats a day in short: "Fri 20 Nov"."""
        return f"{DAYS[day.weekday()][:SHORT]} {day.day} {MONTHS[day.month - 1][:SHORT]}"

    def listed_day(self, day: date) -> str:
        """Formats a day for a column of days: "Fri 2026-11-20"."""
        return f"{DAYS[day.weekday()][:SHORT]} {day.isoformat()}"

    def month(self, start: date) -> str:
        """Returns a month in words, "November 2026"."""
        return f"{MONTHS[start.month - 1]} {start.year}"

    def period(self, period: Period, start: date) -> str:
        """Formats a period: "Friday 20 November 2026"; "week 47 of 2026, 16 November – 22 November"."""
        if period is Period.DAY:
            return self.day(start)
        if period is Period.MONTH:
            return self.month(start)
        year, week, _ = start.isocalendar()
        return f"week {week} of {year}, {_in_month(start)} – {_in_month(period.last(start))}"

    # -- signs

    def _translated(self, text: str) -> str:
        return text.translate(str.maketrans(",.", self._words.thousands + self._words.point))

    def _decimals(self, text: str) -> str:
        """Replaces the decimal point in "4.2 s", as ``span`` and ``size`` write it, by the one of the language."""
        return text.replace(".", self._words.point)


def _in_month(day: date) -> str:
    return f"{day.day} {MONTHS[day.month - 1]}"
