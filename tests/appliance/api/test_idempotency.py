"""A request with an Idempotency-Key is done once: repeated, at once, interrupted, expired, with another body or token."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.core.cache import cache
from django.db import DatabaseError, OperationalError
from django.http import HttpRequest
from django.utils import timezone

from appliance.api import idempotency, queue_changes
from appliance.api.models import KeptAnswer
from appliance.audit.models import Entry
from appliance.queue.changing import change_chosen
from appliance.queue.models import Change
from appliance.queue.owner_process import _named
from mailcore.faults import Code
from tests.appliance.accounts.sample_users import user
from tests.appliance.api.asking import ApiClient, client_with, code_of, token_for
from tests.appliance.fake_core import FakeCore, Refusal

pytestmark = pytest.mark.django_db

HOLD = {"operation": "hold", "queue_ids": ["1K0RDGV4BE900"], "why": "a test"}
PATH = "/queue/changes"
DONE = {"hold": {"changed": 1, "recipients": 1}}


@pytest.fixture(autouse=True)
def _empty_cache() -> None:
    cache.clear()


def hold(client: ApiClient, key: str = "one", **more: Any) -> Any:
    return client.post(PATH, HOLD | more, idempotency_key=key)


def test_a_repeated_request_gets_the_first_answer_and_is_not_done_again() -> None:
    client = client_with()
    with FakeCore(DONE) as core:
        first, second = hold(client), hold(client)
    assert (first.status_code, second.status_code) == (200, 200)
    assert first.content == second.content
    assert "Idempotency-Replayed" not in first
    assert second["Idempotency-Replayed"] == "true"
    assert len(core.asked("hold")) == 1
    assert Entry.objects.filter(action="queue.hold").count() == 1
    assert Change.objects.count() == 1


def test_without_a_key_it_is_done_each_time() -> None:
    client = client_with()
    with FakeCore(DONE) as core:
        client.post(PATH, HOLD)
        client.post(PATH, HOLD)
    assert len(core.asked("hold")) == 2
    assert not KeptAnswer.objects.exists()


def test_the_same_key_with_another_body_or_address_is_a_conflict() -> None:
    client = client_with()
    with FakeCore(DONE) as core:
        hold(client)
        other_body = hold(client, why="another reason")
        other_path = client.post("/queue/counts", HOLD, idempotency_key="one")
    assert code_of(other_body) == (409, "conflict", "Idempotency-Key")
    assert other_path.status_code in (409, 422)
    assert len(core.asked("hold")) == 1


def test_another_token_has_keys_of_its_own() -> None:
    it = user("operator")
    one, other = ApiClient(token_for(it)[1]), ApiClient(token_for(it)[1])
    with FakeCore(DONE) as core:
        hold(one)
        assert "Idempotency-Replayed" not in hold(other)
    assert len(core.asked("hold")) == 2


@pytest.mark.parametrize("key", ["", " ", "a b", "a" * 256, "\u00e4"])
def test_a_key_that_is_not_allowed_does_nothing(key: str) -> None:
    with FakeCore(DONE) as core:
        assert code_of(hold(client_with(), key)) == (422, "invalid", "Idempotency-Key")
    assert core.requests == []


@pytest.mark.parametrize(
    "code", [Code.INVALID, Code.NOT_FOUND, Code.CONFLICT, Code.BUSY, Code.UNAVAILABLE, Code.FORBIDDEN]
)
def test_an_answer_that_says_that_nothing_was_done_is_not_kept(code: Code) -> None:
    client = client_with()
    with FakeCore({"hold": Refusal("no", code)}) as core:
        assert hold(client).status_code >= 400
        core.answers["hold"] = DONE["hold"]
        again = hold(client)
    assert again.status_code == 200
    assert "Idempotency-Replayed" not in again


@pytest.mark.parametrize(("code", "status"), [(Code.OUTCOME_UNKNOWN, 504), (Code.INTERNAL, 500)])
def test_an_answer_after_which_it_may_have_been_done_is_kept(code: Code, status: int) -> None:
    client = client_with()
    with FakeCore({"hold": Refusal("who knows", code)}) as core:
        first = hold(client)
        core.answers["hold"] = DONE["hold"]
        second = hold(client)
    assert (first.status_code, second.status_code) == (status, status)
    assert len(core.asked("hold")) == 1


def test_an_invalid_request_does_not_use_up_its_key() -> None:
    client = client_with()
    with FakeCore(DONE):
        assert hold(client, why="").status_code == 422
        assert hold(client).status_code == 200


def test_a_request_whose_process_was_killed_is_not_done_again() -> None:
    """The portal ends between the change and its answer: the key answers that the outcome is not known."""
    client = client_with()
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        with FakeCore(DONE) as core:
            hold(client)
            KeptAnswer.objects.update(status=0, body="", worker=_named(process.pid))
            assert code_of(hold(client))[:2] == (503, "busy"), "the first is still being worked on"
            process.kill()
            process.wait()
            assert code_of(hold(client))[:2] == (504, "outcome_unknown")
            assert code_of(hold(client))[:2] == (504, "outcome_unknown")
        assert len(core.asked("hold")) == 1
    finally:
        process.kill()
        process.wait()


def test_a_request_of_another_host_is_given_up_after_the_time_of_a_change() -> None:
    client = client_with()
    with FakeCore(DONE) as core:
        hold(client)
        KeptAnswer.objects.update(status=0, worker="elsewhere 1 1")
        assert code_of(hold(client))[:2] == (503, "busy")
        long_ago = timezone.now() - timedelta(seconds=settings.PORTAL.change_timeout_s + 16)
        KeptAnswer.objects.update(begun_at=long_ago)
        assert code_of(hold(client))[:2] == (504, "outcome_unknown")
    assert len(core.asked("hold")) == 1


def test_kept_answers_expire_and_are_deleted() -> None:
    client = client_with()
    with FakeCore(DONE) as core:
        hold(client)
        late = timezone.now() - timedelta(seconds=settings.PORTAL.api_idempotency_s + 1)
        KeptAnswer.objects.update(begun_at=late)
        assert "Idempotency-Replayed" not in hold(client)
    assert len(core.asked("hold")) == 2
    assert KeptAnswer.objects.count() == 1


def test_an_answer_that_cannot_be_kept_is_given_and_the_change_is_not_made_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = client_with()

    def full(*_: object, **__: object) -> None:
        raise DatabaseError("database or disk is full")

    with FakeCore(DONE) as core:
        with monkeypatch.context() as patch:
            patch.setattr(idempotency, "_keep", full)
            assert hold(client).status_code == 200
        assert code_of(hold(client))[:2] == (503, "busy")
    assert len(core.asked("hold")) == 1


def test_a_key_that_cannot_be_stored_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OperationalError("database or disk is full")

    client = client_with()
    monkeypatch.setattr(type(KeptAnswer.objects), "get_or_create", full)
    with FakeCore(DONE) as core:
        assert code_of(hold(client))[:2] == (503, "unavailable")
    assert core.requests == []


def test_a_replayed_answer_needs_the_role_of_the_moment() -> None:
    it = user("operator")
    client = ApiClient(token_for(it)[1])
    with FakeCore(DONE):
        hold(client)
        it.groups.clear()
        assert hold(client).status_code == 403


def test_a_repeated_request_while_the_first_is_worked_on_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two at the same moment: tests/browser/test_api.py on SQLite, tests/appliance/common/test_postgresql.py."""
    client = client_with()
    meanwhile: list[Any] = []

    def working(request: HttpRequest, change: Change) -> None:
        meanwhile.append(hold(client))
        change_chosen(request, change)

    monkeypatch.setattr(queue_changes, "change_chosen", working)
    with FakeCore(DONE) as core:
        first = hold(client)
    assert code_of(meanwhile[0])[:2] == (503, "busy")
    assert meanwhile[0]["Retry-After"] == "1"
    assert first.status_code == 200
    assert len(core.asked("hold")) == 1
    assert hold(client).content == first.content
