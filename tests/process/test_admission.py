"""A message of a hundred thousand recipients in the manager: read from a real log as they are wanted, never more, each once."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import cast

import pytest

from mailcore.envelope import RECIPIENTS_PER_RECORD, DataPlace, Recipient, Status, Verdict
from mailcore.log.disk import Disk
from mailcore.log.lane import LaneWriter
from mailcore.process.flow import DelivererLink
from mailcore.process.manager import Manager
from mailcore.process.wire import Deliver, Delivered, FrameWriter
from mailcore.queue.queue_id import QueueIds
from mailcore.queue.records import Delivery, append_envelope, append_recipients
from mailcore.settings import Queue, Scheduler, Settings, Transport
from tests.queue.cast import envelope

MANY = 100_000
INCOMING = "incoming.0"
ACTIVE_LIMIT, MINIMUM, LIMIT, EXTRA = 20, 10, 500, 100
# What DESIGN and Postfix promise: so many recipients are in memory at the most, whatever is queued.
BOUND = MINIMUM * ACTIVE_LIMIT + LIMIT + EXTRA
PATIENCE_S = 60.0


class Deliverers:
    """One deliverer that takes every entry; what it says is up to the test."""

    def __init__(self, manager: Manager, capacity: int = 40) -> None:
        self.manager = manager
        self.waiting: list[Deliver] = []
        self.link = DelivererLink(cast(FrameWriter, self), 0, 0, capacity)
        manager.flow.deliverers.append(self.link)
        manager.go_on()

    def send(self, frame: Deliver) -> None:
        self.waiting.append(frame)

    def answer(self, status: Callable[[int], Status] = lambda number: Status.DELIVERED) -> list[int]:
        """A verdict for everything given so far; for whom."""
        entries, self.waiting = self.waiting, []
        numbers = [number for entry in entries for number, _ in entry.recipients]
        self.manager.flow.delivered(
            self.link,
            [
                Delivered(
                    entry.entry,
                    tuple(Verdict(number, status(number), "2.0.0", "said so") for number, _ in entry.recipients),
                    "relay[192.0.2.1]:25", "", False, 0.0, 0.0,
                )
                for entry in entries
            ],
        )  # fmt: skip
        return numbers


class Home:
    """A home whose manager is started, and killed: it closes nothing, it is only not there any more."""

    def __init__(self, path: Path) -> None:
        self.path = path
        (path / "log").mkdir()
        self.writer = LaneWriter(
            Disk(), str(path / "queue" / INCOMING), segment_bytes=1 << 20, clock=time.time, salt=lambda: 42
        )
        self.ids = QueueIds(3, time.time)
        self.manager: Manager | None = None

    def start(self) -> Manager:
        transport = Transport(
            destination_recipient_limit=50, recipient_limit=LIMIT, extra_recipient_limit=EXTRA,
            recipient_refill_limit=100, recipient_refill_delay=0.1, destination_concurrency_limit=40,
            initial_destination_concurrency=20,
        )  # fmt: skip
        settings = Settings(
            home=self.path,
            queue_directory=self.path / "queue",
            spool_directory=self.path / "spool",
            run_directory=self.path / "run",
            log_directory=self.path / "log",
            queue=Queue(segment_bytes=1 << 20, reserve_bytes=0),
            scheduler=Scheduler(
                message_active_limit=ACTIVE_LIMIT, message_recipient_limit=LIMIT, message_recipient_minimum=MINIMUM
            ),
            transports={"smtp": transport},
            routes={"*": "smtp:[192.0.2.1]"},
        )
        self.manager = Manager(settings, asyncio.get_running_loop())
        self.manager.durable(INCOMING, self.writer.durable)
        return self.manager

    def kill(self) -> None:
        manager, self.manager = self.manager, None
        if manager is not None:
            manager.go_on = lambda: None  # type: ignore[method-assign]
            manager.core.scheduler.wanted = lambda now=0.0: []  # type: ignore[method-assign]
            manager.flow.deliverers.clear()
            manager._turn_scheduled = True
            if manager._timer is not None:
                manager._timer.cancel()
            manager.core.commit.close()
            manager.core.pool.shutdown()
            for writer in [manager.core.queue.journal, *manager.core.queue.writers.values()]:
                writer.close()
            os.close(manager.recovered.lock)

    def accept(self, count: int, address: Callable[[int], str] = lambda number: f"r{number}@example.org") -> str:
        everybody = [Recipient(number, address(number)) for number in range(count)]
        rest = [
            append_recipients(self.writer, everybody[at : at + RECIPIENTS_PER_RECORD])
            for at in range(RECIPIENTS_PER_RECORD, count, RECIPIENTS_PER_RECORD)
        ]
        message = envelope(
            queue_id=self.ids.next(),
            recipients=tuple(everybody[:RECIPIENTS_PER_RECORD]),
            data=DataPlace.INLINE,
            size_bytes=5,
            arrived_at=time.time(),
        )
        message = type(message)(
            **{name: getattr(message, name) for name in message.__struct_fields__}
            | {"recipient_count": count, "batches": tuple(rest)}
        )
        append_envelope(self.writer, message, b"hello")
        self.writer.sync()
        if self.manager is not None:
            self.manager.durable(INCOMING, self.writer.durable)
        return message.queue_id


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[Home]:
    home = Home(tmp_path)
    yield home
    home.kill()


def held(manager: Manager) -> int:
    """Recipients in memory, wherever."""
    actives = manager.core.queue.active.values()
    return sum(len(active.pending) + len(active.envelope.recipients) for active in actives)


async def turns(manager: Manager, true: Callable[[], object], each: Callable[[], None]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < end, manager.core.scheduler.snapshot(manager.core.now())
        each()
        await asyncio.sleep(0)


async def test_a_hundred_thousand_are_read_as_wanted_and_each_gets_it_once(home: Home) -> None:
    home.accept(MANY)
    manager = home.start()
    deliverers = Deliverers(manager)
    got: Counter[int] = Counter()
    peak = 0

    def each() -> None:
        nonlocal peak
        peak = max(peak, held(manager))
        pending = sum(len(active.pending) for active in manager.core.queue.active.values())
        assert pending == manager.core.scheduler.recipients_in_core
        got.update(deliverers.answer())

    await turns(manager, lambda: manager.core.counters.get("finished"), each)
    assert len(got) == MANY
    assert set(got.values()) == {1}
    assert 0 < peak <= BOUND


async def test_killed_in_the_middle_nobody_is_forgotten_and_nobody_recorded_is_told_again(home: Home) -> None:
    home.accept(MANY // 10)
    got: Counter[int] = Counter()
    for part in (0.2, 0.5, 0.9, 1.0):
        manager = home.start()
        deliverers = Deliverers(manager)

        def each(deliverers: Deliverers = deliverers, manager: Manager = manager) -> None:
            assert held(manager) <= BOUND
            got.update(deliverers.answer())

        def enough(part: float = part, manager: Manager = manager) -> object:
            if part < 1:
                return len(got) >= MANY // 10 * part
            return manager.core.counters.get("finished")

        await turns(manager, enough, each)
        await manager.core.commit.wait()
        home.kill()
    assert len(got) == MANY // 10
    assert set(got.values()) == {1}


async def test_those_deferred_are_all_in_the_replacement(home: Home) -> None:
    home.accept(3_000)
    manager = home.start()
    deliverers = Deliverers(manager)
    status = lambda number: Status.DEFERRED if number % 3 == 0 else Status.DELIVERED  # noqa: E731
    await turns(manager, lambda: manager.core.counters.get("replaced"), lambda: _drop(deliverers.answer(status)))
    lanes = manager.core.queue.sizes.summary()["lanes"]
    (retry,) = [counts for lane, counts in lanes.items() if lane.startswith("retry.")]
    assert retry == {"messages": 1, "recipients": 1_000}


async def test_those_that_cannot_be_routed_are_not_all_in_memory_either(home: Home) -> None:
    home.accept(20_000, lambda number: f"r{number} is no address" if number % 50 else f"r{number}@example.org")
    manager = home.start()
    deliverers = Deliverers(manager)
    got: list[int] = []

    def each() -> None:
        assert held(manager) <= BOUND + LIMIT  # a batch that has its own verdicts, and what the scheduler has
        got.extend(deliverers.answer())

    await turns(manager, lambda: manager.core.counters.get("finished"), each)
    assert sorted(got) == list(range(0, 20_000, 50))


async def test_many_messages_of_many_share_the_room(home: Home) -> None:
    for _ in range(ACTIVE_LIMIT + 5):
        home.accept(600)
    manager = home.start()
    deliverers = Deliverers(manager)
    peak = 0

    def each() -> None:
        nonlocal peak
        peak = max(peak, held(manager))
        _drop(deliverers.answer())

    await turns(manager, lambda: manager.core.counters.get("finished", 0) == ACTIVE_LIMIT + 5, each)
    assert peak <= BOUND


async def test_where_a_recipient_is_a_destination_sizes_and_records_still_name_the_next_hop(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.accept(3, lambda number: f"User{number}@example.org" if number else f"{'x' * 200}@example.org")
    monkeypatch.setattr(type(home.start().core.scheduler), "by_recipient", frozenset({"smtp"}))
    manager = home.manager
    assert manager is not None
    admitted: list[str] = []
    admit = manager.core.scheduler.admit

    def noted(queue_id: str, unread: int, recipients: Sequence[tuple[int, str, str]], now: float) -> None:
        admitted.extend(destination for _, _, destination in recipients)
        admit(queue_id, unread, recipients, now)

    monkeypatch.setattr(manager.core.scheduler, "admit", noted)
    recorded: list[str] = []
    deliver = manager.core.queue.deliver

    def kept(record: Delivery) -> None:
        recorded.append(record.destination)
        deliver(record)

    monkeypatch.setattr(manager.core.queue, "deliver", kept)
    deliverers = Deliverers(manager)
    await turns(manager, lambda: len(deliverers.waiting) == 3, lambda: None)
    assert sorted(admitted) == [
        "smtp:user1@[192.0.2.1]", "smtp:user2@[192.0.2.1]", f"smtp:{'x' * 64}@[192.0.2.1]",
    ]  # fmt: skip
    assert manager.core.queue.sizes.summary()["destinations"] == {"smtp:[192.0.2.1]": 3}
    deliverers.answer(lambda number: Status.DEFERRED)
    await turns(manager, lambda: manager.core.counters.get("replaced"), lambda: None)
    assert set(recorded) == {"smtp:[192.0.2.1]"}
    assert manager.core.queue.sizes.summary()["destinations"] == {"smtp:[192.0.2.1]": 3}


def _drop(_: object) -> None:
    """An answer nobody asks for."""
