"""Mail comes into the active set from all lanes in turn, and out of it when what it waits for is over."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from mailcore.config.settings import Scheduler, Transport
from mailcore.envelope import Status
from mailcore.frames import NextHop
from mailcore.queue.active import Active
from mailcore.routing.resolve import Routing
from mailcore.scheduler.parameters import SUSPENDED_UNTIL
from tests.manager.manager_in_process import NEXT_HOP, Deliverers, Home, turns

SOON_S = 10.0  # far less than the minute after which the manager looks again by itself
EACH = 250  # more than are brought in in one turn


class Clock:
    """Stands still, but for one second's leap at the ``leap_in``-th look at it."""

    def __init__(self, time: float) -> None:
        self.time = time
        self.leap_in = 0

    def __call__(self) -> float:
        self.leap_in -= 1
        if not self.leap_in:
            self.time += 1.0
        return self.time


async def test_new_and_deferred_mail_alternate_into_the_active_set(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """law: turns-for-new-and-deferred. A backlog that comes due must not keep new mail waiting, nor the other way round."""
    manager = home.start(Scheduler(minimal_backoff_time=1.0), ladder_s=(1,))
    deliverers = Deliverers(manager)
    for _ in range(EACH):
        home.accept(1)
    await turns(
        manager,
        lambda: manager.context.counters.get("replaced") == EACH,
        lambda: deliverers.answer(lambda number: Status.DEFERRED),
    )
    deliverers.link.capacity = 0  # from now on everything stays in the active set
    entered: list[int] = []
    enter = manager.flow.admission.enter

    def noted(active: Active, now: float) -> None:
        entered.append(active.envelope.generation)
        enter(active, now)

    monkeypatch.setattr(manager.flow.admission, "enter", noted)
    await manager.context.commit.wait()
    manager._turn_scheduled = True  # nothing is brought in while the stage is set
    await manager._checkpoint()
    for _ in range(EACH):
        home.accept(1)
    wall, now = manager.context.wall, manager.context.now
    manager.context.wall = lambda: wall() + 5
    manager.context.now = lambda: now() + 5
    manager._turn_scheduled = False
    manager.go_on()
    await turns(manager, lambda: len(entered) == 2 * EACH)
    assert all(one != other for one, other in itertools.pairwise(entered))
    assert sum(entered) == EACH


async def test_a_suspension_that_ends_in_the_middle_of_a_turn_is_not_missed(home: Home) -> None:
    """Whichever look at the clock is the first to find it over."""
    manager = home.start()
    deliverers = Deliverers(manager)
    context = manager.context
    context.now = clock = Clock(context.now())
    active = context.queue.active
    for look in itertools.count(1):
        until = clock.time + 1.0
        context.scheduler.set(NEXT_HOP, SUSPENDED_UNTIL, until, clock.time)
        home.accept(1)
        await turns(manager, lambda: active and not manager._turn_scheduled)
        assert not deliverers.waiting
        clock.leap_in = look
        manager.go_on()
        await turns(manager, lambda: not manager._turn_scheduled)
        if clock.time < until:
            break  # a turn has fewer looks
        async with asyncio.timeout(SOON_S):
            await turns(manager, lambda: deliverers.waiting)
        deliverers.answer()
        await turns(manager, lambda: not active)
    assert look > 1


@pytest.mark.parametrize("route", ["smtp:[192.0.2.9]", "error:5.7.1 no more", "relay"])
async def test_mail_in_the_active_set_keeps_its_route_until_its_next_pass(home: Home, route: str) -> None:
    for _ in range(2):
        home.accept(1)
    manager = home.start(transport=Transport(destination_concurrency_limit=1), ladder_s=(1,))
    deliverers = Deliverers(manager)
    await turns(manager, lambda: deliverers.waiting and len(manager.context.queue.active) == 2)
    manager.context.routing = Routing({"*": route}, ["smtp"])
    to: list[NextHop] = []

    def each() -> None:
        to.extend(entry.next_hop for entry in deliverers.waiting)
        deliverers.answer()

    await turns(manager, lambda: manager.context.counters.get("finished") == 2, each)
    assert to == [NextHop("192.0.2.1", 25, False)] * 2
