"""Random histories of a machine whose power goes, exported now and then by an exporter that is killed: nobody is lost, nobody
is there twice, and between the events and the lanes it balances, message by message."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from mailcore.events.write.cutoff import queued_at, take_cut
from mailcore.events.write.export import Export
from mailcore.log.segment import Damage
from mailcore.queue.exported import Candidate, Keeper
from tests.events.reading import Killed, MortalDisk, checksum, left, rows
from tests.queue.simulated_machine import HOME, OutsideMemory, SimulatedMachine
from tests.queue.test_laws_histories import SEGMENT_BYTES, Story, spoil_restart
from tests.simulated_disk import RandomChoice, SimulatedDisk

SEEDS = 40
STEPS = 120


@pytest.fixture(autouse=True)
def short_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three recipients are a long list here, so that RECIPIENTS records take part."""
    for module in ("mailcore.queue.records", "mailcore.queue.rewrite"):
        monkeypatch.setattr(f"{module}.RECIPIENTS_PER_RECORD", 3)
    monkeypatch.setattr(SimulatedMachine, "batch", 3)
    monkeypatch.setattr(SimulatedMachine, "suffix_bytes_max", 3000)


class Reported(Story):
    """A story on a machine whose segments wait for the export."""

    def __init__(self, disk: SimulatedDisk, outside: OutsideMemory, rng: random.Random, events: Path) -> None:
        super().__init__(disk, outside, rng)
        self.events = events
        state = str(events / "_exported")
        self.machine.checkpoints.keeper = Keeper(MortalDisk(), state, 1 << 40, lambda: outside.now, _lost)

    def export(self, dies_at: int = -1) -> Export:
        return Export(self.machine.disk, HOME, str(self.events), _damaged, _gone, events_disk=MortalDisk(dies_at))

    def run(self, dies_at: int) -> None:
        export = self.export(dies_at)
        try:
            with export.locked(0):
                if self.rng.random() < 0.5:
                    export.run()
                else:
                    take_cut(export, self.machine.outside.now)
        except Killed:
            pass

    def power_loss(self) -> Reported:
        disk = self.machine.disk.crash(RandomChoice(self.rng.getrandbits(32)))
        if self.rng.random() < 0.3:
            spoil_restart(disk)
        return Reported(disk, self.machine.outside, self.rng, self.events)


def _lost(candidate: Candidate, why: str) -> None:
    raise AssertionError(f"{candidate} was deleted: {why}")


def _gone(lane: str, start: int, end: int) -> None:
    raise AssertionError(f"{lane}: {start} to {end} was deleted before it was exported")


def _damaged(damage: Damage) -> None:
    raise AssertionError(f"{damage}")


@pytest.mark.parametrize(
    "seed", [*range(20), *(pytest.param(each, marks=pytest.mark.long) for each in range(20, SEEDS))]
)
def test_each_recipient_comes_once_and_ends_once_or_is_queued(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    story = Reported(SimulatedDisk(), OutsideMemory(), rng, tmp_path)
    for _ in range(STEPS):
        story.step()
        if rng.random() < 0.05:
            story.run(dies_at=rng.choice([-1, rng.randrange(40)]))
        if rng.random() < 0.02:
            story = story.power_loss()
    for _ in range(2):  # the older restart positions are what counts
        story.machine.checkpoint()
    export = story.export()
    with export.locked(0):
        cut, _ = take_cut(export, story.machine.outside.now)
    found = rows(tmp_path)
    assert {
        event["queue_id"] for event in found if event["kind"] == "accepted"
    } >= story.machine.outside.accepted.keys()
    queued = {each.queue_id: each.recipients for each in queued_at(export.disk, HOME, export.positions()[0])}
    assert left(found) == {queue_id: count for queue_id, count in queued.items() if count}
    assert (cut.recipients, cut.checksum) == (sum(queued.values()), checksum(left(found)))
    assert sum(cut.lanes.values()) > SEGMENT_BYTES, "a story in which nothing happens shows nothing"
