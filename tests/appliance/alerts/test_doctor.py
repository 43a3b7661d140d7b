"""What ``waypost doctor`` says of the alerts."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from appliance.alerts.models import Alert, Notice, Watch
from appliance.reports import doctor

pytestmark = pytest.mark.django_db


def told() -> tuple[str, str, str]:
    (finding,) = doctor.alerts()
    return finding["state"], finding["found"], finding["remedy"]


def test_whether_the_watch_runs(settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "UNITS", tmp_path)
    state, found, remedy = told()
    assert (state, found) == ("not known", "no rule has ever been checked")
    assert "manage.py watch" in remedy
    now = timezone.now()
    Watch.objects.create(pid=1, started_at=now, seen_at=now)
    assert told() == ("good", "0 alerts open; alerts are only shown in the portal", "")
    alerts = replace(settings.WAYPOST.alerts, recipients=("a@example.org",))
    settings.WAYPOST = replace(settings.WAYPOST, alerts=alerts)
    assert told() == ("good", "0 alerts open; alerts are sent to 1 target", "")
    Watch.objects.update(seen_at=now - timedelta(hours=2))
    (tmp_path / "waypost-watch.service").touch()
    state, found, remedy = told()
    assert (state, found) == ("bad", "no rule has been checked for 2 h")
    assert remedy.startswith("Run: systemctl restart waypost-watch")
    Watch.objects.update(seen_at=now + timedelta(hours=2))
    assert told()[:2] == ("bad", "no rule was checked since the clock was set back")


def test_what_cannot_be_sent() -> None:
    now = timezone.now()
    Watch.objects.create(pid=1, started_at=now, seen_at=now)
    alert = Alert.objects.create(
        cause="disk", rule="disk", severity="warning", summary="", link="/", began_at=now, opened_at=now, seen_at=now
    )
    for attempts in (0, 2):
        Notice.objects.create(
            alert=alert, kind="opened", channel="mail", made_at=now, next_try_at=now, attempts=attempts
        )
    state, found, remedy = told()
    assert (state, found.partition(";")[0]) == ("warn", "1 alert open")
    assert found.endswith("1 notice could not be sent yet")
    assert "page Alerts" in remedy
