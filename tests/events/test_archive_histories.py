"""Random histories of a machine whose power goes, and whose segments go when they are exported: of each message everything that
the events and the journal say is told, once and in order."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from mailcore.events.read.archive import EventArchive
from mailcore.events.write.cutoff import take_cut
from mailcore.log.disk import Disk
from mailcore.lookup.browse import Browser, Stretch
from mailcore.lookup.history import HistoryReader
from mailcore.lookup.query import Query
from mailcore.lookup.search import LaneSearch
from mailcore.lookup.tracing import Walk, lanes_in, open_lane
from tests.events.reading import rows
from tests.events.test_histories import Reported, short_lists
from tests.lookup.recorded_lives import events_of
from tests.queue.simulated_machine import HOME, OutsideMemory
from tests.simulated_disk import SimulatedDisk

__all__ = ["short_lists"]

SEEDS = 6
STEPS = 120


@pytest.fixture(autouse=True)
def any_queue_id(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the machine do not say when they were given out."""
    for module in ("history", "search"):
        monkeypatch.setattr(f"mailcore.lookup.{module}.earliest_of", lambda queue_id: 1.0)
    for name in ("ARRIVED_S", "UNARRIVED_S"):
        monkeypatch.setattr(f"mailcore.lookup.history.{name}", float("inf"))


def told(history: Any) -> Counter[tuple[int, str]]:
    return Counter(
        (verdict["number"], verdict["status"]) for event in events_of(history) for verdict in event.get("verdicts", ())
    )


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=pytest.mark.long if seed % 2 else ()) for seed in range(SEEDS)]
)
def test_all_that_happened_is_told_once(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    story = Reported(SimulatedDisk(), OutsideMemory(), rng, tmp_path)
    for _ in range(STEPS):
        story.step()
        if rng.random() < 0.1:
            story.run(dies_at=rng.choice([-1, rng.randrange(40)]))
        if rng.random() < 0.02:
            story = story.power_loss()
    for _ in range(20):  # until a segment of the journal is gone: without that the story shows nothing
        story.run(dies_at=-1)
        for _ in range(2):
            story.machine.checkpoint()
        if story.machine.queue.reader("journal").bases[0] > 0:
            break
        for _ in range(STEPS // 4):
            story.step()
    export = story.export()
    with export.locked(0):
        take_cut(export, story.machine.outside.now)
    disk, outside = story.machine.disk, story.machine.outside
    browser = Browser(disk, HOME, lambda: outside.now, lambda: 0.0)
    archive = EventArchive(Disk(), str(tmp_path))
    past = HistoryReader(browser, archive=archive)
    found = rows(tmp_path)
    happened: dict[str, Counter[tuple[int, str]]] = {}
    for event in found:
        if event["kind"] == "attempt":
            happened.setdefault(event["queue_id"], Counter())[event["number"], event["status"]] += 1
    ended = {event["queue_id"] for event in found if event["kind"] == "finished"}
    with open_lane(disk, HOME, "journal") as reader:
        assert reader.bases[0] > 0, "a story in which no segment goes shows nothing"
    for queue_id in outside.accepted:
        walk = Walk(past.history(queue_id))
        assert walk.go(60.0, lambda: 0.0)
        history = walk.result
        assert history is not None
        assert told(history) == happened.get(queue_id, Counter())
        kinds = [event["event"] for event in events_of(history)]
        assert kinds[0] == "accepted"
        assert kinds.count("accepted") == 1
        ats = [event["at"] for event in events_of(history)]
        assert ats == sorted(ats)
        assert (kinds[-1] == "finished") >= (queue_id in ended)

    stretches = {name: Stretch(0, 0, None) for name in lanes_in(browser)}
    search = LaneSearch(browser, stretches, Query(sender="*"), "", 10_000, archive)
    search_walk = Walk(search.steps())
    assert search_walk.go(60.0, lambda: 0.0)
    hits = Counter(hit.queue_id for hit in search.take())
    assert set(hits.values()) == {1}
    assert hits.keys() >= outside.accepted.keys()
