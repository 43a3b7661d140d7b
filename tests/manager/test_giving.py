"""One of the queues of a host is the giver, and another one when that has ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mailcore.manager.election import LockElection
from mailcore.manager.giving import Giving
from mailcore.manager.meeting import GIVER_SOCKET, LocalMeeting
from mailcore.shares.giver import COUNTED_S
from mailcore.shares.holder import SHARE_S, Holder
from mailcore.shares.messages import Answer, Ask, Welcome, Wish
from mailcore.shares.wire import MessageDecoder, encoded

NAME = "smtp:example.org"


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Node:
    """The queues of a host: each may be the giver."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.clock = Clock()
        self.made: list[Giving] = []

    async def giving(self, heard: int = 0) -> Giving:
        election = LockElection(self.directory, lambda: heard, self.clock)
        loop = asyncio.get_running_loop()
        made = Giving(election, LocalMeeting(self.directory, self.clock), loop, lambda _: 5, self.clock)
        self.made.append(made)
        await made.look()
        return made

    def kill(self, giving: Giving) -> None:
        giving.end()
        self.made.remove(giving)


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    node = Node(tmp_path)
    yield node
    for each in node.made:
        each.end()


def share(giving: Giving, holder: Holder, now: float) -> int:
    """What a shard that wants five gets."""
    answer = giving.answer(holder.ask(now, {NAME: 5}, {}))
    if isinstance(answer, Welcome):
        holder.welcomed(answer)
        answer = giving.answer(holder.ask(now, {NAME: 5}, {}))
    assert isinstance(answer, Answer)
    assert holder.answered(answer)
    return holder.allowed(NAME, now)


async def test_there_is_one_giver_and_the_first_one_gives_at_once(node: Node) -> None:
    one, other = await node.giving(), await node.giving()
    assert (one.is_giver, other.is_giver) == (True, False)
    assert share(one, Holder("A"), node.clock.now) == 5
    assert other.answer(Holder("B").ask(0.0, {}, {})) is None


async def test_the_next_one_waits_until_the_shares_of_the_one_before_have_ended(node: Node) -> None:
    """law: shares-within-limit."""
    one, other = await node.giving(), await node.giving()
    node.clock.now += 100
    await one.look()
    node.kill(one)
    node.clock.now += 1
    await other.look()
    assert other.is_giver
    holder = Holder("B")
    assert share(other, holder, node.clock.now) == 0
    node.clock.now += COUNTED_S - 0.1
    assert share(other, holder, node.clock.now) == 0
    node.clock.now += 0.2
    assert share(other, holder, node.clock.now) == 5
    assert holder.epoch == 2


async def test_after_an_hour_without_a_giver_there_is_nothing_to_wait_for(node: Node) -> None:
    node.kill(await node.giving())
    node.clock.now += 3600
    assert share(await node.giving(), Holder("A"), node.clock.now) == 5


async def test_after_another_start_of_the_host_there_is_nothing_to_wait_for(node: Node) -> None:
    one = await node.giving()
    assert isinstance(one.election, LockElection)
    one.election._boot = "another"
    await one.look()
    node.kill(one)
    found = await node.giving()
    holder = Holder("A")
    assert share(found, holder, node.clock.now) == 5
    assert holder.epoch == 2


@pytest.mark.parametrize("damage", [b"rubbish", b"7 seven", b"\xff" * 128])
async def test_what_cannot_be_read_is_waited_for(node: Node, damage: bytes) -> None:
    (node.directory / "shares.lock").write_bytes(damage)
    assert share(await node.giving(), Holder("A"), node.clock.now) == 0


async def test_a_giver_whose_file_was_removed_gives_no_more(node: Node) -> None:
    """law: shares-within-limit. Another one is elected, which waits, as it has heard of the one before."""
    one = await node.giving()
    holder = Holder("A")
    assert share(one, holder, node.clock.now) == 5
    (node.directory / "shares.lock").unlink()
    other = await node.giving(heard=holder.epoch)
    assert other.is_giver
    assert share(other, Holder("B"), node.clock.now) == 0
    node.clock.now += 10  # the first one was stopped meanwhile
    assert one.answer(holder.ask(node.clock.now, {NAME: 5}, {})) is None
    assert not one.is_giver


async def test_one_that_was_kept_from_saying_so_still_gives_if_the_lock_is_its_own(node: Node) -> None:
    one = await node.giving()
    node.clock.now += 3600
    assert share(one, Holder("A"), node.clock.now) == 5
    written = (node.directory / "shares.lock").read_text().split()
    assert float(written[1]) > node.clock.now


async def test_a_shard_that_knows_of_a_later_election_makes_it_begin_again(node: Node) -> None:
    one = await node.giving()
    holder = Holder("A")
    holder.welcomed(Welcome(9))
    assert share(one, holder, node.clock.now) == 0
    assert holder.epoch == 10
    node.clock.now += SHARE_S + 1
    assert share(one, holder, node.clock.now) == 5


async def test_it_answers_over_its_socket_and_refuses_what_is_no_question(node: Node) -> None:
    await node.giving()
    reader, writer = await asyncio.open_unix_connection(node.directory / GIVER_SOCKET)
    writer.write(encoded(Ask("A", 1, 1, Holder("A").ask(0.0, {}, {}).applied, False, {NAME: Wish(2, 0)})))
    (answer,) = MessageDecoder().feed(await reader.read(1000))
    assert isinstance(answer, Answer)
    assert answer.shares == {NAME: 2}
    writer.write(encoded(Welcome(3)))
    assert await reader.read() == b""
    writer.close()
