"""The pages of the destinations and what is done there, before a core that answers what the test gives it."""

from __future__ import annotations

import html
import re
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client

from appliance.audit.models import Entry, Outcome
from tests.appliance.fake_core import FakeCore, Refusal
from tests.appliance.markup import markup_of

pytestmark = pytest.mark.django_db

HOSTILE = "550 <script>alert(1)</script> \u202eevil\x1b[31m"
NAME = "smtp:[192.0.2.1]:2525"
BASE = f"/destinations/{quote(NAME, safe=':')}/"
LIMIT = "destination_concurrency_limit"


def destinations(_: dict[str, Any]) -> dict[str, Any]:
    row = {
        "window": 5, "limit": 20, "busy": 2, "messages": 3, "success_share": 0.5, "reason": HOSTILE, "site_failures": 4,
        "fail_cohorts": 0, "dead_until": time.time() + 300, "delivered": 2, "deferred": 2, "bounced": 0,
        "last_delivered_at": None,
        "last_replies": [
            {"at": time.time() - 5, "reply": HOSTILE, "status": "bounced", "dsn": "5.1.1", "relay": "<b>mx</b>", "times": 4}
        ],
    }  # fmt: skip
    return {
        "destinations": {NAME: row},
        "without_mail": {"smtp:quiet.example": {"last_delivered_at": time.time(), "last_replies": []}},
        "queued": {NAME: 7, "smtp:<i>x</i>.example": 1, "": 40},
        "suspended": {"smtp:.example.net": None},
        "states": {NAME: [["dead", time.time() + 300]], "smtp:.example.net": [["suspended", None]]},
    }


def transports(arguments: dict[str, Any]) -> dict[str, Any]:
    name = arguments["destination"]
    values = {
        LIMIT: {"value": 3, "origin": "tuned", "until": time.time() + 60},
        "destination_rate_delay": {"value": 0.0, "origin": "configuration", "scope": "smtp"},
    }
    return {"scopes": {name: values}}


PARAMETERS = {
    "scopes": {
        "destination": [
            {"name": LIMIT, "kind": "whole", "unit": "deliveries", "doc": "deliveries at once"},
            {"name": "destination_rate_delay", "kind": "number", "unit": "seconds", "doc": "a pause"},
        ]
    }
}
SET = {"scope": NAME, "value": 1, "before": 3}


@pytest.fixture
def core() -> Iterator[FakeCore]:
    answers = {
        "destinations": destinations,
        "transports": transports,
        "parameters": PARAMETERS,
        "suspend": {"value": None},
        "resume": {"value": None},
        "set": SET,
    }
    with FakeCore(answers) as running:
        yield running


def signed_in(role: str) -> Client:
    user = User.objects.create_user(role, password="secret")
    user.groups.add(Group.objects.get(name=role))
    client = Client(headers={"HX-Request": "true"})
    client.force_login(user)
    return client


def entries() -> list[Entry]:
    return list(Entry.objects.filter(action__startswith="destination."))


def text_of(client: Client, path: str) -> str:
    answer = client.get(path, headers={"HX-Request": ""})
    assert answer.status_code == 200, path
    return markup_of(answer)


def test_a_list_shows_them_all_and_strangers_words_harmlessly(core: FakeCore) -> None:
    text = text_of(signed_in("viewer"), "/destinations/")
    assert "1 to 3 of 3" in text
    assert "40 more recipients" in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt; \\u202eevil\\x1b[31m" in text
    assert "<script>alert" not in text
    assert "<i>x</i>" not in text
    assert "smtp:.example.net" in text  # a suspension of a pattern
    assert "Suspend…" not in text
    assert core.asked("destinations") == [{"limit": 1_000}]


def test_a_list_names_the_shards_that_are_not_in_it() -> None:
    """law: silent-is-unknown."""
    told = destinations({}) | {"unanswered": "shard 2 at b does not answer: <b>away</b>"}
    with FakeCore({"destinations": told}):
        text = text_of(signed_in("viewer"), "/destinations/")
    assert "The list is incomplete: <bdi>shard 2 at b does not answer: &lt;b&gt;away&lt;/b&gt;</bdi>" in text


def test_a_list_is_filtered_and_sorted_by_the_server(core: FakeCore) -> None:
    client = signed_in("viewer")
    assert "1 to 1 of 1 that match, of 3" in text_of(client, "/destinations/?trouble=1")
    assert "1 to 1 of 1 that match, of 3" in text_of(client, "/destinations/?q=QUIET")
    assert "No destination matches" in text_of(client, "/destinations/?q=nothing")
    by_name = text_of(client, "/destinations/?sort=-name")
    assert by_name.index("quiet.example</bdi>") < by_name.index("192.0.2.1]:2525</bdi>")
    assert text_of(client, "/destinations/?sort=<script>&from=-5")


def test_one_shows_its_replies_its_values_and_where_they_come_from(core: FakeCore) -> None:
    text = text_of(signed_in("operator"), BASE)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert "<script>alert" not in text
    assert "<b>mx</b>" not in text
    assert "tuned live" in text
    assert f"{BASE}take-back/{LIMIT}/" in text
    assert f"{BASE}take-back/destination_rate_delay/" not in text
    assert "/queue/?destination=smtp%3A%5B192.0.2.1%5D%3A2525" in text


def test_one_that_nobody_knows_is_shown_with_nothing_known(core: FakeCore) -> None:
    client = signed_in("viewer")
    assert "The core does not know it" in text_of(client, "/destinations/smtp:new.example/")
    assert "No delivery to it was attempted" in text_of(client, "/destinations/smtp:<i>x<%2Fi>.example/")
    assert client.get("/destinations/nothing/").status_code == 404
    unanswered = "shard 2 at b does not answer: <b>away</b>"
    core.answers["destinations"] = destinations({}) | {"unanswered": unanswered}
    text = text_of(client, "/destinations/smtp:new.example/")
    assert "The shards that answer do not know it, and have no mail for it" in text, "law: silent-is-unknown"
    assert "The numbers below are incomplete: <bdi>shard 2 at b does not answer: &lt;b&gt;away&lt;/b&gt;</bdi>" in text


def test_a_suspension_needs_a_reason_and_a_time_that_is_one(core: FakeCore) -> None:
    client = signed_in("operator")
    for given, complaint in (
        ({"how": "open"}, "Enter a reason"),
        ({"how": "for", "duration": "soon", "why": "they ask"}, "Not a valid duration"),
        ({"how": "until", "moment": "2001-01-01T00:00", "why": "they ask"}, "This time has passed"),
        ({"how": "never", "why": "they ask"}, "Select a valid choice"),
    ):
        answer = client.post(BASE + "suspend/", given)
        assert answer.status_code == 422, given
        assert complaint in markup_of(answer), given
    assert core.asked("suspend") == []
    assert entries() == []


def test_a_suspension_is_sent_once_and_is_in_the_audit(core: FakeCore) -> None:
    client = signed_in("operator")
    before = time.time()
    answer = client.post(BASE + "suspend/", {"how": "for", "duration": "2h", "why": "they ask for it"})
    assert answer.headers["HX-Redirect"] == BASE
    (asked,) = core.asked("suspend")
    assert asked["destination"] == NAME
    assert before + 7_200 <= asked["until"] <= time.time() + 7_200
    (request,) = [each for each in core.requests if each.operation == "suspend"]
    assert (request.who, request.why) == ("operator", "they ask for it")
    (entry,) = entries()
    assert (entry.action, entry.subject, entry.why) == ("destination.suspend", NAME, "they ask for it")
    assert entry.after == {"until": asked["until"]}
    client.post(BASE + "suspend/", {"how": "open", "why": "for good"})
    assert core.asked("suspend")[1] == {"destination": NAME, "until": None}


def test_a_resume_tells_which_wider_suspension_holds_on(core: FakeCore) -> None:
    core.answers["resume"] = {"value": None, "suspended": {"value": None, "scope": "smtp:[192.0.2.1]"}}
    client = signed_in("operator")
    client.post(BASE + "resume/", {"why": "they are back"})
    assert core.asked("resume") == [{"destination": NAME}]
    text = text_of(client, BASE)
    assert "It stays suspended because of the suspension of smtp:[192.0.2.1]." in text


def test_a_resume_claims_no_more_than_was_done(core: FakeCore) -> None:
    core.answers["resume"] = {"value": None, "unanswered": "shard 2 at b: <b>away</b>"}
    client = signed_in("operator")
    client.post(BASE + "resume/", {"why": "they are back"})
    assert "it may not be tried now everywhere: shard 2 at b: &lt;b&gt;away" in text_of(client, BASE)
    (entry,) = entries()
    assert entry.after == {"suspended": None, "not_tried_in": "shard 2 at b: <b>away</b>"}


def test_half_of_a_value_for_two_hours_is_asked_as_it_was_typed(core: FakeCore) -> None:
    client = signed_in("operator")
    dialog = markup_of(client.get(BASE + "set/"))
    assert 'value="50%"' in dialog
    given = {"parameter": LIMIT, "value": "50%", "duration": "2h", "why": "half speed"}
    assert client.post(BASE + "set/", given).headers["HX-Redirect"] == BASE
    client.post(BASE + "set/", given | {"value": "4", "duration": ""})
    client.post(BASE + "set/", given | {"parameter": "destination_rate_delay", "value": "0.5"})
    client.post(BASE + "set/", given | {"value": "1e999"})
    scope = {"scope": NAME, "parameter": LIMIT}
    assert core.asked("set") == [
        scope | {"value": "50%", "for_s": 7_200.0},
        scope | {"value": 4},
        scope | {"parameter": "destination_rate_delay", "value": 0.5, "for_s": 7_200.0},
        scope | {"value": "1e999", "for_s": 7_200.0},  # the core says what is wrong with it
    ]
    assert entries()[1].before == transports({"destination": NAME})["scopes"][NAME]["destination_rate_delay"]


def test_what_the_core_refuses_is_told_in_its_words_and_is_in_the_audit(core: FakeCore) -> None:
    core.answers["set"] = Refusal("must be between 1 and 10000 deliveries (got 0)")
    client = signed_in("operator")
    answer = client.post(BASE + "set/", {"parameter": LIMIT, "value": "-1", "why": "a mistake"})
    assert answer.status_code == 409
    assert "must be between 1 and 10000 deliveries" in markup_of(answer)
    assert [entry.outcome for entry in entries()] == [Outcome.REFUSED]


def test_a_value_for_a_time_is_ended_so_that_a_lasting_one_stays(core: FakeCore) -> None:
    client = signed_in("operator")
    client.post(f"{BASE}take-back/{LIMIT}/", {"why": "full speed again"})
    (asked,) = core.asked("set")
    assert asked == {"scope": NAME, "parameter": LIMIT, "value": 3, "for_s": asked["for_s"]}
    assert 0 < asked["for_s"] < 1
    core.answers["transports"] = {"scopes": {NAME: {LIMIT: {"value": 3, "origin": "tuned"}}}}
    client.post(f"{BASE}take-back/{LIMIT}/", {"why": "full speed again"})
    assert core.asked("set")[1] == {"scope": NAME, "parameter": LIMIT, "value": None}
    assert client.get(f"{BASE}take-back/nothing/").status_code == 404


@pytest.mark.parametrize("deed", ["suspend/", "resume/", "set/", f"take-back/{LIMIT}/"])
def test_a_viewer_changes_nothing(core: FakeCore, deed: str) -> None:
    client = signed_in("viewer")
    assert client.get(BASE + deed).status_code == 403
    assert client.post(BASE + deed, {"why": "because", "how": "open"}).status_code == 403
    assert not [request for request in core.requests if request.operation in ("suspend", "resume", "set")]


def test_without_a_core_the_page_says_so() -> None:
    answer = signed_in("viewer").get("/destinations/")
    assert answer.status_code == 503
    assert "not running" in markup_of(answer)


class Shared:
    """What a core has in force, and does, when it is asked to set it."""

    def __init__(self, core: FakeCore) -> None:
        self.shown: dict[str, Any] = {"value": 20, "origin": "configuration", "scope": "smtp"}
        core.answers["transports"] = lambda _: {
            "scopes": {NAME: {LIMIT: self.shown, "suspended_until": {"value": None}}}
        }
        core.answers["set"] = self.set

    def set(self, arguments: dict[str, Any]) -> dict[str, Any]:
        before, self.shown = self.shown["value"], {"value": arguments["value"], "origin": "tuned"}
        return {"scope": arguments["scope"], "value": arguments["value"], "before": before}


def opened(client: Client, path: str) -> dict[str, str]:
    """What the dialog that is opened now sends along."""
    found = re.search(r'name="seen" value="([^"]*)"', markup_of(client.get(path)))
    assert found is not None
    return {"seen": html.unescape(found[1])}


def test_of_two_who_set_the_same_value_the_second_is_told_what_the_first_did(core: FakeCore) -> None:
    shared = Shared(core)
    olga, otto = signed_in("operator"), signed_in("administrator")
    seen_by_olga, seen_by_otto = opened(olga, BASE + "set/"), opened(otto, BASE + "set/")
    given = {"parameter": LIMIT, "duration": "", "why": "they throttle us"}
    assert olga.post(BASE + "set/", given | {"value": "5"} | seen_by_olga).status_code == 204
    answer = otto.post(BASE + "set/", given | {"value": "50%"} | seen_by_otto)
    assert answer.status_code == 422
    text = markup_of(answer)
    assert "The value was changed since you opened this: it is 5 now and was 20. Nothing was changed." in text
    assert shared.shown["value"] == 5
    assert [entry.who for entry in entries()] == ["operator"]
    again = re.search(r'name="seen" value="([^"]*)"', text)
    assert again is not None
    assert otto.post(BASE + "set/", given | {"value": "6", "seen": html.unescape(again[1])}).status_code == 204
    assert shared.shown["value"] == 6


def test_a_value_that_became_another_is_not_taken_back_unseen(core: FakeCore) -> None:
    shared = Shared(core)
    shared.shown = {"value": 3, "origin": "tuned"}
    client = signed_in("operator")
    seen = opened(client, f"{BASE}take-back/{LIMIT}/")
    shared.shown = {"value": 4, "origin": "tuned"}
    answer = client.post(f"{BASE}take-back/{LIMIT}/", {"why": "full speed again"} | seen)
    assert answer.status_code == 422
    assert "it is 4 now and was 3" in markup_of(answer)
    assert core.asked("set") == []
    shared.shown = {"value": 3, "origin": "tuned", "until": time.time() + 60}
    answer = client.post(f"{BASE}take-back/{LIMIT}/", {"why": "full speed again"} | seen)
    assert "it is still 3, but with another end" in markup_of(answer)
    assert core.asked("set") == []


def test_who_was_quicker_than_our_look_is_told_of(core: FakeCore) -> None:
    shared = Shared(core)
    core.answers["set"] = lambda arguments: shared.set(arguments) | {"before": 7}
    client = signed_in("operator")
    given = {"parameter": LIMIT, "value": "5", "duration": "", "why": "they throttle us"}
    client.post(BASE + "set/", given | opened(client, BASE + "set/"))
    assert "at the same moment, from 20 to 7, which your change replaced" in text_of(client, BASE)


@pytest.mark.parametrize("seen", ["{", "[]", "3", '{"x": 3}', "[" * 9_000, f'{{"{LIMIT}": {{"value": [1]}}}}'])
def test_what_was_seen_cannot_be_made_up(core: FakeCore, seen: str) -> None:
    given = {"parameter": LIMIT, "value": "5", "duration": "", "why": "they throttle us", "seen": seen}
    answer = signed_in("operator").post(BASE + "set/", given)
    assert answer.status_code == 422
    assert "This page has expired" in markup_of(answer)
    assert core.asked("set") == []
