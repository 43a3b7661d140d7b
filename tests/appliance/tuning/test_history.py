"""What became of a change: in force, ended, replaced, returned, or changed by somebody else; and where a return leads."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from appliance.tuning.history import Target, outside, past_of, target_of
from appliance.tuning.models import Change, Outcome
from appliance.tuning.parameter import Shown

NOW = 1_795_000_000.0
KEY = "smtp", "limit"
CONFIGURED: Shown = {"value": 20, "origin": "configuration"}


def tuned(value: int, until: float | None = None) -> Shown:
    shown: Shown = {"value": value, "origin": "tuned"}
    return shown if until is None else {**shown, "until": until}


def change(number: int, value: int | None, before: Shown = CONFIGURED, **more: Any) -> Change:
    ago_s = more.pop("ago_s", 100)
    return Change(
        pk=number, scope=KEY[0], parameter=KEY[1], before=before, value=value, why="because",
        outcome=more.pop("outcome", Outcome.APPLIED), at=datetime.fromtimestamp(NOW - ago_s, UTC), **more,
    )  # fmt: skip


def test_a_change_is_in_force_as_long_as_the_core_shows_it() -> None:
    assert past_of(change(1, 2), None, {KEY: tuned(2)}, NOW).state == "in_force"
    assert past_of(change(1, 2), None, {KEY: tuned(3)}, NOW).state == "outside"
    assert past_of(change(1, 2), None, {KEY: CONFIGURED}, NOW).state == "outside"
    assert past_of(change(1, None, tuned(2)), None, {KEY: CONFIGURED}, NOW).state == "in_force"
    assert past_of(change(1, None, tuned(2)), None, {KEY: tuned(2)}, NOW).state == "outside"
    assert past_of(change(1, 2), None, None, NOW).state == "unseen"


def test_a_value_for_a_time_ends_by_itself_unless_something_came_before() -> None:
    timed = change(1, 2, until=NOW - 10)
    assert past_of(timed, None, {KEY: CONFIGURED}, NOW).state == "ended"
    assert past_of(timed, change(2, 4, ago_s=5), {KEY: tuned(4)}, NOW).state == "ended"
    assert past_of(timed, change(2, 4, ago_s=50), {KEY: tuned(4)}, NOW).state == "replaced"
    assert past_of(timed, change(2, None, ago_s=50, returns_id=1), {KEY: CONFIGURED}, NOW).state == "returned"


def test_what_was_not_made_says_so() -> None:
    for outcome in (Outcome.REFUSED, Outcome.NOT_SENT, Outcome.UNKNOWN):
        assert past_of(change(1, 2, outcome=outcome), None, {KEY: tuned(2)}, NOW).state == outcome


def test_what_others_changed_is_told() -> None:
    ours = change(1, 2)
    assert outside({KEY: ours}, {KEY: tuned(2)}, NOW) == []
    assert [each.shown for each in outside({KEY: ours}, {KEY: tuned(5)}, NOW)] == [tuned(5)]
    assert [each.last for each in outside({}, {KEY: tuned(5)}, NOW)] == [None]
    assert outside({}, {KEY: CONFIGURED, ("smtp:a", "limit"): tuned(3) | {"scope": "smtp"}}, NOW) == []
    assert [each.shown for each in outside({KEY: ours}, {}, NOW)] == [{}]  # a destination without values of its own


def test_after_its_end_a_value_for_a_time_is_nobodys_doing() -> None:
    ended = change(1, 2, before=tuned(7), until=NOW - 60)
    assert outside({KEY: ended}, {KEY: tuned(7)}, NOW) == []
    assert len(outside({KEY: ended}, {KEY: tuned(8)}, NOW)) == 1
    assert len(outside({KEY: ended}, {KEY: CONFIGURED}, NOW)) == 1
    just = change(1, 2, until=NOW - 1)  # the core's clock may be a moment behind
    assert outside({KEY: just}, {KEY: tuned(2, NOW - 1)}, NOW) == outside({KEY: just}, {KEY: CONFIGURED}, NOW) == []
    assert len(outside({KEY: just}, {KEY: tuned(9)}, NOW)) == 1


def test_a_return_leads_to_what_was_before() -> None:
    assert target_of(change(1, 2), [], NOW) == Target(None)
    assert target_of(change(1, 2, tuned(7)), [], NOW) == Target(7)
    assert target_of(change(1, 2, tuned(7) | {"scope": "smtp"}), [], NOW) == Target(None)
    assert target_of(change(1, 2, tuned(7, NOW + 60)), [], NOW) == Target(7, NOW + 60)


def test_a_return_does_not_bring_back_what_has_ended() -> None:
    timed = change(2, 7, before=tuned(4), until=NOW - 5)
    assert target_of(change(3, 2, tuned(7, NOW - 5)), [timed], NOW) == Target(4)
    assert target_of(change(3, 2, tuned(7, NOW - 5)), [], NOW) == Target(None)
