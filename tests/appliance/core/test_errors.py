"""A database of the portal's own that is full: a page says so, and nothing is done that could not be entered."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import OperationalError
from django.test import Client

from appliance.audit.models import Entry
from tests.appliance.accounts.cast import client_of
from tests.appliance.fake_core import FakeCore

pytestmark = pytest.mark.django_db


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> None:
    def begin(self: Entry) -> None:
        raise OperationalError("database or disk is full")

    monkeypatch.setattr(Entry, "begin", begin)


@pytest.mark.usefixtures("full")
def test_a_full_disk_is_told_and_nothing_is_sent() -> None:
    answers: dict[str, Any] = {"transports": {"smtp:a.example": {}}, "suspend": {"value": None}}
    given = {"how": "open", "why": "they ask for it"}
    with FakeCore(answers) as core:
        answer = client_of("operator").post("/destinations/smtp:a.example/suspend/", given)
        assert core.asked("suspend") == []
    text = answer.content.decode()
    assert answer.status_code == 503
    assert "cannot use its own database" in text
    assert "Look whether the change was made" in text
    assert "database or disk is full" in text


@pytest.mark.usefixtures("full")
def test_a_dialog_gets_a_piece() -> None:
    client: Client = client_of("administrator")
    with FakeCore({"data": {"data": b"x", "more": False}}):
        answer = client.get("/queue/0123456789ABC/body/", headers={"HX-Request": "true"})
    assert answer.status_code == 503
    assert "<!doctype" not in answer.content.decode()
