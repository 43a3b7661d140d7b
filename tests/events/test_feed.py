"""The feed of events: all of them, in order for each message, from any cursor, from the log and from files alike."""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from mailcore.envelope import Status, Verdict
from mailcore.events.feed.cursor import Cursor, read_cursor
from mailcore.events.feed.feed import EventFeed
from mailcore.log.disk import Disk
from mailcore.log.record import RecordType
from mailcore.lookup.browse import CursorError
from mailcore.lookup.feed import NOW, OLDEST, Chosen, Event, EventsComeLater, EventsGone
from mailcore.queue.events_fetched import note_fetched, note_fetching
from mailcore.queue.lanes import JOURNAL
from mailcore.queue.records import Administrative, Delivery, Place, Start, encode
from tests.events.exported_lives import unsynced
from tests.events.lanes import DAY, Lanes

__all__ = ["unsynced"]

pytestmark = pytest.mark.usefixtures("unsynced")
ALL = Chosen()


@pytest.fixture
def lanes(tmp_path: Path) -> Iterator[Lanes]:
    made = Lanes(tmp_path)
    yield made
    made.close()


def feed_of(lanes: Lanes, stretch_bytes: int = 1 << 20) -> EventFeed:
    return EventFeed(
        Disk(), str(lanes.path / "queue"), str(lanes.events), str(lanes.path / "home"), stretch_bytes=stretch_bytes
    )


def everything(feed: EventFeed, after: str = OLDEST, limit: int = 1_000, chosen: Chosen = ALL) -> list[Event]:
    """All events behind a cursor, batch after batch."""
    events: list[Event] = []
    while True:
        batch = feed.read(after, chosen, limit)
        assert batch.lost == []
        assert len(batch.events) <= limit
        events += batch.events
        after = batch.cursor
        if not batch.more:
            return events


def begin(lanes: Lanes, queue_id: str, offset: int, lane: str = "incoming.0") -> None:
    lanes.writer(JOURNAL).append(RecordType.START, encode(Start(queue_id, 0, Place(lane, offset), 1)))


def live_through(lanes: Lanes, messages: int, seed: int = 1, first: int = 0) -> dict[str, list[str]]:
    """Writes the lives of some messages as a manager does that works on several at once; returns what they are to be told,
    by queue id."""
    chance = random.Random(seed)
    told: dict[str, list[str]] = {}
    working: list[tuple[str, int]] = []
    for number in range(first, first + messages):
        queue_id = f"{number:013d}"
        count = chance.choice((1, 1, 1, 2, 7))
        lane = f"incoming.{number % 3}"
        told[queue_id] = ["accepted"] * count
        begin(lanes, queue_id, lanes.accept(queue_id, count, lane=lane, arrived_at=DAY + number), lane)
        working.append((queue_id, count))
        if len(working) < 5 and number < first + messages - 1:
            continue
        chance.shuffle(working)
        for chosen, recipients in working:
            for _ in range(chance.choice((0, 0, 1, 3))):
                lanes.deliver(chosen, *[Status.DEFERRED] * recipients, at=DAY + number)
                told[chosen] += ["deferred"] * recipients
            end = chance.choice((Status.DELIVERED, Status.BOUNCED, Status.EXPIRED))
            lanes.deliver(chosen, *[end] * recipients, at=DAY + number)
            told[chosen] += [end.name.lower()] * recipients
        working.clear()
    return told


def by_message(events: list[Event]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for event in events:
        found[event.queue_id].append(event.kind)
    return dict(found)


def forget(lanes: Lanes) -> None:
    """All segments that the export does not need go, as the manager deletes them."""
    for lane in lanes.writers:
        bases = lanes.bases(lane)
        for base, following in itertools.pairwise(bases):
            if following <= lanes.at(lane).needed:
                (lanes.path / "queue" / lane / f"{base:020d}.seg").unlink()


@pytest.mark.parametrize("limit", [1, 3, 7, 1_000])
@pytest.mark.parametrize("stretch_bytes", [1, 700, 1 << 20])
def test_every_event_is_told_once_in_the_order_of_its_message(lanes: Lanes, limit: int, stretch_bytes: int) -> None:
    told = live_through(lanes, 60)
    lanes.covered()
    events = everything(feed_of(lanes, stretch_bytes), limit=limit)
    assert by_message(events) == told
    assert len({event.id for event in events}) == len(events)


def test_short_stretches_tell_of_messages_nearly_as_they_went(lanes: Lanes) -> None:
    live_through(lanes, 60)
    lanes.covered()
    events = everything(feed_of(lanes, 1))
    kinds = [event.kind for event in events]
    assert "accepted" in kinds[kinds.index("delivered") :]


@pytest.mark.parametrize("limit", [5, 1_000])
def test_files_give_the_same_events_as_the_log(lanes: Lanes, limit: int) -> None:
    """The same values, and from a cursor of the log the same rest."""
    live_through(lanes, 80)
    lanes.covered()
    feed = feed_of(lanes, 500)
    before = everything(feed, limit=limit)
    middle = feed.read(OLDEST, ALL, 30)
    lanes.run()
    forget(lanes)
    assert sum(len(lanes.bases(lane)) for lane in lanes.writers) <= len(lanes.writers) + 3
    after = everything(feed, limit=limit)
    assert {event.id: event for event in after} == {event.id: event for event in before}
    assert by_message(after) == by_message(before)
    rest = everything(feed, after=middle.cursor, limit=limit)
    assert sorted(event.id for event in [*middle.events, *rest]) == sorted(event.id for event in before)
    told = {event.id for event in middle.events}
    assert told.isdisjoint(event.id for event in rest)


def test_a_batch_is_the_same_again_from_its_start(lanes: Lanes) -> None:
    """Also when more has happened, and when its segments are gone."""
    live_through(lanes, 40)
    lanes.covered()
    feed = feed_of(lanes, 300)
    batches = []
    after = OLDEST
    while True:
        batch = feed.read(after, ALL, 7)
        if batch.events:
            batches.append(batch)
        after = batch.cursor
        if not batch.more:
            break
    live_through(lanes, 40, seed=2, first=40)
    lanes.covered()
    for batch in batches:
        assert feed.read(batch.start, ALL, len(batch.events)).events == batch.events
    lanes.run()
    forget(lanes)
    for batch in batches:
        again = feed.read(batch.start, ALL, len(batch.events))
        assert again.events == batch.events


def test_recipients_whose_segment_went_before_the_envelopes_are_told(lanes: Lanes) -> None:
    """The export has written an open segment, so the one before may go."""
    for number in range(200):
        lanes.accept(f"{number:013d}", 40, lane="incoming.0")
    lanes.covered()
    feed = feed_of(lanes)
    whole = everything(feed)
    lanes.run(everything=True)
    bases = lanes.bases("incoming.0")
    for base in bases[:-1]:
        (lanes.path / "queue" / "incoming.0" / f"{base:020d}.seg").unlink()
    assert everything(feed, limit=9) == whole


def test_only_what_both_restart_positions_cover_is_told(lanes: Lanes) -> None:
    live_through(lanes, 10)
    lanes.covered()
    feed = feed_of(lanes)
    known = everything(feed)
    live_through(lanes, 10, seed=3, first=10)
    lanes.covered(times=1)
    assert everything(feed) == known
    lanes.covered(times=1)
    assert len(everything(feed)) > len(known)


@pytest.mark.parametrize("after", [OLDEST, NOW])
def test_a_manager_that_has_just_started_may_not_know_how_far_a_lane_is_durable(lanes: Lanes, after: str) -> None:
    """Its STARTs prove that the messages have arrived: their attempts are not told first."""
    lanes.covered()
    told = live_through(lanes, 10)
    lanes.covered(ends={f"incoming.{number}": 0 for number in range(3)})
    feed = feed_of(lanes)
    batch = feed.read(after, ALL, 1_000)
    if after == OLDEST:
        assert by_message(batch.events) == told
    lanes.covered()
    assert everything(feed, after=batch.cursor) == []


def test_now_is_behind_all_that_has_happened(lanes: Lanes) -> None:
    live_through(lanes, 10)
    lanes.covered()
    feed = feed_of(lanes)
    batch = feed.read(NOW, ALL, 10)
    assert (batch.events, batch.more) == ([], False)
    told = live_through(lanes, 10, seed=3, first=10)
    lanes.covered()
    assert by_message(everything(feed, after=batch.cursor)) == told


def test_a_new_queue_has_no_events(lanes: Lanes) -> None:
    batch = feed_of(lanes).read(OLDEST, ALL, 10)
    assert (batch.events, batch.more) == ([], False)


# -- what is gone


def test_a_cursor_whose_events_are_removed_gets_an_error_that_says_so(lanes: Lanes) -> None:
    live_through(lanes, 40)
    lanes.covered()
    feed = feed_of(lanes)
    old = feed.read(OLDEST, ALL, 3).cursor
    lanes.run()
    forget(lanes)
    for day in lanes.events.glob("dt=*"):
        for file in sorted(day.glob("journal.*"))[:1] + sorted(day.glob("incoming.*"))[:3]:
            file.unlink()
    with pytest.raises(EventsGone, match=r"events are kept from 2026-11-21 .* on"):
        everything(feed, after=old)
    batch = feed.read(old, ALL, 1_000, past_lost=True)
    assert batch.lost


def test_files_that_are_being_fetched_are_not_taken_for_gone(lanes: Lanes) -> None:
    """Until the exporter of the next owner has all of them, a reader is asked to come again."""
    live_through(lanes, 40)
    lanes.covered()
    feed = feed_of(lanes)
    some = feed.read(OLDEST, ALL, 3)
    whole = everything(feed, some.cursor)
    lanes.run()
    forget(lanes)
    (lanes.path / "home").mkdir(exist_ok=True)
    note_fetching(Disk(), str(lanes.path / "home"))
    assert everything(feed, some.cursor) == whole, "all are here"
    away = lanes.path / "away"
    moved = {file: away / file.name for file in sorted(lanes.events.glob("dt=*/journal.*"))[:1]}
    away.mkdir()
    for file, place in moved.items():
        file.rename(place)
    for past_lost in (False, True):
        with pytest.raises(EventsComeLater):
            feed.read(some.cursor, ALL, 1_000, past_lost=past_lost)
    with pytest.raises(EventsComeLater):
        feed.read(OLDEST, ALL, 1_000)
    for file, place in moved.items():
        place.rename(file)
    note_fetched(Disk(), str(lanes.path / "home"))
    assert everything(feed, some.cursor) == whole


def test_a_file_in_the_middle_that_is_missing_or_damaged_is_never_passed_over_silently(lanes: Lanes) -> None:
    live_through(lanes, 80)
    lanes.covered()
    feed = feed_of(lanes)
    whole = everything(feed)
    lanes.run()
    forget(lanes)
    files = sorted(lanes.events.glob("dt=*/*.parquet"))
    assert len(files) > 10
    for file in files:
        content = file.read_bytes()
        for damaged in (None, content[: len(content) // 2], content[:200] + b"\xff" * 200 + content[400:]):
            if damaged is None:
                file.unlink()
            else:
                file.write_bytes(damaged)
            found: list[Event] = []
            try:
                after = Cursor("", {})
                found = everything(feed, after=str(after))
            except EventsGone:
                pass
            else:
                assert found == whole or {event.id for event in found} == {event.id for event in whole}
            file.write_bytes(content)
    assert {event.id for event in everything(feed, after=str(Cursor("", {})))} == {event.id for event in whole}


def test_a_segment_that_was_deleted_unexported_is_an_error(lanes: Lanes) -> None:
    live_through(lanes, 80)
    lanes.covered()
    feed = feed_of(lanes)
    for lane in (JOURNAL, "incoming.1"):
        bases = lanes.bases(lane)
        gone = lanes.path / "queue" / lane / f"{bases[1]:020d}.seg"
        content = gone.read_bytes()
        gone.unlink()
        with pytest.raises(EventsGone, match=lane):
            everything(feed)
        gone.write_bytes(content)
    everything(feed)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "1",
        "1AAAA",
        "1" + "A" * 9_000,
        "2abc",
        str(Cursor("", {"local": -1})),
        str(Cursor("", {"local": 1 << 63})),
    ],
)
def test_what_is_no_cursor_is_refused(lanes: Lanes, text: str) -> None:
    lanes.covered()
    with pytest.raises(CursorError):
        feed_of(lanes).read(text, ALL, 10)


def test_a_cursor_of_another_waypost_is_refused(lanes: Lanes) -> None:
    lanes.covered()
    with pytest.raises(CursorError, match="another Waypost"):
        feed_of(lanes).read(str(Cursor("0123abcd", {})), ALL, 10)


def test_a_cursor_is_short(lanes: Lanes) -> None:
    names = [f"incoming.{number}" for number in range(64)] + [f"retry.{number}" for number in range(0, 4_000, 300)]
    chance = random.Random(1)
    cursor = Cursor("0123abcd", {name: chance.getrandbits(48) for name in names})
    assert len(str(cursor)) < 1_500
    assert read_cursor(str(cursor)) == cursor


# -- what events say


def test_an_attempt_says_to_whom_and_from_whom(lanes: Lanes) -> None:
    body = Delivery(
        "0000000000001",
        0,
        (Verdict(4, Status.BOUNCED, "5.1.1", "550 no"),),
        DAY,
        "mx[192.0.2.1]:25",
        "TLSv1.3",
        (1.0, 2.0, 0.25, 0.5),
        "smtp:example.net",
        sender_domain="example.org",
        recipient_domains=("example.net",),
        tag="news",
        size_bytes=7,
        recipients=("b@example.net",),
        sender="a@Example.org",
        login="alice",
    )
    lanes.writer(JOURNAL).append(RecordType.DELIVERY, encode(body))
    lanes.covered()
    event = everything(feed_of(lanes))[-1]
    assert msgspec.structs.asdict(event) | {"id": ""} == {
        "id": "", "kind": "bounced", "at": DAY, "queue_id": "0000000000001", "number": 4, "recipient": "b@example.net",
        "recipient_domain": "example.net", "sender": "a@Example.org", "sender_domain": "example.org", "tag": "news",
        "login": "alice", "size_bytes": 7, "message_id": "", "origin": "", "client_address": "",
        "destination": "smtp:example.net", "relay": "mx[192.0.2.1]:25", "tls": "TLSv1.3", "dsn": "5.1.1", "reply": "550 no",
        "delay_s": 3.75,
    }  # fmt: skip
    lanes.run(everything=True)
    for lane in lanes.writers:
        for base in lanes.bases(lane):
            (lanes.path / "queue" / lane / f"{base:020d}.seg").unlink()
    assert everything(feed_of(lanes))[-1] == event


def test_a_recipient_that_an_operator_added_is_accepted(lanes: Lanes) -> None:
    order = Administrative(
        "add_recipients", "x", "alice", "why", DAY, {"recipients": ["c@Example.net", "d@example.net"]}
    )
    lanes.writer(JOURNAL).append(RecordType.ADMINISTRATIVE, encode(order))
    lanes.writer(JOURNAL).append(RecordType.ADMINISTRATIVE, encode(msgspec.structs.replace(order, anew=True)))
    lanes.covered()
    found = everything(feed_of(lanes))
    assert [(event.kind, event.recipient, event.recipient_domain, event.origin) for event in found] == [
        ("accepted", "c@Example.net", "example.net", "operator"),
        ("accepted", "d@example.net", "example.net", "operator"),
    ]


def test_a_filter_selects_by_what_events_show(lanes: Lanes) -> None:
    for number, (sender, tag, login) in enumerate((("a@Example.org", "news", "alice"), ("b@example.com", "", ""))):
        lanes.accept(f"{number:013d}", 5, sender=sender, tag=tag, login=login)
    lanes.covered()
    feed = feed_of(lanes)
    whole = everything(feed)
    for chosen in (
        Chosen(kinds=("accepted",)),
        Chosen(kinds=("delivered",)),
        Chosen(tag="news"),
        Chosen(tag="New"),
        Chosen(sender_domain="example.org"),
        Chosen(recipient_domain="example.org", login="alice"),
        Chosen(recipient_domain="example"),
    ):
        assert everything(feed, chosen=chosen, limit=2) == [event for event in whole if chosen.matches(event)]
    assert len(everything(feed, chosen=Chosen(sender_domain="example.org"))) == 5
    assert everything(feed, chosen=Chosen(recipient_domain="example")) == []
