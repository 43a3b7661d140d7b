"""What is set on a destination's own page is in the history, and nobody takes it for a stranger's change."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client

from appliance.tuning.models import Change, Outcome
from tests.appliance.tuning.core import LIMIT, TuningCore

pytestmark = pytest.mark.django_db
NAME = "smtp:a.example"


def test_an_override_is_in_the_history(client: Client) -> None:
    user = User.objects.create_user("olga", password="x")
    user.groups.add(Group.objects.get(name="operator"))
    client.force_login(user)
    with TuningCore() as core:
        answer = client.post(
            f"/destinations/{quote(NAME, safe=':')}/set/",
            {"parameter": LIMIT, "value": "3", "duration": "", "why": "only a few"},
        )
        assert core.asked("set"), answer.content.decode()
        change = Change.objects.get()
        assert (change.scope, change.parameter, change.value, change.who) == (NAME, LIMIT, 3, "olga")
        assert (change.outcome, change.before["scope"], change.why) == (Outcome.APPLIED, "smtp", "only a few")
        page = client.get("/tuning/history/").content.decode()
        assert "in force" in page
        assert "Changed outside" not in page
