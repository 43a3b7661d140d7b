"""Days, weeks and months of the portal's zone, and the UTC days in which their events lie.

A day is what a clock on the wall says it is: 23, 24 or 25 hours long, or with a half when a zone moves by half an hour. It is
taken apart into hours of 3 600 s from its beginning on, so that no hour is missing and none is there twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

__all__ = ["HOUR_S", "Day", "Period", "month_of", "not_begun", "utc_days", "week_of"]

HOUR_S = 3_600


@dataclass(frozen=True)
class Day:
    """A calendar day in a time zone."""

    date: date
    zone: str  # "Europe/Berlin"

    @property
    def begin(self) -> float:
        """Returns the beginning of the day, in seconds since 1970; included. If midnight does not exist, the time of
        the clock change."""
        return datetime.combine(self.date, time(0), ZoneInfo(self.zone)).timestamp()

    @property
    def end(self) -> float:
        """Returns the beginning of the next day, in seconds since 1970; not included."""
        return self.before(-1).begin

    @property
    def name(self) -> str:
        """Returns the name of the day's directory, "day=2026-11-20"."""
        return f"day={self.date.isoformat()}"

    def before(self, days: int) -> Day:
        """Returns the day that many days earlier."""
        return Day(self.date - timedelta(days=days), self.zone)

    def hours(self) -> list[tuple[float, str]]:
        """Returns the time at which each hour begins, and the local time with its UTC offset: "02:00 +0200" is not
        "02:00 +0100"."""
        zone, begin, end = ZoneInfo(self.zone), self.begin, self.end
        starts = [begin + HOUR_S * index for index in range(int(-(-(end - begin) // HOUR_S)))]
        return [(start, datetime.fromtimestamp(start, zone).strftime("%H:%M %z")) for start in starts]

    def partitions(self) -> list[str]:
        """Returns the UTC days that contain the day's events: "2026-11-20"."""
        return utc_days(self.begin, self.end)


def not_begun(day: Day, now: float) -> str:
    """Returns why no report of the day can be made yet; "" if the day has begun."""
    return f"{day.date} has not begun in {day.zone}; there is nothing to report yet" if now < day.begin else ""


def utc_days(begin: float, end: float) -> list[str]:
    """Returns the UTC days that [begin, end) touches."""
    first = datetime.fromtimestamp(begin, UTC).date()
    last = (datetime.fromtimestamp(end, UTC) - timedelta(microseconds=1)).date()
    return [(first + timedelta(days=index)).isoformat() for index in range((last - first).days + 1)]


@dataclass(frozen=True)
class Period:
    """Whole days added up."""

    name: str  # "week=2026-W47", "month=2026-11"
    first: date
    last: date

    def days(self, zone: str) -> list[Day]:
        """Returns the days of the week or month."""
        return [Day(self.first + timedelta(days=index), zone) for index in range((self.last - self.first).days + 1)]


def week_of(day: date) -> Period:
    """Returns the week of a day, from Monday to Sunday, named as in ISO 8601."""
    year, week, weekday = day.isocalendar()
    first = day - timedelta(days=weekday - 1)
    return Period(f"week={year}-W{week:02d}", first, first + timedelta(days=6))


def month_of(day: date) -> Period:
    """Returns the month that contains the day."""
    first = day.replace(day=1)
    after = (first + timedelta(days=31)).replace(day=1)
    return Period(f"month={first:%Y-%m}", first, after - timedelta(days=1))
