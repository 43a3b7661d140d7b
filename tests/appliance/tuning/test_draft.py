"""A draft holds what differs, in the order in which it can be set, and nothing a stranger made up."""

from __future__ import annotations

import json

import pytest
from django.http import QueryDict

from appliance.common.door import door_of
from appliance.tuning.draft import Draft, DraftError, Wanted, check, from_form, from_json
from appliance.tuning.parameter import Shown, read_known, same_shown
from tests.appliance.tuning.core import LIMIT, TuningCore

CONFIGURED: Shown = {"value": 20, "origin": "configuration"}


def form(**fields: str) -> QueryDict:
    made = QueryDict(mutable=True)
    made.update({name.replace("__", "-"): value for name, value in fields.items()})
    return made


def backoff(shortest: float, longest: float) -> Draft:
    return Draft("", (
        Wanted("minimal_backoff_time", shortest, {"value": 300.0, "origin": "configuration"}),
        Wanted("maximal_backoff_time", longest, {"value": 4_000.0, "origin": "configuration"}),
    ))  # fmt: skip


def test_only_what_was_changed_is_in_it() -> None:
    with TuningCore():
        known = read_known(door_of("x"))
    seen = json.dumps(CONFIGURED)
    given = {
        f"seen__{LIMIT}": seen,
        f"value__{LIMIT}": "2",
        "seen__process_limit": seen,
        "value__process_limit": "20.0",
    }
    draft = from_form(form(**given), "smtp", known)
    assert draft.wanted == (Wanted(LIMIT, 2, CONFIGURED),)
    back = from_form(form(**{f"seen__{LIMIT}": seen, f"configured__{LIMIT}": "on"}), "smtp", known)
    assert back.wanted == (Wanted(LIMIT, None, CONFIGURED),)


def test_it_comes_back_as_it_went() -> None:
    draft = Draft("smtp", (Wanted(LIMIT, 2, CONFIGURED, returns=7), Wanted("process_limit", None, CONFIGURED)))
    assert from_json(draft.as_json()) == draft


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "{}", '{"scope": "smtp", "wanted": []}', '{"scope": "smtp", "wanted": [{"parameter": "x"}]}',
        '{"scope": "", "wanted": [{"parameter": "x", "value": [], "seen": {"value": 1}}]}',
        '{"scope": "", "wanted": [{"parameter": "x", "value": NaN, "seen": {"value": 1}}]}',
        '{"scope": "", "wanted": [{"parameter": "x", "value": 1, "seen": {"value": 1, "until": "soon"}}]}',
        '{"scope": "smtp:\\ud800", "wanted": [{"parameter": "x", "value": 1, "seen": {"value": 1}}]}', "[" * 100_000,
    ],
)  # fmt: skip
def test_what_is_no_draft_is_refused(text: str) -> None:
    with pytest.raises(DraftError):
        from_json(text)


def test_backoff_times_are_set_in_the_order_that_never_contradicts() -> None:
    names = [each.parameter for each in backoff(5_000, 6_000).in_order()]
    assert names == ["maximal_backoff_time", "minimal_backoff_time"]
    names = [each.parameter for each in backoff(100, 200).in_order()]
    assert names == ["minimal_backoff_time", "maximal_backoff_time"]


def test_each_wrong_value_is_told_in_the_cores_words() -> None:
    wanted = (
        Wanted(LIMIT, 0, CONFIGURED),
        Wanted("process_limit", 5, CONFIGURED),
        Wanted("process_limit_2", "many", CONFIGURED),
    )
    with TuningCore() as core:
        checked = check(door_of("x"), Draft("smtp", wanted))
        assert sorted(checked.errors) == [LIMIT, "process_limit_2"]
        assert "between 1 and 10000" in checked.errors[LIMIT], "the core's own message"
        assert core.asked("set") == core.asked("simulate") == []
        assert [len(given["changes"]) for given in core.asked("check_changes")] == [3]


def test_a_scope_that_is_wrong_is_told_once_for_all() -> None:
    fault = {"code": "not_found", "message": "reworded", "argument": "changes[0].scope"}
    with TuningCore() as core:
        core.answers["check_changes"] = {"faults": [fault, fault | {"argument": "changes[1].scope"}]}
        checked = check(
            door_of("x"), Draft("gone", (Wanted(LIMIT, 2, CONFIGURED), Wanted("process_limit", 5, CONFIGURED)))
        )
    assert checked.errors == {"": "reworded"}


def test_the_same_end_may_be_told_a_moment_apart() -> None:
    timed: Shown = {"value": 2, "origin": "tuned", "until": 100.0}
    assert same_shown(timed, {**timed, "until": 100.002})
    assert not same_shown(timed, {**timed, "until": 160.0})
    assert not same_shown(timed, {"value": 2, "origin": "tuned"})
    assert not same_shown(CONFIGURED, {**CONFIGURED, "scope": "smtp"})
