"""Changes to all that match: what is left behind when the portal's own database fails."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import OperationalError
from django.test import RequestFactory

from appliance.queue.changing import AT_ONCE_MAX, count, in_background
from appliance.queue.models import Change

pytestmark = pytest.mark.django_db


def test_a_change_that_cannot_be_written_down_takes_nobodys_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Change, *_: Any, **__: Any) -> None:
        raise OperationalError("database or disk is full")

    request = RequestFactory().post("/")
    request.user = User.objects.create_user("olga")
    monkeypatch.setattr(Change, "save", full)
    for _ in range(AT_ONCE_MAX + 1):
        with pytest.raises(OperationalError):
            in_background(count, request, Change(who="olga", operation="delete"))
