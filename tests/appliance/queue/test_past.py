"""Overview, queue and message as they were at a moment, with a core that answers what a test gives it."""

from __future__ import annotations

from typing import Any

import pytest

from mailcore.faults import Code
from tests.appliance.fake_core import FakeCore, Refusal
from tests.appliance.markup import markup_of
from tests.appliance.tuning.test_pages import signed_in

pytestmark = pytest.mark.django_db
AT = 1_795_219_200.0
ID = "1K0RDGV4BE900"
HOSTILE = "<script>alert(1)</script>\u202e"


def listed(**more: Any) -> dict[str, Any]:
    item = {
        "queue_id": ID, "lane": "retry.300", "generation": 1, "state": "deferred", "states": {"deferred": 1, "held": 1},
        "sender": HOSTILE, "recipients": [HOSTILE], "recipient_count": 2, "size_bytes": 4000, "arrived_at": AT - 60,
        "due_at": AT + 100, "attempts": 1, "reason": HOSTILE, "destinations": ["smtp:b.example"],
    }  # fmt: skip
    return {
        "done": True, "time": AT, "complete": True, "counted_at": AT - 600, "missing": 0, "note": "", "items": [item],
        "cursor": None, "examined": 1,
    } | more  # fmt: skip


def sized(**more: Any) -> dict[str, Any]:
    return {
        "done": True, "time": AT, "complete": True, "counted_at": AT - 600, "missing": 0, "note": "", "messages": 3,
        "recipients": 5, "deleted": 1, "lanes": {"retry.300": {"messages": 3, "recipients": 5}},
        "by_state": {"deferred": 3}, "states": {"deferred": 5, "deleted": 1}, "destinations": {f"smtp:{HOSTILE}": 5},
        "others": 0, "untried": 0, "oldest": {"queue_id": ID, "arrived_at": 1.0, "sender": HOSTILE, "state": "deferred"},
    } | more  # fmt: skip


@pytest.mark.parametrize("path", ["/", "/queue/", f"/queue/{ID}/"])
def test_a_page_of_the_past_is_marked_and_has_no_button_that_changes_something(path: str) -> None:
    history = {"queue_id": ID, "events": [], "complete": True, "since": None, "note": "", "examined": 1, "done": True}
    with FakeCore({"history": history}):
        page = markup_of(signed_in("operator").get(path, {"at": str(AT)}))
    assert "As it was at" in page
    assert "from events" in page
    assert "data-act" not in page
    assert "/queue/change/" not in page


def test_the_rows_keep_the_moment_in_their_links_and_ask_for_it() -> None:
    with FakeCore({"list_at": listed(cursor="1.5:X")}) as core:
        client = signed_in("operator")
        shell = markup_of(client.get("/queue/", {"at": "2026-11-21T00:00:00", "sender": "*@a.example"}))
        assert "/queue/then/?at=1795219200.000&amp;sender=%2A%40a.example" in shell
        piece = markup_of(client.get("/queue/then/", {"at": str(AT), "sender": "*@a.example"}))
        (asked,) = core.asked("list_at")
    assert asked == {"time": AT, "filter": {"sender": "*@a.example"}, "cursor": "", "limit": 100}
    assert f"/queue/{ID}/?at={AT:.3f}" in piece
    assert "?at=1795219200.000&amp;sender=" in piece  # the next page
    assert "<script>alert" not in piece
    assert 'type="checkbox"' not in piece


def test_an_incomplete_answer_says_why() -> None:
    note = "3 recipients of the queue not found"
    with FakeCore({"list_at": listed(complete=False, note=note), "size_at": sized(complete=False, note=note)}):
        client = signed_in("viewer")
        for path in ("/queue/then/", "/overview/then/"):
            piece = markup_of(client.get(path, {"at": str(AT)}))
            assert "Incomplete." in piece
            assert note in piece


def test_the_overview_has_the_counts_and_says_what_is_not_known() -> None:
    with FakeCore({"size_at": sized()}):
        piece = markup_of(signed_in("viewer").get("/overview/then/", {"at": str(AT)}))
    assert "not known: events do not have them" in piece
    assert f"?at={AT:.3f}&amp;lane=retry.300" in piece
    assert "<script>alert" not in piece


@pytest.mark.parametrize("path", ["/queue/then/", "/overview/then/"])
def test_a_moment_that_the_core_refuses_is_told(path: str) -> None:
    refusal = Refusal("it is in the future", Code.INVALID, "time")
    with FakeCore({"list_at": refusal, "size_at": refusal}):
        piece = markup_of(signed_in("viewer").get(path, {"at": str(AT)}))
    assert "in the future" in piece


@pytest.mark.parametrize("path", ["/", "/queue/", f"/queue/{ID}/"])
def test_a_text_that_is_no_time_is_an_error_at_the_field(path: str) -> None:
    with FakeCore({}):
        response = signed_in("viewer").get(path, {"at": HOSTILE})
    assert response.status_code == 422
    page = markup_of(response)
    assert "Not a valid time" in page
    assert "<script>alert" not in page


def test_a_message_is_shown_up_to_the_moment() -> None:
    events = [
        {"event": "accepted", "at": AT - 10, "sender": "a@a.example", "size_bytes": 10, "recipients": 1, "client_address": "",
         "helo": "", "tls": "", "login": "", "message_id": "", "origin": "smtp"},
        {"event": "finished", "at": AT + 10, "how": "", "bounce": None},
    ]  # fmt: skip
    history = {
        "queue_id": ID,
        "events": events,
        "complete": True,
        "since": None,
        "note": "",
        "examined": 1,
        "done": True,
    }
    with FakeCore({"history": history}):
        page = markup_of(signed_in("viewer").get(f"/queue/{ID}/", {"at": str(AT)}))
    assert "Accepted" in page
    assert "Finished" not in page
    assert "1 event of later times left out" in page
