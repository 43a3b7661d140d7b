"""What counts as somebody being there, and what does not: an open page that asks by itself keeps nobody signed in."""

from __future__ import annotations

import pytest
from django.test import Client

from appliance.accounts.middleware import AGAIN
from appliance.accounts.sessions import SEEN
from tests.appliance.accounts.sample_users import client_of
from tests.appliance.fake_core import FakeCore

pytestmark = pytest.mark.django_db
LONG_AGO = 1
POLLED = ("/positions/", "/queue/0123456789ABC/waiting/", "/queue/changes/ABC/", "/reports/", "/tuning/history/")


def idle(client: Client) -> None:
    session = client.session
    session[SEEN] = LONG_AGO
    session.save()


def is_prolonged(client: Client) -> bool:
    return bool(client.session[SEEN] != LONG_AGO)


@pytest.mark.parametrize("path", POLLED)
def test_what_is_asked_again_and_again_is_nobodys_activity(path: str) -> None:
    client = client_of("viewer")
    with FakeCore({}):
        idle(client)
        client.get(path, headers={"HX-Request": "true", AGAIN: "1"})
        assert not is_prolonged(client)
        client.get(path, headers={"HX-Request": "true"})
        assert is_prolonged(client)


def test_what_scripts_fetch_for_their_lines_is_nobodys_activity() -> None:
    client = client_of("viewer")
    idle(client)
    assert client.get("/live/history?span=day").status_code == 200
    assert not is_prolonged(client)
