"""The manager's housekeeping: a message that waits for long leaves its lane, an orphan leaves the spool, mail goes on."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest

from mailcore.config.settings import Export, Queue, Settings, Transport
from mailcore.envelope import DataPlace, Status, Verdict
from mailcore.frames import Delivered, FrameWriter
from mailcore.log.disk import Disk, Guard
from mailcore.log.lane import LaneWriter
from mailcore.manager.flow import DelivererLink
from mailcore.manager.full_disk import ENTRY_BYTES_MAX, TRY_S
from mailcore.manager.manager import Manager
from mailcore.queue.active import Active
from mailcore.queue.ballast import Held
from mailcore.queue.compaction import ACTIVE_S, MOVES_MAX, WHO
from mailcore.queue.lanes import AT_ONCE
from mailcore.queue.queue_id import QueueIds
from mailcore.queue.records import append_envelope
from mailcore.queue.sweep import AGE_S, CHECKPOINTS
from tests.eventually import eventually
from tests.lookup.sample_messages import envelope

MESSAGES = 150
SIZE = 3000
INCOMING = "incoming.0"


@pytest.fixture
async def manager(tmp_path: Path) -> AsyncIterator[Manager]:
    """One with no deliverer: what it takes up waits."""
    (tmp_path / "log").mkdir()
    settings = Settings(
        home=tmp_path,
        queue_directory=tmp_path / "queue",
        spool_directory=tmp_path / "spool",
        run_directory=tmp_path / "run",
        log_directory=tmp_path / "log",
        queue=Queue(segment_bytes=64 << 10, reserve_bytes=0),
        export=Export(enabled=False),  # nobody is there to export what is to go
        transports={"smtp": Transport()},
        routes={"*": "smtp"},
    )
    manager = Manager(settings, asyncio.get_running_loop())
    yield manager
    manager.context.commit.close()
    manager.context.pool.shutdown()


async def take_in(manager: Manager, tmp_path: Path) -> list[Active]:
    writer = LaneWriter(
        Disk(), str(tmp_path / "queue" / INCOMING), segment_bytes=64 << 10, clock=time.time, salt=lambda: 42
    )
    for number in range(MESSAGES):
        message = envelope(f"r{number}@example.org", data=DataPlace.INLINE, size_bytes=SIZE, arrived_at=time.time())
        append_envelope(writer, message, bytes(SIZE))
    writer.sync()
    manager.durable(INCOMING, writer.durable)
    writer.close()
    active = manager.context.queue.active
    await eventually(lambda: len(active) == MESSAGES)
    return list(active.values())


async def finish(manager: Manager, actives: list[Active]) -> None:
    context = manager.context
    for active in actives:
        context.scheduler.withdraw(active.queue_id, context.now())
        for destination in active.destinations.values():
            context.queue.sizes.route(destination, -1)
        context.queue.finish(active)
    await checkpoints(manager)


async def checkpoints(manager: Manager) -> None:
    for _ in range(3):
        await manager.context.commit.wait()
        await manager._checkpoint()


def later(manager: Manager, seconds: float) -> None:
    wall, now = manager.context.wall, manager.context.now
    manager.context.wall = lambda: wall() + seconds
    manager.context.now = lambda: now() + seconds


def segments(tmp_path: Path) -> int:
    return len(list((tmp_path / "queue" / INCOMING).glob("*.seg")))


async def test_a_message_that_waits_for_long_does_not_keep_the_lane(manager: Manager, tmp_path: Path) -> None:
    actives = await take_in(manager, tmp_path)
    await finish(manager, actives[2:])
    assert segments(tmp_path) > 5
    manager.housekeeping.before_checkpoint()
    assert not actives[0].orders, "it has only just come"
    later(manager, ACTIVE_S + 60)
    manager.housekeeping.before_checkpoint()
    await eventually(lambda: not manager.context.queue.active)
    await checkpoints(manager)
    await eventually(lambda: len(manager.context.queue.active) == 2)
    await checkpoints(manager)
    assert segments(tmp_path) == 1
    for before in actives[:2]:
        after = manager.context.queue.active[before.queue_id]
        assert (after.lane, after.envelope.generation, after.orders) == (AT_ONCE, 1, [])
        assert after.envelope.attempts == 0, "nobody has tried it"
        assert manager.context.queue.data.read(after, SIZE) == bytes(SIZE)
    size = manager.context.queue.sizes.summary()
    assert (size.messages, size.recipients) == (2, 2)
    assert manager.context.scheduler.select(manager.context.now()) is not None


async def test_what_is_in_flight_is_waited_for(manager: Manager, tmp_path: Path) -> None:
    actives = await take_in(manager, tmp_path)
    await finish(manager, actives[1:])
    later(manager, ACTIVE_S + 60)
    actives[0].in_flight = 1
    manager.housekeeping.before_checkpoint()
    assert [order.who for order in actives[0].orders] == [WHO]
    assert not actives[0].ending
    assert actives[0].queue_id in manager.context.queue.active
    actives[0].in_flight = 0
    manager.flow.stop_for_order(actives[0])
    await eventually(lambda: not manager.context.queue.active)


async def test_on_a_full_disk_as_many_are_moved_as_there_is_room_for(
    manager: Manager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nearly dead segments would keep it full for ever; but there must be room left for deliveries."""
    actives = await take_in(manager, tmp_path)
    await finish(manager, actives[1:])
    later(manager, ACTIVE_S + 60)
    manager.context.stalled = "the disk is full"
    free_bytes = 4096
    monkeypatch.setattr(manager.context.queue.disk, "free_bytes", lambda _: free_bytes)
    manager.housekeeping.before_checkpoint(manager.full_disk.moves_max())
    assert not actives[0].orders
    free_bytes = 4 << 20
    assert 0 < manager.full_disk.moves_max() < MOVES_MAX
    manager.housekeeping.before_checkpoint(manager.full_disk.moves_max())
    assert actives[0].orders


async def test_an_orphan_is_swept_and_said_so(manager: Manager, tmp_path: Path) -> None:
    written = time.time() - 2 * AGE_S
    spool = manager.context.queue.spool
    spool.disk.guards = (Guard(str(tmp_path), lambda: ""),)  # this manager is started without an identity
    file = spool.create(QueueIds(3, lambda: written).next())
    file.write([b"never completed"])
    file.close()
    os.utime(file.path, (written, written))
    for _ in range(2):
        later(manager, AGE_S)
        await manager.housekeeping._look()
        manager.context.queue.sequence += CHECKPOINTS
    assert list(spool.queue_ids()) == []
    manager.log.flush()
    assert "swept: 1 spool file without a message removed" in (tmp_path / "log" / "mail.log").read_text()


async def test_on_a_full_disk_mail_goes_out_one_by_one_and_makes_room(
    manager: Manager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context, flow = manager.context, manager.flow
    manager.full_disk.settings = dataclasses.replace(manager.settings, queue=Queue(reserve_bytes=64 << 20))
    free_bytes = 1 << 20
    monkeypatch.setattr(context.queue.disk, "free_bytes", lambda _: free_bytes)
    await take_in(manager, tmp_path)
    manager.full_disk.decide()
    assert context.stalled
    link = DelivererLink(cast(FrameWriter, Sent()), 0, 0, 100)
    flow.deliverers.append(link)

    def answer(status: Status) -> None:
        (number, flight) = next(iter(link.flights.items()))
        verdicts = tuple(Verdict(each, status, "2.0.0", "ok") for each in flight.entry.recipients)
        flow.delivered(link, [Delivered(number, verdicts, "relay", "", False, 0.0, 0.0)])

    for _ in range(3):
        flow.dispatch(context.now())
    assert len(link.flights) == 1
    before = context.counters.get("finished", 0)
    answer(Status.DELIVERED)
    await eventually(lambda: context.counters.get("finished", 0) > before and link.flights)
    assert len(link.flights) == 1, "the next at once"
    answer(Status.DEFERRED)
    await eventually(lambda: context.counters.get("replaced"))
    flow.dispatch(context.now())
    assert not link.flights, "what was deferred made no room"
    manager.full_disk.decide()
    flow.dispatch(context.now())
    assert not link.flights
    later(manager, TRY_S)
    manager.full_disk.decide()
    flow.dispatch(context.now())
    assert len(link.flights) == 1
    assert context.entries_left == 0
    answer(Status.DELIVERED)
    await eventually(lambda: context.counters["finished"] > before + 1)
    manager.full_disk.decide()
    assert context.entries_left == free_bytes // ENTRY_BYTES_MAX
    free_bytes = 1 << 30
    manager.full_disk.decide()
    flow.dispatch(context.now())
    assert not context.stalled
    assert len(link.flights) > 1


async def test_on_a_full_disk_deferrals_may_use_half_of_the_ballast(
    manager: Manager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that mail which can be delivered is reached behind mail which cannot; else one a TRY_S is tried."""
    context, flow = manager.context, manager.flow
    began = context.now()
    monkeypatch.setattr(context, "now", lambda: began)  # no TRY_S passes, however slow the machine is
    manager.full_disk.settings = dataclasses.replace(manager.settings, queue=Queue(reserve_bytes=64 << 20))
    manager.full_disk.ballast.wanted = Held(1 << 20, 0)
    free_bytes = (1 << 19) + 2 * ENTRY_BYTES_MAX  # and of the ballast nothing is left
    monkeypatch.setattr(context.queue.disk, "free_bytes", lambda _: free_bytes)
    await take_in(manager, tmp_path)
    manager.full_disk.decide()
    link = DelivererLink(cast(FrameWriter, Sent()), 0, 0, 100)
    flow.deliverers.append(link)

    async def defer() -> None:
        replaced = context.counters.get("replaced", 0)
        (number, flight) = next(iter(link.flights.items()))
        verdicts = tuple(Verdict(each, Status.DEFERRED, "4.2.0", "later") for each in flight.entry.recipients)
        flow.delivered(link, [Delivered(number, verdicts, "relay", "", False, 0.0, 0.0)])
        await eventually(lambda: context.counters.get("replaced", 0) > replaced)
        flow.dispatch(context.now())

    flow.dispatch(context.now())
    await defer()
    assert len(link.flights) == 1, "the next at once"
    await defer()
    assert not link.flights, "two of them fit"
    manager.full_disk.decide()
    flow.dispatch(context.now())
    assert len(link.flights) == 1, "the disk was looked at, and two fit again"
    free_bytes = 1 << 19
    manager.full_disk.decide()
    await defer()
    manager.full_disk.decide()
    flow.dispatch(context.now())
    assert not link.flights, "half of the ballast is used"


async def test_with_no_room_for_a_record_nothing_goes_out(
    manager: Manager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager.full_disk.settings = dataclasses.replace(manager.settings, queue=Queue(reserve_bytes=64 << 20))
    monkeypatch.setattr(manager.context.queue.disk, "free_bytes", lambda _: 4096)
    await take_in(manager, tmp_path)
    manager.full_disk.decide()
    link = DelivererLink(cast(FrameWriter, Sent()), 0, 0, 100)
    manager.flow.deliverers.append(link)
    manager.flow.dispatch(manager.context.now())
    assert not link.flights


class Sent:
    """Takes what is sent to a deliverer."""

    def send(self, frame: object) -> None:
        pass
