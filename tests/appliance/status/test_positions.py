"""Restart positions: offsets become a picture, segments are told with what keeps them."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client

from appliance.status.positions_diagram import GROUPS_MAX, WIDE, journal_of, lane_of
from mailcore.control.protocol.state import JournalPositions, LanePositions
from mailcore.lookup.answers import Keeper
from tests.answers import sample
from tests.appliance.fake_core import FakeCore

WORKED = "active"
UNREAD = "unread"


def segment(base: int, size: int, kept_by: str = UNREAD, live: int | None = None) -> dict[str, Any]:
    return {
        "base": base,
        "bytes": size,
        "sealed": True,
        "messages": 10,
        "live": live,
        "kept_by": kept_by,
        "sentence": f"kept by {kept_by}",
    }


LANE: dict[str, Any] = {
    "lane": "incoming.0",
    "interval_s": None,
    "runner": 1_500,
    "end": 3_000,
    "lag_bytes": 1_500,
    "browse": 1_250,
    "segments": [segment(1_000, 400, WORKED, 2), segment(1_400, 600), segment(2_000, 1_000)],
    "segments_left_out": 0,
    "garbage_prefix_bytes": 250,
    "bytes_on_disk": 2_000,
    "retired": {"segments": 0, "bytes": 0, "needed_bytes": 0, "unneeded_since": 0.0, "oldest_at": 0.0},
}
RETIRED: dict[str, Any] = {
    "segments": 12, "bytes": 3_000_000, "needed_bytes": 20_000, "unneeded_since": 0.0, "oldest_at": 5.0,
}  # fmt: skip
JOURNAL: dict[str, Any] = {
    "suffix": 600, "end": 1_000, "durable": 1_000, "suffix_bytes": 400, "segments": [segment(0, 1_000)],
    "segments_left_out": 0, "garbage_prefix_bytes": 600, "bytes_on_disk": 1_000,
}  # fmt: skip
ANSWER: dict[str, Any] = {
    "sequence": 7,
    "written_at": 5.0,
    "age_s": 0.4,
    "note": "",
    "lanes": [
        LANE | {"retired": RETIRED},
        LANE | {"lane": "hold", "runner": 0, "end": 0, "browse": 0, "segments": [], "lag_bytes": 0},
    ],
    "journal": JOURNAL,
    "recovery": {
        "bytes": 400, "records_estimate": 3, "seconds_estimate": 0.1, "messages": 2,
        "sentence": "A start now would read 400 bytes of the journal.",
    },
}  # fmt: skip


def test_a_lane_is_drawn_from_its_first_segment_to_its_end() -> None:
    lane = lane_of(sample(LanePositions, LANE))
    assert [(box.x, box.width) for box in lane.boxes] == [(0.0, 200.0), (200.0, 300.0), (500.0, 500.0)]
    assert lane.marks == [("browse", 125.0), ("runner", 250.0), ("end", WIDE)]
    assert (lane.behind.x, lane.behind.width) == (125.0, 125.0)
    assert (lane.ahead.x, lane.ahead.width) == (250.0, 750.0)


def test_the_runner_is_named_by_segment_and_offset() -> None:
    lane = lane_of(sample(LanePositions, LANE))
    assert (lane.segment, lane.offset) == (1_400, 100)


def test_segments_kept_by_the_same_thing_are_one_line() -> None:
    groups = lane_of(sample(LanePositions, LANE)).groups
    assert [(each.count, each.first, each.bytes, each.messages, each.live) for each in groups] == [
        (1, 1_000, 400, 10, 2),
        (2, 1_400, 1_600, 20, None),
    ]
    many = [segment(number * 10, 10, list(Keeper)[number % len(Keeper)]) for number in range(GROUPS_MAX + 5)]
    lane = lane_of(sample(LanePositions, LANE | {"segments": many, "segments_left_out": 100}))
    assert (len(lane.groups), lane.more) == (GROUPS_MAX, 105)


@pytest.mark.parametrize(
    "change",
    [
        {"segments": []},
        {"segments": [], "runner": 0, "end": 0, "browse": 0},
        {"runner": 0, "browse": 0},  # before the first segment: a lane that is drained
        {"end": 0},  # its writer has not been heard of
        {"segments": [segment(1_000, 0)], "end": 1_000},
    ],
)
def test_whatever_the_numbers_nothing_is_drawn_outside(change: dict[str, Any]) -> None:
    lane = lane_of(sample(LanePositions, LANE | change))
    for box in (*lane.boxes, lane.behind, lane.ahead):
        assert 0 <= box.x <= WIDE
        assert 0 <= box.width <= WIDE
    assert all(0 <= x <= WIDE for _, x in lane.marks)


def test_the_journal_has_a_working_suffix_and_no_runner() -> None:
    journal = journal_of(sample(JournalPositions, JOURNAL))
    assert [name for name, _ in journal.marks] == ["browse", "end"]
    assert (journal.ahead.x, journal.ahead.width) == (600.0, 400.0)
    assert journal.segment is None


@pytest.mark.django_db
def test_the_page_tells_it_in_words_and_the_piece_comes_alone() -> None:
    user = User.objects.create_user("viewer", password="secret")
    user.groups.add(Group.objects.get(name="viewer"))
    client = Client()
    client.force_login(user)
    with FakeCore({"positions": ANSWER}) as core:
        text = client.get("/positions/").content.decode()
        for words in (
            f"kept by {WORKED}",
            f'data-kept-by="{UNREAD}"',
            "1400 + 100",
            "A start now would read 400 bytes",
            "the runner is at 1500",
        ):
            assert words in text
        assert text.count("12 retired segments") == 1
        core.answers["positions"] = ANSWER | {"note": "the manager is away <b>", "age_s": None}
        piece = client.get("/positions/", headers={"HX-Request": "true"}).content.decode()
        assert "<html" not in piece
        assert "the manager is away &lt;b&gt;" in piece
    assert client.get("/positions/").status_code == 503
