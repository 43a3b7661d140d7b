"""Managers that share the limits of destinations: each in this process, with a deliverer whose every word is the test's.

law: shares-within-limit.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from mailcore.config.settings import Transport
from mailcore.destination_state import DestinationState
from mailcore.envelope import Status, Verdict
from mailcore.frames import Deliver, Delivered, Shares, SharesKept
from mailcore.manager import sharing
from mailcore.manager.sharing import Sharing, boot_time
from mailcore.shares.holder import SHARE_S
from tests.eventually import PATIENCE_S, eventually
from tests.manager.manager_in_process import NEXT_HOP, Deliverers, Home

LIMIT = Transport(destination_concurrency_limit=5)


class Queue(Deliverers):
    """One of the queues: its manager asks and may be the giver. ``resting``: connections that rest after its deliveries."""

    def __init__(self, directory: Path, shares: Path, transport: Transport) -> None:
        directory.mkdir()
        self.home = Home(directory)
        self.resting = 0
        self.told: list[Shares] = []
        super().__init__(self.home.start(transport=transport, shares=shares))
        assert self.manager.sharing is not None
        self.sharing: Sharing = self.manager.sharing
        self.task = asyncio.create_task(self.sharing.run())

    @property
    def questions(self) -> int:
        return self.manager.context.counters["share_questions"]

    def send(self, frame: Deliver | Shares) -> None:
        if isinstance(frame, Shares):
            self.told.append(frame)
            if frame.quiet:
                self.resting = 0
            asyncio.get_running_loop().call_soon(
                self.sharing.kept, self.link, SharesKept(frame.number, {NEXT_HOP: self.resting} if self.resting else {})
            )
        else:
            super().send(frame)

    async def accept(self, count: int) -> list[str]:
        return [self.home.accept(1) for _ in range(count)]

    async def until(self, true: Callable[[], object]) -> None:
        await eventually(true, lambda: f"it; {self.manager.context.scheduler.snapshot(0.0).destinations}")

    async def begins(self, count: int) -> None:
        await self.until(lambda: len(self.waiting) >= count)
        assert len(self.waiting) == count

    def end(self, count: int, status: Status = Status.DELIVERED, *, failed: bool = False, rest: bool = False) -> None:
        """Answers of the deliverer to the first entries."""
        ended, self.waiting = self.waiting[:count], self.waiting[count:]
        for entry in ended:
            self.resting += rest
            verdicts = tuple(Verdict(number, status, "2.0.0", "said so") for number, _ in entry.recipients)
            result = Delivered(entry.entry, verdicts, "relay[192.0.2.1]:25", "", failed, 0.0, 0.0, resting=self.resting)
            self.manager.flow.delivered(self.link, [result])

    def explain(self, queue_id: str) -> str:
        (reason,) = self.manager.state.explain({"queue_id": queue_id}).reasons
        return str(reason.sentence)

    def state(self) -> str:
        return self.manager.context.scheduler.states(NEXT_HOP, self.manager.context.now())[0].state

    async def kill(self) -> None:
        self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.task
        self.sharing.giving.end()
        if self.sharing._transport is not None:
            self.sharing._transport.abort()
        self.sharing.ask = lambda: None  # type: ignore[method-assign]
        self.home.kill()


class Host:
    """Several queues of one host."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.queues: list[Queue] = []
        (directory / "shares").mkdir()

    async def start(self, transport: Transport = LIMIT) -> Queue:
        queue = Queue(self._directory / str(len(self.queues)), self._directory / "shares", transport)
        self.queues.append(queue)
        await queue.until(lambda: queue.sharing._holder.until > 0)
        return queue

    @property
    def in_use(self) -> int:
        return sum(len(each.waiting) + each.resting for each in self.queues)


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[Host]:
    host = Host(tmp_path)
    yield host
    for queue in host.queues:
        await queue.kill()


@pytest.fixture
def no_beat(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what asks at once asks at all."""
    monkeypatch.setattr(sharing, "BEAT_S", 3600.0)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "BEAT_S", 0.05)


async def test_mail_for_a_new_destination_does_not_wait_for_a_beat(host: Host, no_beat: None) -> None:
    queue = await host.start()
    before = queue.questions
    (queue_id,) = await queue.accept(1)
    await queue.begins(1)
    assert queue.waiting[0].shared == NEXT_HOP
    assert boot_time() < queue.waiting[0].share_until <= boot_time() + SHARE_S
    assert queue.questions == before + 1
    queue.end(1)
    await queue.until(lambda: queue_id not in queue.manager.context.queue.active)
    assert queue.questions == before + 1, "no queue waits for it"


async def test_a_share_may_be_asked_for_before_there_is_mail(host: Host, no_beat: None) -> None:
    queue = await host.start()
    called: list[int] = []
    assert queue.sharing.asks_for(NEXT_HOP, lambda: called.append(queue.sharing._holder.allowed(NEXT_HOP, boot_time())))
    await queue.until(lambda: called)
    assert called == [1]
    assert not queue.sharing.asks_for(NEXT_HOP, lambda: None), "it is known"


async def test_what_waits_for_a_share_without_an_answer_waits_shortly(host: Host, no_beat: None) -> None:
    queue = await host.start()
    queue.sharing.giving.election.holds = lambda: False  # type: ignore[method-assign]
    called: list[int] = []
    assert queue.sharing.asks_for(NEXT_HOP, lambda: called.append(queue.sharing._holder.allowed(NEXT_HOP, boot_time())))
    await queue.until(lambda: called)
    assert called == [0]


async def test_alone_it_has_all_of_the_limit_without_a_beat(host: Host, no_beat: None) -> None:
    queue = await host.start()
    await queue.accept(1)
    await queue.begins(1)
    ids = await queue.accept(8)
    await queue.begins(5)
    assert queue.explain(ids[-1]).startswith("window of the destination full: 5 of 5")


async def test_no_delivery_begins_beyond_the_share_and_connections_that_end_are_anothers(
    host: Host, quick: None
) -> None:
    one, other = await host.start(), await host.start()
    last = (await one.accept(20))[-1]
    await one.begins(5)
    ids = await other.accept(20)
    await other.until(lambda: other.questions > 5 and one.questions > 10)
    assert other.waiting == []
    assert other.explain(ids[0]) == "share 0 of 5 used up; other queues have the rest"
    for left in (4, 3):
        one.end(1)
        await other.until(lambda left=left: len(other.waiting) == 5 - left)  # type: ignore[misc]
        assert (len(one.waiting), host.in_use) == (left, 5)
    assert one.explain(last).endswith("used up; other queues have the rest")


async def test_the_ends_of_connections_beyond_a_share_are_told(host: Host, quick: None) -> None:
    one, other = await host.start(), await host.start()
    await one.accept(20)
    await one.begins(5)
    await other.accept(20)
    await one.until(lambda: any(len(each.ends.get(NEXT_HOP, ())) > 0 and each.quiet for each in one.told))
    told = one.told[-1]
    ends = told.ends[NEXT_HOP]
    assert max(number for _, number in ends) == 5, "an answer covers what is in use"
    assert all(boot_time() < until <= boot_time() + SHARE_S for until, _ in ends)
    assert told.quiet == (NEXT_HOP,)


async def test_what_rests_is_counted_and_closed_when_another_waits(host: Host, quick: None) -> None:
    one, other = await host.start(), await host.start()
    await one.accept(5)
    await one.begins(5)
    one.end(5, rest=True)
    await one.until(lambda: not one.manager.context.queue.active)
    asked = one.questions
    await one.until(lambda: one.questions > asked + 5)
    assert one.resting == 5
    await other.accept(9)
    await other.begins(5)
    assert one.resting == 0
    assert host.in_use == 5


async def test_where_another_waits_a_share_is_given_back_without_a_beat(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharing, "BEAT_S", 0.05)
    one, other = await host.start(), await host.start()
    await one.accept(2)
    await one.begins(2)
    await other.accept(9)
    await other.begins(3)
    await one.until(lambda: NEXT_HOP in one.sharing._sought)
    monkeypatch.setattr(sharing, "BEAT_S", 3600.0)
    asked = [each.questions for each in host.queues]
    await one.until(lambda: all(each.questions > old for each, old in zip(host.queues, asked, strict=True)))
    one.end(2, rest=True)
    await one.until(lambda: one.resting == 0)
    await one.until(lambda: not one.sharing._slots.totals(boot_time()))
    giver = one.sharing.giving._giver
    assert giver is not None
    await one.until(lambda: giver.counted(NEXT_HOP, boot_time()) == 3)
    other.sharing.ask()
    await other.begins(5)


async def test_a_deliverer_that_is_full_gives_its_place_to_another(host: Host, no_beat: None) -> None:
    queue = await host.start(Transport(destination_concurrency_limit=1))
    await queue.accept(1)
    await queue.begins(1)
    queue.end(1, rest=True)
    await queue.until(lambda: not queue.manager.context.queue.active)
    queue.link.capacity = 0
    second = Deliverers(queue.manager)
    second.send = queue.send  # type: ignore[method-assign]
    await queue.accept(1)
    await queue.begins(1)
    assert queue.told[-1].quiet == (NEXT_HOP,)
    assert host.in_use == 1


async def test_without_a_giver_nothing_begins_when_the_shares_have_ended(host: Host, quick: None) -> None:
    one, other = await host.start(), await host.start()
    await other.accept(9)
    await other.begins(5)
    clock = [0.0]
    other.sharing._clock = lambda: boot_time() + clock[0]
    await one.kill()
    host.queues.remove(one)
    other.task.cancel()
    clock[0] = SHARE_S
    other.end(1)
    await other.until(lambda: not other.manager.flow._unsynced)
    assert len(other.waiting) == 4
    assert other.state() == DestinationState.WINDOW_FULL


async def test_a_giver_that_does_not_answer_is_looked_for_again_and_the_reason_is_told(
    host: Host, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    giver, other = await host.start(), await host.start()
    monkeypatch.setattr(sharing, "SILENT_S", 0.3)
    before = other.sharing._transport
    monkeypatch.setattr(giver.sharing.giving, "answer", lambda _: None)
    await other.until(lambda: other.sharing._transport not in (None, before))
    await other.until(other.sharing.trouble)
    assert other.sharing.trouble() == (
        "the manager that divides the limits of destinations does not answer; no delivery begins"
    )
    monkeypatch.undo()
    monkeypatch.setattr(sharing, "BEAT_S", 0.05)
    await other.until(lambda: not other.sharing.trouble())


async def test_another_giver_is_elected_and_renews_what_is_held(host: Host, quick: None) -> None:
    one, other = await host.start(), await host.start()
    await other.accept(90)
    await other.begins(5)
    await one.kill()
    host.queues.remove(one)
    await other.until(lambda: other.sharing.giving.is_giver)
    await other.until(lambda: other.sharing._holder.epoch == 2 and other.sharing._is_answered)
    other.end(2)
    await other.begins(5)


async def test_what_one_found_dead_another_does_not_try_and_both_know_when_it_lives(host: Host, quick: None) -> None:
    one, other = await host.start(), await host.start()
    await one.accept(1)
    await other.accept(2)
    await one.begins(1)
    await other.begins(2)
    for _ in range(5):
        await one.accept(1)
        await one.until(lambda: one.waiting)
        one.end(len(one.waiting), Status.DEFERRED, failed=True)
        await one.until(lambda: not one.manager.flow._unsynced)
    await one.until(lambda: one.state() == "dead")
    await other.until(lambda: other.state() == "dead")
    other.end(1)
    await one.until(lambda: one.state() != "dead")
    assert other.state() != "dead"


@pytest.mark.parametrize("kind", ["destination_rate_delay", "transport_rate_delay"])
async def test_a_rate_is_divided_and_one_alone_has_all_of_it(host: Host, quick: None, kind: str) -> None:
    rates: dict[str, Any] = {kind: 0.01}
    rated = Transport(destination_concurrency_limit=5, **rates)
    one, other = await host.start(rated), await host.start(rated)

    def part(queue: Queue) -> Any:
        destination = queue.manager.context.scheduler._destinations.active.get(NEXT_HOP)
        if destination is None:
            return None
        return destination.part if kind.startswith("destination") else destination.transport.part

    await one.accept(400)
    await one.until(lambda: part(one) == 1.0)
    await other.accept(400)

    def divided() -> bool:
        for each in host.queues:
            each.end(len(each.waiting))
        return bool(part(one) == part(other) == 0.5)

    await one.until(divided)


@pytest.mark.parametrize("turns", range(4))
async def test_it_ends_when_it_is_cancelled_in_the_moment_in_which_it_is_woken(
    host: Host, no_beat: None, turns: int
) -> None:
    """asyncio.wait_for of Python 3.11 takes what came for more than the cancellation: a manager that failed went on."""
    queue = await host.start()
    await queue.until(lambda: queue.sharing._is_answered)
    queue.task.cancel()
    await asyncio.wait({queue.task})
    queue.task = asyncio.create_task(queue.sharing.run())
    await asyncio.sleep(0.1)
    queue.sharing._wake.set()
    for _ in range(turns):
        await asyncio.sleep(0)
    queue.task.cancel()
    done, _ = await asyncio.wait({queue.task}, timeout=PATIENCE_S / 20)
    assert done
