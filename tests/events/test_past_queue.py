"""The queue as it was, out of random histories that are exported by an exporter which is killed: each message with as many
recipients as were left, in the states that they had; and what is told when events are missing."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mailcore.envelope import Status
from mailcore.events.read.archive import EventArchive
from mailcore.events.write.cutoff import take_cut
from mailcore.log.disk import Disk
from mailcore.lookup.archive import QueueThen, Then, Trouble
from mailcore.lookup.tracing import Walk
from tests.events.lanes import DAY, Lanes
from tests.events.reading import left, rows
from tests.events.test_histories import Reported, short_lists
from tests.queue.simulated_machine import UNDO_S, OutsideMemory
from tests.simulated_disk import SimulatedDisk

__all__ = ["short_lists"]

SEEDS = 12
STEPS = 100
TICK_S = 0.01  # between two steps: their records have other times


def queue_at(events: Path, at: float) -> tuple[QueueThen, list[Then], Trouble]:
    trouble = Trouble()
    walk = Walk(EventArchive(Disk(), str(events)).queue_at(at, UNDO_S, trouble))
    while not walk.go(0.0, lambda: 0.0):
        pass
    then = walk.result
    assert then is not None
    return then, [each for chunk in then.walk("", trouble) for each in chunk or ()], trouble


def kinds(states: dict[str, int]) -> dict[str, int]:
    return {state: count for state, count in states.items() if state in ("held", "deleted")}


class Watched(Reported):
    """Notes what rests in the lanes after each step."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.seen: dict[float, dict[str, dict[str, int]]] = {}

    def note(self) -> None:
        outside = self.machine.outside
        states: dict[str, dict[str, int]] = {}
        for resting in self.machine.browse():
            found: Counter[str] = Counter()
            for each in resting.recipients:
                if each.aside is not None:
                    found[each.aside.kind.name.lower()] += 1
            states[resting.envelope.queue_id] = kinds(found)
        self.seen[outside.now] = states
        outside.now += TICK_S


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=pytest.mark.long if seed > 1 else ()) for seed in range(SEEDS)]
)
def test_each_moment_has_the_messages_that_were_queued(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    story = Watched(SimulatedDisk(), OutsideMemory(), rng, tmp_path)
    for _ in range(STEPS):
        story.step()
        story.note()
        if rng.random() < 0.1:
            story.run(dies_at=rng.choice([-1, -1, rng.randrange(40)]))
    for _ in range(2):
        story.machine.checkpoint()
    export = story.export()
    with export.locked(0):
        take_cut(export, story.machine.outside.now)
    events = rows(tmp_path)
    compared = 0
    aside = [at for at in sorted(story.seen) if any(story.seen[at].values())]
    for at in {*rng.sample(sorted(story.seen), 12), *rng.sample(aside, min(len(aside), 12))}:
        queued = left([event for event in events if event["at"] <= at])
        then, told, trouble = queue_at(tmp_path, at)
        assert not trouble.count
        assert {each.queue_id: each.message.left for each in told} == queued
        assert [each.arrived_at for each in told] == sorted(each.arrived_at for each in told)
        assert then.balance.agrees or then.balance.expected is None
        for each in told:
            seen = story.seen[at].get(each.queue_id)
            if seen is not None:
                compared += bool(seen)
                assert kinds(each.message.states(at)) == seen, each.queue_id
        middle = told[len(told) // 2 :]
        if middle:
            rest = [each for chunk in then.walk(middle[0].key, trouble) for each in chunk or ()]
            assert [each.queue_id for each in rest] == [each.queue_id for each in middle[1:]]
    assert compared > 3, "a story in which nothing is held or deleted shows little"


@pytest.fixture
def counted(tmp_path: Path) -> Iterator[Lanes]:
    """A count with one message, and behind it three more, of which one is delivered."""
    lanes = Lanes(tmp_path, segment_bytes=300)
    lanes.accept("M1", arrived_at=DAY + 10)
    lanes.covered(at=DAY + 20)
    export = lanes.export()
    with export.locked(0):
        take_cut(export, DAY + 20)
    for number in (2, 3, 4):
        lanes.accept(f"M{number}", count=5, arrived_at=DAY + 20 + number)
    lanes.deliver("M3", *[Status.DELIVERED] * 5, at=DAY + 40)
    lanes.covered(at=DAY + 50)
    lanes.run(everything=True)
    yield lanes
    lanes.close()


def test_a_queue_that_agrees_with_the_count_before_is_complete(counted: Lanes) -> None:
    then, told, _ = queue_at(counted.events, DAY + 45)
    assert {each.queue_id: each.message.left for each in told} == {"M1": 1, "M2": 5, "M4": 5}
    assert (then.balance.agrees, then.balance.found, then.balance.expected) == (True, 11, 11)
    before, there, _ = queue_at(counted.events, DAY + 30)
    assert (before.balance.agrees, len(there)) == (True, 4)


def test_a_missing_file_of_arrivals_shows_as_missing_recipients(counted: Lanes) -> None:
    first = min(counted.events.glob("dt=*/incoming.0.*.parquet"), key=lambda path: int(path.stem.split(".")[-1]))
    first.unlink()
    then, told, _ = queue_at(counted.events, DAY + 45)
    assert "M1" not in {each.queue_id for each in told}
    assert (then.balance.agrees, then.balance.found, then.balance.expected) == (False, 10, 11)


def test_a_stretch_of_the_journal_that_no_file_has_is_named_though_the_balance_agrees(counted: Lanes) -> None:
    """As after a full disk, which costs the events of a segment: what ended in it would still be queued."""
    counted.deliver("M4", *[Status.DELIVERED] * 5, at=DAY + 60)
    counted.covered(at=DAY + 70)
    counted.run(everything=True)
    files = sorted(counted.events.glob("dt=*/journal.*.parquet"), key=lambda path: int(path.stem.split(".")[-1]))
    assert len(files) > 1
    _, _, trouble = queue_at(counted.events, DAY + 65)
    assert not trouble.count
    files[-2].unlink()
    then, told, trouble = queue_at(counted.events, DAY + 65)
    assert "M3" in {each.queue_id for each in told}
    assert then.balance.agrees, "neither side of it has what is missing"
    assert "no event file has it" in str(trouble)


def test_a_damaged_file_is_named(counted: Lanes) -> None:
    path = max(counted.events.glob("dt=*/journal.*.parquet"))
    path.write_bytes(path.read_bytes()[:-40])
    _, told, trouble = queue_at(counted.events, DAY + 45)
    assert {"M3"} < {each.queue_id for each in told}
    assert path.name in str(trouble)


def test_rows_that_were_exported_twice_count_once(tmp_path: Path) -> None:
    """An open segment is exported in two stretches; when the exported positions are lost, it is exported as one."""
    lanes = Lanes(tmp_path, segment_bytes=100_000)
    lanes.accept("M1", arrived_at=DAY + 10)
    lanes.deliver("M0", Status.DEFERRED, at=DAY + 11)
    lanes.covered(at=DAY + 20)
    export = lanes.export()
    with export.locked(0):
        take_cut(export, DAY + 20)
    for number in (2, 3):
        lanes.accept(f"M{number}", count=5, arrived_at=DAY + 20 + number)
    lanes.deliver("M3", Status.DELIVERED, at=DAY + 40)
    lanes.covered(at=DAY + 50)
    lanes.run(everything=True)
    before = len(list(lanes.events.glob("dt=*/*.parquet")))
    (lanes.events / "_exported" / "positions.json").write_text("{")
    lanes.run(everything=True)
    lanes.close()
    files = [path for path in lanes.events.glob("dt=*/*.parquet") if not path.name.startswith("windows")]
    assert len(files) == before > 3, "both stretches of each lane are there still"
    then, told, _ = queue_at(lanes.events, DAY + 45)
    assert {each.queue_id: each.message.left for each in told} == {"M1": 1, "M2": 5, "M3": 4}
    assert then.balance.agrees
