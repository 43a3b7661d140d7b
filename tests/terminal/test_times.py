"""Times as an operator writes and reads them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from mailcore.terminal.times import TimeError, duration_of, in_local_time, shown, shown_duration, time_of

NOW = 1_795_000_000.0


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("15m", 900), ("2h", 7200), ("1d12h", 129_600), ("2w", 1_209_600)]
)
def test_durations(text: str, seconds: float) -> None:
    assert duration_of(text) == seconds
    assert time_of("+" + text, NOW) == NOW + seconds


@pytest.mark.parametrize(
    ("text", "wall"),
    [
        ("2026-11-21T10:00Z", 1_795_255_200),
        ("2026-11-21T11:00+01:00", 1_795_255_200),
        ("2026-11-21 10:00:30+00:00", 1_795_255_230),
    ],
)
def test_times_with_a_zone(text: str, wall: float) -> None:
    assert time_of(text, NOW) == wall


def test_a_time_without_a_zone_is_local() -> None:
    assert time_of("2026-11-21T10:00", NOW) == datetime(2026, 11, 21, 10).timestamp()


@pytest.mark.parametrize("text", ["", "+", "+2", "tomorrow", "+2x", "2h", "+-2h", "2026-13-01", "9" * 40, "+h2"])
def test_what_is_no_time_is_refused_with_what_is_allowed(text: str) -> None:
    if text == "+2":
        assert time_of(text, NOW) == NOW + 2
        return
    with pytest.raises(TimeError, match="is not a time; allowed: "):
        time_of(text, NOW)
    with pytest.raises(TimeError, match="is not a duration; allowed: "):
        duration_of(text if text not in ("2h", "9" * 40) else "x")


def test_a_sentence_has_its_times_as_all_others_are_shown() -> None:
    moment = datetime(2026, 11, 23, 12, 39, 23, tzinfo=UTC)
    local = shown(moment.timestamp())
    east = moment.astimezone(timezone(timedelta(hours=2)))
    assert in_local_time(f"due at {moment.isoformat(' ')}; last: 450") == f"due at {local}; last: 450"
    assert in_local_time(f"held since {east.isoformat(' ')}") == f"held since {local}"
    assert in_local_time("said: 2026-19-39 29:00:00+00:00") == "said: 2026-19-39 29:00:00+00:00"


def test_times_are_shown_to_the_second() -> None:
    assert shown(0.0) == "-"
    assert shown(1e300) == "?"
    assert shown(datetime(2026, 11, 21, 10, 0, 5).timestamp()) == "2026-11-21 10:00:05"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-5, "0s"), (0, "0s"), (59.9, "59s"), (200, "3m20s"), (3600, "1h"), (3601, "1h1s"), (100_000, "1d3h")],
)
def test_durations_are_shown_in_two_units(seconds: float, text: str) -> None:
    assert shown_duration(seconds) == text
