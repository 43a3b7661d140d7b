"""Small data that waits in the log: which is carried, where it is found, and what it takes in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mailcore.config.queue import Queue
from mailcore.config.settings import Scheduler, Transport
from mailcore.control.message_data import open_wire
from mailcore.envelope import DataPlace, Envelope, Status
from mailcore.frames import Deliver, Request
from mailcore.log.disk import Disk
from mailcore.log.record import RecordType
from mailcore.lookup.browse import Found
from mailcore.manager.manager import Manager
from mailcore.queue.lanes import DELETED, HOLD
from mailcore.queue.records import decode_envelope
from tests.eventually import eventually
from tests.manager.manager_in_process import DATA, INCOMING, Deliverers, Home

CARRY = Queue(segment_bytes=1 << 20, retry_ladder_s=(1, 600), reserve_bytes=1 << 20, carry_limit=1000)
WITHOUT_REFERENCES = replace(CARRY, refer_deferred=False)
SOON = Scheduler(minimal_backoff_time=1.0)


def started(home: Home, queue: Queue = CARRY) -> tuple[Manager, Deliverers]:
    manager = home.start(SOON, Transport(initial_destination_concurrency=20), queue=queue)
    return manager, Deliverers(manager)


def spool_files(home: Home) -> list[str]:
    return [path.name for path in (home.path / "spool").glob("??/*")]


def at_rest(manager: Manager, lane: str) -> list[tuple[int, Envelope]]:
    reader, runner = manager.context.queue.reader(lane), manager.context.queue.runners[lane]
    reader.refresh()
    return [
        (record.offset, decode_envelope(record.body))
        for record in reader.records(0, runner.readable_end)
        if record.live and record.type == RecordType.ENVELOPE
    ]


def data_of(entry: Deliver) -> bytes:
    return Path(entry.path).read_bytes()[entry.offset : entry.offset + entry.length]


async def deferred(manager: Manager, deliverers: Deliverers, times: int) -> None:
    """All that waits is deferred until that was so ``times`` times, and rests in its lane."""
    for number in range(times):
        before = manager.context.counters.get("replaced", 0)
        await eventually(lambda: deliverers.waiting)
        deliverers.answer(lambda _: Status.DEFERRED)
        await eventually(lambda: manager.context.counters.get("replaced", 0) > before)  # noqa: B023
        await manager.context.commit.wait()
        await manager._checkpoint()
        assert number < times


async def test_small_data_stays_in_the_log_however_often_it_is_deferred(home: Home) -> None:
    manager, deliverers = started(home)
    home.accept(1)
    await deferred(manager, deliverers, 4)
    assert spool_files(home) == []
    ((offset, envelope),) = at_rest(manager, "retry.1")
    assert (envelope.data, envelope.generation) == (DataPlace.INLINE, 4)
    found = Found("retry.1", offset, envelope)
    wire = open_wire(Disk(), str(home.path / "queue"), manager.context.queue.spool, found)
    assert wire is not None
    await eventually(lambda: deliverers.waiting)
    (entry,) = deliverers.waiting
    assert data_of(entry) == DATA
    assert entry.data_sums == envelope.data_sums
    assert entry.data_sums
    deliverers.answer()
    await eventually(lambda: manager.context.counters.get("finished") == 1)


async def test_larger_data_gets_a_spool_file_at_its_third_deferral(home: Home) -> None:
    manager, deliverers = started(home, replace(WITHOUT_REFERENCES, carry_limit=len(DATA) - 1))
    queue_id = home.accept(1)
    await deferred(manager, deliverers, 2)
    assert spool_files(home) == []
    await deferred(manager, deliverers, 1)
    assert spool_files(home) == [queue_id]
    await eventually(lambda: deliverers.waiting)
    assert data_of(deliverers.waiting[0]) == DATA


async def test_without_a_limit_all_deferred_data_is_in_spool_files(home: Home) -> None:
    manager, deliverers = started(home, replace(CARRY, carry_limit=0))
    queue_id = home.accept(1)
    await deferred(manager, deliverers, 1)
    assert spool_files(home) == [queue_id]


@pytest.fixture
async def checkpointed(home: Home) -> AsyncIterator[Callable[[Manager], None]]:
    """Lets a manager write checkpoints, as it does by itself."""
    tasks: list[asyncio.Task[None]] = []
    yield lambda manager: tasks.append(asyncio.get_running_loop().create_task(manager.checkpoints()))
    for task in tasks:
        task.cancel()


async def change(manager: Manager, operation: str, *places: tuple[str, str, int]) -> None:
    request = Request(1, operation, {"messages": [list(place) for place in places]}, "operator", "because")
    answer = await manager.orders.change(request)
    assert (answer.changed, answer.errors) == (len(places), {})


def fresh(home: Home, count: int = 1) -> list[tuple[str, str, int]]:
    """Messages that a receiver has just reported; no runner has seen them."""
    assert home.manager is not None
    for _ in range(count):
        home.accept(1)
    return [(envelope.queue_id, INCOMING, offset) for offset, envelope in at_rest(home.manager, INCOMING)]


async def test_held_data_stays_in_the_log_up_to_the_limit(home: Home, checkpointed: Callable[[Manager], None]) -> None:
    manager, deliverers = started(home)
    checkpointed(manager)
    places = fresh(home)
    await change(manager, "hold", *places)
    ((offset, envelope),) = at_rest(manager, HOLD)
    assert (envelope.data, spool_files(home)) == (DataPlace.INLINE, [])
    await change(manager, "release", (envelope.queue_id, HOLD, offset))
    await eventually(lambda: deliverers.waiting)
    assert data_of(deliverers.waiting[0]) == DATA


async def test_larger_held_data_has_a_spool_file_at_once(home: Home, checkpointed: Callable[[Manager], None]) -> None:
    manager, _ = started(home, replace(CARRY, carry_limit=len(DATA) - 1))
    checkpointed(manager)
    ((queue_id, *_),) = places = fresh(home)
    await change(manager, "hold", *places)
    ((_, envelope),) = at_rest(manager, HOLD)
    assert (envelope.data, spool_files(home)) == (DataPlace.SPOOL, [queue_id])


@pytest.mark.parametrize("carry_limit", [0, len(DATA) - 1, 1000])
@pytest.mark.parametrize("claimed", [False, True])
@pytest.mark.parametrize("refer", [False, True])
async def test_a_delete_of_fresh_mail_makes_no_file(
    home: Home, checkpointed: Callable[[Manager], None], carry_limit: int, claimed: bool, refer: bool
) -> None:
    manager, deliverers = started(home, replace(CARRY, carry_limit=carry_limit, refer_deferred=refer))
    checkpointed(manager)
    if not claimed:
        manager.flow.deliverers.clear()
    places = fresh(home)
    task = None
    if claimed:
        await eventually(lambda: deliverers.waiting)
        active = manager.context.queue.active[places[0][0]]
        task = manager.context.loop.create_task(change(manager, "delete", *places))
        await eventually(lambda: active.orders)
        deliverers.answer(lambda _: Status.DEFERRED)
        await task
        await eventually(lambda: not manager.context.queue.active)
        await manager.orders.flow_checkpoint()
    else:
        await change(manager, "delete", *places)
    ((offset, envelope),) = at_rest(manager, DELETED)
    assert (envelope.data, spool_files(home)) == (DataPlace.LOG if refer else DataPlace.INLINE, [])
    await change(manager, "undelete", (envelope.queue_id, DELETED, offset))
    if not claimed:
        deliverers = Deliverers(manager)
    await eventually(lambda: deliverers.waiting)
    assert data_of(deliverers.waiting[0]) == DATA
    assert deliverers.waiting[0].data_sums


@pytest.mark.parametrize("recipients", [1, 3])
@pytest.mark.parametrize("why", ["", "because"])
async def test_a_delete_at_rest_writes_what_the_end_of_a_pass_does(
    home: Home, checkpointed: Callable[[Manager], None], recipients: int, why: str
) -> None:
    """law: aside-is-copied. The short way and the long way leave the same envelope, records and counts."""
    manager, deliverers = started(home, replace(CARRY, retry_ladder_s=(600,)))
    queue_ids = [home.accept(recipients) for _ in range(2)]
    await deferred(manager, deliverers, 1)
    checkpointed(manager)
    short, shortened = manager.passes.delete_at_rest, []
    found: list[tuple[Envelope, list[int], dict[str, int], Any]] = []
    for queue_id, at_once in zip(queue_ids, (True, False), strict=True):

        def delete_at_rest(active: Any, at_once: bool = at_once) -> bool:
            return at_once and not shortened.append(short(active))  # type: ignore[func-returns-value]

        manager.passes.delete_at_rest = delete_at_rest  # type: ignore[method-assign]
        (offset,) = [at for at, each in at_rest(manager, "retry.600") if each.queue_id == queue_id]
        journal, before = manager.context.queue.journal.end, dict(manager.context.counters)
        request = Request(1, "delete", {"messages": [[queue_id, "retry.600", offset]]}, "operator", why)
        answer = await manager.orders.change(request)
        assert (answer.changed, answer.recipients, answer.errors) == (1, recipients, {})
        ((_, envelope),) = [each for each in at_rest(manager, DELETED) if each[1].queue_id == queue_id]
        records = [record.type for record in manager.context.queue.reader("journal").records(journal)]
        counted = {name: count - before.get(name, 0) for name, count in manager.context.counters.items()}
        found.append((envelope, records, counted, manager.context.queue.sizes.summary().destinations))
    assert shortened == [True]
    (first, *told), (second, *told_by_the_long_way) = found
    assert told[:2] == told_by_the_long_way[:2]
    assert first.due_at == pytest.approx(second.due_at, abs=60)
    every = ("queue_id", "arrived_at", "written_at", "due_at", "age_s", "data_offset", "data_record", "message_id")

    def comparable(envelope: Envelope) -> Envelope:
        times = [(each.aside.kind, each.aside.why, each.aside.before) for each in envelope.recipients if each.aside]
        assert len(times) == recipients
        nobody = tuple(msgspec.structs.replace(each, aside=None) for each in envelope.recipients)
        plain = {name: getattr(first, name) for name in every}
        return msgspec.structs.replace(envelope, recipients=nobody, **plain)

    assert comparable(first) == comparable(second)
    asides = [[each.aside for each in envelope.recipients] for envelope in (first, second)]
    for one, other in zip(*asides, strict=True):
        assert one is not None
        assert other is not None
        assert (one.kind, one.why, one.before) == (other.kind, other.why, other.before)
        assert (one.until - one.at, other.until - other.at) == (3600, 3600)


@pytest.mark.parametrize("in_flight", [False, True])
@pytest.mark.parametrize("operation", ["hold", "delete"])
async def test_a_change_of_many_waits_for_checkpoints_and_makes_no_file(
    home: Home, checkpointed: Callable[[Manager], None], operation: str, in_flight: bool
) -> None:
    """Three messages fit in front of a checkpoint. Deleted data is carried where it may not stay where it lies."""
    settings = WITHOUT_REFERENCES if operation == "delete" else CARRY
    manager, deliverers = started(home, replace(settings, reserve_bytes=8 * 3 * len(DATA)))
    queue = manager.context.queue
    carried: list[int] = []
    replaced = queue.replaced

    def watched(*given: Any, **named: Any) -> None:
        replaced(*given, **named)
        carried.append(queue.carried_bytes)

    queue.replaced = watched  # type: ignore[method-assign]
    if not in_flight:
        manager.flow.deliverers.clear()
    places = fresh(home, 20)
    if in_flight:
        await eventually(lambda: len(deliverers.waiting) == 20)
    task = manager.context.loop.create_task(change(manager, operation, *places))
    if in_flight:
        await eventually(lambda: all(active.orders for active in queue.active.values()))
        deliverers.answer(lambda _: Status.DEFERRED)
    await eventually(lambda: manager.context.checkpoint_waiters)
    checkpointed(manager)
    await task
    await eventually(lambda: not queue.active)
    await manager.orders.flow_checkpoint()
    assert len(at_rest(manager, HOLD if operation == "hold" else DELETED)) == len(carried) == 20
    assert spool_files(home) == []
    assert max(carried) <= 3 * len(DATA)


async def test_on_a_full_disk_nothing_is_carried(home: Home) -> None:
    manager, deliverers = started(home, WITHOUT_REFERENCES)
    queue_id = home.accept(1)
    await eventually(lambda: deliverers.waiting)
    manager.context.stalled = "the disk is full"
    deliverers.answer(lambda _: Status.DEFERRED)
    await eventually(lambda: spool_files(home) == [queue_id])


async def test_what_waits_for_a_checkpoint_in_memory_is_bounded_and_the_rest_gets_spool_files(home: Home) -> None:
    manager, deliverers = started(home, replace(WITHOUT_REFERENCES, reserve_bytes=8 * 2 * len(DATA)))
    asked: list[int] = []
    manager.context.request_checkpoint = lambda: asked.append(manager.context.queue.carried_bytes)
    for _ in range(3):
        home.accept(1)
    await eventually(lambda: len(deliverers.waiting) == 3)
    deliverers.answer(lambda _: Status.DEFERRED)
    queue = manager.context.queue
    await eventually(lambda: manager.context.counters.get("replaced") == 3)
    assert len(spool_files(home)) == 1
    assert queue.carried_bytes == 2 * len(DATA)
    assert asked, "a checkpoint is asked for before the bound is reached"
    await manager.context.commit.wait()
    await manager._checkpoint()
    assert queue.carried_bytes == 0


async def test_after_a_kill_a_message_that_was_being_worked_on_gets_a_spool_file(home: Home) -> None:
    """Its file may be there already, and nothing would tell which of the two counts."""
    manager, deliverers = started(home)
    queue_id = home.accept(1)
    await deferred(manager, deliverers, 1)
    await eventually(lambda: deliverers.waiting)
    await manager.context.commit.wait()
    home.kill()
    manager, deliverers = started(home)
    await eventually(lambda: deliverers.waiting)
    assert data_of(deliverers.waiting[0]) == DATA
    assert manager.context.queue.active[queue_id].may_have_file
    deliverers.answer(lambda _: Status.DEFERRED)
    await eventually(lambda: spool_files(home) == [queue_id])
