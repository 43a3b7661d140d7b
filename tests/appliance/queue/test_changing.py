"""Changes to all that match: what is left behind when the manager ends in the middle, or the portal's database fails."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.db import OperationalError
from django.http import HttpRequest
from django.test import Client, RequestFactory
from django.utils import timezone

from appliance.audit.models import Entry, Outcome
from appliance.queue.change_views import recent_deletions
from appliance.queue.changing import AT_ONCE_MAX, count, go, in_background
from appliance.queue.models import Change, Phase
from mailcore.control.client import TimedOut
from tests.appliance.fake_core import FakeCore, Refusal

pytestmark = pytest.mark.django_db


@pytest.fixture
def request_(rf: RequestFactory) -> HttpRequest:
    request = rf.post("/")
    request.user = User.objects.create_user("olga")
    return request


def test_a_change_that_cannot_be_written_down_takes_nobodys_place(
    request_: HttpRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Change, *_: Any, **__: Any) -> None:
        raise OperationalError("database or disk is full")

    monkeypatch.setattr(Change, "save", full)
    for _ in range(AT_ONCE_MAX + 1):
        with pytest.raises(OperationalError):
            in_background(count, request_, Change(who="olga", operation="delete"))


def test_a_deletion_in_whose_middle_the_portal_ended_can_be_undone(client: Client) -> None:
    olga = User.objects.create_user("olga")
    olga.groups.add(Group.objects.get(name="operator"))
    client.force_login(olga)
    made = {"who": "olga", "operation": "delete", "words": "sender a@b", "why": "spam", "matched": 5}
    running = Change.objects.create(phase=Phase.RUNNING, **made)
    counting = Change.objects.create(phase=Phase.COUNTING, **made)
    assert not running.can_be_undone, "somebody is at work on it"
    Change.objects.update(heard_at=timezone.now() - timedelta(minutes=5))
    undo = f'hx-post="/queue/changes/{running.tag}/undo/"'
    assert undo in client.get(f"/queue/changes/{running.tag}/").content.decode()
    assert [each["change"].tag for each in recent_deletions()] == [running.tag]
    assert "/undo/" not in client.get(f"/queue/changes/{counting.tag}/").content.decode()


def test_a_manager_that_ends_in_the_middle_has_not_refused(request_: HttpRequest) -> None:
    change = Change(who="olga", operation="delete", filter={"sender": "a@b"}, words="sender a@b", why="spam", matched=5)
    change.phase = Phase.RUNNING
    words = Refusal("the manager ended while it was asked; whether it was done is not known: look again")
    with FakeCore({"change_matching": words}), pytest.raises(TimedOut):
        go(request_, change)
    kept = Change.objects.get(pk=change.tag)
    assert kept.phase == Phase.UNKNOWN
    assert kept.can_be_undone, "some of it may have been made"
    assert Entry.objects.get(action="queue.delete").outcome == Outcome.UNKNOWN
