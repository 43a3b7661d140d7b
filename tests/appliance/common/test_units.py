"""Durations in units that people read are exact, and every parameter that is a time is known as one."""

from __future__ import annotations

from zoneinfo import ZoneInfo

import pytest
from django.utils import timezone

from appliance.common.units import duration, in_units, is_seconds
from appliance.tuning.value import readable
from mailcore.scheduler.parameters import allowed_in


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 seconds"), (0.1, "0.1 seconds"), (1, "1 second"), (59, "59 seconds"), (60, "1 minute"), (300.0, "5 minutes"),
        (4_000, "1 h 6 min 40 s"), (86_400, "1 day"), (432_000, "5 days"), (86_400 + 3_600, "1 d 1 h"), (90.5, "1 min 30.5 s"),
    ],
)  # fmt: skip
def test_a_duration_is_exact(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_a_number_is_read_by_its_name() -> None:
    assert in_units("maximal_queue_lifetime", 432_000) == "5 days"
    assert in_units("for_s", 7_200) == "2 hours"
    assert in_units("destination_rate_delay", 5) == ""
    assert in_units("process_limit", 432_000) == in_units("for_s", None) == in_units("for_s", True) == ""
    with timezone.override(ZoneInfo("Asia/Tokyo")):
        assert in_units("until", 1_769_892_606) == "2026-02-01 05:50:06 JST"
    assert in_units("until", 10**30) == in_units("expires_at", float("inf")) == ""
    assert readable("bounce_queue_lifetime", 432_000.0) == "5 days"
    assert readable("message_active_limit", 20_000) == "20\u202f000"
    assert readable("process_limit", "50%") == "50%"
    assert readable("destination_concurrency_feedback_debug", True) == "yes"


@pytest.mark.parametrize("scope", ["", "smtp", "smtp:example.org"])
def test_the_names_of_times_are_those_of_all_parameters_with_seconds(scope: str) -> None:
    bounds = allowed_in(scope)
    assert {name for name in bounds if is_seconds(name)} == {
        name for name, each in bounds.items() if each.unit == "seconds"
    }
    assert bounds
