"""A destination's row: what is known of it put together, its state in words, its place in a sorted list."""

from __future__ import annotations

from typing import Any

import pytest

from appliance.destinations.row import SORTS, Row, rows_of
from tests.answers import active_destination, destinations

QUIET: dict[str, Any] = {"last_replies": [], "last_delivered_at": None, "success_share": None}


def reply(at: float, status: str = "deferred", words: str = "450 later") -> dict[str, Any]:
    return {
        "at": at,
        "reply": words,
        "status": status,
        "dsn": "4.2.0",
        "relay": "mx.example.org[192.0.2.1]",
        "times": 1,
    }


def words_of(row: Row) -> list[str]:
    return [badge.words for badge in row.badges]


def test_what_the_core_says_in_four_places_becomes_one_row_each() -> None:
    table = rows_of(
        destinations(
            destinations={"smtp:a.example": {"window": 5, "limit": 20, "busy": 2, "messages": 3}},
            without_mail={"smtp:b.example": {"last_delivered_at": 5.0}},
            queued={"smtp:c.example": 7, "smtp:a.example": 4, "": 12},
            suspended={"smtp:c.example": None, "smtp:.example.net": 99.0},
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
    ("known", "words", "trouble"),
    [
        ({}, ["idle"], False),
        ({"last_delivered_at": 5.0}, ["fine"], False),
        ({"busy": 1, "window": 5}, ["busy"], False),
        ({"busy": 5, "window": 5}, ["window full"], False),
        ({"dead_until": 50.0, "busy": 0}, ["dead until"], True),
        ({"rest_s": 3.0}, ["rate delay"], False),
        ({"last_replies": [reply(9.0)], "last_delivered_at": 5.0}, ["failing"], True),
        ({"last_replies": [reply(4.0)], "last_delivered_at": 5.0}, ["fine"], False),
        ({"last_replies": [reply(9.0, "bounced")], "last_delivered_at": 5.0}, ["fine"], False),
    ],
)
def test_its_state_is_told_in_words(known: dict[str, Any], words: list[str], trouble: bool) -> None:
    row = Row("smtp:a.example", active_destination(**known), 0)
    assert words_of(row) == words
    assert row.in_trouble is trouble


def test_a_suspension_says_until_when_and_stands_before_what_is_under_way() -> None:
    assert words_of(Row("smtp:a", active_destination(busy=1, window=2), 0, 70.0, True)) == ["suspended until", "busy"]
    assert words_of(Row("smtp:a", None, 0, None, True)) == ["suspended"]


def test_its_last_words_are_why_it_is_dead_or_else_the_last_reply() -> None:
    assert Row("smtp:a", active_destination(reason="refused", last_replies=[reply(1.0)])).words == "refused"
    assert Row("smtp:a", active_destination(last_replies=[reply(1.0)])).words == "450 later"
    assert Row("smtp:a").words == ""


def test_a_meter_shows_window_and_busy_as_parts_of_the_limit() -> None:
    assert Row("smtp:a", active_destination(window=5, busy=2, limit=20)).meter == {"window": 25.0, "busy": 10.0}
    assert Row("smtp:a").meter == {"window": 0.0, "busy": 0.0}


def test_what_is_in_trouble_comes_first_and_the_dead_before_the_others() -> None:
    rows = [
        Row("fine", active_destination(busy=9), 900),
        Row("suspended", None, 1, None, True),
        Row("failing", active_destination(last_replies=[reply(2.0)]), 50),
        Row("dead", active_destination(dead_until=9.0), 0),
    ]
    assert [row.name for row in sorted(rows, key=SORTS["trouble"])] == ["dead", "suspended", "failing", "fine"]
    assert next(row.name for row in sorted(rows, key=SORTS["queued"])) == "fine"
    assert next(row.name for row in sorted(rows, key=SORTS["busy"])) == "fine"
