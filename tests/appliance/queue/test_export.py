"""CSV: every cell quoted, nothing a formula, nothing invisible; bounded, and honest about where it ends."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.test import AsyncClient

from appliance.common.csv import line
from appliance.queue import export
from tests.appliance.fake_core import FakeCore, Refusal

ITEM: dict[str, Any] = {
    "queue_id": "1K0S2C4MQCJ00", "lane": "retry.600", "offset": 1, "generation": 1, "state": "deferred",
    "sender": "=cmd|'/c calc'!A0@x.example", "recipients": ["a@example.org", "b@example.org"], "recipient_count": 2,
    "size_bytes": 5, "arrived_at": 1e9, "due_at": 0.0, "attempts": 1, "reason": "450 \x1b[31m\u202e \"no\", <b>\r\nx",
    "destinations": ["smtp:example.org"],
}  # fmt: skip


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("=1+1", "'=1+1"),
        ("+1", "'+1"),
        ("-1", "'-1"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("\t=1", "'\\x09=1"),
        ("\rx", "'\\x0dx"),
        ("  =1", "'  =1"),
        ("＝1", "'＝1"),
        ("plain", "plain"),
        ('a "b", c', 'a "b", c'),
        ("a\u202eb\x00", "a\\u202eb\\x00"),
        (-5, "-5"),
    ],
)
def test_a_cell_is_no_formula_and_all_of_it_is_seen(given: object, shown: str) -> None:
    written = line([given, "next"])
    assert written.endswith("\r\n")
    assert next(csv.reader(io.StringIO(written, newline=""), strict=True)) == [shown, "next"]


async def _exported(answers: Any) -> list[list[str]]:
    user = await User.objects.acreate(username="viewer")
    group, _ = await Group.objects.aget_or_create(name="viewer")  # a transactional test before this one took it away
    await user.groups.aadd(group)
    client = AsyncClient()
    await client.aforce_login(user)
    with FakeCore({"list": answers}):
        response = await client.get("/queue/csv/?sender=*")
        assert response.status_code == 200
        assert 'filename="queue-' in response["Content-Disposition"]
        text = b"".join([part async for part in response.streaming_content]).decode()  # type: ignore[attr-defined]
    return list(csv.reader(io.StringIO(text, newline=""), strict=True))


@pytest.mark.django_db(transaction=True)
async def test_the_export_goes_on_at_the_cursor_to_the_end() -> None:
    def answer(arguments: dict[str, Any]) -> Any:
        cursor = None if arguments["cursor"] else "retry.600:2"
        return {"items": [ITEM], "cursor": cursor, "examined": 1, "manager_away": False, "note": ""}

    rows = await _exported(answer)
    assert len(rows) == 3
    assert rows[1][3] == "'=cmd|'/c calc'!A0@x.example"
    assert rows[1][-1] == '450 \\x1b[31m\\u202e "no", <b>\\x0d\\x0ax'


@pytest.mark.django_db(transaction=True)
async def test_an_export_that_is_cut_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "ROWS_MAX", 3)
    rows = await _exported(
        {"items": [ITEM, ITEM], "cursor": "retry.600:2", "examined": 2, "manager_away": False, "note": ""}
    )
    assert len(rows) == 5
    assert rows[-1] == ["note: cut here after 3 messages; there are more, narrow the filter"]


@pytest.mark.django_db(transaction=True)
async def test_an_export_whose_core_goes_away_says_so() -> None:
    def answer(arguments: dict[str, Any]) -> Any:
        if arguments["cursor"]:
            return Refusal("it is over")
        return {"items": [ITEM], "cursor": "retry.600:2", "examined": 1, "manager_away": False, "note": ""}

    rows = await _exported(answer)
    assert rows[-1] == ["note: cut here after 1 message: it is over"]
