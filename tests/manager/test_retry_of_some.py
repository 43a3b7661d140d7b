"""A retry of some recipients of a message: they are tried at once, and the others keep their time, also after a kill."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mailcore.config.queue import Queue
from mailcore.config.settings import Scheduler, Transport
from mailcore.envelope import Envelope, Status
from mailcore.faults import Code
from mailcore.frames import Request
from mailcore.lab.lab import Lab
from mailcore.log.record import RecordType
from mailcore.manager.manager import Manager
from mailcore.manager_answers import Ordered
from mailcore.queue.aside import SLACK_S
from mailcore.queue.records import decode_envelope
from mailcore.queue.suffix import shorten
from tests.manager.manager_in_process import NEXT_HOP, Deliverers, Home, turns
from tests.manager.test_orders import LONG, NEVER, in_retry
from tests.manager.test_retry_at_once import written
from tests.running.running_core import recipients_of, route_to, running

QUEUE = Queue(segment_bytes=1 << 20, retry_ladder_s=(300, 600), reserve_bytes=1 << 20)


def start(home: Home) -> tuple[Manager, Deliverers]:
    manager = home.start(Scheduler(), Transport(), queue=QUEUE)
    return manager, Deliverers(manager)


async def checkpoint(manager: Manager) -> None:
    await manager.context.commit.wait()
    await manager._checkpoint()


def at_rest(manager: Manager) -> list[tuple[str, int, Envelope]]:
    queue = manager.context.queue
    found = []
    for lane, runner in queue.runners.items():
        queue.reader(lane).refresh()
        for record in queue.reader(lane).records(0, runner.readable_end):
            if record.live and record.type == RecordType.ENVELOPE:
                envelope = decode_envelope(record.body)
                if queue.taken.get(envelope.queue_id, -1) < envelope.generation:
                    found.append((lane, record.offset, envelope))
    return found


async def deferred(home: Home, manager: Manager, deliverers: Deliverers, recipients: int = 3) -> list[Any]:
    """A message that rests for five minutes: its place, as a change names it."""
    queue_id = home.accept(recipients)
    await turns(manager, lambda: deliverers.waiting)
    deliverers.answer(lambda _: Status.DEFERRED)
    await turns(manager, lambda: not manager.context.queue.active)
    await checkpoint(manager)
    ((lane, offset, _),) = at_rest(manager)
    assert lane == "retry.300"
    return [queue_id, lane, offset]


async def retry(manager: Manager, place: list[Any], numbers: list[list[int]]) -> Ordered:
    request = Request(1, "retry", {"messages": [[*place, numbers]]}, "operator", "because")
    return await manager.orders.change(request)


def given(deliverers: Deliverers) -> list[int]:
    return sorted(number for entry in deliverers.waiting for number, _ in entry.recipients)


async def test_those_who_are_named_are_tried_at_once_and_the_others_keep_their_time(home: Home) -> None:
    manager, deliverers = start(home)
    place = await deferred(home, manager, deliverers)
    ((_, _, before),) = at_rest(manager)
    answer = await retry(manager, place, [[1, 1]])
    assert (answer.changed, answer.recipients, answer.errors) == (1, 1, {})
    assert manager.context.counters["replaced"] == 1, "nothing was moved for it"
    await turns(manager, lambda: deliverers.waiting)
    assert given(deliverers) == [1]
    deliverers.answer()
    await turns(manager, lambda: not manager.context.queue.active)
    await checkpoint(manager)
    ((lane, _, after),) = at_rest(manager)
    assert [recipient.number for recipient in after.recipients] == [0, 2]
    assert lane == "retry.300"
    assert abs(after.first_due_at - before.due_at) < 0.01
    assert after.aside == {}, "they wait together"


async def test_who_is_deferred_again_waits_longer_than_the_others(home: Home) -> None:
    manager, deliverers = start(home)
    place = await deferred(home, manager, deliverers)
    ((_, _, before),) = at_rest(manager)
    manager.context.wall = lambda: time.time() + 100
    await retry(manager, place, [[0, 1]])
    await turns(manager, lambda: len(given(deliverers)) == 2)
    deliverers.answer(lambda number: Status.DEFERRED)
    await turns(manager, lambda: not manager.context.queue.active)
    await checkpoint(manager)
    ((_, _, after),) = at_rest(manager)
    until = [recipient.aside.until if recipient.aside else 0.0 for recipient in after.recipients]
    assert abs(until[2] - before.due_at) < 0.01
    assert until[0] == until[1] > before.due_at + 90


async def test_all_recipients_by_their_numbers_are_the_message(home: Home) -> None:
    manager, deliverers = start(home)
    place = await deferred(home, manager, deliverers)
    await retry(manager, place, [[0, 5]])
    await turns(manager, lambda: len(given(deliverers)) == 3)
    assert manager.context.queue.active[place[0]].only is None


async def test_nobody_who_is_named_is_left(home: Home) -> None:
    manager, deliverers = start(home)
    place = await deferred(home, manager, deliverers)
    answer = await retry(manager, place, [[7, 9]])
    assert answer.errors[place[0]].code is Code.NOT_FOUND
    assert len(at_rest(manager)) == 1


@pytest.mark.parametrize("restated", [False, True])
async def test_after_a_kill_they_are_tried_and_the_others_keep_their_time(home: Home, restated: bool) -> None:
    """``restated``: the message is written again at the end of the journal, and its first START is forgotten."""
    manager, deliverers = start(home)
    place = await deferred(home, manager, deliverers)
    ((_, _, before),) = at_rest(manager)
    await retry(manager, place, [[1, 1]])
    await turns(manager, lambda: deliverers.waiting)
    if restated:
        first = next(iter(manager.context.queue.starts))
        assert shorten(manager.context.queue, 0) == 1
        await checkpoint(manager)
        await checkpoint(manager)
        assert manager.context.checkpoints.older.suffix > first
    home.kill()
    manager, deliverers = start(home)
    checkpoints = asyncio.get_running_loop().create_task(manager.checkpoints())
    await turns(manager, lambda: deliverers.waiting)
    assert given(deliverers) == [1]
    deliverers.answer()
    await turns(manager, lambda: not manager.context.queue.active)
    checkpoints.cancel()
    await checkpoint(manager)
    ((_, _, after),) = at_rest(manager)
    assert [recipient.number for recipient in after.recipients] == [0, 2]
    assert abs(after.first_due_at - before.due_at) < SLACK_S


async def test_a_suspended_destination_does_not_put_off_the_others(home: Home) -> None:
    manager, deliverers = start(home)
    place = await deferred(home, manager, deliverers)
    ((_, _, before),) = at_rest(manager)
    manager.context.scheduler.set(NEXT_HOP, "suspended_until", float("inf"), manager.context.now())
    await retry(manager, place, [[1, 1]])
    active = manager.context.queue.active[place[0]]
    await turns(manager, lambda: active.destinations)
    manager.passes._put_back(active, manager.context.now(), 600)
    await turns(manager, lambda: not manager.context.queue.active)
    await checkpoint(manager)
    ((_, _, after),) = at_rest(manager)
    until = [recipient.aside.until if recipient.aside else 0.0 for recipient in after.recipients]
    assert abs(until[0] - before.due_at) < 0.01
    assert until[0] == until[2] != until[1]


async def test_a_change_that_comes_meanwhile_leaves_the_others_their_time(home: Home) -> None:
    manager, deliverers = start(home)
    place = await deferred(home, manager, deliverers)
    ((_, _, before),) = at_rest(manager)
    await retry(manager, place, [[1, 1]])
    await turns(manager, lambda: deliverers.waiting)
    request = Request(2, "hold", {"messages": [[*place, [[0, 1]]]]}, "operator", "because")
    task = manager.context.loop.create_task(manager.orders.change(request))
    await turns(manager, lambda: manager.context.queue.active[place[0]].orders)
    deliverers.answer(lambda number: Status.DEFERRED)
    await turns(manager, lambda: not manager.context.queue.active)
    while not task.done():
        await checkpoint(manager)
        await asyncio.sleep(0)
    ((_, _, after),) = at_rest(manager)
    kinds = [recipient.aside.kind.name if recipient.aside else "" for recipient in after.recipients]
    assert kinds == ["HELD", "HELD", "DEFERRED"]
    last = after.recipients[2].aside
    assert last is not None
    assert abs(last.until - before.due_at) < 0.01


async def test_the_manager_tells_who_waits(home: Home) -> None:
    manager, deliverers = start(home)
    place = await deferred(home, manager, deliverers)
    ((_, _, before),) = at_rest(manager)
    await retry(manager, place, [[1, 1]])
    await turns(manager, lambda: deliverers.waiting)
    progress = manager.state.working({"queue_ids": [place[0]]}).messages[place[0]]
    assert progress.states == {"delivering": 1, "deferred": 2}
    assert progress.recipient_states == {0: "deferred", 1: "delivering", 2: "deferred"}
    reasons = manager.state.explain({"queue_id": place[0]}).reasons
    (waiting,) = [reason for reason in reasons if reason.state == "deferred"]
    assert waiting.recipients == 2
    assert isinstance(waiting.until, float)
    assert abs(waiting.until - before.due_at) < 0.01
    assert sum(reason.recipients for reason in reasons) == 3


async def test_a_long_list_is_tried_in_its_parts(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.manager.manager_in_process.RECIPIENTS_PER_RECORD", 4)
    for module in ("mailcore.queue.records", "mailcore.queue.rewrite"):
        monkeypatch.setattr(f"{module}.RECIPIENTS_PER_RECORD", 4)
    manager, deliverers = start(home)
    place = await deferred(home, manager, deliverers, 18)
    answer = await retry(manager, place, [[2, 3], [9, 9], [17, 17]])
    assert answer.recipients == 4
    await turns(manager, lambda: len(given(deliverers)) == 4)
    assert given(deliverers) == [2, 3, 9, 17]
    deliverers.answer()
    await turns(manager, lambda: not manager.context.queue.active)
    await checkpoint(manager)
    ((_, _, after),) = at_rest(manager)
    assert after.recipient_count == 14
    assert msgspec.structs.asdict(after)["aside"] == {}


async def test_a_retry_of_a_destination_moves_nothing(tmp_path: Path) -> None:
    async with (
        Lab([f"{NEVER}:127.0.0.1:0", f"{NEVER}:127.0.0.1:0"]) as lab,
        running(tmp_path, lab, LONG, routes={"other.example": route_to(lab, 1)}) as core,
    ):
        alone = await in_retry(core, "a@other.example")
        both = await in_retry(core, "a@example.org", "b@other.example")
        due_at = (await core.until_in(both, "retry.60"))["due_at"]
        before = written(core, "journal", RecordType.REPLACED)
        await lab.hops[1].set_behaviour("accept")
        made = await core.ask("change_matching", change="retry", filter={"destination": route_to(lab, 1)})
        assert (made["changed"], made["changed_recipients"], made["errors"]) == (2, 2, {})
        await lab.wait_for(2)
        assert recipients_of(lab.messages) == ["a@other.example", "b@other.example"]
        await core.until_removed(alone)

        async def one_left() -> dict[str, Any] | None:
            item = await core.item(both) or {}
            return item if item.get("states") == {"deferred": 1} and not item["active"] else None

        assert abs((await core.eventually(one_left, "the end of the pass"))["due_at"] - due_at) < 1
        assert written(core, "journal", RecordType.REPLACED) == before + 1, "at the end of the pass of both"
