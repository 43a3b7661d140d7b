"""Larger data that stays in the log while its message waits: how it is delivered, shown, moved and deleted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mailcore.config.queue import Queue
from mailcore.config.settings import Scheduler, Transport
from mailcore.control.message_data import open_wire
from mailcore.envelope import DataPlace, Status
from mailcore.frames import Request
from mailcore.log.disk import Disk
from mailcore.lookup.browse import Found
from mailcore.manager.carrying import Carrying, Way
from mailcore.manager.manager import Manager
from mailcore.queue.lanes import HOLD
from tests.eventually import eventually
from tests.manager.manager_in_process import DATA, INCOMING, Deliverers, Home, read_data
from tests.manager.test_carrying import at_rest, deferred, spool_files

REFER = Queue(
    segment_bytes=1 << 20,
    retry_ladder_s=(1, 600),
    reserve_bytes=1 << 20,
    carry_limit=len(DATA) - 1,
)
SOON = Scheduler(minimal_backoff_time=1.0)


def started(home: Home, queue: Queue = REFER) -> tuple[Manager, Deliverers]:
    manager = home.start(SOON, Transport(), queue=queue)
    return manager, Deliverers(manager)


def bytes_in(home: Home, lane: str) -> int:
    return sum(path.stat().st_size for path in (home.path / "queue" / lane).glob("*.seg"))


async def test_larger_data_stays_where_it_lies_however_often_it_is_deferred(home: Home) -> None:
    manager, deliverers = started(home)
    home.accept(1)
    await deferred(manager, deliverers, 4)
    assert spool_files(home) == []
    ((offset, envelope),) = at_rest(manager, "retry.1")
    assert (envelope.data, envelope.generation, envelope.data_lane) == (DataPlace.LOG, 4, INCOMING)
    wire = open_wire(Disk(), str(home.path / "queue"), manager.context.queue.spool, Found("retry.1", offset, envelope))
    assert wire is not None
    assert wire.read(0, len(DATA)) == DATA
    wire.close()
    await eventually(lambda: deliverers.waiting)
    (entry,) = deliverers.waiting
    assert read_data(entry) == DATA
    assert entry.data_sums == envelope.data_sums
    deliverers.answer()
    await eventually(lambda: manager.context.counters.get("finished") == 1)


async def test_a_start_finds_data_where_it_lies(home: Home) -> None:
    manager, deliverers = started(home)
    queue_id = home.accept(1)
    await deferred(manager, deliverers, 1)
    home.kill()
    manager, deliverers = started(home)
    await eventually(lambda: deliverers.waiting)
    assert read_data(deliverers.waiting[0]) == DATA
    # With it, a pass that a kill broke off gets a spool file, as any other: there may be one already.
    await manager.context.commit.wait()
    home.kill()
    manager, deliverers = started(home)
    await eventually(lambda: deliverers.waiting)
    assert read_data(deliverers.waiting[0]) == DATA
    deliverers.answer(lambda _: Status.DEFERRED)
    await eventually(lambda: spool_files(home) == [queue_id])


async def test_held_mail_gets_a_spool_file_from_wherever_its_data_lies(home: Home) -> None:
    manager, deliverers = started(home)
    queue_id = home.accept(1)
    await deferred(manager, deliverers, 1)
    await eventually(lambda: deliverers.waiting)
    active = manager.context.queue.active[queue_id]
    request = Request(1, "hold", {"messages": [[queue_id, "retry.1", active.offset]]}, "operator", "because")
    change = manager.context.loop.create_task(manager.orders.change(request))
    await eventually(lambda: active.orders)
    deliverers.answer(lambda _: Status.DEFERRED)
    await eventually(lambda: spool_files(home) == [queue_id])
    await eventually(lambda: not manager.context.queue.active)
    await manager.context.commit.wait()
    await manager._checkpoint()
    await change
    ((_, envelope),) = at_rest(manager, HOLD)
    assert (envelope.data, envelope.data_lane, envelope.data_record) == (DataPlace.SPOOL, "", -1)


async def test_damaged_data_is_held_and_never_sent(home: Home) -> None:
    manager, deliverers = started(home)
    queue_id = home.accept(1)
    await deferred(manager, deliverers, 1)
    await eventually(lambda: deliverers.waiting)
    entry = deliverers.waiting[0]
    disk = Disk()
    fd = disk.open_write(entry.path)
    disk.write(fd, [b"\xff"], entry.offset)
    disk.close(fd)
    active = manager.context.queue.active[queue_id]
    manager.context.settings = replace(
        manager.context.settings, queue=replace(manager.context.settings.queue, carry_limit=len(DATA))
    )  # so that its data is read at the end of the pass
    deliverers.answer(lambda _: Status.DEFERRED)
    await eventually(lambda: active.orders)
    await eventually(lambda: not manager.context.queue.active)
    await manager.context.commit.wait()
    await manager._checkpoint()
    ((_, envelope),) = at_rest(manager, HOLD)
    assert "damaged" in envelope.held_because


async def test_where_it_is_off_nothing_is_referred_to(home: Home) -> None:
    manager, deliverers = started(home, replace(REFER, refer_deferred=False))
    queue_id = home.accept(1)
    await deferred(manager, deliverers, 3)
    assert spool_files(home) == [queue_id]
    assert not manager.context.checkpoints.newest.refers


async def way_of(manager: Manager, deliverers: Deliverers) -> Way:
    await eventually(lambda: deliverers.waiting)
    (active,) = manager.context.queue.active.values()
    return Carrying(manager.context).way(active, "retry.1")


async def test_where_little_of_a_segment_is_needed_data_is_carried(home: Home) -> None:
    manager, deliverers = started(home)
    for _ in range(6):
        home.accept(1)
        await eventually(lambda: deliverers.waiting)
        deliverers.answer()
    home.accept(1)
    assert await way_of(manager, deliverers) is Way.CARRY


async def test_data_of_an_older_version_is_not_referred_to(home: Home) -> None:
    manager, deliverers = started(home)
    home.accept(1, old=True)
    assert await way_of(manager, deliverers) is Way.CARRY


async def test_what_may_not_be_carried_any_more_is_referred_to(home: Home) -> None:
    manager, deliverers = started(home, replace(REFER, carry_limit=1000))
    home.accept(1)
    assert await way_of(manager, deliverers) is Way.CARRY
    manager.context.queue.carried_bytes = 16 << 20
    assert await way_of(manager, deliverers) is Way.REFER


async def test_on_a_full_disk_data_stays_where_it_lies(home: Home) -> None:
    manager, deliverers = started(home)
    home.accept(1)
    await eventually(lambda: deliverers.waiting)
    manager.context.stalled = "the disk is full"
    assert await way_of(manager, deliverers) is Way.REFER
    (active,) = manager.context.queue.active.values()
    bodies: Any = manager.context.queue.bodies
    bodies.needed_in_emptiest = lambda path: 3 * len(DATA)
    context: Any = manager.context  # mypy takes an attribute for what it was before the call
    context.made_room = False
    manager.context.carry_bytes_left = 3 * len(DATA) - 1
    assert await way_of(manager, deliverers) is Way.REFER, "there is no room for all that keeps the segment"
    assert not context.made_room
    manager.context.carry_bytes_left = 3 * len(DATA)
    assert await way_of(manager, deliverers) is Way.CARRY
    assert context.made_room, "a segment goes"
    active.may_have_file = True
    assert await way_of(manager, deliverers) is Way.SPOOL
