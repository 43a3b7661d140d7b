"""The random histories of the laws once more, with housekeeping in them: compaction, a suffix of a few records, the sweep."""

from __future__ import annotations

import random

import pytest

from mailcore.queue.compaction import Compaction, sent_round
from mailcore.queue.lanes import AT_ONCE
from mailcore.queue.sweep import Sweep
from tests.queue import test_laws_histories
from tests.queue.simulated_machine import OutsideMemory
from tests.queue.test_laws_histories import run, short_lists
from tests.simulated_disk import SimulatedDisk

__all__ = ["short_lists"]

SUFFIX_BYTES = 600  # a handful of records


class TidyStory(test_laws_histories.Story):
    """Now and then a step of housekeeping, eager: no share is too high, nothing is too young."""

    def __init__(self, disk: SimulatedDisk, outside: OutsideMemory, rng: random.Random) -> None:
        super().__init__(disk, outside, rng)
        machine = self.machine
        machine.checkpoints._suffix_bytes_max = SUFFIX_BYTES
        self.passes = 0.0
        self.sweep = Sweep(machine.queue, lambda: 1e15, self._later, lambda seconds: None)
        self.compaction = Compaction(machine.queue, 0.9)

    def _later(self) -> float:
        self.passes += 1e6
        return self.passes

    def step(self) -> None:
        what = self.rng.random()
        if what < 0.1:
            self._send_round()
        elif what < 0.2:
            self._move_held()
        elif what < 0.3:
            self._sweep()
        else:
            super().step()

    def _send_round(self) -> None:
        for active in self.compaction.active(self._later()):
            if active in self.active and active.remaining:
                self.active.remove(active)
                active.orders.append(sent_round(active, self.machine.outside.now))
                self.machine.end(active, AT_ONCE, 0.0)

    def _move_held(self) -> None:
        look = self.compaction.hold_look(self._later())
        if look is not None:
            self.compaction.hold_below(look.run())
        self.compaction.move_held(self.machine.monotonic)

    def _sweep(self) -> None:
        for _ in range(2):
            search = self.sweep.watch(list(self.machine.queue.spool.queue_ids()))
            if search is not None:
                search.run()
                self.sweep.remove(self.sweep.orphans(search), search)


@pytest.fixture(autouse=True)
def tidy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(test_laws_histories, "Story", TidyStory)
    monkeypatch.setattr("mailcore.queue.compaction.ACTIVE_S", 0.0)


@pytest.mark.parametrize("seed", range(2000, 2008))
def test_housekeeping_loses_nothing_and_doubles_nothing(seed: int) -> None:
    run(seed, steps=30, lives=3, how_often=0.2)


@pytest.mark.long
@pytest.mark.parametrize("seed", [*range(2008, 2015), *range(3000, 3060)])
def test_housekeeping_loses_nothing_in_long_histories(seed: int) -> None:
    run(seed, steps=120, lives=5, how_often=0.2)
