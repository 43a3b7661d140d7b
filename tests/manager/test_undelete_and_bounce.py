"""A recipient is undeleted and returned to the sender while another one is delivered: it counts as both."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mailcore.envelope import Status
from mailcore.frames import Request
from mailcore.manager.manager import Manager
from tests.manager.manager_in_process import Deliverers, Home
from tests.manager.test_retry_of_some import at_rest, checkpoint, given, start


async def until(manager: Manager, true: Any) -> None:
    """Turns and wanted checkpoints; no other task writes them here."""
    for _ in range(5000):
        if true():
            return
        if manager.context.checkpoint_waiters:
            await checkpoint(manager)
        await asyncio.sleep(0.001)
    raise AssertionError(f"not reached; {manager.context.queue.sizes.summary()}")


async def change(manager: Manager, operation: str, queue_id: str, number: int) -> None:
    place = next(([lane, offset] for lane, offset, each in at_rest(manager) if each.queue_id == queue_id), ["", 0])
    request = Request(1, operation, {"messages": [[queue_id, *place, [[number, number]]]]}, "operator", "because")
    made = asyncio.ensure_future(manager.orders.change(request))
    await until(manager, made.done)
    assert (made.result().changed, made.result().recipients) == (1, 1), made.result()


def differences(manager: Manager) -> tuple[int, int]:
    size = manager.context.queue.sizes.summary()
    terms = manager.context.balance.terms(size.messages, size.recipients)
    return terms.messages["difference"], terms.recipients["difference"]


async def in_flight_and_undeleted(home: Home) -> tuple[Manager, Deliverers, str]:
    """A message whose first recipient is being delivered, and whose second one was deleted and has two orders."""
    manager, deliverers = start(home)
    queue = manager.context.queue
    queue_id = home.accept(2)
    await until(manager, lambda: deliverers.waiting)
    deliverers.answer(lambda _: Status.DEFERRED)
    await until(manager, lambda: not queue.active)
    await checkpoint(manager)
    await change(manager, "delete", queue_id, 1)
    await until(manager, lambda: not queue.active)
    await checkpoint(manager)
    await change(manager, "retry", queue_id, 0)
    await until(manager, lambda: given(deliverers) == [0])
    await change(manager, "undelete", queue_id, 1)
    await change(manager, "bounce", queue_id, 1)
    return manager, deliverers, queue_id


@pytest.mark.parametrize("status", [Status.DELIVERED, Status.DEFERRED])
async def test_who_is_undeleted_and_returned_counts_as_both(home: Home, status: Status) -> None:
    manager, deliverers, queue_id = await in_flight_and_undeleted(home)
    deliverers.answer(lambda _: status)
    await until(manager, lambda: queue_id not in manager.context.queue.active)
    assert manager.context.queue.verdicts[Status.BOUNCED] == 1
    assert manager.context.balance.undeleted == [0, 1]
    assert differences(manager) == (0, 0)


async def test_so_it_is_after_a_kill_behind_its_end(home: Home) -> None:
    manager, deliverers, queue_id = await in_flight_and_undeleted(home)
    await checkpoint(manager)
    passes: Any = manager.passes
    passes._notice = lambda *_, **__: None  # with a report, the end counts only when a checkpoint covers it
    deliverers.answer()
    await until(manager, lambda: queue_id not in manager.context.queue.active)
    await manager.context.commit.wait()
    home.kill()
    manager, _ = start(home)
    assert manager.context.queue.totals_continued, manager.context.queue.totals.note
    assert differences(manager) == (0, 0)
