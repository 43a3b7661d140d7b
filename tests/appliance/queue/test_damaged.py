"""The body of a damaged message: shown as it is stored with a warning, and never saved as if it were whole."""

from __future__ import annotations

from typing import Any

import pytest

from tests.appliance.accounts.sample_users import client_of
from tests.appliance.fake_core import FakeCore

pytestmark = pytest.mark.django_db

URL = "/queue/0123456789ABC/"
DATA = b"Subject: x\r\n\r\nsome text\r\n"
DAMAGE = "spool/2b/0123456789ABC: bytes 0 to 9 of 10"


def piece(damage: str) -> dict[str, Any]:
    return {"data": {"data": DATA, "offset": 0, "size_bytes": len(DATA), "more": False, "damage": damage}}


@pytest.mark.parametrize("damage", ["", DAMAGE])
@pytest.mark.parametrize("page", ["body/", "raw/"])
def test_a_page_warns_of_damage(page: str, damage: str) -> None:
    with FakeCore(piece(damage)):
        text = client_of("administrator").get(URL + page).content.decode()
    assert "some text" in text
    assert (DAMAGE in text) == bool(damage)


def test_a_damaged_message_is_not_downloaded() -> None:
    with FakeCore(piece(DAMAGE)):
        answer = client_of("administrator").get(URL + "eml/")
    assert answer.status_code >= 400
    assert b"some text" not in answer.content
    assert DAMAGE in answer.content.decode()
