"""A message of a hundred thousand recipients in the manager: read from a real log as they are wanted, never more, each once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from mailcore.config.settings import Scheduler, Transport
from mailcore.envelope import Status
from mailcore.manager.manager import Manager
from mailcore.queue.records import Delivery
from mailcore.queue.sizes import Amount
from tests.manager.manager_in_process import NEXT_HOP, Deliverers, Home, turns

MANY = 100_000
ACTIVE_LIMIT, MINIMUM, LIMIT, EXTRA = 20, 10, 500, 100
# What Postfix's documentation promises: so many recipients are in memory at the most, whatever is queued.
BOUND = MINIMUM * ACTIVE_LIMIT + LIMIT + EXTRA
SCHEDULER = Scheduler(
    message_active_limit=ACTIVE_LIMIT, message_recipient_limit=LIMIT, message_recipient_minimum=MINIMUM
)
TRANSPORT = Transport(
    destination_recipient_limit=50, recipient_limit=LIMIT, extra_recipient_limit=EXTRA, recipient_refill_limit=100,
    recipient_refill_delay=0.1, destination_concurrency_limit=40, initial_destination_concurrency=20,
)  # fmt: skip


def held(manager: Manager) -> int:
    """Recipients in memory, wherever."""
    actives = manager.context.queue.active.values()
    return sum(len(active.pending) + len(active.envelope.recipients) for active in actives)


async def test_a_hundred_thousand_are_read_as_wanted_and_each_gets_it_once(home: Home) -> None:
    home.accept(MANY)
    manager = home.start(SCHEDULER, TRANSPORT)
    deliverers = Deliverers(manager)
    got: Counter[int] = Counter()
    peak = 0

    def each() -> None:
        nonlocal peak
        peak = max(peak, held(manager))
        pending = sum(len(active.pending) for active in manager.context.queue.active.values())
        assert pending == manager.context.scheduler.recipients_in_core
        got.update(deliverers.answer())

    await turns(manager, lambda: manager.context.counters.get("finished"), each)
    assert len(got) == MANY
    assert set(got.values()) == {1}
    assert 0 < peak <= BOUND


async def test_killed_in_the_middle_nobody_is_forgotten_and_nobody_recorded_is_told_again(home: Home) -> None:
    count = 20_000  # more records than are looked through at once: at last all of a batch are done
    home.accept(count)
    got: Counter[int] = Counter()
    for part in (0.2, 0.6, 0.95, 1.0):
        manager = home.start(SCHEDULER, TRANSPORT)
        deliverers = Deliverers(manager)

        def each(deliverers: Deliverers = deliverers, manager: Manager = manager) -> None:
            assert held(manager) <= BOUND
            got.update(deliverers.answer())

        def enough(part: float = part, manager: Manager = manager) -> object:
            if part < 1:
                return len(got) >= count * part
            return manager.context.counters.get("finished")

        await turns(manager, enough, each)
        await manager.context.commit.wait()
        home.kill()
    assert len(got) == count
    assert set(got.values()) == {1}


async def test_those_deferred_are_all_in_the_replacement(home: Home) -> None:
    home.accept(3_000)
    manager = home.start(SCHEDULER, TRANSPORT)
    deliverers = Deliverers(manager)
    status = lambda number: Status.DEFERRED if number % 3 == 0 else Status.DELIVERED  # noqa: E731
    await turns(manager, lambda: manager.context.counters.get("replaced"), lambda: deliverers.answer(status))
    lanes = manager.context.queue.sizes.summary().lanes
    (retry,) = [counts for lane, counts in lanes.items() if lane.startswith("retry.")]
    assert retry == Amount(messages=1, recipients=1_000)


async def test_those_that_cannot_be_routed_are_not_all_in_memory_either(home: Home) -> None:
    home.accept(20_000, lambda number: f"r{number} is no address" if number % 50 else f"r{number}@example.org")
    manager = home.start(SCHEDULER, TRANSPORT)
    deliverers = Deliverers(manager)
    got: list[int] = []

    def each() -> None:
        assert held(manager) <= BOUND + LIMIT  # a batch that has its own verdicts, and what the scheduler has
        got.extend(deliverers.answer())

    await turns(manager, lambda: manager.context.counters.get("finished"), each)
    assert sorted(got) == list(range(0, 20_000, 50))


async def test_many_messages_of_many_share_the_room(home: Home) -> None:
    for _ in range(ACTIVE_LIMIT + 5):
        home.accept(600)
    manager = home.start(SCHEDULER, TRANSPORT)
    deliverers = Deliverers(manager)
    peak = 0

    def each() -> None:
        nonlocal peak
        peak = max(peak, held(manager))
        deliverers.answer()

    await turns(manager, lambda: manager.context.counters.get("finished", 0) == ACTIVE_LIMIT + 5, each)
    assert peak <= BOUND


async def test_where_a_recipient_is_a_destination_sizes_and_records_still_name_the_next_hop(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.accept(3, lambda number: f"User{number}@example.org" if number else f"{'x' * 200}@example.org")
    monkeypatch.setattr(type(home.start(SCHEDULER, TRANSPORT).context.scheduler), "by_recipient", frozenset({"smtp"}))
    manager = home.manager
    assert manager is not None
    admitted: list[str] = []
    admit = manager.context.scheduler.admit

    def noted(
        queue_id: str, unread: int, recipients: Sequence[tuple[int, str, str]], now: float, priority: int
    ) -> None:
        admitted.extend(destination for _, _, destination in recipients)
        admit(queue_id, unread, recipients, now, priority)

    monkeypatch.setattr(manager.context.scheduler, "admit", noted)
    recorded: list[str] = []
    deliver = manager.context.queue.deliver

    def kept(record: Delivery) -> None:
        recorded.append(record.destination)
        deliver(record)

    monkeypatch.setattr(manager.context.queue, "deliver", kept)
    deliverers = Deliverers(manager)
    await turns(manager, lambda: len(deliverers.waiting) == 3)
    assert sorted(admitted) == [
        "smtp:user1@[192.0.2.1]", "smtp:user2@[192.0.2.1]", f"smtp:{'x' * 64}@[192.0.2.1]",
    ]  # fmt: skip
    assert manager.context.queue.sizes.summary().destinations == {NEXT_HOP: 3}
    deliverers.answer(lambda number: Status.DEFERRED)
    await turns(manager, lambda: manager.context.counters.get("replaced"))
    assert set(recorded) == {NEXT_HOP}
    assert manager.context.queue.sizes.summary().destinations == {NEXT_HOP: 3}
