"""Days of 23, 24 and 25 hours, and the weeks and months they are in."""

from __future__ import annotations

from datetime import date

import pytest

from appliance.pipeline.days import Day, month_of, not_begun, utc_days, week_of


@pytest.mark.parametrize(
    ("day", "zone", "hours"),
    [
        (date(2026, 3, 29), "Europe/Berlin", 23),
        (date(2026, 10, 25), "Europe/Berlin", 25),
        (date(2026, 11, 20), "Europe/Berlin", 24),
        (date(2026, 3, 8), "America/New_York", 23),
        (date(2026, 11, 1), "America/New_York", 25),
    ],
)
def test_a_day_has_the_hours_of_the_clock_on_the_wall(day: date, zone: str, hours: int) -> None:
    made = Day(day, zone)
    assert made.end - made.begin == hours * 3_600
    assert len(made.hours()) == hours
    assert made.end == made.before(-1).begin


def test_the_hour_that_is_there_twice_is_two_hours_and_the_missing_one_is_none() -> None:
    assert [clock for _, clock in Day(date(2026, 10, 25), "Europe/Berlin").hours()][1:4] == [
        "01:00 +0200",
        "02:00 +0200",
        "02:00 +0100",
    ]
    assert [clock for _, clock in Day(date(2026, 3, 29), "Europe/Berlin").hours()][1:3] == [
        "01:00 +0100",
        "03:00 +0200",
    ]


def test_a_day_without_midnight_begins_when_the_clock_moved() -> None:
    day = Day(date(2018, 11, 4), "America/Sao_Paulo")  # from 23:59:59 to 01:00:00
    assert day.begin == day.before(1).end
    assert day.end - day.begin == 23 * 3_600
    assert day.hours()[0][1] == "01:00 -0200"


def test_half_hours_lose_nothing() -> None:
    day = Day(date(2026, 4, 5), "Australia/Lord_Howe")  # back by half an hour
    assert day.end - day.begin == 24.5 * 3_600
    assert len(day.hours()) == 25


def test_the_utc_days_that_hold_a_day() -> None:
    assert Day(date(2026, 11, 20), "UTC").partitions() == ["2026-11-20"]
    assert Day(date(2026, 11, 20), "Europe/Berlin").partitions() == ["2026-11-19", "2026-11-20"]
    assert Day(date(2026, 11, 20), "America/New_York").partitions() == ["2026-11-20", "2026-11-21"]
    assert utc_days(0.0, 86_400.0) == ["1970-01-01"]


def test_weeks_and_months() -> None:
    week = week_of(date(2027, 1, 1))
    assert (week.name, week.first, week.last) == ("week=2026-W53", date(2026, 12, 28), date(2027, 1, 3))
    month = month_of(date(2026, 2, 14))
    assert (month.name, month.last) == ("month=2026-02", date(2026, 2, 28))
    assert len(month.days("UTC")) == 28


def test_a_day_begins_at_midnight_of_its_zone() -> None:
    day = Day(date(2026, 11, 20), "Pacific/Auckland")
    assert not_begun(day, day.begin) == ""
    assert "2026-11-20 has not begun" in not_begun(day, day.begin - 1)
