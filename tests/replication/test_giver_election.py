"""The election of the giver of shares by a row, against a real primary and standby (law: shares-within-limit)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mailcore.manager.giving import Giving
from mailcore.manager.meeting import LocalMeeting
from mailcore.replication.faults import Lost, NotReached
from mailcore.replication.giver_election import GIVER_LEASE_S, GIVER_WATCH_S, RESIGNED_S, GiverElection
from mailcore.replication.giver_row import make_giver, read_giver, take_giver
from mailcore.shares.holder import Holder
from mailcore.shares.messages import Answer, Welcome
from tests.eventually import eventually_blocking
from tests.replication.cluster import Cluster

NAME = "smtp:example.org"


class Nodes:
    """The processes that may be elected; each has a clock of its own."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.made: list[GiverElection] = []
        self.clocks: dict[str, list[float]] = {}

    def add(self, owner: str, heard: Callable[[], int] = lambda: 0) -> GiverElection:
        now = self.clocks[owner] = [1000.0 * (1 + len(self.clocks))]
        made = GiverElection(
            self.cluster.parameters(), owner, f"address of {owner}", heard, clock=lambda: now[0]
        )  # fmt: skip
        self.made.append(made)
        return made

    def let_pass(self, seconds: float, *elections: GiverElection) -> None:
        """Time passes for all, and those named look at least once a second."""
        for _ in range(round(seconds * 2)):
            for now in self.clocks.values():
                now[0] += 0.5
            for each in elections:
                each.look_once()


def epoch_of(election: GiverElection) -> int | None:
    return None if election.elected is None else election.elected.epoch


@pytest.fixture
def nodes(cluster: Cluster) -> Iterator[Nodes]:
    nodes = Nodes(cluster)
    yield nodes
    for each in nodes.made:
        each.stop()


def test_the_first_one_is_elected_and_the_other_only_when_that_is_silent(nodes: Nodes) -> None:
    one, other = nodes.add("one"), nodes.add("other")
    one.look_once()
    assert one.holds()
    assert epoch_of(one) == 1
    other.look_once()
    nodes.let_pass(20, one, other)
    assert (one.holds(), other.holds()) == (True, False)
    assert other.row is not None
    assert other.row.address == "address of one"

    nodes.let_pass(GIVER_LEASE_S, other)
    assert not one.holds(), "by its own clock, before another is elected"
    assert epoch_of(other) is None
    nodes.let_pass(GIVER_WATCH_S - GIVER_LEASE_S + 1, other)
    assert other.holds()
    assert epoch_of(other) == 2
    one.look_once()
    assert epoch_of(one) is None
    nodes.let_pass(20, one, other)
    assert (epoch_of(one), other.holds()) == (None, True)


def test_one_that_could_not_renew_continues_if_no_other_was_elected(nodes: Nodes) -> None:
    one = nodes.add("one")
    one.look_once()
    elected = one.elected
    nodes.let_pass(60)
    assert not one.holds()
    one.look_once()
    assert one.holds()
    assert one.elected == elected


def test_who_cannot_read_the_row_does_not_take_it(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = nodes.add("one"), nodes.add("other")
    one.look_once()
    nodes.let_pass(GIVER_WATCH_S - 1, other)
    opener, other._opener = other._opener, lambda _: (_ for _ in ()).throw(NotReached("not now"))
    other._close()
    with pytest.raises(NotReached):
        other.look_once()
    assert other.fault is not None
    other._opener = opener
    nodes.let_pass(GIVER_WATCH_S - 1, other)
    assert epoch_of(other) is None
    nodes.let_pass(2, other)
    assert other.holds()


def test_a_takeover_whose_outcome_was_unknown_is_found_out(nodes: Nodes, cluster: Cluster) -> None:
    connection = cluster.connect()
    seen = make_giver(connection, 1, "another", "somewhere")
    assert seen is not None
    taken = take_giver(connection, seen, 2, "one", "address of one")
    connection.close()
    assert taken is not None
    one = nodes.add("one")
    one.look_once()
    assert epoch_of(one) == 2
    assert one.holds()


def test_a_row_is_taken_once(cluster: Cluster) -> None:
    connection = cluster.connect()
    seen = make_giver(connection, 5, "one", "a")
    assert seen is not None
    assert make_giver(connection, 6, "other", "b") is None
    assert take_giver(connection, seen, 5, "other", "b") is None, "an epoch is used once"
    assert take_giver(connection, seen, 6, "other", "b") is not None
    assert take_giver(connection, seen, 7, "third", "c") is None
    row = read_giver(connection)
    assert row is not None
    assert (row.epoch, row.owner, row.address) == (6, "other", "b")
    connection.close()


def test_the_number_is_above_all_that_were_heard_of(nodes: Nodes) -> None:
    """The database was restored to an earlier time, or a shard has heard of an election since."""
    one = nodes.add("one", heard=lambda: 7)
    one.look_once()
    assert epoch_of(one) == 8
    one.again(20)
    assert not one.holds()
    assert epoch_of(one) is None
    one.look_once()
    assert epoch_of(one) == 21
    assert one.holds()


def test_without_a_standby_nobody_is_elected(nodes: Nodes, cluster: Cluster) -> None:
    cluster.primary.settle("synchronous_standby_names = ''")
    try:
        one = nodes.add("one")
        with pytest.raises(Lost):
            one.look_once()
        assert not one.holds()
    finally:
        cluster.primary.settle("synchronous_standby_names = '*'")


def test_a_thread_looks(nodes: Nodes, cluster: Cluster) -> None:
    one = GiverElection(cluster.parameters(), "one", "a", lambda: 0)
    nodes.made.append(one)
    one.start()
    eventually_blocking(one.holds)
    one.stop()
    assert not one.holds()


async def test_a_giver_answers_while_its_election_holds(nodes: Nodes, tmp_path: Path) -> None:
    one = nodes.add("one")
    clock = nodes.clocks["one"]
    meeting = LocalMeeting(tmp_path, lambda: clock[0])
    giving = Giving(one, meeting, asyncio.get_running_loop(), lambda _: 5, lambda: clock[0])
    holder = Holder("A")
    assert giving.answer(holder.ask(0.0, {}, {})) is None
    one.look_once()
    welcome = giving.answer(holder.ask(0.0, {NAME: 5}, {}))
    assert welcome == Welcome(1)
    holder.welcomed(Welcome(1))
    clock[0] += GIVER_LEASE_S
    assert giving.answer(holder.ask(0.0, {NAME: 5}, {})) is None
    one.look_once()
    answer = giving.answer(holder.ask(0.0, {NAME: 5}, {}))
    assert isinstance(answer, Answer)
    giving.end()


def test_one_that_leaves_is_followed_at_once_and_is_not_elected_again_for_a_while(nodes: Nodes) -> None:
    one, other = nodes.add("one"), nodes.add("other")
    one.look_once()
    other.look_once()
    one.end()
    assert not one.holds(), "before the others know it"
    one.look_once()
    other.look_once()
    assert other.holds()
    assert epoch_of(other) == 2
    other.end()
    other.look_once()
    nodes.let_pass(RESIGNED_S - 1, one)
    assert epoch_of(one) is None
    nodes.let_pass(2, one)
    assert epoch_of(one) == 3


def test_one_that_must_not_be_elected_is_not_and_one_that_is_ends(nodes: Nodes) -> None:
    may = [True]
    one = nodes.add("one")
    one._may = lambda: may[0]
    one.look_once()
    assert one.holds()
    may[0] = False
    one.look_once()
    assert not one.holds()
    nodes.let_pass(30, one)
    assert epoch_of(one) is None


def test_another_waits_for_what_the_one_before_can_have_given_and_no_longer(nodes: Nodes) -> None:
    """It gave nothing later than its lease behind its last beat, which was sent before it was read first."""
    one, other = nodes.add("one"), nodes.add("other")
    one.look_once()
    other.look_once()
    read_at = nodes.clocks["other"][0]
    gave_until = nodes.clocks["one"][0] + GIVER_LEASE_S  # by a clock of the same rate here
    while epoch_of(other) is None:
        nodes.let_pass(0.5, other)
    assert other.elected is not None
    waits_until = other.elected.at - read_at
    assert gave_until - nodes.clocks["one"][0] < GIVER_LEASE_S
    assert GIVER_LEASE_S <= waits_until < nodes.clocks["other"][0] - read_at


def test_one_that_takes_over_from_nobody_waits_from_now_on(nodes: Nodes) -> None:
    """The row is missing, or older than what was heard of: nothing is known of the giver before."""
    one = nodes.add("one", heard=lambda: 7)
    one.look_once()
    assert one.elected is not None
    assert one.elected.at == nodes.clocks["one"][0]
