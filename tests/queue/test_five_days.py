"""What the log takes on disk over five days, of mail of which little waits: a few times the bytes that wait, not all that came.

The manager's own rules decide where data goes (``Carrying``), the queue's own looks which segments go; the clock is the test's.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from mailcore.envelope import Status
from mailcore.manager.carrying import Carrying
from mailcore.queue.bodies import LOOK_S
from mailcore.queue.compaction import ACTIVE_S, Compaction, sent_round
from mailcore.queue.lanes import JOURNAL, retry_lane
from tests.queue.simulated_machine import HOME, SimulatedMachine
from tests.queue.steps import deliver_all, new_machine
from tests.simulated_disk import SimulatedDisk

PASS_S = 4000  # maximal_backoff_time
SIZE = 4000
SEGMENT_BYTES = 50 * SIZE
# What may be there beside four times the living bytes: of each lane the newest segment, and one that waits for its checkpoints.
SLACK_BYTES = 2 * 2 * SEGMENT_BYTES
RATIO = 4  # 1 / compact_below
ONE_PASS = 1  # a message that was deferred just before its segment fell below compact_below is carried one pass later


def new() -> tuple[SimulatedMachine, SimulatedDisk]:
    machine, _, disk = new_machine(SEGMENT_BYTES)
    settings: Any = machine.passes.context.settings
    settings.queue.carry_limit = SIZE // 2
    machine.passes.carrying = Carrying(machine.passes.context)
    return machine, disk


def on_disk(disk: SimulatedDisk) -> int:
    """Bytes of all lanes, without the journal, which no message's data is in."""
    lanes = [f"{HOME}/{lane}" for lane in disk.list(HOME) if lane != JOURNAL and disk.is_directory(f"{HOME}/{lane}")]
    return sum(disk.size_of(f"{lane}/{name}") for lane in lanes for name in disk.list(lane) if name != "lock")


def defer(machine: SimulatedMachine, active: Any) -> None:
    machine.attempt(active, {0: Status.DEFERRED})
    machine.end(active, retry_lane(PASS_S), PASS_S)


def tidy(machine: SimulatedMachine) -> None:
    """What the manager does besides: checkpoints, a look through all retired segments, and compaction."""
    for _ in range(3):
        machine.checkpoint()
    machine.wait(LOOK_S)
    for active in Compaction(machine.queue, below=0.25).active(machine.monotonic + ACTIVE_S):
        active.orders.append(sent_round(active, machine.outside.now))
        machine.obey(active)
    machine.checkpoint()


def days_pass(machine: SimulatedMachine, disk: SimulatedDisk, days: int, *, delivered: float) -> list[float]:
    """All messages have a pass in each PASS_S, in which this share of them is delivered.

    Returns, after each, by how much the disk holds more than SLACK_BYTES, over the bytes of data that wait.
    """
    rng, ratios = random.Random(8), []
    for _ in range(days * 86400 // PASS_S):
        machine.wait(PASS_S - LOOK_S)
        waiting = 0
        while (active := machine.begin()) is not None:
            machine.load(active)
            if rng.random() < delivered:
                deliver_all(machine, active)
            else:
                defer(machine, active)
                waiting += SIZE
        tidy(machine)
        if waiting:
            ratios.append((on_disk(disk) - SLACK_BYTES) / waiting)
    return ratios


@pytest.mark.parametrize(
    ("segments", "days"), [(30, 1), pytest.param(200, 5, marks=pytest.mark.long)], ids=["short", "long"]
)
def test_of_one_percent_that_is_deferred_the_log_keeps_little_more(segments: int, days: int) -> None:
    machine, disk = new()
    for _ in range(segments):
        for _ in range(50):
            machine.accept(size=SIZE)
        machine.durable()
        while (active := machine.begin()) is not None:
            machine.load(active)
            if int(active.queue_id[1:]) % 100 == 0 or active.envelope.generation:
                defer(machine, active)
            else:
                deliver_all(machine, active)
        tidy(machine)
    assert len(list(machine.browse())) >= segments * 0.4
    ratios = days_pass(machine, disk, days, delivered=0.0)
    assert max(ratios) <= RATIO, ratios


@pytest.mark.parametrize(
    ("segments", "days"), [(20, 2), pytest.param(100, 5, marks=pytest.mark.long)], ids=["short", "long"]
)
def test_of_a_storm_that_is_delivered_over_days_the_log_keeps_a_few_times_what_waits(segments: int, days: int) -> None:
    """All is deferred at first, so each segment is needed; then less and less of each."""
    machine, disk = new()
    for _ in range(50 * segments):
        machine.accept(size=SIZE)
    machine.durable()
    ratios = days_pass(machine, disk, days, delivered=1 - 0.03 ** (PASS_S / 86400 / days))
    assert max(ratios) <= RATIO + ONE_PASS, ratios
