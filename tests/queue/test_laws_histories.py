"""The laws together: small histories, a crash in front of every call, and another crash in the recovery from it."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from mailcore.dsn_request import wants
from mailcore.envelope import Status
from mailcore.log.positions import NAME, PREVIOUS
from mailcore.log.segment import retired_base_of
from mailcore.log.store import Store
from mailcore.queue.active import Active
from mailcore.queue.bodies import LOOK_S
from mailcore.queue.compaction import ACTIVE_S, Compaction, sent_round
from mailcore.queue.lanes import DELETED, HOLD
from mailcore.queue.sizes import QueueSize
from tests.queue.audit import audit
from tests.queue.simulated_machine import HOME, RETRY_S, UNDO_S, OutsideMemory, SimulatedMachine
from tests.simulated_disk import RandomChoice, SimulatedDisk

SEGMENT_BYTES = 5000
CHANGES = [
    "hold",
    "hold",
    "release",
    "delete",
    "delete",
    "delete",
    "undelete",
    "delay",
    "retry",
    "retry",
    "reroute",
    "bounce",
]


@pytest.fixture(autouse=True)
def short_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three recipients are a long list here, so that RECIPIENTS records take part."""
    for module in ("mailcore.queue.records", "mailcore.queue.rewrite"):
        monkeypatch.setattr(f"{module}.RECIPIENTS_PER_RECORD", 3)
    monkeypatch.setattr(SimulatedMachine, "batch", 3)
    monkeypatch.setattr(SimulatedMachine, "suffix_bytes_max", 3000)  # so that old messages are stated anew


class Story:
    """A machine doing one random thing after another."""

    def __init__(
        self, disk: SimulatedDisk, outside: OutsideMemory, rng: random.Random, store: Store | None = None
    ) -> None:
        self.rng = rng
        self.machine = SimulatedMachine(disk, outside, SEGMENT_BYTES, store)
        self.active: list[Active] = []
        self.moved = 0  # by compaction

    def step(self) -> None:
        machine, rng = self.machine, self.rng
        what = rng.random()
        if what < 0.22:
            machine.accept(rng.choice([1, 1, 2, 5, 8]), big=rng.random() < 0.3, size=rng.choice([40, 300, 2500]))
            machine.durable()
        elif what < 0.45 or not self.active:
            active = machine.begin()
            if active is not None and not machine.obey(active):
                machine.load(active)
                if machine.is_active(active):
                    self.active.append(active)
        elif what < 0.55:
            self.change_some()
        elif what < 0.75:
            active = rng.choice(self.active)
            some = (
                rng.sample(sorted(active.pending), rng.randint(1, max(1, len(active.pending))))
                if active.pending
                else []
            )
            kinds = [Status.DELIVERED, Status.DELIVERED, Status.DEFERRED, Status.BOUNCED]
            if some:
                machine.attempt(active, {number: rng.choice(kinds) for number in some})
            if active.pass_over:
                self.active.remove(active)
                machine.end(active)
        elif what < 0.80:
            active = self.active.pop(rng.randrange(len(self.active)))
            if active.remaining:
                machine.order(active, rng.choice(["hold", "delete", "retry"]))
            else:
                self.active.append(active)
        elif what < 0.84:
            resting = [r for r in machine.browse() if r.lane in (HOLD, DELETED)]
            if resting:
                found = rng.choice(resting)
                active = machine.claim(found.envelope.queue_id)
                machine.order(active, "undelete" if found.lane == DELETED else "release")
        elif what < 0.88:
            machine.wait(rng.choice([1, RETRY_S, RETRY_S, UNDO_S]))
        elif what < 0.89:
            machine.drain_deleted()
        elif what < 0.91:
            self.compact()
        elif what < 0.94:
            waiting = [r.envelope.queue_id for r in machine.browse() if r.lane.startswith("retry.")]
            machine.request(rng.sample(waiting, rng.randint(0, len(waiting))))
        else:
            machine.checkpoint()

    def change_some(self) -> None:
        """Operators change some recipients of one message, maybe several times while deliveries of it are in flight."""
        machine, rng = self.machine, self.rng
        resting = [each.envelope.queue_id for each in machine.browse()]
        if self.active and (not resting or rng.random() < 0.5):
            active = self.active.pop(rng.randrange(len(self.active)))
        elif resting:
            active = machine.claim(rng.choice(resting))
        else:
            return
        everybody = range(machine.outside.accepted.get(active.queue_id, 1))
        flying = rng.sample(sorted(active.pending), rng.randint(0, len(active.pending)))
        for _ in range(rng.randint(1, 3) if flying else 1):
            operation = rng.choice(CHANGES)
            given: dict[str, Any] = {}
            if operation == "delay":
                given["until"] = machine.outside.now + rng.choice([1.0, RETRY_S, 1.5 * UNDO_S])
            elif operation == "reroute":
                given["route"] = rng.choice(["smtp:one.example", "smtp:two.example"])
            some = rng.sample(everybody, rng.randint(1, len(everybody)))
            numbers = rng.choice([None, some, some[:1], some[:1]])
            machine.give(active, operation, numbers, **given)
            if rng.random() < 0.2:
                machine.checkpoint()
        if flying:
            kinds = [Status.DELIVERED, Status.DEFERRED, Status.DEFERRED, Status.BOUNCED]
            machine.attempt(active, {number: rng.choice(kinds) for number in flying}, flying)
        machine.end(active)

    def compact(self) -> None:
        """What keeps nearly dead segments is moved: held messages, and those that have been worked on for long."""
        machine = self.machine
        machine.wait(ACTIVE_S)
        compaction = Compaction(machine.queue, below=0.6)
        for active in compaction.active(machine.monotonic):
            if active in self.active:
                self.active.remove(active)
                active.orders.append(sent_round(active, machine.outside.now))
                machine.obey(active)
        look = compaction.hold_look(machine.monotonic)
        if look is not None:
            compaction.hold_below(look.run())
            self.moved += compaction.move_held(machine.monotonic)


def watch(disk: SimulatedDisk, outside: OutsideMemory, rng: random.Random, how_often: float) -> Callable[[], int]:
    """In front of every call, now and then: the power goes; what is found is audited; and the power goes in there, too."""
    crashes = 0

    def crash(call: str, path: str) -> None:
        nonlocal crashes
        if rng.random() > how_often:
            return
        crashes += 1
        seed = rng.getrandbits(32)
        found = disk.kill() if rng.random() < 0.25 else disk.crash(RandomChoice(seed))
        how = rng.random()
        if how < 0.15:
            spoil_restart(found)
        rebuilt = 0.15 <= how < 0.2 and spoil_both(found)
        if rng.random() < 0.4:
            inner = random.Random(seed)

            def again(call: str, path: str) -> None:
                if inner.random() < 0.1:
                    second = found.crash(RandomChoice(inner.getrandbits(32)))
                    if inner.random() < 0.3:
                        spoil_restart(second)
                    audit(second, outside, SEGMENT_BYTES, rebuilt=rebuilt)

            found.on_change = again
        audit(found, outside, SEGMENT_BYTES, rebuilt=rebuilt)

    disk.on_change = crash
    return lambda: crashes


def retired_segments(disk: SimulatedDisk) -> list[str]:
    return [
        f"{lane}/{name}"
        for lane in disk.list(HOME)
        if disk.is_directory(f"{HOME}/{lane}")
        for name in disk.list(f"{HOME}/{lane}")
        if retired_base_of(name) is not None
    ]


def spoil_restart(disk: SimulatedDisk) -> None:
    """The newest restart positions turn out damaged: those before must do."""
    if disk.exists(f"{HOME}/{NAME}") and disk.exists(f"{HOME}/{PREVIOUS}"):
        disk.damage(f"{HOME}/{NAME}", 20, b"\xff\xff\xff")


def spoil_both(disk: SimulatedDisk) -> bool:
    """Both restart positions turn out damaged: they are rebuilt from the files. Returns whether there were two."""
    there = [name for name in (NAME, PREVIOUS) if disk.exists(f"{HOME}/{name}")]
    for name in there:
        disk.damage(f"{HOME}/{name}", 20, b"\xff\xff\xff")
    return bool(there)


def drain(machine: SimulatedMachine) -> None:
    """Everything is delivered, and the lanes are empty then."""
    machine.wait(UNDO_S)
    for _ in range(300):
        active = machine.begin()
        if active is None:
            if (
                not any(r.lane not in (HOLD, DELETED) for r in machine.browse())
                and not machine.queue.awaiting_checkpoint
            ):
                break
            machine.wait(UNDO_S)
            machine.checkpoint()
            continue
        if machine.obey(active):
            continue
        machine.load(active)
        if active.pending:
            machine.attempt(active, dict.fromkeys(active.pending, Status.DELIVERED))
        if machine.is_active(active):
            machine.end(active)
    for resting in list(machine.browse()):
        active = machine.claim(resting.envelope.queue_id)
        machine.order(active, "undelete" if resting.lane == DELETED else "release")
    if any(True for _ in machine.browse()) or machine.queue.awaiting_checkpoint:
        machine.checkpoint()
        drain(machine)


def run(seed: int, steps: int, lives: int, how_often: float) -> None:
    rng = random.Random(seed)
    disk, outside = SimulatedDisk(), OutsideMemory()
    watch(disk, outside, rng, how_often)
    for life in range(lives):
        story = Story(disk, outside, rng)
        for _ in range(steps):
            story.step()
        disk = disk.kill() if rng.random() < 0.3 else disk.crash(RandomChoice(rng.getrandbits(32)))
        how = rng.random()
        if how < 0.3:
            spoil_restart(disk)
        elif how < 0.4 and spoil_both(disk):
            outside.was_rebuilt = True  # from now on, mail may come twice
        if life + 1 < lives:
            watch(disk, outside, rng, how_often)
    to_the_end(audit(disk, outside, SEGMENT_BYTES), outside, seed)


def to_the_end(machine: SimulatedMachine, outside: OutsideMemory, seed: int) -> None:
    """Everything is delivered, each recipient has come to one end, and nothing is left of it."""
    machine.outside = outside
    drain(machine)
    for queue_id, recipients in outside.accepted.items():
        for number in range(recipients):
            status = outside.synced.get((queue_id, number))
            if status is None and outside.may_be_gone(queue_id, number, UNDO_S):
                continue
            assert status is not None, f"seed {seed}: {queue_id}:{number} never came to an end"
            if wants(machine.options_of(number), status) and status is not Status.DELETED:
                bounce = outside.owed[queue_id, number]
                assert (bounce, 0) in outside.synced or outside.may_be_gone(bounce, 0, UNDO_S), (
                    f"seed {seed}: {bounce} was never sent"
                )
            else:
                assert (queue_id, number) not in outside.owed
            extra = outside.arrived[queue_id, number] - 1 - outside.in_flight[queue_id, number]
            assert extra <= 0 or outside.was_rebuilt, f"seed {seed}: {queue_id}:{number} came twice"
    for queue_id, ids in outside.warnings.items():
        assert outside.was_rebuilt or len(ids & outside.warned) <= 1, f"seed {seed}: {queue_id} warned twice: {ids}"
    machine.checkpoint()
    machine.checkpoint()
    machine.checkpoint()
    assert machine.queue.sizes.summary() == QueueSize(messages=0, recipients=0, lanes={}, destinations={})
    machine.wait(LOOK_S)
    machine.checkpoint()
    assert retired_segments(machine.disk) == [], f"seed {seed}: no message is left, but its data is"


@pytest.fixture
def reporting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recipients ask for notices of all kinds, and senders are warned of delays."""
    asked = ((), (("NOTIFY", "SUCCESS,FAILURE"),), (("NOTIFY", "NEVER"),), (("NOTIFY", "SUCCESS,DELAY"),))
    monkeypatch.setattr(SimulatedMachine, "notify", asked)
    monkeypatch.setattr(SimulatedMachine, "delay_warning_s", 2 * RETRY_S)


@pytest.mark.usefixtures("reporting")
@pytest.mark.parametrize("seed", range(4))
def test_each_success_failure_and_delay_is_reported_once_whenever_the_power_goes(seed: int) -> None:
    run(seed, steps=25, lives=3, how_often=0.2)


@pytest.mark.long
@pytest.mark.usefixtures("reporting")
@pytest.mark.parametrize("seed", range(4000, 4060))
def test_each_success_failure_and_delay_is_reported_once_in_long_histories(seed: int) -> None:
    run(seed, steps=120, lives=5, how_often=0.3)


@pytest.mark.parametrize("seed", range(15))
def test_nothing_is_lost_or_there_twice_whenever_the_power_goes(seed: int) -> None:
    run(seed, steps=25, lives=3, how_often=0.25)


@pytest.mark.long
@pytest.mark.parametrize("seed", [*range(15, 25), *range(1000, 1200)])
def test_nothing_is_lost_or_there_twice_in_long_histories(seed: int) -> None:
    run(seed, steps=120, lives=5, how_often=0.3)
