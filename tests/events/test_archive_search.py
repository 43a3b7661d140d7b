"""A search finds each message once, in a lane or in the events, wherever a segment goes between two pages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from mailcore.envelope import Recipient, Status
from mailcore.events.read import archive as past
from mailcore.events.write import files
from mailcore.log import reader
from mailcore.lookup.answers import Hit
from mailcore.lookup.browse import CursorError
from mailcore.lookup.search_cursor import SearchCursor
from mailcore.lookup.tracing import Walk
from tests.events.exported_lives import ExportedLives, unsynced
from tests.events.test_archive import LIVES, bounced, deferred_and_delivered, delivered
from tests.lookup.recorded_lives import events_of
from tests.lookup.sample_messages import Lane

__all__ = ["unsynced"]
pytestmark = pytest.mark.usefixtures("unsynced")


@pytest.fixture
def recorded(tmp_path: Path) -> Iterator[ExportedLives]:
    recorded = ExportedLives(tmp_path)
    yield recorded
    recorded.close()


QUESTIONS: list[dict[str, str]] = [
    {"sender": "*"},
    {"sender": "SENDER@*"},
    {"sender": "<>"},
    {"recipient": "A@example.org"},
    {"recipient": "b899@*"},
    {"recipient": "b899@*", "sender": "<>"},
    {"recipient": "b899@*", "sender": "sender@*"},
    {"message_id": "\u202eone@x"},
    {"message_id": "<\u202eON*>"},
    {"recipient": "nobody@nowhere.example"},
    {"recipient": "[*"},
]


def by_id(hits: list[Hit]) -> dict[str, Hit]:
    assert len({hit.queue_id for hit in hits}) == len(hits)
    return {hit.queue_id: hit for hit in hits}


@pytest.mark.parametrize(
    "limit", [pytest.param(1, marks=pytest.mark.long), 3, pytest.param(50, marks=pytest.mark.long)]
)
def test_a_search_is_the_same_from_events_alone(recorded: ExportedLives, limit: int) -> None:
    lives = [live(recorded) for live in LIVES for _ in range(3)]
    queries = [*QUESTIONS, *({"queue_id": life.queue_id} for life in lives), {"queue_id": f"{lives[6].queue_id}B0"}]
    recorded.runners = {name: lane.end for name, lane in recorded.lanes.items()}
    before = [by_id(recorded.search(limit, **query)) for query in queries]
    assert sum(map(len, before[:4])) > 20
    recorded.export()
    assert [by_id(recorded.search(limit, **query)) for query in queries] == before
    recorded.forget("journal")
    kept = [by_id(recorded.search(limit, **query)) for query in queries]
    recorded.forget_all()
    gone = [by_id(recorded.search(limit, **query)) for query in queries]
    for query, one, other, first in zip(queries, kept, gone, before, strict=True):
        expected = {each: _ended(hit) for each, hit in first.items()}
        assert {each: _ended(hit) for each, hit in one.items()} == expected, query
        assert {each: _ended(hit) for each, hit in other.items()} == expected, query


def _ended(hit: Hit) -> Hit:
    """A bounce that rests in a lane no more has no end that somebody told."""
    return msgspec.structs.replace(hit, state="unknown") if hit.state in ("queued", "active") else hit


def test_pages_from_events_join_and_are_the_newest_first(
    recorded: ExportedLives, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "ROWS_MAX", 7)
    monkeypatch.setattr(past, "TOGETHER_MAX", 3)
    lives = [delivered(recorded, sender="x@example.org" if number % 3 else "y@example.org") for number in range(100)]
    recorded.now += 86_400
    lives += [delivered(recorded, sender="y@example.org") for number in range(5)]
    recorded.export()
    recorded.forget_all()
    wanted = [life.queue_id for life in reversed(lives) if life.envelope.sender == "y@example.org"]
    for limit in (1, 4, 50):
        hits = recorded.search(limit, sender="y@*")
        assert [hit.queue_id for hit in hits] == wanted
        assert {hit.state for hit in hits} == {"delivered"}


@pytest.mark.parametrize(("rows_max", "values_max"), [(1, 9), (2, 9), (3, 9), (5, 9), (20_000, 9), (20_000, 100_000)])
def test_a_long_list_is_searched_wherever_row_groups_and_what_is_read_of_them_end(
    recorded: ExportedLives, monkeypatch: pytest.MonkeyPatch, rows_max: int, values_max: int
) -> None:
    monkeypatch.setattr(files, "ROWS_MAX", rows_max)
    monkeypatch.setattr("mailcore.events.read.rows.VALUES_MAX", values_max)
    lives = []
    for _ in range(3):
        delivered(recorded)
        lane = recorded.lane("incoming.0")
        batches = tuple(lane.write_batch([Recipient(n, f"b{n}@example.org")]) for n in range(1, 5))
        life = recorded.arrive(recipients=(Recipient(0, "a@example.org"),), recipient_count=5, batches=batches)
        life.attempt(Status.DELIVERED, *range(5))
        lives.append(life)
    recorded.export()
    recorded.forget_all()
    for limit in (1, 50):
        for recipient in ("a@example.org", "b1@*", "b4@*"):
            hits = recorded.search(limit, recipient=recipient)
            assert [hit.recipient_count for hit in hits] == [5, 5, 5]
        assert len(recorded.search(limit, recipient="*@example.org", sender="sender@*")) == 6
    for life in lives:
        verdicts = events_of(recorded.history(life.queue_id))[1]["verdicts"]
        assert [each["address"] for each in verdicts] == ["a@example.org", *(f"b{n}@example.org" for n in range(1, 5))]


def small_segments(recorded: ExportedLives, lane: str) -> None:
    recorded.lanes[lane] = Lane(recorded.directory, lane, segment_bytes=8 << 10)


@pytest.mark.parametrize(
    "going", [pytest.param(going, marks=pytest.mark.long if going % 4 else ()) for going in range(0, 14, 2)]
)
def test_nothing_is_told_twice_nor_left_out_when_segments_go_between_pages(recorded: ExportedLives, going: int) -> None:
    small_segments(recorded, "incoming.0")
    small_segments(recorded, "incoming.1")
    lives = [delivered(recorded, lane=f"incoming.{number % 2}") for number in range(200)]
    recorded.export()
    found: list[str] = []
    cursor: str | None = ""
    pages = 0
    while cursor is not None:
        hits, cursor = recorded.page(cursor, 11, sender="sender@*")
        found += [hit.queue_id for hit in hits]
        pages += 1
        assert pages < 60
        if pages == going:
            recorded.forget("incoming.0", keep=2)
        if pages == going + 2:
            recorded.forget("incoming.1", keep=1)
            recorded.forget("incoming.0", keep=1)
    assert len(found) == len(set(found))
    assert set(found) == {life.queue_id for life in lives}


@pytest.mark.parametrize(
    "steps", [pytest.param(steps, marks=pytest.mark.long if steps % 4 else ()) for steps in range(0, 12, 2)]
)
def test_segments_that_go_in_front_of_a_search_are_told_from_the_events(
    recorded: ExportedLives, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    monkeypatch.setattr(reader, "OPEN_SEGMENTS_MAX", 1)
    small_segments(recorded, "incoming.0")
    lives = [delivered(recorded) for _ in range(300)]
    recorded.export()
    search = recorded.begun("", 1_000, sender="sender@*")
    walk = Walk(search.steps())
    for _ in range(steps):
        assert not walk.go(0.0, lambda: 0.0)
    recorded.forget("incoming.0", keep=2)
    recorded.walked(walk)
    found = [hit.queue_id for hit in search.take()]
    assert len(found) == len(set(found))
    assert set(found) == {life.queue_id for life in lives}


def test_a_retry_lane_tells_of_a_message_whose_arrival_is_in_the_events(recorded: ExportedLives) -> None:
    life = recorded.arrive(["a@example.org", "b@example.org"])
    life.start()
    life.attempt(Status.DELIVERED, 0)
    life.attempt(Status.DEFERRED, 1)
    life.replace("retry.300", 1)
    recorded.export()
    recorded.forget("incoming.0")
    recorded.forget("journal")
    for limit in (1, 50):
        (hit,) = recorded.search(limit, recipient="b@example.org")
        assert (hit.state, hit.recipients) == ("deferred", ["b@example.org"])
    (hit,) = recorded.search(recipient="a@example.org")  # who is done is in the events only
    assert (hit.state, hit.recipients) == ("deferred", ["a@example.org", "b@example.org"])
    (hit,) = recorded.search(queue_id=life.queue_id)
    assert hit.state == "deferred"


def test_the_worst_that_happened_to_anybody_is_told_when_the_end_is_in_the_journal(recorded: ExportedLives) -> None:
    life = recorded.arrive(["a@example.org", "b@example.org"])
    life.start()
    life.attempt(Status.BOUNCED, 0)
    recorded.chatter(2_000)
    life.attempt(Status.DELIVERED, 1)
    life.finish()
    recorded.export()
    recorded.forget("journal", keep=1)
    (hit,) = recorded.search(recipient="a@example.org")
    assert hit.state == "bounced"
    recorded.forget("incoming.0")
    (hit,) = recorded.search(recipient="a@example.org")
    assert hit.state == "bounced"


def test_a_search_that_is_to_stop_among_events_goes_on_where_it_was(
    recorded: ExportedLives, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "ROWS_MAX", 10)
    lives = [delivered(recorded) for _ in range(200)]
    recorded.export()
    recorded.forget_all()
    found: list[str] = []
    cursor: str | None = ""
    rounds = 0
    while cursor is not None:
        search = recorded.begun(cursor, 10_000, sender="sender@*")
        walk = Walk(search.steps())
        search.stopping = not walk.go(0.0, lambda: 0.0)
        recorded.walked(walk)
        found += [hit.queue_id for hit in search.take()]
        cursor = search.cursor
        rounds += 1
        assert rounds < 100
    assert found == [life.queue_id for life in reversed(lives)]
    assert rounds > 5


def test_a_day_that_goes_between_two_pages_is_passed_over(recorded: ExportedLives) -> None:
    old = [delivered(recorded) for _ in range(5)]
    recorded.now += 86_400
    new = [delivered(recorded) for _ in range(5)]
    recorded.export()
    recorded.forget_all()
    hits, cursor = recorded.page("", 7, sender="sender@*")
    assert [hit.queue_id for hit in hits] == [life.queue_id for life in [*reversed(new), *reversed(old)]][:7]
    for path in sorted(recorded.events.glob("dt=*"))[0].iterdir():
        path.unlink()
    assert cursor is not None
    assert recorded.page(cursor, 7, sender="sender@*") == ([], None)


@pytest.mark.parametrize(
    "cursor",
    [
        ">nonsense", ">2026-11-21:incoming.0:0:0", ">2026-11-21:incoming.0:0:0:-1", "incoming.0:1;x", "incoming.0:1;a:1",
        ">;incoming.0:5-x", "incoming.0:1;a:1-2-3", "x", ">" + "9" * 30,
    ],
)  # fmt: skip
def test_a_bad_cursor_is_an_error(recorded: ExportedLives, cursor: str) -> None:
    delivered(recorded)
    recorded.export()
    with pytest.raises(CursorError, match="is not a cursor"):
        recorded.page(cursor, 10, sender="*")


def test_a_cursor_says_what_was_seen() -> None:
    seen = SearchCursor.read(">2026-11-21:incoming.0:0:0:1;incoming.0:100-;incoming.1:5-50;incoming.1:60-1000")
    assert seen.elsewhere(seen.older or "") == SearchCursor.read(seen.elsewhere(seen.older or "")).elsewhere(
        seen.older or ""
    )
    assert [seen.has("incoming.1", offset) for offset in (4, 5, 49, 50, 60, 1000)] == [
        False, True, True, False, True, False,
    ]  # fmt: skip
    assert not seen.has("incoming.0", 99)
    assert seen.has("incoming.0", 1 << 60)
    seen.been("incoming.1", 1000, 2000)
    assert seen.stretches["incoming.1"] == [(5, 50), (60, 2000)]
    for start in range(3_000, 100_000, 1_000):
        seen.been("incoming.1", start, start + 1)
    assert len(seen.in_lane("incoming.1", 100_001)) < 200


def test_bounces_and_deferred_ones_end_as_their_events_say(recorded: ExportedLives) -> None:
    one, other = bounced(recorded), deferred_and_delivered(recorded)
    recorded.export()
    recorded.forget_all()
    hits = by_id(recorded.search(sender="sender@*"))
    assert {queue_id: hit.state for queue_id, hit in hits.items()} == {
        one.queue_id: "bounced", other.queue_id: "delivered",
    }  # fmt: skip
    assert hits[other.queue_id].finished_at == recorded.now
