"""Applying: all or a plain word on what was made; nothing overwritten that changed since it was seen."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client

from appliance.audit.models import Entry
from appliance.tuning.models import Change, Outcome, Prediction
from appliance.tuning.parameter import Shown
from mailcore.faults import Code
from tests.appliance.fake_core import Refusal, Silence
from tests.appliance.markup import markup_of
from tests.appliance.tuning.core import LIMIT, TuningCore

pytestmark = pytest.mark.django_db
FIVE = ["process_limit", "process_limit_2", "process_limit_3", "process_limit_4", "process_limit_5"]
CONFIGURED: Shown = {"value": 20, "origin": "configuration"}


@pytest.fixture
def core() -> Iterator[TuningCore]:
    with TuningCore() as core:
        yield core


@pytest.fixture
def operator(client: Client) -> Client:
    user = User.objects.create_user("olga", password="x")
    user.groups.add(Group.objects.get(name="operator"))
    client.force_login(user)
    return client


def draft(values: dict[str, Any]) -> str:
    wanted = [
        {"parameter": name, "value": value, "seen": CONFIGURED if not isinstance(value, tuple) else value[1]}
        for name, value in values.items()
    ]
    for each in wanted:
        if isinstance(each["value"], tuple):
            each["value"] = each["value"][0]
    return json.dumps({"scope": "smtp", "wanted": wanted})


def apply(client: Client, text: str, **more: str) -> Any:
    return client.post("/tuning/apply/", {"draft": text, "why": "they throttle us", "ends": "forever", **more})


def outcomes() -> dict[str, str]:
    return dict(Change.objects.order_by("pk").values_list("parameter", "outcome"))


def test_a_value_is_set_recorded_and_audited(core: TuningCore, operator: Client) -> None:
    answer = apply(operator, draft({LIMIT: 2}))
    change = Change.objects.get()
    assert answer["HX-Redirect"] == f"/tuning/changes/{change.batch}/"
    assert core.asked("set") == [{"scope": "smtp", "parameter": LIMIT, "value": 2}]
    assert [(each.who, each.why) for each in core.requests if each.operation == "set"] == [("olga", "they throttle us")]
    assert (change.outcome, change.before, change.value) == (Outcome.APPLIED, CONFIGURED, 2)
    assert change.after == {"value": 2, "origin": "tuned"}
    entry = Entry.objects.get(action="tuning.set")
    assert (entry.subject, entry.before, entry.why) == (f"smtp {LIMIT}", CONFIGURED, "they throttle us")
    page = markup_of(operator.get(answer["HX-Redirect"]))
    assert "in force" in page
    assert "they throttle us" in page


def test_when_the_third_of_five_fails_it_is_said_which_were_made(core: TuningCore, operator: Client) -> None:
    core.faults[FIVE[2]] = Refusal("the disk is full")
    answer = apply(operator, draft(dict.fromkeys(FIVE, 5)))
    assert list(outcomes().values()) == ["applied", "applied", "refused", "not_sent", "not_sent"]
    assert [each["parameter"] for each in core.asked("set")] == FIVE[:3]
    page = markup_of(operator.get(answer["HX-Redirect"]))
    assert "applied: process_limit, process_limit_2." in page
    assert "Not applied: process_limit_3, process_limit_4, process_limit_5." in page
    assert "the disk is full" in page
    batch = Change.objects.first().batch  # type: ignore[union-attr]
    offered = markup_of(operator.get(f"/tuning/changes/{batch}/return/"))
    assert offered.count("configured value") == 2


def test_nothing_is_sent_when_one_of_them_is_wrong(core: TuningCore, operator: Client) -> None:
    answer = apply(operator, draft({FIVE[0]: 5, FIVE[1]: 0, FIVE[2]: 7}))
    assert answer.status_code == 422
    assert "must be between 1 and 10000 deliveries" in markup_of(answer)
    assert core.asked("set") == []
    assert not Change.objects.exists()


def test_what_somebody_else_changed_is_not_overwritten(core: TuningCore, operator: Client) -> None:
    core.lasting["smtp", LIMIT] = 7
    answer = apply(operator, draft({LIMIT: 2}))
    page = markup_of(answer)
    assert answer.status_code == 422
    assert "Changed in the meantime" in page
    assert "when you opened the page:" in page
    assert core.asked("set") == []
    new = page.split('name="draft" value="')[1].split('"')[0].replace("&quot;", '"')
    assert apply(operator, new).status_code == 204  # the new difference can be applied
    assert Change.objects.get().before == {"value": 7, "origin": "tuned"}


def test_who_changes_it_in_the_same_moment_is_noticed(core: TuningCore, operator: Client) -> None:
    def rival() -> None:
        core.lasting["smtp", FIVE[1]] = 9

    core.after_set = rival
    apply(operator, draft({FIVE[0]: 5, FIVE[1]: 6}))
    second = Change.objects.get(parameter=FIVE[1])
    assert "from 20 to 9" in second.words
    assert second.before["value"] == 9


def test_without_an_answer_it_is_not_known_until_the_core_is_back(
    core: TuningCore, operator: Client, settings: Any
) -> None:
    settings.PORTAL = replace(settings.PORTAL, core_timeout_s=0.5, change_timeout_s=0.5)
    core.faults[FIVE[1]] = Silence
    answer = apply(operator, draft(dict.fromkeys(FIVE[:3], 5)))
    assert list(outcomes().values()) == ["applied", "unknown", "not_sent"]
    assert Entry.objects.filter(outcome="unknown").count() == 1
    core.answers["transports"] = Silence
    page = markup_of(operator.get(answer["HX-Redirect"]))
    assert "Whether process_limit_2 was applied is unknown" in page
    core.answers["transports"] = core._transports
    core.lasting["smtp", FIVE[1]] = 5  # it had been made
    operator.get(answer["HX-Redirect"])
    assert outcomes()[FIVE[1]] == "applied"


def test_nothing_is_changed_when_nobody_is_there(operator: Client) -> None:
    answer = operator.post(
        "/tuning/apply/",
        {"draft": draft({LIMIT: 2}), "why": "because", "ends": "forever"},
        headers={"HX-Request": "true"},
    )
    assert answer.status_code == 503
    assert "not running" in markup_of(answer)
    assert not Change.objects.exists()


def test_a_lasting_value_takes_the_place_of_one_for_a_time(core: TuningCore, operator: Client) -> None:
    until = time.time() + 600
    core.timed["smtp", LIMIT] = 3, until
    apply(operator, draft({LIMIT: (8, {"value": 3, "origin": "tuned", "until": until})}))
    first, second = core.asked("set")
    assert first == {"scope": "smtp", "parameter": LIMIT, "value": 8}
    assert second["value"] == 8
    assert 0 < second["for_s"] < 10
    assert core._shown("smtp", LIMIT)["value"] == 8


def test_a_value_for_a_time_says_until_when(core: TuningCore, operator: Client) -> None:
    apply(operator, draft({LIMIT: 2}), ends="for", amount="5", unit="min")
    assert core.asked("set")[0]["until"] == pytest.approx(time.time() + 300, abs=20)
    change = Change.objects.get()
    assert change.until == core.asked("set")[0]["until"]


def test_until_is_read_in_the_readers_zone(core: TuningCore, operator: Client) -> None:
    operator.cookies["waypost_zone"] = "Pacific/Auckland"
    apply(operator, draft({LIMIT: 2}), ends="until", clock=_local("Pacific/Auckland", 3600))
    assert Change.objects.get().until == pytest.approx(time.time() + 3600, abs=20)
    answer = apply(operator, draft({LIMIT: 2}), ends="until", clock="2020-01-01T00:00")
    assert answer.status_code == 422
    assert "is in the past" in markup_of(answer)


def _local(zone: str, in_s: float) -> str:
    return datetime.fromtimestamp(time.time() + in_s, ZoneInfo(zone)).strftime("%Y-%m-%dT%H:%M:%S")


def test_back_to_the_configured_value_has_no_end(core: TuningCore, operator: Client) -> None:
    core.lasting["smtp", LIMIT] = 7
    seen = {"value": 7, "origin": "tuned"}
    apply(operator, draft({LIMIT: (None, seen)}), ends="for", amount="5", unit="min")
    assert core.asked("set") == [{"scope": "smtp", "parameter": LIMIT, "value": None}]
    assert Change.objects.get().after == CONFIGURED


def test_without_a_reason_nothing_is_changed(core: TuningCore, operator: Client) -> None:
    answer = apply(operator, draft({LIMIT: 2}), why=" a ")
    assert answer.status_code == 422
    assert core.asked("set") == []


def test_a_prediction_is_kept_with_the_change_it_was_made_for(core: TuningCore, operator: Client) -> None:
    changes = [{"scope": "smtp", "parameter": LIMIT, "value": 2}]
    results = {"before": {"drain_s": 2.0}, "after": {"drain_s": 9.0}, "assumptions": ["that <b>all</b> is well"]}
    made = Prediction.objects.create(changes=changes, asked={"duration_s": 3600.0}, **results)
    apply(operator, draft({LIMIT: 3}), prediction=str(made.pk))
    assert Change.objects.get().prediction is None
    core.lasting.clear()
    answer = apply(operator, draft({LIMIT: 2}), prediction=str(made.pk))
    assert Change.objects.first().prediction == made  # type: ignore[union-attr]
    page = markup_of(operator.get(answer["HX-Redirect"]))
    assert "An estimate" in page
    assert "that &lt;b&gt;all&lt;/b&gt; is well" in page
    assert "+7.0 s" in page


def test_a_manager_that_ended_in_the_middle_is_no_refusal(core: TuningCore, operator: Client) -> None:
    words = "the manager ended"
    core.faults[LIMIT] = Refusal(words, Code.OUTCOME_UNKNOWN)
    apply(operator, draft({LIMIT: 2}))
    assert Change.objects.get().outcome == Outcome.UNKNOWN
    assert Entry.objects.get(action="tuning.set").outcome == "unknown"
