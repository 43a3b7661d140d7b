"""The page of the mail log with a core that answers what a test gives it: hostile text, places, and its end."""

from __future__ import annotations

from typing import Any

import pytest

from appliance.log.views import FIELDS, LOOKS_MAX
from mailcore.faults import Code
from tests.appliance.fake_core import FakeCore, Refusal
from tests.appliance.markup import markup_of
from tests.appliance.tuning.test_pages import signed_in

pytestmark = pytest.mark.django_db
HOSTILE = "<script>alert(1)</script>\u202e"


def answered(*lines: dict[str, Any], **more: Any) -> dict[str, Any]:
    found = [{"place": f"1:{at}", "level": "info", "values": line} for at, line in enumerate(lines)]
    return {"lines": found, "older": "", "newest": "1:99", "examined_bytes": 1000} | more


def delivery(**more: Any) -> dict[str, Any]:
    return {
        "event": "delivery",
        "time": 1.0,
        "pid": 5,
        "queue_id": "4ABC",
        "recipient": HOSTILE,
        "delays_s": [0.1, 2],
    } | more


@pytest.mark.parametrize("node", ["", "mx1"])
def test_one_of_several_nodes_says_whose_lines_they_are(settings: Any, node: str) -> None:
    settings.NODE = node
    with FakeCore({"log": answered(delivery())}):
        page = markup_of(signed_in("viewer").get("/log/"))
    assert ("Each node has a log of its own" in page) == bool(node)


def test_the_newest_line_is_first_and_what_strangers_wrote_is_harmless() -> None:
    with FakeCore({"log": answered(delivery(reply="first"), delivery(reply="second"), older="1:0")}) as core:
        page = markup_of(signed_in("viewer").get("/log/?recipient=*@a.example&status=sent&unknown=x"))
        (asked,) = core.asked("log")
    assert asked == {"recipient": "*@a.example", "status": "sent", "before": "", "limit": 100}
    assert page.index("second") < page.index("first")
    assert "<script>alert" not in page
    assert "before=1%3A0" in page
    assert f"left={LOOKS_MAX}" in page


def test_each_condition_of_an_address_is_in_the_form() -> None:
    given = {
        "queue_id": "4ABC", "sender": "s@*", "recipient": "r@*", "destination": "x.example[192.0.2.1]:25", "client": "192.*",
        "status": "sent", "event": "delivery", "level": "warning",
    }  # fmt: skip
    assert set(given) == set(FIELDS)
    with FakeCore({"log": answered()}):
        page = markup_of(signed_in("viewer").get("/log/", given))
    for name, value in given.items():
        assert f'name="{name}"' in page
        assert f'value="{value}"' in page or f"<option selected>{value}</option>" in page, name


def test_lines_that_do_not_fit_between_two_looks_are_named() -> None:
    words = "7 more lines matched and came before these"
    with FakeCore({"log": answered(delivery(reply="seen"), older="1:110", note=words)}):
        page = markup_of(signed_in("viewer").get("/log/newer/?after=1:99&left=9&status=sent"))
    assert words in page
    assert page.index("seen") < page.index(words)
    assert "/log/?status=sent&amp;before=1%3A110" in page


def test_older_lines_are_not_followed() -> None:
    with FakeCore({"log": answered(delivery())}):
        page = markup_of(signed_in("viewer").get("/log/?before=1:50"))
    assert "/log/newer/" not in page
    assert "The newest lines" in page


def test_it_stops_to_look_after_its_time() -> None:
    with FakeCore({"log": answered(delivery(), newest="1:120")}) as core:
        client = signed_in("viewer")
        page = markup_of(client.get("/log/newer/?after=1:99&left=2&queue_id=4ABC"))
        assert "after=1%3A120&amp;left=1" in page
        assert core.asked("log")[0]["after"] == "1:99"
        for left in ("1", "x", "-5", "²"):
            assert "hx-get" not in markup_of(client.get("/log/newer/", {"after": "1:99", "left": left}))


def test_what_the_core_refuses_is_shown() -> None:
    with FakeCore({"log": Refusal(f"sender: {HOSTILE}", Code.INVALID)}):
        page = markup_of(signed_in("viewer").get("/log/?sender=["))
    assert "<script>alert" not in page
    assert "notice error" in page


def test_an_empty_log_says_so() -> None:
    with FakeCore({"log": answered(newest="")}):
        client = signed_in("viewer")
        assert "The log is empty" in markup_of(client.get("/log/"))
        assert "No line in the last" in markup_of(client.get("/log/?status=bounced"))


def test_lines_out_of_events_are_marked_once_and_a_note_is_shown() -> None:
    answer = answered(delivery(reply="old"), delivery(reply="ancient"), delivery(reply="new"), note="a file is damaged")
    for line in answer["lines"][:2]:
        line["source"] = "events"
    with FakeCore({"log": answer}):
        page = markup_of(signed_in("viewer").get("/log/"))
    assert page.count("From events") == 1
    assert page.index("new") < page.index("From events") < page.index("ancient")
    assert "a file is damaged" in page
