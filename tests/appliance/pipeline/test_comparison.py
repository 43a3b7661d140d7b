"""What stands out beside the day before and the week before, and what is only chance."""

from __future__ import annotations

from typing import Any

import pytest

from appliance.pipeline.comparison import compared


def row(attempts: int, deferred: int = 0, p90: float | None = 0.5) -> dict[str, Any]:
    share = deferred / attempts if attempts else None
    return {
        "destination": "smtp:a.example",
        "attempts": attempts,
        "delivered": attempts - deferred,
        "deferred": deferred,
        "bounced": 0,
        "delivered_share": None if share is None else 1 - share,
        "deferred_share": share,
        "bounced_share": 0.0 if attempts else None,
        "delay_p50_s": 0.1,
        "delay_p90_s": p90,
    }


def outstanding(day: dict[str, Any], before: dict[str, Any] | None, week: dict[str, Any] | None) -> set[str]:
    others = (None if each is None else [each] for each in (before, week))
    return {
        each["measure"]
        for each in compared("destination", "destination", [day], *others).to_pylist()
        if each["stands_out"]
    }


def test_the_same_day_again_stands_out_in_nothing() -> None:
    assert outstanding(row(1_000, 50), row(1_020, 45), row(980, 60)) == set()


@pytest.mark.parametrize(("now", "then"), [(9, 1), (20, 12), (1_000, 1_300)])
def test_few_more_or_a_little_more_is_chance(now: int, then: int) -> None:
    assert outstanding(row(now), row(then), None) == set()


def test_many_more_stand_out_only_when_both_days_were_different() -> None:
    assert outstanding(row(2_000), row(1_000), row(1_000)) == {"attempts", "delivered"}
    assert outstanding(row(2_000), row(1_000), row(2_000)) == set()
    assert outstanding(row(2_000), row(1_000), None) == {"attempts", "delivered"}


def test_a_share_and_a_delay_stand_out() -> None:
    assert outstanding(row(1_000, 300), row(1_000, 50), None) == {"deferred", "deferred_share"}, (
        "once, not as delivered, too"
    )
    assert "deferred_share" not in outstanding(row(10, 5), row(10, 0), None)
    assert outstanding(row(1_000, p90=30.0), row(1_000, p90=2.0), None) == {"delay_p90_s"}
    assert outstanding(row(1_000, p90=0.03), row(1_000, p90=0.002), None) == set()


def test_who_has_no_mail_any_more_stands_out() -> None:
    found = compared("destination", "destination", [], [row(500)], None).to_pylist()
    attempts = next(each for each in found if each["measure"] == "attempts")
    assert (attempts["value"], attempts["day_before"], attempts["week_before"]) == (0, 500, None)
    assert attempts["stands_out"]


def test_the_first_day_has_nothing_to_stand_out_from() -> None:
    found = compared("destination", "destination", [row(500, 400)], None, None).to_pylist()
    assert not any(each["stands_out"] for each in found)
    assert {each["day_before"] for each in found} == {None}
