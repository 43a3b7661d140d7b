"""The settings pages with a core that answers what a test gives it: roles, hostile text, a change that was overtaken."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from appliance.audit.models import Entry, Outcome
from appliance.managed import views
from appliance.managed.draft import Draft
from appliance.reports.models import Preferences
from appliance.reports.preferences import own
from mailcore.faults import Code
from tests.appliance.fake_core import FakeCore, Refusal
from tests.appliance.markup import markup_of
from tests.appliance.tuning.test_pages import signed_in

pytestmark = pytest.mark.django_db
HOSTILE = "<script>alert(1)</script>\u202e"
NOW = "0123456789abcdef"
THEN = "fedcba9876543210"


def known(**more: Any) -> dict[str, Any]:
    return {
        "manages": True, "source": "/etc/waypost/waypost.toml", "revision": NOW, "in_force": True, "waiting": [], "fault": "",
        "reload": {},
        "settings": [
            {"key": ["routes", HOSTILE], "value": HOSTILE, "origin": "managed", "below": "x", "fixed": ""},
            {"key": ["home"], "value": "/var/lib/waypost", "origin": "file", "below": None, "fixed": "is not managed"},
        ],
    } | more  # fmt: skip


def changed(**more: Any) -> dict[str, Any]:
    return {
        "faults": [], "changed": [{"key": "[relay] domains", "before": [], "after": ["a.example"]}],
        "restarts": ["receiver"], "revision": THEN, "applied": False,
    } | more  # fmt: skip


def draft(revision: str = NOW) -> str:
    return Draft(changes=[(["relay", "domains"], ["a.example"])], revision=revision).text()


def test_who_may_look_sees_the_settings_and_no_form() -> None:
    with FakeCore({"settings": known(), "settings_history": {"states": [], "faults": []}}):
        client = signed_in("operator")
        page = markup_of(client.get("/settings/"))
        assert "&lt;script&gt;" in page
        assert "<script>alert" not in page
        assert 'name="key"' not in page
        assert client.get("/settings/history/").status_code == 200
        assert client.get("/settings/export/").status_code == 200
        for path in ("/settings/check/", "/settings/apply/"):
            assert client.post(path, {"key": "relay.domains", "value": "[]"}).status_code == 403


def test_an_administrator_sees_what_a_change_would_do_and_applies_just_that(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views, "IN_FORCE_S", 5.0)
    applied: list[dict[str, Any]] = []

    def change(arguments: dict[str, Any]) -> Any:
        if not arguments["check"]:
            applied.append(arguments)
        return changed(applied=not arguments["check"])

    with FakeCore({"settings": known(), "settings_change": change, "ping": {"pid": 1, "manager": True}}) as core:
        client = signed_in("administrator")
        page = markup_of(client.post("/settings/check/", {"key": "relay.domains", "value": "['a.example']"}))
        assert "receivers" in page
        assert not applied
        assert client.post("/settings/apply/", {"draft": draft(), "why": ""}).status_code == 422
        assert not applied, "without a reason nothing is applied"
        core.answers["settings"] = known(revision=THEN)
        answer = client.post("/settings/apply/", {"draft": draft(), "why": "a new domain"}, follow=True)
        assert "in force" in markup_of(answer)
    assert applied == [
        {"changes": [{"key": ["relay", "domains"], "value": ["a.example"]}], "revision": NOW, "check": False}
    ]
    entry = Entry.objects.get(action="settings.change")
    assert (entry.outcome, entry.why, entry.subject) == (Outcome.DONE, "a new domain", "relay.domains")


def test_a_fault_is_shown_with_its_key_and_what_was_entered() -> None:
    fault = {"key": "relay.domains", "reason": f"must be domains (got {HOSTILE})"}
    with FakeCore({"settings": known(), "settings_change": changed(faults=[fault], changed=[])}):
        answer = signed_in("administrator").post("/settings/check/", {"key": "relay.domains", "value": HOSTILE})
        page = markup_of(answer)
    assert answer.status_code == 422
    assert "relay.domains" in page
    assert "<script>alert" not in page
    assert "Apply" not in page


def test_a_change_that_another_has_overtaken_is_shown_again_and_recorded_as_refused() -> None:
    def change(arguments: dict[str, Any]) -> Any:
        return changed() if arguments["check"] else Refusal("changed meanwhile", Code.CONFLICT)

    with FakeCore({"settings": known(revision=THEN), "settings_change": change}):
        answer = signed_in("administrator").post("/settings/apply/", {"draft": draft(), "why": "because"})
        assert answer.status_code == 409
        assert THEN in markup_of(answer), "for the revision that is there now"
    assert Entry.objects.get(action="settings.change").outcome == Outcome.REFUSED


def test_a_draft_that_nobody_was_shown_is_refused() -> None:
    with FakeCore({"settings": known()}):
        client = signed_in("administrator")
        assert client.post("/settings/apply/", {"draft": "{", "why": "because"}).status_code == 422


def test_a_row_of_the_file_is_removed_and_one_that_is_removed_is_returned() -> None:
    def row(name: str, origin: str, **more: Any) -> dict[str, Any]:
        there = {"key": ["routes", name], "value": "smtp", "origin": origin, "below": None, "fixed": "", "removed": []}
        return there | more

    rows = [
        row("file", "file"),
        row("both", "managed", below="bulk"),
        row("here", "managed"),
        row("out", "removed", value=None, below=HOSTILE, removed=["routes", "out"]),
        row("gone", "removed", value=None, removed=["routes", "gone"]),
    ]
    asked: list[dict[str, Any]] = []

    def change(arguments: dict[str, Any]) -> Any:
        asked.extend(arguments["changes"])
        return changed()

    with FakeCore({"settings": known(settings=rows), "settings_change": change}):
        client = signed_in("administrator")
        for path in ("/settings/", "/settings/kinds/routes/", "/settings/kinds/routes/rows/routes/?row=out"):
            page = markup_of(client.get(path))
            assert "emoved here" in page
            assert "still has" in page
            assert "<script>alert" not in page
        for name, button in (
            ("file", "1"),
            ("both", "1"),
            ("both", "return"),
            ("here", "1"),
            ("out", "return"),
            ("gone", "return"),
        ):
            given = {"row": name, "revision": NOW, "remove": button}
            assert client.post("/settings/kinds/routes/rows/routes/check/", given).status_code == 200
        client.post("/settings/check/", {"key": "routes.file", "remove": "file"})
        client.post("/settings/check/", {"toml": "removed = ['routes.file']\n[relay]\ndomains = ['a.example']"})
        text = client.get("/settings/export/").content.decode()
    gone: dict[str, Any] = {"removed": True}
    back: dict[str, Any] = {"value": None}
    wanted = [
        ("file", gone),
        ("both", gone),
        ("both", back),
        ("here", back),
        ("out", back),
        ("gone", back),
        ("file", gone),
    ]
    imported = [{"key": ["relay", "domains"], "value": ["a.example"]}, {"key": ["routes", "file"], "removed": True}]
    assert asked == [{"key": ["routes", name], **what} for name, what in wanted] + imported
    assert 'removed = ["routes.out", "routes.gone"]' in text


def test_rows_that_are_removed_as_a_whole_are_returned_as_a_whole() -> None:
    there = {
        "key": ["listener"],
        "value": None,
        "below": [{"address": "127.0.0.1:26"}],
        "fixed": "",
        "removed": ["listener"],
    }
    with FakeCore({"settings": known(settings=[there | {"origin": "removed"}]), "settings_change": changed()}) as core:
        client = signed_in("administrator")
        assert "Return them" in markup_of(client.get("/settings/kinds/listeners/"))
        client.post("/settings/check/", {"key": "listener", "remove": "1"})
        assert core.asked("settings_change")[0]["changes"] == [{"key": ["listener"], "value": None}]


def test_a_value_that_is_tuned_is_shown_above_those_of_the_files() -> None:
    def row(*key: str, **more: Any) -> dict[str, Any]:
        there = {"key": list(key), "value": 4711, "origin": "managed", "below": None, "fixed": "", "removed": []}
        return there | more

    rows = [
        row("transports", "provider", "process_limit", tuned=[{"value": 7, "until": 9e9}, {"value": 8, "until": None}]),
        row("scheduler", "minimal_backoff_time", value=None, origin="tuned", tuned=[{"value": HOSTILE, "until": None}]),
        row(
            "transports", "provider", "destinations", "x.example", "process_limit", tuned=[{"value": 9, "until": None}]
        ),
    ]
    with FakeCore({"settings": known(settings=rows)}):
        client = signed_in("administrator")
        page = markup_of(client.get("/settings/"))
        for words in (
            "tuned live",
            "below it",
            "4711",
            "?scope=provider",
            "?scope=provider%3Ax.example",
            "until",
        ):
            assert words in page, words
        form = markup_of(client.get("/settings/kinds/transports/rows/transports/?row=provider"))
        assert "Tuned live" in form
        assert 'value="4711"' in form
        assert 'value="7"' not in form, "what is tuned does not become a managed value"
        assert "<script>alert" not in page + markup_of(client.get("/settings/kinds/transports/"))
        text = client.get("/settings/export/").content.decode()
    assert text.splitlines()[1:] == [
        "", "[transports.provider]", "process_limit = 4711", "", '[transports.provider.destinations."x.example"]',
        "process_limit = 4711",
    ]  # fmt: skip


def test_where_the_file_alone_counts_no_form_is_shown() -> None:
    with FakeCore({"settings": known(manages=False)}):
        page = markup_of(signed_in("administrator").get("/settings/"))
    assert 'name="key"' not in page
    assert "in the file alone" in page


def test_an_export_has_neither_places_nor_files() -> None:
    listener = {
        "key": ["certificate"],
        "value": [{"certificate": "/x", "key": "/y"}],
        "origin": "file",
        "below": None,
        "fixed": "",
    }
    plain = {"key": ["relay", "domains"], "value": ["a.example"], "origin": "file", "below": None, "fixed": ""}
    with FakeCore({"settings": known(settings=[known()["settings"][1], listener, plain])}):
        text = Client.get(signed_in("viewer"), "/settings/export/").content.decode()
    assert text.splitlines()[1:] == ["", "[relay]", 'domains = ["a.example"]']


def test_preferences_that_an_earlier_version_kept_in_the_portal_are_shown_until_one_is_changed() -> None:
    Preferences.objects.create(recipients=["old@example.org"], zone="Asia/Tokyo")
    with FakeCore(
        {"settings": known(settings=[]), "settings_change": changed(applied=True), "ping": {"pid": 1, "manager": True}}
    ):
        client = signed_in("administrator")
        page = markup_of(client.get("/settings/kinds/reports/"))
        assert "old@example.org" in page
        assert "old@example.org" not in markup_of(client.get("/settings/kinds/alerts/"))
        given = Draft(changes=[(["reports", "recipients"], ["new@example.org"])], revision=NOW).text()
        client.post("/settings/apply/", {"draft": given, "why": "somebody else"})
    assert own() == {"zone": "Asia/Tokyo"}


def told(**more: Any) -> dict[str, Any]:
    move = {"before": "smtp:one.example", "after": HOSTILE, "messages": 3, "recipients": 4, "bounces": True}
    client = {
        "client_address": "192.0.2.9", "login": HOSTILE, "reason": "it does not use TLS", "messages": 5, "last_at": 1.0,
        "example": HOSTILE, "certain": False,
    }  # fmt: skip
    hop = {
        "destination": "smtp:b.example",
        "policy": HOSTILE,
        "reason": HOSTILE,
        "now": HOSTILE,
        "queued": 1,
        "week": 2,
    }
    return {
        "queued": {"examined": 9, "complete": False, "messages": 3, "recipients": 4, "moves": [move], "more": 1},
        "clients": {
            "since": 1.0, "examined": 7, "complete": False, "unexplained": 2, "clients": [client], "more": 0,
        },
        "hops": {"concerned": 3, "tried": 2, "unreachable": [hop], "not_tried": [HOSTILE]},
        "signatures": {
            "examined": 9, "complete": False, "unread": 1, "messages": 6, "more": 0,
            "changes": [
                {"domain": HOSTILE, "before": ["s1._domainkey.a.example"], "after": [], "messages": 4},
                {"domain": "a.example", "before": [], "after": [HOSTILE], "messages": 2},
            ],
        },
        "not_judged": ["[receiver] recipient_limit"], "took_s": 0.5, "error": "",
    } | more  # fmt: skip


def test_what_a_change_would_do_is_a_part_of_its_page_and_says_what_was_not_looked_at() -> None:
    asked: list[dict[str, Any]] = []

    def effects(arguments: dict[str, Any]) -> Any:
        asked.append(arguments)
        return told()

    with FakeCore({"settings_effects": effects}):
        client = signed_in("administrator")
        part = client.post("/settings/effects/", {"draft": draft()}, headers={"HX-Request": "true"})
        page = markup_of(part)
        assert "<html" not in page
        for words in (
            "bounces", "perhaps", "were not read in time", "do not reach back", "2 could not be judged", "Not tried",
            "Nor with the settings of now", "no signature", "leave with the keys of then",
            "[receiver] recipient_limit", "Look at more mail",
        ):  # fmt: skip
            assert words in " ".join(page.split()), words
        assert "<script>alert" not in page
        whole = markup_of(client.post("/settings/effects/", {"draft": draft(), "long": "1"}))
        assert "<html" in whole
        assert "Look at more mail" not in whole
    assert asked == [
        {"changes": [{"key": ["relay", "domains"], "value": ["a.example"]}], "seconds": seconds}
        for seconds in (10.0, 60.0)
    ]


def test_a_look_that_fails_is_not_taken_for_no_effect() -> None:
    client = signed_in("administrator")
    with FakeCore({"settings_effects": Refusal("too many looks", Code.BUSY)}):
        answer = client.post("/settings/effects/", {"draft": draft()}, headers={"HX-Request": "true"})
    assert "not known what the change would do" in markup_of(answer)
    nothing = told(queued=None, clients=None, hops=None, not_judged=[], error="/x: unreadable")
    with FakeCore({"settings_effects": nothing}):
        page = markup_of(client.post("/settings/effects/", {"draft": draft()}))
    assert "ended early" in page
    assert "lets the same clients in" not in page


@pytest.mark.parametrize("elsewhere", ["", "other nodes that have the file keep it"])
def test_a_file_that_is_removed_may_still_be_elsewhere(elsewhere: str) -> None:
    answers = {"kept_remove": {"faults": [], "elsewhere": elsewhere}, "settings": known(), "kept": {"files": []}}
    with FakeCore(answers):
        page = markup_of(
            signed_in("administrator").post("/settings/kept/remove/", {"file": "kept:map/a.1"}, follow=True)
        )
    assert ("The file is removed from this node" in page) is bool(elsewhere)
    assert ("other nodes that have the file keep it." in page) is bool(elsewhere)
