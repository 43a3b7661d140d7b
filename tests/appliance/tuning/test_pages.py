"""The pages: who sees what, what is in force and from where, and what strangers wrote."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client

from appliance.tuning.chart import chart_data
from appliance.tuning.models import Change, Outcome, Prediction
from appliance.tuning.whatif import KEPT, running, store
from mailcore.control.protocol.tuning import SimulatePart, UnknownCode
from tests.answers import sample
from tests.appliance.fake_core import Parts, Refusal
from tests.appliance.markup import markup_of
from tests.appliance.tuning.core import LIMIT, TuningCore

pytestmark = pytest.mark.django_db
HOSTILE = "<script>alert(1)</script>\u202e\x1b"
RESULT: dict[str, Any] = {
    "drain_s": 5.0, "delivered": 10, "bounced": 0, "waiting": 0, "deferred": 0, "messages": 10,
    "series": {"t": [1, 2], "backlog": [5, 0], "delivered": [5, 5], "window": {"smtp:a.example": [5, 7]}},
    "delay": {"small": {"recipients": "1", "messages": 10, "p50": 1.0, "p90": 2.0, "p99": 3.0}, "big": {"messages": 0}},
}  # fmt: skip


@pytest.fixture
def core() -> Iterator[TuningCore]:
    with TuningCore() as core:
        yield core


def signed_in(role: str) -> Client:
    user = User.objects.create_user(role, password="x")
    user.groups.add(Group.objects.get(name=role))
    client = Client()
    client.force_login(user)
    return client


def made(**fields: Any) -> Change:
    values = {"scope": "smtp", "parameter": LIMIT, "before": {"value": 20, "origin": "configuration"}, "value": 2}
    return Change.objects.create(**{**values, "who": "olga", "why": "because", "outcome": Outcome.APPLIED, **fields})


def test_a_viewer_sees_everything_and_changes_nothing(core: TuningCore) -> None:
    client = signed_in("viewer")
    page = markup_of(client.get("/tuning/?scope=smtp"))
    assert LIMIT in page
    assert "from 1 to 10000" in page
    assert "Another &lt;b&gt;paragraph&lt;/b&gt;." in page
    assert f'name="value-{LIMIT}"' not in page
    change = made()
    for path in ("/tuning/history/", f"/tuning/changes/{change.batch}/", f"/tuning/changes/{change.batch}/windows/"):
        answer = client.get(path)
        assert answer.status_code == 200, path
        assert 'hx-get="/tuning/history/' not in markup_of(answer)
    assert client.get(f"/tuning/history/{change.pk}/return/").status_code == 403
    assert client.get(f"/tuning/changes/{change.batch}/return/").status_code == 403
    for path in ("/tuning/diff/", "/tuning/apply/", "/tuning/what-if/"):
        assert client.post(path, {"scope": "smtp", "draft": "{}"}).status_code == 403, path
        assert client.get(path).status_code == 405, path


def test_each_value_says_where_it_comes_from(core: TuningCore) -> None:
    core.timed["smtp", LIMIT] = 3, time.time() + 600
    core.lasting["smtp:.a.example", "initial_destination_concurrency"] = 4
    client = signed_in("operator")
    page = markup_of(client.get("/tuning/?scope=smtp"))
    assert "tuned until" in page
    assert "changed outside the portal" in page  # nobody set it here
    assert "reset to 20, configured value" in page.replace("<bdi>", "").replace("</bdi>", "")
    page = markup_of(client.get("/tuning/?scope=smtp:.A.example"))
    assert "tuned of <bdi>smtp</bdi>" in page
    assert "value of the wider scope" in page


def test_what_was_set_here_is_not_called_foreign(core: TuningCore) -> None:
    core.lasting["smtp", LIMIT] = 2
    made()
    client = signed_in("operator")
    assert "changed outside the portal" not in markup_of(client.get("/tuning/?scope=smtp"))
    core.lasting["smtp", LIMIT] = 9
    assert "changed outside the portal" in markup_of(client.get("/tuning/?scope=smtp"))
    page = markup_of(client.get("/tuning/history/"))
    assert "Changed outside the portal" in page


@pytest.mark.parametrize("scope", ["nowhere", "smtp:*", HOSTILE])
def test_a_scope_that_is_none_is_told_in_the_cores_words(core: TuningCore, scope: str) -> None:
    answer = signed_in("operator").get("/tuning/", {"scope": scope})
    page = markup_of(answer)
    assert answer.status_code == 200
    assert 'role="alert"' in page
    assert "<script>alert" not in page
    assert "minimal_backoff_time" in page


def test_a_typed_pattern_becomes_a_scope(core: TuningCore) -> None:
    answer = signed_in("operator").get("/tuning/", {"transport": "smtp", "pattern": " .a.example "})
    assert answer["Location"] == "/tuning/?scope=smtp%3A.a.example"


def test_a_diff_shows_only_what_changes(core: TuningCore) -> None:
    seen = json.dumps({"value": 20, "origin": "configuration"})
    form = {
        "scope": "smtp",
        f"value-{LIMIT}": "50%",
        f"seen-{LIMIT}": seen,
        "value-process_limit": "20",
        "seen-process_limit": seen,
    }
    client = signed_in("operator")
    page = markup_of(client.post("/tuning/diff/", form))
    assert "Change 1 parameter<" in page
    assert "<bdi>10</bdi>" in page
    assert ">process_limit<" not in page
    page = markup_of(client.post("/tuning/diff/", form | {f"value-{LIMIT}": "20.0"}))
    assert "All values equal" in page
    answer = client.post("/tuning/diff/", form | {f"value-{LIMIT}": HOSTILE})
    assert 'name="draft"' not in markup_of(answer)
    assert "<script>alert" not in markup_of(answer)
    assert "must be between 1 and 10000 deliveries" in markup_of(answer)


def test_a_transport_that_is_no_more_and_numbers_without_end_are_told(core: TuningCore) -> None:
    client = signed_in("operator")
    gone = made(scope="gone")
    draft = {"parameter": LIMIT, "value": 3, "seen": {"value": 20, "origin": "configuration"}}
    asked = {"draft": json.dumps({"scope": "gone", "wanted": [draft]}), "why": "because", "ends": "forever"}
    for answer in (
        client.post("/tuning/diff/", {"scope": "gone"}),
        client.post("/tuning/apply/", asked),
        client.post("/tuning/apply/", asked | {"why": ""}),
        client.get(f"/tuning/history/{gone.pk}/return/"),
    ):
        assert answer.status_code == 409
        assert "unknown transport" in markup_of(answer)
    endless = {"scope": "smtp", "wanted": [draft | {"value": 1 << 64}]}
    assert client.post("/tuning/apply/", {"draft": json.dumps(endless), "why": "because"}).status_code == 422
    seen = json.dumps(draft["seen"])
    for value in ("1e999", "9" * 40):
        page = client.post("/tuning/diff/", {"scope": "smtp", f"value-{LIMIT}": value, f"seen-{LIMIT}": seen})
        assert "must be between 1 and 10000 deliveries" in markup_of(page), value
    assert core.asked("set") == []


def test_what_a_stranger_wrote_is_harmless(core: TuningCore) -> None:
    change = made(why=HOSTILE, who=HOSTILE[:150], words=HOSTILE, scope=f"smtp:{HOSTILE}")
    core.answers["destinations"] = {
        "destinations": {f"smtp:{HOSTILE}": {"window": 5, "limit": 20, "busy": 2, "queued": 9, "messages": 9}}
    }
    client = signed_in("operator")
    for path in ("/tuning/history/", f"/tuning/changes/{change.batch}/"):
        page = markup_of(client.get(path))
        assert "<script>alert" not in page
        assert "\u202e" not in page
        assert "\x1b" not in page


def test_a_return_is_a_draft_with_its_reason(core: TuningCore) -> None:
    core.lasting["smtp", LIMIT] = 2
    change = made(before={"value": 7, "origin": "tuned"})
    client = signed_in("operator")
    page = markup_of(client.get(f"/tuning/history/{change.pk}/return/"))
    assert f"Revert of change {change.pk}: because" in page
    draft = page.split('name="draft" value="')[1].split('"')[0].replace("&quot;", '"')
    client.post("/tuning/apply/", {"draft": draft, "why": "again", "ends": "forever"})
    assert core.lasting["smtp", LIMIT] == 7
    returned = Change.objects.get(returns=change)
    assert returned.why == "again"
    page = markup_of(client.get("/tuning/history/"))
    assert f"by change {returned.pk}" in page
    assert "returned" in page


def test_the_history_is_there_while_the_core_is_not() -> None:
    made()
    page = markup_of(signed_in("viewer").get("/tuning/history/"))
    assert "The values in force are unknown" in page
    assert "because" in page


def test_a_prediction_shows_before_after_and_the_difference() -> None:
    after = RESULT | {"drain_s": None}
    found = Prediction.objects.create(
        changes=[{"scope": "smtp", "parameter": LIMIT, "value": 2}], asked={"duration_s": 86_400.0, "since_s": 3_600.0},
        before=RESULT, after=after, assumptions=[HOSTILE],
    )  # fmt: skip
    page = markup_of(signed_in("viewer").get(f"/tuning/predictions/{found.pk}/"))
    assert "An estimate" in page
    assert "more than 2.0 s" in page, "the end of the simulation"
    assert "99 of 100 small messages" in page
    assert "big messages" not in page  # there were none
    assert "<script>alert" not in page
    assert signed_in("operator").get("/tuning/predictions/999/").status_code == 404


@pytest.mark.parametrize(("unread", "words"), [(0, ""), (1, "1 file of past"), (1_200, "files of past deliveries")])
def test_a_prediction_says_that_its_figures_lack_what_could_not_be_read(unread: int, words: str) -> None:
    answer = sample(SimulatePart, {"before": RESULT, "after": RESULT, "unread_files": unread})
    found = store(User.objects.create_user("olga", password="secret"), [], {}, answer)
    page = markup_of(signed_in("viewer").get(f"/tuning/predictions/{found.pk}/"))
    assert ("could not be read" in page) is bool(unread)
    assert words in page


@pytest.mark.parametrize("code", list(UnknownCode))
def test_a_prediction_says_what_it_does_not_know(code: UnknownCode) -> None:
    """The names and sentences come from the core, which has them from the mail."""
    unknown = [{"code": code, "message": f"Not known: {HOSTILE}", "names": []}]
    answer = sample(SimulatePart, {"before": RESULT, "after": RESULT, "unknown": unknown})
    found = store(User.objects.create_user("olga", password="secret"), [], {}, answer)
    page = markup_of(signed_in("viewer").get(f"/tuning/predictions/{found.pk}/"))
    assert "What this prediction does not know" in page
    assert f'data-code="{code}"' in page
    assert "Not known: &lt;script&gt;" in page
    assert "\u202e" not in page
    assert ('class="compared"' in page) is (code != UnknownCode.NO_MAIL)  # without mail there is nothing to compare


def test_a_prediction_of_an_earlier_version_has_nothing_that_it_does_not_know() -> None:
    found = Prediction.objects.create(changes=[], asked={}, before=RESULT, after=RESULT, assumptions=[], unknown=None)
    assert "does not know" not in markup_of(signed_in("viewer").get(f"/tuning/predictions/{found.pk}/"))


def test_new_mail_keeps_arriving_unless_it_is_unchecked(core: TuningCore) -> None:
    seen = json.dumps({"value": 20, "origin": "configuration"})
    form = {"scope": "smtp", f"value-{LIMIT}": "3", f"seen-{LIMIT}": seen}
    page = markup_of(signed_in("operator").post("/tuning/diff/", form))
    assert '<input type="checkbox" name="arrivals" checked>' in page


def test_the_chart_begins_with_the_backlog_of_the_start() -> None:
    answer = sample(SimulatePart, {"before": RESULT | {"recipients": 9}, "after": RESULT | {"recipients": 9}})
    for number, asked in enumerate(({}, {"arrivals": True})):
        found = store(User.objects.create_user(f"olga{number}", password="secret"), [], asked, answer)
        assert json.loads(json.dumps(chart_data(found)))["before"]["backlog"] == [9, 5, 0]
    earlier = Prediction(changes=[], asked={}, before=RESULT, after=RESULT, assumptions=[])
    assert chart_data(earlier)["before"]["backlog"] == [10, 5, 0]
    earlier.asked = {"arrivals": True}
    assert chart_data(earlier)["before"]["backlog"] == [5, 0]


@pytest.mark.parametrize(
    ("scope", "first", "second"),
    [
        ("", ("window", "smtp:a.example"), ("window", "smtp:b.example")),
        ("smtp", ("transports", "smtp"), ("window", "smtp:a.example")),
        ("slow", ("transports", "slow"), ("window", "slow:b.example")),
        ("smtp:b.example", ("window", "smtp:b.example"), ("transports", "smtp")),
        ("slow:.example", ("window", "slow:b.example"), ("transports", "slow")),
    ],
)
def test_the_chart_of_what_was_changed_is_the_first(
    scope: str, first: tuple[str, str], second: tuple[str, str]
) -> None:
    windows = {name: [1, 1] for name in ("smtp:a.example", "smtp:b.example", "slow:b.example")}
    series = {"t": [1, 2], "backlog": [5, 0], "window": windows, "transports": {"smtp": [1, 0], "slow": [1, 0]}}
    changes = [{"scope": scope, "parameter": LIMIT, "value": 2}]
    result = RESULT | {"series": series}
    found = Prediction(changes=changes, asked={}, before=result, after=result, assumptions=[])
    charts = [chart[1:] for chart in chart_data(found)["charts"]]
    assert charts[:2] == [first, second]
    assert sorted(charts) == sorted(
        [*(("window", name) for name in windows), ("transports", "smtp"), ("transports", "slow")]
    )


def test_predictions_that_nobody_used_are_forgotten() -> None:
    user = User.objects.create_user("olga", password="secret")
    answer = sample(SimulatePart, {"before": RESULT, "after": RESULT})
    numbers = [store(user, [], {}, answer).pk for _ in range(KEPT + 5)]
    assert sorted(Prediction.objects.values_list("pk", flat=True)) == numbers[5:]
    assert "delivered" not in Prediction.objects.first().before["series"]  # type: ignore[union-attr]


@pytest.mark.django_db(transaction=True)
async def test_a_what_if_tells_its_progress_and_what_stopped_it() -> None:
    user = await User.objects.acreate(username="olga")
    with TuningCore() as core:
        core.answers["simulate"] = Parts(
            [{"progress": 0.5, "stage": "before"}, {"before": RESULT, "after": RESULT, "assumptions": [], "done": True}]
        )
        lines = [json.loads(line) async for line in running(user, [], {"duration_s": 60})]
        found = await Prediction.objects.aget()
        assert lines == [{"progress": 0.5, "stage": "before"}, {"prediction": found.pk}]
        core.answers["simulate"] = Refusal("2 simulations are running already")
        lines = [json.loads(line) async for line in running(user, [], {})]
        assert lines == [{"error": "2 simulations are running already"}]
