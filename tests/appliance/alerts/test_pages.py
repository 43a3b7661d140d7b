"""The pages of alerts: what is open and why, what is not known, and what an operator does about it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError
from django.utils import timezone

from appliance.alerts import open_alerts
from appliance.alerts.models import Alert, Notice, RuleCheck, Silence, Watch
from appliance.audit.models import Entry, Outcome
from mailcore.config.alerts import RULES
from tests.appliance.accounts.sample_users import client_of
from tests.appliance.markup import collapsed

pytestmark = pytest.mark.django_db

HOSTILE = "<script>x</script>\u202e"


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_alerts, "KEPT_S", 0.0)


@pytest.fixture
def watched() -> None:
    now = timezone.now()
    Watch.objects.create(pid=1, started_at=now, seen_at=now)
    for rule in RULES[:-2]:
        RuleCheck.objects.create(key=rule, checked_at=now, tried_at=now)


def opened(cause: str = "disk:space:queue", **given: Any) -> Alert:
    now = timezone.now()
    told = {
        "rule": cause.partition(":")[0], "severity": "warning", "summary": f"The disk is short {HOSTILE}",
        "detail": "2 GB", "link": "/positions/", "began_at": now, "opened_at": now, "seen_at": now, **given,
    }  # fmt: skip
    return Alert.objects.create(cause=cause, **told)


def page(path: str = "/alerts/", role: str = "viewer") -> str:
    answer = client_of(role).get(path)
    assert answer.status_code == 200, answer.content.decode()
    return collapsed(answer.content.decode())


def with_targets(settings: Any, **given: Any) -> None:
    settings.WAYPOST = replace(settings.WAYPOST, alerts=replace(settings.WAYPOST.alerts, **given))


@pytest.mark.usefixtures("watched")
def test_an_open_alert_is_on_its_page_on_all_pages_and_on_the_overview() -> None:
    assert "No alert is open" in page()
    alert = opened(severity="critical")
    text = page()
    assert "No alert is open" not in text
    assert '<a href="/positions/">why</a>' in text
    assert "<script>x" not in text
    assert "\u202e" not in text
    assert '<span class="badge bad">1' in page("/reports/")
    overview = page("/")
    assert '<span class="badge bad">1' in overview
    assert f'<a href="/alerts/{alert.pk}/">Alert</a>' in overview
    Alert.objects.update(ended_at=timezone.now())
    assert "No alert is open" in page()
    assert "Alert</a>" not in page("/")


def test_a_watch_that_does_not_run_is_said_on_each_of_these_pages(settings: Any) -> None:
    assert "No rule is checked now, and nothing is sent.</strong> The watch has never run." in page()
    now = timezone.now()
    watch = Watch.objects.create(pid=1, started_at=now, seen_at=now - timedelta(minutes=10))
    for rule in RULES[:-2]:
        RuleCheck.objects.create(key=rule, checked_at=now, tried_at=now)
    for path in ("/alerts/", "/alerts/rules/disk/"):
        assert "No rule is checked now" in page(path)
    assert "good</span>" not in page()
    assert "No rule of the" in page("/")
    Watch.objects.filter(pk=watch.pk).update(seen_at=now + timedelta(days=1))  # the clock was set back
    assert "No rule is checked now" in page()


@pytest.mark.usefixtures("watched")
def test_a_rule_that_could_not_be_checked_is_not_good(settings: Any) -> None:
    assert page().count('badge good">good<') == len(RULES) - 2
    RuleCheck.objects.filter(key="disk").update(unknown=f"no answer {HOSTILE}")
    RuleCheck.objects.filter(key="certificate").delete()
    with_targets(settings, off=("balance",))
    text = page()
    assert text.count('badge good">good<') == len(RULES) - 5
    assert "no answer &lt;script&gt;" in text
    assert "not checked yet" in text
    assert '<span class="badge">off</span>' in text
    for rule in RULES:
        page(f"/alerts/rules/{rule}/")
    assert "portal_disk_free_bytes" in page("/alerts/rules/disk/")
    assert client_of("viewer").get("/alerts/rules/nonsense/").status_code == 404


@pytest.mark.usefixtures("watched")
def test_an_alert_says_what_was_done_and_sent_and_what_is_unknown() -> None:
    alert = opened(unknown="the core does not answer", began_at=timezone.now() - timedelta(hours=2))
    now = timezone.now()
    Notice.objects.create(alert=alert, kind="opened", channel="mail", target="a@example.org", made_at=now, next_try_at=now,
                          attempts=3, words=f"451 later {HOSTILE}")  # fmt: skip
    opened("disk:space:queue", ended_at=now - timedelta(hours=1))
    text = page(f"/alerts/{alert.pk}/")
    for words in ("Nothing is known about it now: <bdi>the core does not answer</bdi>", "failed</span> 3 times", "451 later",
                  "The same cause at other times", "/positions/", "2 GB"):  # fmt: skip
        assert words in text, words
    assert "<form" not in text.partition("<main")[2].partition("</main>")[0], "a viewer changes nothing"
    assert "failed</span> 3" in page()


def test_without_mail_and_webhook_that_is_said(settings: Any) -> None:
    assert "neither mail nor a webhook is configured" in page()
    with_targets(settings, recipients=("a@example.org",), webhook="https://hooks.example.org/secret-token")
    text = page(role="operator")
    assert "neither mail nor a webhook" not in text
    assert "webhook at hooks.example.org" in text
    assert "secret-token" not in text, "the address of a webhook is often a secret"


def test_an_operator_acknowledges_with_a_reason() -> None:
    alert = opened()
    operator = client_of("operator")
    path = f"/alerts/{alert.pk}/acknowledge/"
    answer = operator.post(path, {"acknowledge-why": ""})
    assert answer.status_code == 422
    assert "This field is required" in answer.content.decode()
    assert operator.post(path, {"acknowledge-why": "I look at it"}).status_code == 302
    alert.refresh_from_db()
    assert (alert.acknowledged_by, alert.acknowledged_why, alert.ended_at) == ("operator", "I look at it", None)
    entry = Entry.objects.get(action="alert.acknowledge")
    assert (entry.subject, entry.why, entry.outcome) == (alert.cause, "I look at it", Outcome.DONE)
    text = page()
    assert "acknowledged</span>" in text
    Alert.objects.update(ended_at=timezone.now(), acknowledged_by="")
    operator.post(path, {"acknowledge-why": "too late"})
    alert.refresh_from_db()
    assert alert.acknowledged_by == ""


def test_an_operator_silences_a_cause_or_a_rule_and_ends_that() -> None:
    alert, other = opened(), opened("disk:space:spool")
    operator = client_of("operator")
    given = {"silence-span": "4h", "silence-why": "a bigger disk comes"}
    assert operator.post(f"/alerts/{alert.pk}/silence/", {"silence-span": "9y", "silence-why": "x"}).status_code == 422
    assert operator.post(f"/alerts/{alert.pk}/silence/", given).status_code == 302
    silence = Silence.objects.get()
    assert (silence.covers(alert), silence.covers(other), silence.made_by) == (True, False, "operator")
    assert timedelta(hours=3.9) < silence.until - timezone.now() < timedelta(hours=4.1)
    assert page().count("silenced</span>") == 1
    assert operator.post("/alerts/rules/disk/silence/", given).status_code == 302
    assert page().count("silenced</span>") == 3, "both alerts and the rule"
    assert operator.post("/alerts/rules/nonsense/silence/", given).status_code == 404
    for each in Silence.objects.all():
        operator.post(f"/alerts/silences/{each.pk}/end/")
    assert "silenced</span>" not in page()
    assert list(Entry.objects.filter(action__startswith="alert.").order_by("id").values_list("action", flat=True)) == [
        "alert.silence", "alert.silence", "alert.end_silence", "alert.end_silence",
    ]  # fmt: skip


def test_a_test_is_left_to_the_watch_for_each_target(settings: Any) -> None:
    operator = client_of("operator")
    operator.post("/alerts/test/")
    assert not Notice.objects.exists()
    with_targets(settings, recipients=("a@example.org",), webhook="https://example.org/")
    operator.post("/alerts/test/")
    assert sorted(Notice.objects.values_list("kind", "channel", "target", "made_by")) == [
        ("test", "mail", "a@example.org", "operator"), ("test", "webhook", "", "operator"),
    ]  # fmt: skip
    text = page()
    assert 'hx-trigger="every 2s"' in text
    piece = client_of("viewer").get("/alerts/", headers={"HX-Request": "true"}).content.decode()
    assert piece.startswith('<div id="notices" hx-get')
    Notice.objects.update(sent_at=timezone.now(), words="250 ok")
    assert "every 2s" not in page()
    assert "250 ok" in page()


def test_the_history_has_pages() -> None:
    now = timezone.now()
    for number in range(60):
        opened(f"disk:{number}", ended_at=now, summary=f"Number {number}.")
    text = page()
    assert "Number 59." in text
    assert "Number 9." not in text
    older = text.partition("?before=")[2].partition('"')[0]
    assert "Number 9." in page(f"/alerts/?before={older}")
    assert page("/alerts/?before=nonsense")


def test_without_the_database_pages_say_nothing_of_alerts(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> Any:
        raise OperationalError("database is locked")

    monkeypatch.setattr(open_alerts, "open_alerts_now", fail)
    assert open_alerts.open_alerts() is None
    assert "Recipients per minute" in page("/")
