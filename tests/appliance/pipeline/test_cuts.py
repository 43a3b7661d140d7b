"""Between which counts of the queue a day balances, and how that is said."""

from __future__ import annotations

from datetime import date

import pytest

from appliance.pipeline.cuts import Cut, ends, stretch
from appliance.pipeline.days import Day

HOUR = 3_600.0


def told(day: Day, *hours: float) -> str | None:
    """What is said of cuts so many hours after the day's beginning; None when nobody counted near one of its ends."""
    cuts = [Cut(day.begin + each * HOUR, 0, 0) for each in hours]
    first, last = ends(cuts, day)
    if first is None or last is None or first is last:
        return None
    assert first.at < last.at
    return stretch(cuts, day, first, last)


@pytest.mark.parametrize(
    ("day", "zone", "hours"),
    [
        (date(2026, 11, 20), "Asia/Kolkata", 24),
        (date(2026, 3, 8), "America/St_Johns", 23),
        (date(2026, 11, 1), "America/St_Johns", 25),
        (date(2026, 4, 5), "Australia/Lord_Howe", 24.5),
    ],
)
def test_with_a_cut_at_both_midnights_nothing_is_to_be_said(day: date, zone: str, hours: float) -> None:
    late = 5 / HOUR
    assert told(Day(day, zone), -1, late, 1, hours - 0.5, hours + late, hours + 1) == ""
    assert told(Day(day, zone), late, hours - 1 + late, hours + 1) != "", "an hour off is not its end"


def test_where_they_are_off_it_is_said_from_when_to_when() -> None:
    kolkata = Day(date(2026, 11, 20), "Asia/Kolkata")
    assert told(kolkata, -0.5, 0.6, 23.5, 24.55) == "From 2026-11-19 23:30 to 23:30: "
    assert told(Day(date(2026, 11, 1), "America/St_Johns"), 0.5, 24.75) == ("So far, from 00:30 -0230 to 23:45 -0330: ")


def test_a_day_that_is_not_over_balances_until_the_last_count() -> None:
    day = Day(date(2026, 11, 20), "Europe/Vienna")
    assert told(day, 0.001, 5, 14.5) == "So far, from 00:00 to 14:30: "
    assert told(day, 0.001, 23.995) == "So far, from 00:00 to 23:59: "
    assert told(day, 0.001) is None, "it has just begun"


def test_a_day_in_which_counting_began_balances_from_then_on() -> None:
    day = Day(date(2026, 11, 20), "UTC")
    assert told(day, 10, 16, 24.001) == "From 10:00 to 2026-11-21 00:00: "
    assert told(day, 10, 16) == "So far, from 10:00 to 16:00: "


def test_a_gap_in_the_counting_is_not_talked_away() -> None:
    day = Day(date(2026, 11, 20), "UTC")
    assert told(day, 0, 14, 34) is None, "nobody counted between 14:00 and ten the next morning"
    assert told(day, -10, 10, 24) is None
    assert told(day, -100, -50) is None
    assert told(day) is None
