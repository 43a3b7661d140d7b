"""Changes to all that match: what is left behind when the manager ends in the middle, or the portal's database fails."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.db import OperationalError, connections
from django.http import HttpRequest
from django.test import Client, RequestFactory
from django.utils import timezone

from appliance.audit.models import Entry, Outcome
from appliance.queue.change_views import recent_deletions
from appliance.queue.changing import AT_ONCE_MAX, change_chosen, count, go, in_background, undo
from appliance.queue.models import Change, Phase
from appliance.queue.owner_process import _named, is_gone, own
from mailcore.control.client import TimedOut
from mailcore.faults import Code
from tests.appliance.databases import full_disk
from tests.appliance.fake_core import FakeCore, Refusal
from tests.appliance.markup import markup_of
from tests.eventually import eventually_blocking

pytestmark = pytest.mark.django_db


@pytest.fixture
def request_(rf: RequestFactory) -> HttpRequest:
    request = rf.post("/")
    request.user = User.objects.create_user("olga", password="secret")
    return request


def test_a_change_that_cannot_be_written_down_takes_nobodys_place(
    request_: HttpRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Change, *_: Any, **__: Any) -> None:
        raise OperationalError("database or disk is full") from full_disk()

    monkeypatch.setattr(Change, "save", full)
    for _ in range(AT_ONCE_MAX + 1):
        with pytest.raises(OperationalError):
            in_background(count, request_, Change(who="olga", operation="delete"))


def test_a_row_that_is_shown_does_not_change_while_it_is(
    request_: HttpRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A count that ended between two looks gave a dialog without fields, which did not ask again."""
    seen: list[Change] = []
    monkeypatch.setattr(threading, "Thread", AtOnce)
    monkeypatch.setattr(connections, "close_all", lambda: None)  # those of the test

    def counted(_: HttpRequest, row: Change) -> None:
        row.phase = Phase.COUNTED
        seen.append(row)

    shown = Change(who="olga", operation="delete")
    in_background(counted, request_, shown)
    assert [row.pk for row in seen] == [shown.pk]
    assert shown.phase != Phase.COUNTED


class AtOnce:
    """A thread that ends before its start returns."""

    def __init__(self, target: Callable[..., None], args: tuple[Change, ...], name: str, daemon: bool) -> None:
        self.start = lambda: target(*args)


def test_a_deletion_in_whose_middle_the_portal_ended_can_be_undone(client: Client) -> None:
    olga = User.objects.create_user("olga", password="secret")
    olga.groups.add(Group.objects.get(name="operator"))
    client.force_login(olga)
    made = {"who": "olga", "operation": "delete", "words": "sender a@b", "why": "spam", "matched": 5}
    running = Change.objects.create(phase=Phase.RUNNING, **made)
    counting = Change.objects.create(phase=Phase.COUNTING, **made)
    assert not running.can_be_undone, "somebody is at work on it"
    Change.objects.update(heard_at=timezone.now() - timedelta(minutes=5))
    undo = f'hx-post="/queue/changes/{running.tag}/undo/"'
    assert undo in markup_of(client.get(f"/queue/changes/{running.tag}/"))
    assert [each["change"].tag for each in recent_deletions()] == [running.tag]
    assert "/undo/" not in markup_of(client.get(f"/queue/changes/{counting.tag}/"))


def test_a_change_whose_process_was_killed_is_told_at_the_next_look(client: Client) -> None:
    olga = User.objects.create_user("olga", password="secret")
    olga.groups.add(Group.objects.get(name="operator"))
    client.force_login(olga)
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    made = {"who": "olga", "operation": "delete", "words": "sender a@b", "why": "spam", "matched": 5, "changed": 2}
    change = Change.objects.create(phase=Phase.RUNNING, worker=_named(process.pid), **made)
    page = f"/queue/changes/{change.tag}/"
    try:
        assert not change.abandoned
        assert "of 5 deleted" in markup_of(client.get(page))
    finally:
        process.kill()
    eventually_blocking(lambda: change.abandoned)  # a process that ended and was not waited for has ended
    text = markup_of(client.get(page))
    assert "The portal stopped during this change" in text
    assert "At least 2 messages were deleted" in text
    assert f'hx-post="{page}undo/"' in text
    process.wait()
    assert change.abandoned


def test_only_a_process_of_this_host_that_is_no_more_is_gone() -> None:
    host, number, start = own().split()
    assert not is_gone(own())
    assert is_gone(f"{host} {number} {int(start) + 1}"), "another has its number now"
    for unknown in ("", "elsewhere 1 1", host, f"{host} x y"):
        assert not is_gone(unknown)


def test_why_a_message_was_not_changed_is_kept_in_words(request_: HttpRequest) -> None:
    fault = {"code": "conflict", "message": "message is held already", "argument": ""}
    change = Change(who="olga", operation="hold", messages=[["1K0RDGV4BE900"], ["1K0RDGV4BE901"]], why="spam")
    with FakeCore({"hold": {"changed": 1, "errors": {"1K0RDGV4BE901": fault}}}):
        change_chosen(request_, change)
    kept = Change.objects.get(pk=change.tag)
    assert (kept.phase, kept.changed, kept.failed) == (Phase.DONE, 1, 1)
    assert kept.errors == {"1K0RDGV4BE901": "message is held already"}
    entry = Entry.objects.get(action="queue.hold")
    assert entry.after is not None
    assert entry.after["errors"] == kept.errors


def test_a_manager_that_ends_in_the_middle_has_not_refused(request_: HttpRequest) -> None:
    change = Change(who="olga", operation="delete", filter={"sender": "a@b"}, words="sender a@b", why="spam", matched=5)
    change.phase = Phase.RUNNING
    words = Refusal("the manager ended", Code.OUTCOME_UNKNOWN)
    with FakeCore({"change_matching": words}), pytest.raises(TimedOut):
        go(request_, change)
    kept = Change.objects.get(pk=change.tag)
    assert kept.phase == Phase.UNKNOWN
    assert kept.can_be_undone, "some of it may have been made"
    assert Entry.objects.get(action="queue.delete").outcome == Outcome.UNKNOWN


def words_of(client: Client, request: HttpRequest, change: Change) -> str:
    """Returns the text of a change's page, as the operator of the request sees it."""
    assert isinstance(request.user, User)
    request.user.groups.add(Group.objects.get(name="operator"))
    client.force_login(request.user)
    return " ".join(re.sub(r"<[^>]*>", " ", markup_of(client.get(f"/queue/changes/{change.tag}/"))).split())


def test_recipients_are_counted_changed_and_told_beside_their_messages(client: Client, request_: HttpRequest) -> None:
    change = Change(who="olga", operation="hold", filter={"recipient": "*@b"}, words="recipient *@b", why="spam")
    change.phase = Phase.COUNTING
    counted = {"matched": 2, "matched_recipients": 5, "done": True, "cut": "cut"}
    made = counted | {"changed": 2, "changed_recipients": 4, "in_flight": 3, "too_late": 1, "undecided": 1}
    made |= {"failed": 3, "failures": {"not_found": 1, "conflict": 2}}
    with FakeCore({"change_matching": lambda given: counted if given.get("dry_run") else made}):
        count(request_, change)
        text = words_of(client, request_, change)
        assert "2 messages, 5 recipients, counted" in text
        assert "Only the recipients that match are changed" in text
        assert "Hold 2 messages (5 recipients)" in text
        change.phase = Phase.RUNNING
        go(request_, change)
    kept = Change.objects.get(pk=change.tag)
    assert (kept.changed, kept.changed_recipients, kept.in_flight, kept.matched_recipients) == (2, 4, 3, 5)
    assert (kept.too_late, kept.undecided) == (1, 1)
    text = words_of(client, request_, change)
    assert "2 messages (4 recipients) held." in text
    assert (
        "3 recipients were being delivered when the change was made: the change came too late for 1; for 1 it applies"
        in text
    )
    assert "2 messages in a state that does not allow the change 1 message no longer in the queue" in text
    entry = Entry.objects.filter(action="queue.hold").latest("pk")
    assert entry.after is not None
    assert (entry.after["changed_recipients"], entry.after["in_flight"], entry.after["too_late"]) == (4, 3, 1)
    assert "2 (4 recipients) held" in entry.words
    Change.objects.update(phase=Phase.RUNNING, ended_at=None)
    text = words_of(client, request_, change)
    assert "2 of 2 held, 4 of 5 recipients, 3 recipients being delivered now" in text


def test_an_undo_asks_for_the_recipients_of_its_deletion_wherever_their_messages_rest(
    client: Client, request_: HttpRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "appliance.queue.changing.in_background", lambda target, request, change: target(request, change)
    )
    deletion = Change.objects.create(
        who="olga", operation="delete", filter={"recipient": "x@b"}, words="recipient x@b", why="spam", phase=Phase.DONE,
        ended_at=timezone.now(), matched=2, changed=2, changed_recipients=3,
    )  # fmt: skip
    answer = {"matched": 1, "matched_recipients": 2, "changed": 1, "changed_recipients": 2, "done": True}
    with FakeCore({"change_matching": answer}) as core:
        made = undo(request_, deletion, "asked for")
        (asked,) = core.asked("change_matching")
    assert (asked["change"], asked["filter"]) == ("undelete", {"reason": deletion.mark})
    Change.objects.filter(pk=made.pk).update(phase=Phase.DONE)
    text = words_of(client, request_, made)
    assert "1 message (2 recipients) undeleted. 1 deleted recipient was not found" in text


PROGRESS = {"matched": 3, "matched_recipients": 3, "cut": "a cut", "done": True}


def operators(client: Client) -> Client:
    olga = User.objects.create_user("olga", password="secret")
    olga.groups.add(Group.objects.get(name="operator"))
    client.force_login(olga)
    return client


def test_a_retry_of_all_that_match_asks_whether_scheduled_mail_is_meant_too(client: Client) -> None:
    with FakeCore({}):
        text = markup_of(operators(client).get("/queue/change/retry/?all=1&sender=a*"))
        assert '<input type="checkbox" name="scheduled"' in text
        assert "Otherwise they keep their time." in text
        assert 'hx-trigger="load' not in text, "it is asked before it counts"
        assert 'name="scheduled"' not in markup_of(client.get("/queue/change/hold/?all=1&sender=a*"))
        chosen = markup_of(client.get("/queue/change/retry/?m=1K0S2C4MQCJ00"))
    assert "also those that are delayed" in chosen


@pytest.mark.parametrize("scheduled", [False, True])
def test_a_retry_names_scheduled_mail_to_the_core_only_when_it_was_chosen(
    request_: HttpRequest, scheduled: bool
) -> None:
    change = Change(who="olga", operation="retry", filter={"sender": "a*"}, why="why", scheduled=scheduled)
    with FakeCore({"change_matching": PROGRESS}) as core:
        count(request_, change)
        change.phase = Phase.RUNNING
        go(request_, change)
    assert [each.get("scheduled", False) for each in core.asked("change_matching")] == [scheduled] * 2


@pytest.mark.parametrize("chosen", [False, True])
def test_after_a_retry_dead_destinations_are_named_and_can_be_resumed(
    request_: HttpRequest, client: Client, chosen: bool
) -> None:
    dead = ["smtp:<b>.example", "smtp:dead.example"]
    change = Change(who="olga", operation="retry", why="why", phase=Phase.RUNNING)
    with FakeCore({"change_matching": PROGRESS | {"changed": 3, "dead": dead}, "retry": {"changed": 1, "dead": dead}}):
        if chosen:
            change.messages = [["1K0S2C4MQCJ00"]]
            change_chosen(request_, change)
        else:
            go(request_, change)
    after = Entry.objects.get(action="queue.retry").after
    assert after is not None
    assert after["dead"] == dead
    pages = {}
    for role in ("viewer", "operator"):
        user = User.objects.create_user(role, password="secret")
        user.groups.add(Group.objects.get(name=role))
        client.force_login(user)
        pages[role] = markup_of(client.get(f"/queue/changes/{change.tag}/"))
        assert "smtp:dead.example" in pages[role]
        assert "<b>.example" not in pages[role]
    resume = 'hx-get="/destinations/smtp:dead.example/resume/"'
    assert (resume in pages["operator"], resume in pages["viewer"]) == (True, False)
