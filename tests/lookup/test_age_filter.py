"""A filter that names an age reads the index of a segment first, and finds what a reading of all would find."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from mailcore.lookup.filter import Filter
from tests.lookup.sample_messages import NOW, envelope, spoil_index
from tests.lookup.test_browse import Queue

BLOCK = 4096  # bytes of an index block here


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[Queue]:
    queue = Queue(tmp_path)
    yield queue
    for lane in queue.lanes.values():
        lane.close()


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mailcore.log.lane.INDEX_STRIDE", BLOCK)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("index", ["whole", "missing", "torn", "of another lane"])
def test_an_age_finds_the_same_messages_through_the_index_as_without(queue: Queue, index: str) -> None:
    rng = random.Random(index)
    for name in ("incoming.0", "retry.60"):
        lane = queue.lane(name, segment_bytes=20_000)
        for _ in range(40):
            arrived = NOW - rng.choice([10, 1000, 100_000, 100_000.5, 99_999.5, 1e9])
            lane.write(*[envelope(arrived_at=arrived, sender=f"{arrived}@example.org") for _ in range(10)])
    for path in sorted(queue.directory.glob("*/*.idx")):
        spoil_index(path, index, rng)
    everything = queue.all()
    assert len(everything) == 800
    for limits in (
        {"older_than_s": 100_000.0},
        {"younger_than_s": 100_000.0},
        {"younger_than_s": 50.0},
        {"older_than_s": 500.0, "younger_than_s": 100_000.0},
        {"arrived_before": NOW - 100_000},
        {"older_than_s": 1e9},
        {"older_than_s": 2e9},
    ):
        wanted = [
            item.queue_id
            for item in everything
            if (item.arrived_at <= NOW - limits.get("older_than_s", -1e9))
            and (item.arrived_at > NOW - limits.get("younger_than_s", 1e12))
            and (item.arrived_at < limits.get("arrived_before", 1e12))
        ]
        filter_ = Filter(**limits)  # type: ignore[arg-type]
        found = [item.queue_id for item in queue.all(filter_, items=7)]
        assert found == wanted, limits


@pytest.mark.usefixtures("small_blocks")
def test_an_age_reads_only_what_can_match(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    lane = queue.lane("retry.60", segment_bytes=100_000)
    for number in range(100):
        lane.write(*[envelope(arrived_at=NOW - 1_000 + number) for _ in range(10)])
    lane.write(*[envelope(arrived_at=NOW - 50_000) for _ in range(3)])
    lane.write(*[envelope(arrived_at=NOW - 1) for _ in range(200)])
    page = queue.page(Filter(older_than_s=40_000.0))
    assert len(page.items) == 3
    assert page.examined < 100, "of 1 203"


@pytest.mark.usefixtures("small_blocks")
def test_a_page_without_a_match_ends_in_its_time(queue: Queue) -> None:
    lane = queue.lane("retry.60", segment_bytes=20_000)
    for _ in range(100):
        lane.write(*[envelope(arrived_at=NOW - 10) for _ in range(10)])
    pages, cursor = 0, ""
    filter_ = Filter(older_than_s=1_000.0)
    while True:
        page = queue.page(filter_, cursor, seconds=0.0)
        pages += 1
        assert page.items == []
        if page.cursor is None:
            break
        cursor = page.cursor
    assert pages > 5
