"""Group commit: one sync for all that waits when it starts, and for nothing that comes later (law: shared-sync)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

from mailcore.log.commit import GroupCommit
from mailcore.log.lane import LaneFailed, LaneWriter
from mailcore.log.record import RecordType
from tests.eventually import PATIENCE_S
from tests.log.lanes import DIRECTORY, Lane, open_writer
from tests.simulated_disk import RandomChoice, SimulatedDisk

T = RecordType.DELIVERY


class GatedDisk(SimulatedDisk):
    """Every sync waits until the test lets it go."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Semaphore(0)
        self.waiting = threading.Semaphore(0)
        self.gated = False

    def sync(self, fd: int) -> None:
        if self.gated:
            self.waiting.release()
            assert self.gate.acquire(timeout=PATIENCE_S)
        super().sync(fd)


class Group:
    def __init__(self, delay_s: float = 0.0) -> None:
        self.disk = GatedDisk()
        self.writer: LaneWriter = open_writer(self.disk)
        self.writer.append(T, b"begun")
        self.writer.sync()
        self.commit = GroupCommit(self.writer, asyncio.get_running_loop(), delay_s)
        self.told: list[tuple[str, LaneFailed | None]] = []
        self._enough, self._told_all = 0, asyncio.Event()

    def put(self, name: str) -> None:
        self.commit.append(T, name.encode())

        def done(error: LaneFailed | None) -> None:
            self.told.append((name, error))
            self._look()

        self.commit.then(done)

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.told]

    async def sync_started(self) -> None:
        assert await asyncio.to_thread(self.disk.waiting.acquire, timeout=PATIENCE_S)

    async def until_told(self, count: int) -> None:
        self._enough, self._told_all = count, asyncio.Event()
        self._look()
        async with asyncio.timeout(20):
            await self._told_all.wait()

    def _look(self) -> None:
        if len(self.told) >= self._enough:
            self._told_all.set()

    def end(self) -> None:
        self.disk.gated = False
        self.disk.gate.release(1000)
        self.commit.close()


@pytest.fixture
async def group() -> AsyncIterator[Group]:
    group = Group()
    yield group
    group.end()


async def test_law_verdict_what_waits_when_a_sync_starts_is_covered_by_it_and_what_comes_later_by_the_next(
    group: Group,
) -> None:
    group.disk.gated = True
    group.put("one")
    group.put("two")
    await group.sync_started()
    group.put("late")  # appended while the sync runs: it may not be told by it
    group.put("later")
    group.disk.gate.release()
    await group.until_told(2)
    assert group.names == ["one", "two"]
    await group.sync_started()
    assert group.names == ["one", "two"]
    safe = Lane(group.disk.crash(RandomChoice(0)), group.writer.durable).bodies
    assert safe == [b"begun", b"one", b"two"]
    group.disk.gate.release()
    await group.until_told(4)
    assert group.names == ["one", "two", "late", "later"]
    assert [error for _, error in group.told] == [None] * 4


async def test_nobody_is_told_before_it_is_on_disk(group: Group) -> None:
    for i in range(200):
        name = f"{i:03d}"
        group.commit.append(T, name.encode())
        await group.commit.wait()
        if i % 20 == 0:
            assert Lane(group.disk.crash(RandomChoice(i)), group.writer.durable).bodies[-1] == name.encode()


async def test_a_hundred_that_wait_cost_one_sync(group: Group) -> None:
    before = group.disk.calls["sync"]
    for i in range(100):
        group.put(str(i))
    await group.until_told(100)
    assert group.disk.calls["sync"] - before <= 2
    assert group.names == [str(i) for i in range(100)]


async def test_a_failure_reaches_everybody_who_waits(group: Group) -> None:
    group.disk.gated = True
    group.put("one")
    await group.sync_started()
    group.put("behind it")
    group.disk.fail("sync")
    group.disk.gate.release()
    await group.until_told(2)
    assert [(name, type(error)) for name, error in group.told] == [("one", LaneFailed), ("behind it", LaneFailed)]
    # Until the lane is reopened everybody hears of it, and nothing is written behind the hole.
    with pytest.raises(LaneFailed):
        group.put("refused")
    with pytest.raises(LaneFailed):
        await group.commit.wait()
    group.writer.reopen()
    group.disk.gated = False
    group.put("after")
    await group.until_told(3)
    assert group.told[-1] == ("after", None)
    assert Lane(group.disk, group.writer.durable).bodies == [b"begun", b"after"]


async def test_a_failure_that_is_no_os_error_leaves_nobody_waiting(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    def bug(*arguments: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(group.disk, "write", bug)
    group.put("one")
    await group.until_told(1)
    assert isinstance(group.told[0][1], LaneFailed)
    with pytest.raises(LaneFailed):
        group.put("two")


async def test_one_who_fails_to_listen_does_not_keep_the_others_waiting(group: Group) -> None:
    caught: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: caught.append(context["exception"]))
    group.commit.append(T, b"x")

    def bug(error: LaneFailed | None) -> None:
        raise ZeroDivisionError

    group.commit.then(bug)
    group.put("other")
    await group.until_told(1)
    assert [type(error) for error in caught] == [ZeroDivisionError]


async def test_a_sync_by_hand_beside_the_group_keeps_the_order(group: Group) -> None:
    group.disk.gated = True
    group.put("one")
    await group.sync_started()
    group.writer.append(T, b"by hand")
    by_hand = asyncio.create_task(asyncio.to_thread(group.writer.sync))
    group.disk.gate.release(2)
    await by_hand
    await group.until_told(1)
    assert Lane(group.disk, group.writer.durable).bodies == [b"begun", b"one", b"by hand"]


class ScriptedLoop:
    """A loop whose time stands still and which notes when the group wants to start a sync."""

    def __init__(self) -> None:
        self.now = 100.0
        self.delays: list[float] = []

    def time(self) -> float:
        return self.now

    def call_soon(self, call: object) -> None:
        self.delays.append(0.0)

    def call_later(self, delay: float, call: object) -> None:
        self.delays.append(delay)


def scheduled_delay(idle_s: float, last_count: int) -> float:
    loop = ScriptedLoop()
    commit = GroupCommit(open_writer(SimulatedDisk()), loop, 0.01)  # type: ignore[arg-type]
    commit._last_end = loop.now - idle_s
    commit._last_count = last_count
    commit.then(lambda error: None)
    commit.close()
    return loop.delays[0]


def test_a_lonely_message_does_not_wait_for_company() -> None:
    assert scheduled_delay(idle_s=5.0, last_count=1) == 0.0
    assert scheduled_delay(idle_s=5.0, last_count=50) == 0.0


def test_under_load_a_sync_waits_for_company_and_never_longer_than_the_delay() -> None:
    assert scheduled_delay(idle_s=0.0, last_count=1) == pytest.approx(0.01)
    assert scheduled_delay(idle_s=0.004, last_count=9) == pytest.approx(0.006)


LONG_S = 3600.0  # a delay that no test lives to see the end of


class Clients(Group):
    """Messages of some clients, each of which sends its next one when the one before is safe."""

    def __init__(self) -> None:
        super().__init__(LONG_S)
        self.disk.gated = True

    def syncs(self) -> int:
        return self.disk.calls["sync"]

    async def answer(self, count: int) -> None:
        """Lets the sync under way end, and returns when all have heard of it who wait for it."""
        self.disk.gate.release()
        await self.until_told(len(self.told) + count)


@pytest.fixture
async def clients() -> AsyncIterator[Clients]:
    clients = Clients()
    yield clients
    clients.end()


async def test_one_client_alone_never_waits_for_company(clients: Clients) -> None:
    for i in range(5):
        clients.put(str(i))
        await clients.sync_started()
        await clients.answer(1)
    assert clients.names == list("01234")


async def test_those_who_were_answered_are_waited_for_with_those_who_wait_already(clients: Clients) -> None:
    clients.put("a")
    await clients.sync_started()
    clients.put("b")
    clients.put("c")
    await clients.answer(1)
    before = clients.syncs()
    for _ in range(10):
        await asyncio.sleep(0)
    assert clients.syncs() == before, "b and c did not wait for the client of a"
    clients.put("a again")
    await clients.sync_started()
    await clients.answer(3)
    assert clients.names == ["a", "b", "c", "a again"]
    assert clients.syncs() == before + 1
    for name in "abc":  # all three are one batch from here on
        clients.put(name)
    await clients.sync_started()
    await clients.answer(3)
    assert clients.syncs() == before + 2


async def test_a_client_that_does_not_come_back_is_waited_for_until_the_delay_is_over_and_then_forgotten() -> None:
    group = Group(0.05)
    try:
        for name in "abc":
            group.put(name)
        await group.until_told(3)
        group.put("a")
        group.put("b")
        await group.until_told(5)
        assert group.commit._may_come == 2
        group.put("a")
        await group.until_told(6)
        assert group.commit._may_come == 1
    finally:
        group.end()


class FakeStore:
    """Keeps nothing."""

    def commit(self, changes: object, *ends: object) -> None:
        """Does nothing."""


@pytest.mark.parametrize(("store", "company"), [(None, 8), (FakeStore(), 32)])
def test_a_commit_that_costs_more_waits_for_more_company(store: object, company: int) -> None:
    for weight in (company - 1, company):
        commit = GroupCommit(open_writer(SimulatedDisk(), store=store), ScriptedLoop(), 0.01)  # type: ignore[arg-type]
        commit.then(lambda error: None, weight=weight)
        assert commit._has_company == (weight == company)
        commit.close()


def test_a_lane_that_is_empty_has_no_segments() -> None:
    disk = SimulatedDisk()
    open_writer(disk).sync()
    assert disk.list(DIRECTORY) == ["lock"]
