"""A search finds each message once: resting, being worked on, or gone while a record of it is still there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mailcore.envelope import Recipient, Status
from mailcore.lookup import search as search_module
from mailcore.lookup.query import Query
from mailcore.lookup.search import LaneSearch
from mailcore.lookup.tracing import Walk
from mailcore.queue.records import Place
from tests.lookup.recorded_lives import RecordedLives, bounce_of


@pytest.fixture
def recorded(tmp_path: Path) -> Iterator[RecordedLives]:
    recorded = RecordedLives(tmp_path)
    yield recorded
    recorded.close()


def states(recorded: RecordedLives, **wanted: str) -> dict[str, str]:
    hits = recorded.search(50, **wanted)
    assert len({hit.queue_id for hit in hits}) == len(hits)
    return {hit.queue_id: hit.state for hit in hits}


def test_how_a_message_ended_is_told(recorded: RecordedLives) -> None:
    delivered, bounced, expired, deleted, forgotten = (recorded.arrive() for _ in range(5))
    delivered.start()
    delivered.attempt()
    delivered.finish()
    bounced.start()
    bounced.attempt(Status.DELIVERED, 0)
    bounced.attempt(Status.BOUNCED, 1)
    recorded.now += 5
    (offset,) = recorded.lane("local").write(bounce_of(bounced))
    bounced.finish(bounce=Place("local", offset))
    expired.start()
    expired.attempt(Status.EXPIRED)
    expired.finish()
    deleted.start()
    deleted.order("delete")
    deleted.replace("deleted")
    deleted.start()
    deleted.finish("deleted")
    recorded.lane("incoming.0").mark_garbage(forgotten.offset)
    assert states(recorded, sender="sender@*") == {
        delivered.queue_id: "delivered",
        bounced.queue_id: "bounced",
        expired.queue_id: "expired",
        deleted.queue_id: "deleted",
        forgotten.queue_id: "unknown",
    }
    (hit,) = recorded.search(queue_id=bounced.queue_id)
    assert (hit.state, hit.finished_at, hit.at) == ("bounced", recorded.now, recorded.now - 5)
    assert states(recorded, sender="<>") == {f"{bounced.queue_id}B0": "queued"}


def test_a_message_in_the_queue_is_told_as_a_list_would(recorded: RecordedLives) -> None:
    active, deferred, held, gone = (recorded.arrive() for _ in range(4))
    waiting = recorded.arrive()
    for each, lane in ((deferred, "retry.300"), (held, "hold"), (gone, "deleted")):
        each.start()
        each.replace(lane)
    recorded.runners["incoming.0"] = waiting.offset
    active.start()
    assert states(recorded) == {
        active.queue_id: "active",
        deferred.queue_id: "deferred",
        held.queue_id: "held",
        gone.queue_id: "deleted",
        waiting.queue_id: "queued",
    }
    assert all(hit.finished_at is None for hit in recorded.search())


def test_a_finish_counts_before_its_mark_is_written(recorded: RecordedLives) -> None:
    life = recorded.arrive()
    life.start()
    life.attempt()
    life.finish(marked=False)
    assert states(recorded) == {life.queue_id: "delivered"}


@pytest.mark.parametrize("limit", [1, 2, 50])
def test_generations_are_one_message(recorded: RecordedLives, limit: int) -> None:
    lives = [recorded.arrive(["a@example.org", "b@example.org"]) for _ in range(6)]
    for life in lives:
        life.start()
        life.attempt(Status.DELIVERED, 0)
        life.attempt(Status.DEFERRED, 1)
        life.replace("retry.300", 1)
    for life in lives[:4]:
        life.start()
        life.attempt(Status.DEFERRED, 1)
        life.replace("retry.600", 1)
    for life in lives[:2]:
        life.start()
        life.attempt(Status.DELIVERED, 1)
        life.finish()
    expected = {life.queue_id: "delivered" if life in lives[:2] else "deferred" for life in lives}
    for wanted in ({}, {"recipient": "b@*"}, {"recipient": "a@example.org"}):
        hits = recorded.search(limit, **wanted)
        assert len(hits) == 6
        assert {hit.queue_id: hit.state for hit in hits} == expected
    for life in lives:
        (hit,) = recorded.search(queue_id=life.queue_id)
        assert (hit.state, hit.recipients) == (expected[life.queue_id], ["a@example.org", "b@example.org"])


def test_a_recipient_who_is_done_is_found_by_the_generation_that_had_him(recorded: RecordedLives) -> None:
    life = recorded.arrive(["a@example.org", "b@example.org"])
    life.start()
    life.attempt(Status.DELIVERED, 0)
    life.replace("retry.300", 1)
    (hit,) = recorded.search(recipient="a@example.org")
    assert (hit.state, hit.recipient_count) == ("deferred", 2)


def test_a_recipient_in_a_recipients_record_is_found(recorded: RecordedLives) -> None:
    batch = recorded.lane("incoming.0").write_batch([Recipient(n, f"b{n}@example.org") for n in range(1, 900)])
    life = recorded.arrive(recipients=(Recipient(0, "a@example.org"),), recipient_count=900, batches=(batch,))
    assert states(recorded, recipient="B899@*") == {life.queue_id: "queued"}
    assert states(recorded, recipient="b900@*") == {}


def test_pages_join_where_they_end_with_garbage_in_between(
    recorded: RecordedLives, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_module, "TOGETHER_MAX", 3)
    monkeypatch.setattr(search_module, "UNTOLD_RECORDS", 7)
    lives = [recorded.arrive(sender="x@example.org" if number % 3 else "y@example.org") for number in range(100)]
    for number, life in enumerate(lives):
        if number % 2:
            life.start()
            life.attempt()
            life.finish()
    wanted = [life.queue_id for number, life in enumerate(lives) if number % 3 == 0]
    for limit in (1, 4, 50):
        assert [hit.queue_id for hit in recorded.search(limit, sender="y@*")] == wanted


def test_a_search_that_is_to_stop_goes_on_where_it_was(recorded: RecordedLives) -> None:
    lives = [recorded.arrive() for _ in range(1_000)]
    cursor: str | None = ""
    found: list[str] = []
    rounds = 0
    while cursor is not None:
        search = LaneSearch(recorded.browser, recorded.stretches, Query(sender="sender@*"), cursor, 10_000)
        walk = Walk(search.steps())
        search.stopping = not walk.go(0.0, lambda: 0.0)
        recorded.walked(walk)
        found += [hit.queue_id for hit in search.take()]
        cursor = search.cursor
        rounds += 1
    assert found == [life.queue_id for life in lives]
    assert rounds > 5


def test_where_the_index_is_gone_the_bytes_are_searched(recorded: RecordedLives) -> None:
    lives = [recorded.arrive() for _ in range(50)]
    for life in lives[10:30]:
        life.start()
        life.attempt()
        life.finish()
    for path in recorded.directory.glob("*/*.idx"):
        path.write_bytes(b"nonsense")
    for life in (lives[0], lives[10], lives[49]):
        assert list(states(recorded, queue_id=life.queue_id)) == [life.queue_id]
    assert len(states(recorded)) == 50


def test_hostile_envelopes_are_found_like_others(recorded: RecordedLives) -> None:
    message_id = "<\x1b]0;x\x07\u202e" + "*?[" * 50 + ">"
    life = recorded.arrive(["<script>@example.org"], sender="a\x00b@example.org", message_id=message_id)
    (hit,) = recorded.search(recipient="<script>@*")
    assert (hit.queue_id, hit.sender, hit.message_id) == (life.queue_id, "a\x00b@example.org", message_id)
