"""Retries of more messages than the active set has room for: they wait where they rest, and are tried as soon as it has."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mailcore.config.queue import Queue
from mailcore.config.settings import Scheduler, Transport
from mailcore.envelope import Status
from mailcore.frames import Request
from mailcore.manager.manager import Manager
from mailcore.manager_answers import Ordered
from mailcore.queue.aside import ranges_of
from tests.manager.manager_in_process import Deliverers, Home, turns
from tests.manager.test_retry_of_some import at_rest, checkpoint

SEVERAL = 16
ROOM = 5  # the share of deferred mail in an active set of ten
QUEUE = Queue(segment_bytes=1 << 20, retry_ladder_s=(300, 600), reserve_bytes=1 << 20)


def start(home: Home, queue: Queue = QUEUE) -> tuple[Manager, Deliverers]:
    transport = Transport(initial_destination_concurrency=SEVERAL, destination_concurrency_limit=SEVERAL)
    manager = home.start(Scheduler(message_active_limit=10), transport, queue=queue)
    return manager, Deliverers(manager)


async def deferred(home: Home, manager: Manager, deliverers: Deliverers, *, recipients: int = 1) -> list[list[Any]]:
    """Messages that rest for five minutes: their places, as a change names them."""
    for _ in range(SEVERAL):
        home.accept(recipients)
    counters = manager.context.counters
    await turns(
        manager, lambda: counters.get("replaced", 0) == SEVERAL, lambda: deliverers.answer(lambda _: Status.DEFERRED)
    )
    await checkpoint(manager)
    return [[envelope.queue_id, lane, offset] for lane, offset, envelope in at_rest(manager)]


async def change(manager: Manager, operation: str, places: list[list[Any]]) -> Ordered:
    return await manager.orders.change(Request(1, operation, {"messages": places}, "operator", "because"))


def given(deliverers: Deliverers) -> list[str]:
    return [entry.queue_id for entry in deliverers.waiting]


async def test_they_are_tried_as_others_end_and_nothing_is_moved(home: Home) -> None:
    manager, deliverers = start(home)
    places = await deferred(home, manager, deliverers)
    answer = await change(manager, "retry", places)
    assert (answer.changed, answer.recipients, answer.errors) == (SEVERAL, SEVERAL, {})
    assert len(manager.context.queue.requested) == SEVERAL - ROOM
    tried: list[str] = []
    while len(tried) < SEVERAL:
        await turns(manager, lambda: deliverers.waiting)
        assert len(manager.context.queue.active) <= ROOM
        tried += given(deliverers)
        deliverers.answer()
    assert tried == [queue_id for queue_id, *_ in places]
    await turns(manager, lambda: not manager.context.queue.active)
    assert manager.context.counters["replaced"] == SEVERAL, "from before"
    assert manager.context.queue.sizes.summary().messages == 0


async def test_after_a_kill_they_are_tried_too(home: Home) -> None:
    manager, deliverers = start(home)
    places = await deferred(home, manager, deliverers)
    await change(manager, "retry", places)
    home.kill()
    manager, deliverers = start(home)
    assert len(manager.context.queue.requested) == SEVERAL - ROOM
    tried: list[str] = []
    while len(tried) < SEVERAL:
        await checkpoint(manager)  # those that were tried go by the lane for mail that is due
        await turns(manager, lambda: deliverers.waiting)
        tried += given(deliverers)
        deliverers.answer()
    assert sorted(tried) == sorted(queue_id for queue_id, *_ in places)


async def test_a_hold_of_one_that_waits_comes_first(home: Home) -> None:
    manager, deliverers = start(home)
    places = await deferred(home, manager, deliverers)
    await change(manager, "retry", places)
    held = manager.context.loop.create_task(change(manager, "hold", places[-2:]))
    await turns(manager, lambda: manager.context.checkpoint_waiters)
    await checkpoint(manager)
    assert (await held).errors == {}
    tried: list[str] = []
    while len(tried) < SEVERAL - 2:
        await turns(manager, lambda: deliverers.waiting)
        tried += given(deliverers)
        deliverers.answer()
    await turns(manager, lambda: not manager.context.queue.active)
    assert sorted(tried) == sorted(queue_id for queue_id, *_ in places[:-2])
    assert [lane for lane, *_ in at_rest(manager)] == ["hold", "hold"]


async def test_other_deferred_mail_that_comes_due_has_its_turns(home: Home) -> None:
    """With more requests than can be tried, a message of a retry lane waits for at most one of them."""
    manager, deliverers = start(home)
    places = await deferred(home, manager, deliverers)
    await change(manager, "retry", places[1:])
    flow, wall = manager.flow, manager.context.wall
    manager.context.wall = lambda: wall() + 300
    flow.retry_lanes_changed()
    now = manager.context.now() + 300
    deliverers.answer()
    manager.context.now = lambda: now
    await turns(manager, lambda: places[0][0] in given(deliverers))
    assert manager.context.queue.requested


async def test_beyond_the_bound_they_move_to_the_lane_of_mail_that_is_due(home: Home) -> None:
    manager, deliverers = start(home, replace(QUEUE, retries_waiting=2))
    places = await deferred(home, manager, deliverers)
    retried = manager.context.loop.create_task(change(manager, "retry", places))
    await turns(manager, lambda: manager.context.checkpoint_waiters)
    await checkpoint(manager)
    assert (await retried).changed == SEVERAL
    assert len(manager.context.queue.requested) == 2
    lanes = [lane for lane, *_ in at_rest(manager)]
    assert (lanes.count("retry.300"), lanes.count("retry.0")) == (2, SEVERAL - ROOM - 2)


async def test_on_a_full_disk_nothing_is_requested(home: Home) -> None:
    manager, deliverers = start(home)
    places = await deferred(home, manager, deliverers)
    manager.context.stalled = "the disk is full"
    retried = manager.context.loop.create_task(change(manager, "retry", places))
    await turns(manager, lambda: retried.done() or manager.context.checkpoint_waiters)
    assert not manager.context.queue.requested
    await checkpoint(manager)
    await retried


@pytest.mark.parametrize("kill", [False, True])
async def test_a_change_of_some_recipients_of_one_that_waits_leaves_the_others_their_retry(
    home: Home, kill: bool
) -> None:
    """Its answer said that all of them are tried."""
    manager, deliverers = start(home)
    places = await deferred(home, manager, deliverers, recipients=3)
    await change(manager, "retry", places)
    last = places[-1]
    assert last[0] not in manager.context.queue.active
    holding = manager.context.loop.create_task(change(manager, "hold", [[*last, ranges_of([0])]]))
    await turns(manager, lambda: manager.context.queue.requested.get(last[0]) is None)
    if kill:
        holding.cancel()
        manager.context.queue.journal.sync()
        home.kill()
        manager, deliverers = start(home)
    else:
        await turns(manager, lambda: manager.context.checkpoint_waiters)
        await checkpoint(manager)
        assert (await holding).errors == {}
    tried: set[int] = set()
    for _ in range(4 * SEVERAL):
        await checkpoint(manager)
        await turns(manager, lambda: deliverers.waiting or not manager.context.queue.active)
        tried |= {number for entry in deliverers.waiting if entry.queue_id == last[0] for number, _ in entry.recipients}
        deliverers.answer()
    assert tried == {1, 2}
    assert [envelope.queue_id for lane, _, envelope in at_rest(manager) if lane == "hold"] == [last[0]]
