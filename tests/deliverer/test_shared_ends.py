"""When the share of a limit ends, the deliverer ends its connections by itself, and none begins beyond it.

law: shares-within-limit.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from mailcore.deliverer.deadline import boot_time
from mailcore.deliverer.deliverer import Deliverer, ManagerLink
from mailcore.deliverer.message_data import MessageData
from mailcore.deliverer.shared_ends import SHARE_OVER, SharedEnds
from mailcore.envelope import Status
from mailcore.frames import Deliver, Delivered, FrameDecoder, NextHop, Shares, SharesKept, encode
from mailcore.log.data_blocks import sums_of
from tests.deliverer.scripted_server import Act, ScriptedServer, serving
from tests.deliverer.test_pass_on import SHORT, deliverer
from tests.eventually import eventually

NAME = "smtp:[192.0.2.1]:25"
PLAIN = ("PIPELINING", "8BITMIME")
LONG_S = 3600.0


class Manager:
    """The other end of a deliverer's connection to its manager."""

    def __init__(self, directory: Path, server: ScriptedServer) -> None:
        self.deliverer: Deliverer = deliverer(directory)
        self.link = ManagerLink(self.deliverer, asyncio.get_running_loop())
        self.heard: list[Delivered | SharesKept] = []
        self._server = server
        self._path = directory / "data"
        self._path.write_bytes(SHORT)
        self._decoder = FrameDecoder()
        manager = self

        class Transport(asyncio.Transport):
            def write(self, data: bytes) -> None:  # type: ignore[override]
                for frame in manager._decoder.feed(bytes(data)):
                    if isinstance(frame, Delivered | SharesKept):
                        manager.heard.append(frame)

            def is_closing(self) -> bool:
                return False

            def abort(self) -> None:
                raise AssertionError("the frame is for a deliverer")

        self.link.connection_made(Transport())

    def give(self, until: float, destination: str = NAME, entry: int = 1) -> None:
        self.link.data_received(encode(self.work(until, destination, entry)))

    def work(self, until: float, destination: str = NAME, entry: int = 1) -> Deliver:
        return Deliver(
            entry, "Q1", "smtp", NextHop("127.0.0.1", self._server.port, False), "from@example.net", ((0, "to@example.org"),),
            str(self._path), 0, len(SHORT), False, False, data_sums=sums_of(SHORT), shared=destination, share_until=until,
        )  # fmt: skip

    def tell(self, ends: dict[str, tuple[tuple[float, int], ...]], quiet: tuple[str, ...] = ()) -> None:
        self.link.data_received(encode(Shares(7, ends, quiet)))

    async def hears(self, count: int = 1) -> list[Delivered | SharesKept]:
        await eventually(lambda: len(self.heard) >= count, "an answer of the deliverer")
        return self.heard

    async def outcome(self, number: int = 0) -> tuple[Status, str]:
        answer = (await self.hears(number + 1))[number]
        assert isinstance(answer, Delivered)
        return answer.verdicts[0].status, answer.verdicts[0].reply


def open_sessions(server: ScriptedServer) -> int:
    return sum(not session.ended.is_set() for session in server.sessions)


async def in_data(server: ScriptedServer, count: int) -> None:
    await eventually(
        lambda: sum("." in each.lines for each in server.sessions) >= count, f"{count} messages at their dot"
    )


async def test_a_connection_ends_with_its_share_whatever_the_next_hop_does(tmp_path: Path) -> None:
    """Its manager says nothing more."""
    async with serving(ScriptedServer({"DOT": Act.SILENCE}, keywords=PLAIN)) as server:
        manager = Manager(tmp_path, server)
        manager.give(boot_time() + 1.5)
        await in_data(server, 1)
        assert open_sessions(server) == 1
        assert await manager.outcome() == (Status.DEFERRED, SHARE_OVER)
        await eventually(lambda: not open_sessions(server), "the end of the connection")


async def test_one_that_is_not_greeted_ends_as_well(tmp_path: Path) -> None:
    async with serving(ScriptedServer({"GREETING": Act.SILENCE}, keywords=PLAIN)) as server:
        manager = Manager(tmp_path, server)
        manager.give(boot_time() + 0.5)
        assert await manager.outcome() == (Status.DEFERRED, SHARE_OVER)
        await eventually(lambda: server.sessions and not open_sessions(server), "the end of the connection")


async def test_a_later_end_lets_it_continue(tmp_path: Path) -> None:
    async with serving(ScriptedServer({"DOT": Act.SILENCE}, keywords=PLAIN)) as server:
        manager = Manager(tmp_path, server)
        end = boot_time() + 1.5
        manager.give(end)
        await in_data(server, 1)
        manager.tell({NAME: ((end + LONG_S, 1),)})
        await eventually(lambda: boot_time() > end + 0.1, "the first end")
        assert open_sessions(server) == 1
        assert manager.heard == [SharesKept(7, {})]


async def test_those_beyond_a_smaller_share_end_the_last_ones_first(tmp_path: Path) -> None:
    async with serving(ScriptedServer({"DOT": Act.SILENCE}, keywords=PLAIN)) as server:
        manager = Manager(tmp_path, server)
        end = boot_time() + LONG_S
        for entry in (1, 2, 3):
            manager.give(end, entry=entry)
        await in_data(server, 3)
        manager.tell({NAME: ((boot_time() - 1, 3), (end, 1))})
        answers = await manager.hears(3)
        assert sorted(each.entry for each in answers if isinstance(each, Delivered)) == [2, 3]
        await eventually(lambda: open_sessions(server) == 1, "the end of two connections")


async def test_what_rests_ends_first(tmp_path: Path) -> None:
    async with serving(ScriptedServer({"DOT": [b"250 2.0.0 Ok\r\n", Act.SILENCE]}, keywords=PLAIN)) as server:
        manager = Manager(tmp_path, server)
        end = boot_time() + LONG_S
        manager.give(end, "smtp:other")
        assert (await manager.outcome())[0] is Status.DELIVERED
        manager.deliverer._client._cache.drop_one("smtp:other")
        manager.give(end, entry=2)
        await in_data(server, 2)
        server.answers["DOT"] = [b"250 2.0.0 Ok\r\n"]
        manager.give(end, entry=3)
        answer = (await manager.hears(2))[1]
        assert isinstance(answer, Delivered)
        assert (answer.entry, answer.resting) == (3, 1)
        manager.tell({NAME: ((end, 1),)})
        assert (await manager.hears(3))[2] == SharesKept(7, {})
        await eventually(lambda: open_sessions(server) == 1, "the end of the connection that rests")
        assert len(manager.heard) == 3, "the delivery continues"


async def test_no_dot_is_sent_shortly_before_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reply would come when the connection has ended, and the mail be sent twice."""
    async with serving(ScriptedServer(keywords=PLAIN)) as server:
        manager = Manager(tmp_path, server)
        read = MessageData.why_no_dot
        end = boot_time() + LONG_S

        def late(self: MessageData) -> str:
            manager.deliverer.ends._ends[NAME] = [(boot_time() + 0.9, 1)]
            return read(self)

        monkeypatch.setattr(MessageData, "why_no_dot", late)
        manager.give(end)
        assert await manager.outcome() == (Status.DEFERRED, SHARE_OVER)
        assert server.messages == []


async def test_behind_the_end_nothing_begins(tmp_path: Path) -> None:
    async with serving(ScriptedServer(keywords=PLAIN)) as server:
        manager = Manager(tmp_path, server)
        manager.give(boot_time() - 1)
        assert await manager.outcome() == (Status.DEFERRED, SHARE_OVER)
        assert server.sessions == []


async def test_a_connection_that_rests_is_used_again_and_told_of(tmp_path: Path) -> None:
    async with serving(ScriptedServer(keywords=PLAIN)) as server:
        manager = Manager(tmp_path, server)
        for number in range(3):
            manager.give(boot_time() + LONG_S)
            assert (await manager.outcome(number))[0] is Status.DELIVERED
        assert [each.resting for each in manager.heard if isinstance(each, Delivered)] == [1, 1, 1]
        assert len(server.sessions) == 1


async def test_one_that_rests_is_closed_before_another_to_its_destination_begins(tmp_path: Path) -> None:
    """The destination has two hosts, and the mail has to go to the other one."""
    async with serving(ScriptedServer(keywords=PLAIN)) as first, serving(ScriptedServer(keywords=PLAIN)) as second:
        manager = Manager(tmp_path, first)
        manager.give(boot_time() + LONG_S)
        assert (await manager.outcome())[0] is Status.DELIVERED
        assert open_sessions(first) == 1
        manager._server = second
        manager.give(boot_time() + LONG_S, entry=2)
        assert (await manager.outcome(1))[0] is Status.DELIVERED
        await eventually(lambda: not open_sessions(first), "the end of the first")
        assert manager.deliverer.resting(NAME) == 1


async def test_one_of_another_destination_takes_the_place_of_one_that_rests(tmp_path: Path) -> None:
    """Two destinations have one next hop: a connection changes from one to the other, and none is left over."""
    async with serving(ScriptedServer(keywords=PLAIN)) as server:
        manager = Manager(tmp_path, server)
        end = boot_time() + LONG_S
        manager.give(end, "smtp:other")
        assert (await manager.outcome())[0] is Status.DELIVERED
        manager.give(end, entry=2)
        assert (await manager.outcome(1))[0] is Status.DELIVERED
        assert (manager.deliverer.resting("smtp:other"), manager.deliverer.resting(NAME)) == (0, 1)
        assert len(server.sessions) == 1


async def test_where_others_wait_nothing_rests_until_there_is_another_entry(tmp_path: Path) -> None:
    async with serving(ScriptedServer(keywords=PLAIN)) as server:
        manager = Manager(tmp_path, server)
        end = boot_time() + LONG_S
        manager.give(end)
        assert (await manager.outcome())[0] is Status.DELIVERED
        manager.tell({NAME: ((end, 1),)}, quiet=(NAME,))
        assert (await manager.hears(2))[1] == SharesKept(7, {}), "what rests is closed before the answer"
        await eventually(lambda: not open_sessions(server), "the end of the connection")
        manager.give(end, entry=2)
        answer = (await manager.hears(3))[2]
        assert isinstance(answer, Delivered)
        assert answer.resting == 1


async def test_without_its_manager_nothing_rests(tmp_path: Path) -> None:
    async with serving(ScriptedServer(keywords=PLAIN)) as server:
        manager = Manager(tmp_path, server)
        manager.give(boot_time() + LONG_S)
        assert (await manager.outcome())[0] is Status.DELIVERED
        assert open_sessions(server) == 1
        manager.link.connection_lost(None)
        await eventually(lambda: not open_sessions(server), "the end of the connection")


async def test_without_shares_nothing_ends(tmp_path: Path) -> None:
    async with serving(ScriptedServer(keywords=PLAIN)) as server:
        manager = Manager(tmp_path, server)
        manager.give(0.0, "")
        assert (await manager.outcome())[0] is Status.DELIVERED
        assert open_sessions(server) == 1
        manager.link.connection_lost(None)
        assert open_sessions(server) == 1
        manager.deliverer.close()


class Nothing:
    def resting(self) -> dict[str, int]:
        return {}

    def drop(self, destination: str, keep: int = 0) -> None:
        """Has nothing to close."""


@pytest.mark.parametrize("passed_after", range(1, 8))
async def test_an_end_that_comes_while_a_look_is_taken_is_not_missed(passed_after: int) -> None:
    """A timer comes a moment early, and the clock passes the end between two readings of it."""
    end, readings, is_near = 10_000.0, 0, False

    def clock() -> float:
        nonlocal readings
        readings += is_near
        return end - LONG_S if not is_near else end - 1e-6 if readings <= passed_after else end + 1e-6

    ends = SharedEnds(asyncio.get_running_loop(), Nothing(), clock)
    ends.given(NAME, end)
    delivery = asyncio.create_task(ends.within(NAME, asyncio.sleep(LONG_S, "sent")))
    await asyncio.sleep(0)
    is_near = True
    ends._look()  # as the timer does
    await eventually(delivery.done, "the end of the delivery")
    assert await delivery is None


async def test_a_delivery_that_takes_a_moment_to_stop_keeps_no_other_from_its_end() -> None:
    async def stops_slowly() -> str:
        try:
            return await asyncio.sleep(LONG_S, "sent")
        finally:
            await may_stop.wait()

    may_stop = asyncio.Event()
    ends = SharedEnds(asyncio.get_running_loop(), Nothing())
    later = boot_time() + LONG_S
    over = Shares(1, {NAME: ((later, 0),)})
    ends.given(NAME, later)
    first = asyncio.create_task(ends.within(NAME, stops_slowly()))
    await asyncio.sleep(0)
    ends.take(over)
    for _ in range(3):
        await asyncio.sleep(0)
    ends.given(NAME, later)
    second = asyncio.create_task(ends.within(NAME, asyncio.sleep(LONG_S, "sent")))
    await asyncio.sleep(0)
    ends.take(over)
    assert await second is None
    assert not first.done()
    may_stop.set()
    assert await first is None
