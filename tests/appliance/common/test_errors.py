"""A database of the portal's own that is full or away: a page says so, and nothing is done that could not be entered."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.db import OperationalError, connection
from django.http import HttpResponse
from django.test import Client, RequestFactory

from appliance.accounts.sessions import SEEN
from appliance.audit.models import Entry, Outcome
from appliance.common.middleware import CoreErrorsMiddleware
from mailcore.control.client import TimedOut
from mailcore.faults import Code
from tests.appliance.accounts.sample_users import PASSWORD, client_of, sign_in, user
from tests.appliance.databases import full_disk
from tests.appliance.fake_core import FakeCore, Refusal
from tests.config.test_waiting import written

pytestmark = pytest.mark.django_db


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> None:
    def begin(self: Entry) -> None:
        raise OperationalError("database or disk is full") from full_disk()

    monkeypatch.setattr(Entry, "begin", begin)


@pytest.mark.usefixtures("full")
def test_a_full_disk_is_told_and_nothing_is_sent() -> None:
    answers: dict[str, Any] = {"transports": {"scopes": {"smtp:a.example": {}}}, "suspend": {"value": None}}
    given = {"how": "open", "why": "they ask for it"}
    with FakeCore(answers) as core:
        answer = client_of("operator").post("/destinations/smtp:a.example/suspend/", given)
        assert core.asked("suspend") == []
    text = answer.content.decode()
    assert answer.status_code == 503
    assert "cannot write to its database; mail delivery continues. Nothing was changed" in text
    assert "database or disk is full" in text


def test_a_page_of_a_spare_says_what_it_waits_for() -> None:
    run = Path(settings.CONTROL_SOCKET).parent
    written(run, os.getpid(), "owner")
    try:
        answer = client_of("operator").get("/nodes/")
    finally:
        (run / "children.json").unlink()
    text = answer.content.decode()
    assert answer.status_code == 503
    assert "This node waits for its shard" in text
    assert "shard north belongs to mx1; this node is its spare" in text
    assert "is not running" not in text


@pytest.mark.usefixtures("full")
def test_a_dialog_gets_a_piece() -> None:
    client: Client = client_of("administrator")
    with FakeCore({"data": {"data": b"x", "offset": 0, "size_bytes": 1, "more": False}}):
        answer = client.get("/queue/0123456789ABC/body/", headers={"HX-Request": "true"})
    assert answer.status_code == 503
    assert "<!doctype" not in answer.content.decode()


@pytest.fixture
def unwritable() -> Iterator[None]:
    """The database can be read, and every write fails: SQLite's own way of saying so, in which all goes as with a full disk."""
    connection.ensure_connection()
    connection.connection.execute("PRAGMA query_only = ON")
    yield
    connection.connection.execute("PRAGMA query_only = OFF")


SAID = "The portal cannot write to its database; mail delivery continues"


def test_signing_in_says_that_nothing_can_be_written(request: pytest.FixtureRequest) -> None:
    user("viewer")
    client = Client()
    assert client.get("/accounts/login/").status_code == 200
    request.getfixturevalue("unwritable")
    for password in (PASSWORD, "wrong"):
        answer = client.post("/accounts/login/", {"login": "viewer", "password": password})
        assert answer.status_code == 503
        assert SAID in answer.content.decode()
        assert "appliance/waypost.css" in answer.content.decode()


def test_too_many_are_still_told_that_they_are_too_many() -> None:
    client = Client()
    for _ in range(61):
        status = sign_in(client, "nobody", "wrong")
    assert status == 429


def test_pages_are_read_on_when_nothing_can_be_written(request: pytest.FixtureRequest) -> None:
    client = client_of("viewer")
    session = client.session
    session[SEEN] = 1  # long ago: it would be prolonged
    session.save()
    request.getfixturevalue("unwritable")
    assert client.get("/reports/").status_code == 200
    assert client.session[SEEN] == 1


def test_a_change_is_not_begun_when_it_cannot_be_entered(request: pytest.FixtureRequest) -> None:
    answers: dict[str, Any] = {"transports": {"scopes": {"smtp:a.example": {}}}, "suspend": {"value": None}}
    client = client_of("operator")
    request.getfixturevalue("unwritable")
    with FakeCore(answers) as core:
        answer = client.post(
            "/destinations/smtp:a.example/suspend/",
            {"how": "open", "why": "they ask for it"},
            headers={"HX-Request": "true"},
        )
        assert core.asked("suspend") == []
    text = answer.content.decode()
    assert answer.status_code == 503
    assert f"{SAID}. Nothing was changed" in text
    assert "<!doctype" not in text


def test_a_change_whose_end_cannot_be_written_is_told_to_be_looked_after(monkeypatch: pytest.MonkeyPatch) -> None:
    def end(self: Entry) -> None:
        raise OperationalError("database or disk is full") from full_disk()

    monkeypatch.setattr(Entry, "end", end)
    answers: dict[str, Any] = {"transports": {"scopes": {"smtp:a.example": {}}}, "suspend": {"value": None}}
    with FakeCore(answers) as core:
        given = {"how": "open", "why": "they ask for it"}
        answer = client_of("operator").post("/destinations/smtp:a.example/suspend/", given)
        assert len(core.asked("suspend")) == 1
    assert answer.status_code == 503
    assert f"{SAID}. Check whether the change was made before you repeat it" in answer.content.decode()
    assert Entry.objects.get(action="destination.suspend").outcome == Outcome.UNKNOWN


def test_a_database_that_cannot_be_read_is_told_by_a_page_that_needs_none(monkeypatch: pytest.MonkeyPatch) -> None:
    client = client_of("viewer")
    client.raise_request_exception = False

    def away(*_: Any, **__: Any) -> None:
        raise OperationalError("unable to open database file")

    monkeypatch.setattr("django.contrib.sessions.backends.db.SessionStore.load", away)
    for header in ({}, {"HX-Request": "true"}):
        answer = client.get("/reports/", headers=header)
        assert answer.status_code == 503
        text = answer.content.decode()
        assert "The portal cannot use its database; mail delivery continues" in text
        assert ("<!doctype" in text) != bool(header)


def test_the_page_of_a_refusal_says_once_that_the_core_refused() -> None:
    with FakeCore({"list": Refusal("'xyz' is not a cursor", Code.INVALID, "cursor")}):
        answer = client_of("viewer").get("/queue/?cursor=xyz")
    main = answer.content.decode().partition("<h1>")[2]
    assert (answer.status_code, main.count("The core refused the request")) == (409, 1)
    assert "is not a cursor" in main


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/queue/0AAAA000000000/x/", "it may have left the queue"),
        ("/reports/month/2020-01-02/", "There is no such report or run"),
        ("/no/such/", "Nothing is at this address"),
    ],
)
def test_a_page_that_is_not_found_speaks_of_what_was_looked_for(path: str, words: str) -> None:
    page = client_of("viewer").get(path)
    main = page.content.decode().partition("<h1>Page not found</h1>")[2]
    assert page.status_code == 404
    assert words in main
    assert ("message" in main.partition("</main>")[0]) == path.startswith("/queue/")


# -- a method that the address does not take, and a core that does not answer in time


@pytest.mark.parametrize(
    ("method", "path", "words"),
    [
        (
            "get",
            "/queue/changes/count/",
            "It belongs to a button or a form of a page. Nothing was changed; go back to that page.",
        ),
        ("post", "/queue/", "It can only be opened. Nothing was changed."),
        ("put", "/queue/names/", "It can only be opened. Nothing was changed."),
    ],
)
def test_a_method_that_is_not_taken_has_a_page(method: str, path: str, words: str) -> None:
    client = client_of("operator")
    with FakeCore({}):
        answer = getattr(client, method)(path)
        piece = getattr(client, method)(path, headers={"HX-Request": "true"})
    assert (answer.status_code, piece.status_code) == (405, 405)
    assert answer["Allow"] == piece["Allow"] != ""
    text = answer.content.decode()
    assert "<!doctype html>" in text
    assert words in text
    assert "<!doctype" not in piece.content.decode()
    assert "Nothing was changed" in piece.content.decode()


@pytest.mark.parametrize("method", ["get", "post"])
def test_a_question_that_is_not_answered_in_time_claims_no_change(rf: RequestFactory, method: str) -> None:
    middleware = CoreErrorsMiddleware(lambda _: HttpResponse())
    request = getattr(rf, method)("/tuning/predict/", headers={"HX-Request": "true"})
    for code, changed in ((Code.UNAVAILABLE, False), (Code.OUTCOME_UNKNOWN, True)):
        answer = middleware.process_exception(request, TimedOut("no answer in time", code=code))
        assert answer is not None
        assert ("check whether the change was made" in answer.content.decode()) is changed
