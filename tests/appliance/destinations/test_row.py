"""A destination's row: what is known of it put together, its state in words, its place in a sorted list."""

from __future__ import annotations

from typing import Any

import pytest

from appliance.destinations.row import SORTS, Row, rows_of
from mailcore.manager_answers import StateUntil
from tests.answers import active_destination, destinations


def reply(at: float, status: str = "deferred", words: str = "450 later") -> dict[str, Any]:
    return {
        "at": at,
        "reply": words,
        "status": status,
        "dsn": "4.2.0",
        "relay": "mx.example.org[192.0.2.1]",
        "times": 1,
    }


def test_what_the_core_says_in_four_places_becomes_one_row_each() -> None:
    table = rows_of(
        destinations(
            destinations={"smtp:a.example": {"window": 5, "limit": 20, "busy": 2, "messages": 3}},
            without_mail={"smtp:b.example": {"last_delivered_at": 5.0}},
            queued={"smtp:c.example": 7, "smtp:a.example": 4, "": 12},
            suspended={"smtp:c.example": None, "smtp:.example.net": 99.0},
            states={"smtp:c.example": [["suspended", None]], "smtp:.example.net": [["suspended", 99.0]]},
        )
    )
    assert {row.name: row.queued for row in table.rows} == {
        "smtp:a.example": 4,
        "smtp:c.example": 7,
        "smtp:b.example": 0,
    }
    assert table.unnamed == 12
    assert [(row.name, row.suspended_until) for row in table.patterns] == [("smtp:.example.net", 99.0)]
    assert [row.name for row in table.rows if row.suspended] == ["smtp:c.example"]


@pytest.mark.parametrize(
    ("states", "badges", "trouble"),
    [
        (["ready"], [("ready", "good")], False),
        (["window full"], [("window full", "accent")], False),
        (["dead", "suspended"], [("dead", "bad"), ("suspended", "warn")], True),
        (["rate delay"], [("rate delay", "")], False),
        (["failing", "delivering"], [("failing", "bad"), ("delivering", "accent")], True),
        (["transport dead"], [("transport dead", "bad")], True),
        ([], [], False),
    ],
)
def test_its_badges_are_the_words_of_the_core(states: list[str], badges: list[tuple[str, str]], trouble: bool) -> None:
    row = Row("smtp:a.example", None, 0, [StateUntil(state) for state in states])
    assert [(badge.words, badge.kind) for badge in row.badges] == badges
    assert row.in_trouble is trouble


def test_a_suspension_says_until_when() -> None:
    row = Row("smtp:a", None, 0, [StateUntil("suspended", 70.0), StateUntil("delivering")])
    assert (row.suspended, row.suspended_until) == (True, 70.0)
    assert row.badges[0].until == 70.0


def test_the_share_shown_is_that_of_the_last_minutes_if_there_is_one() -> None:
    assert Row("smtp:a", active_destination(success_share=0.9, recent_share=0.04)).success_share == 0.04
    assert Row("smtp:a", active_destination(success_share=0.9)).success_share == 0.9


def test_its_last_words_are_why_it_is_dead_or_else_the_last_reply() -> None:
    assert Row("smtp:a", active_destination(reason="refused", last_replies=[reply(1.0)])).words == "refused"
    assert Row("smtp:a", active_destination(last_replies=[reply(1.0)])).words == "450 later"
    assert Row("smtp:a").words == ""


def test_a_meter_shows_window_and_busy_as_parts_of_the_limit() -> None:
    assert Row("smtp:a", active_destination(window=5, busy=2, limit=20)).meter == {"window": 25.0, "busy": 10.0}
    assert Row("smtp:a").meter == {"window": 0.0, "busy": 0.0}


def test_what_is_in_trouble_comes_first_and_the_dead_before_the_others() -> None:
    rows = [
        Row("fine", active_destination(busy=9), 900, [StateUntil("delivering")]),
        Row("suspended", None, 1, [StateUntil("suspended")]),
        Row("failing", active_destination(), 50, [StateUntil("failing"), StateUntil("ready")]),
        Row("dead", active_destination(), 0, [StateUntil("dead", 9.0)]),
    ]
    assert [row.name for row in sorted(rows, key=SORTS["trouble"])] == ["dead", "suspended", "failing", "fine"]
    assert next(row.name for row in sorted(rows, key=SORTS["queued"])) == "fine"
    assert next(row.name for row in sorted(rows, key=SORTS["busy"])) == "fine"
