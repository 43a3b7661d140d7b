"""The row of a shard: numbers, takeovers in every order, the lease and its threads, against a real primary and standby.

Proves law: takeover-returned-first, law: fenced-by-its-row (docs/laws.md).
"""

from __future__ import annotations

import threading

import pytest

from mailcore.faults import Code, Fault
from mailcore.queue.queue_id import SHARDS
from mailcore.replication.faults import Fenced, Lost, ServerError, StoreRefused
from mailcore.replication.lease import LEASE_S
from mailcore.replication.lease_keeper import LeaseKeeper
from mailcore.replication.shard import (
    NUMBER_MAX,
    confirm_owner,
    read_shard,
    read_shards,
    register,
    renew,
    reserve_ids,
    set_state,
    take_over,
)
from mailcore.replication.writer import StoreWriter
from tests.eventually import eventually_blocking
from tests.replication.cluster import Cluster
from tests.replication.writing import SHARD, Task, add_shard, appended, stored, wait_for_waiting, writing

ONE, TWO = "node-1/boot-1", "node-2/boot-1"


def test_a_number_is_lent_once_also_to_nodes_that_register_at_once(cluster: Cluster) -> None:
    def add(name: str) -> int:
        connection = cluster.connect()
        try:
            return register(connection, name, ONE).number
        finally:
            connection.close()

    tasks = [Task(lambda name=name: add(name)) for name in "abcdef"]  # type: ignore[misc]
    assert sorted(task.wait() for task in tasks) == [1, 2, 3, 4, 5, 6]
    connection = cluster.connect()
    assert sorted(read_shards(connection)) == list("abcdef")
    again = register(connection, "a", ONE)
    assert (again.epoch, again.owner) == (1, ONE)
    with pytest.raises(StoreRefused, match="belongs to node-1/boot-1"):
        register(connection, "a", TWO)
    connection.close()


def test_a_number_is_not_lent_twice_and_fits_into_a_queue_id(cluster: Cluster) -> None:
    assert NUMBER_MAX == SHARDS - 1
    add_shard(cluster.primary, name="last", number=NUMBER_MAX)
    connection = cluster.connect()
    with pytest.raises(StoreRefused, match="a number is not lent twice"):
        register(connection, "one-more", ONE)
    assert list(read_shards(connection)) == ["last"]
    connection.close()


def test_a_takeover_ends_the_writers_of_the_former_owner(cluster: Cluster) -> None:
    connection = cluster.connect()
    row = register(connection, SHARD, ONE)
    with writing(cluster, "r0") as receiver, writing(cluster, "m") as manager:
        receiver.commit(appended(b"one", 0), {"incoming.0": (0, 3)})
        taken = take_over(connection, row, TWO)
        assert taken is not None
        assert (taken.epoch, taken.owner, taken.beat) == (2, TWO, row.beat + 2)
        for writer in (receiver, manager):
            with pytest.raises(Fenced):
                writer.commit(appended(b"late", 3), {})
        with pytest.raises(Fenced):
            StoreWriter(cluster.parameters(), SHARD, "r0", 1).begin()
        with pytest.raises(Fenced, match="taken over by node-2"):
            renew(connection, row, row.beat, row.beat + 1)
        with pytest.raises(Fenced):
            reserve_ids(connection, SHARD, 1, 5)
        with pytest.raises(Fenced):
            set_state(connection, row, "closed")
    with writing(cluster, "r0", epoch=2) as successor:
        assert successor.commit(appended(b"two", 3), {}) == 2
    assert take_over(connection, row, TWO) is None, "what was seen is not there any more"
    connection.close()
    assert stored(cluster.primary) == [("r0", "1", "one"), ("r0", "2", "two")]


def test_a_takeover_waits_for_a_commit_under_way_and_the_new_owner_reads_it(cluster: Cluster) -> None:
    """The statement of the former owner had seen its epoch: without the wait it would commit behind the new owner's back."""
    connection = cluster.connect()
    row = register(connection, SHARD, ONE)
    with writing(cluster) as writer:
        cluster.standby.pause_receiver()
        task = Task(lambda: writer.commit(appended(b"mail", 0), {}))
        wait_for_waiting(cluster.primary)
        with pytest.raises(ServerError) as error:
            take_over(connection, row, TWO, lock_timeout_s=0.1)
        assert error.value.sqlstate == "55P03"
        there = read_shard(connection, SHARD)
        assert there == row, "nothing has happened"
        takeover = Task(lambda: take_over(connection, row, TWO, lock_timeout_s=100))
        eventually_blocking(
            lambda: (
                cluster.primary.sql("select count(*) from pg_stat_activity where wait_event_type = 'Lock'") == [("1",)]
            )
        )
        cluster.standby.resume_receiver()
        assert takeover.wait().epoch == 2
        assert task.wait() == 1
    connection.close()
    assert stored(cluster.primary) == [("r0", "1", "mail")]


def test_a_writer_that_begins_during_a_takeover_is_in_it_or_finds_nothing(cluster: Cluster) -> None:
    """BEGIN reads the shard's row under a lock that the takeover needs."""
    connection = cluster.connect()
    row = register(connection, SHARD, ONE)
    cluster.standby.pause_receiver()
    takeover = Task(lambda: take_over(connection, row, TWO))
    wait_for_waiting(cluster.primary)
    begin = Task(StoreWriter(cluster.parameters(), SHARD, "r9", 1).begin)
    eventually_blocking(
        lambda: cluster.primary.sql("select count(*) from pg_stat_activity where wait_event_type = 'Lock'") == [("1",)]
    )
    cluster.standby.resume_receiver()
    assert takeover.wait().epoch == 2
    with pytest.raises(Fenced):
        begin.wait()
    connection.close()


def test_of_two_nodes_that_take_over_at_once_one_does(cluster: Cluster) -> None:
    connections = [cluster.connect() for _ in range(2)]
    row = register(connections[0], SHARD, ONE)
    owners = (TWO, "node-3/boot-1")
    tasks = [
        Task(lambda c=c, owner=owner: take_over(c, row, owner))  # type: ignore[misc]
        for c, owner in zip(connections, owners, strict=True)
    ]
    taken = [task.wait() for task in tasks]
    assert sorted(each is None for each in taken) == [False, True]
    for connection in connections:
        connection.close()


def test_a_takeover_whose_wait_is_cancelled_counts_when_a_write_of_the_owner_has_returned(cluster: Cluster) -> None:
    connection = cluster.connect()
    row = register(connection, SHARD, ONE)
    cluster.standby.pause_receiver()
    takeover = Task(lambda: take_over(connection, row, TWO))
    (pid,) = wait_for_waiting(cluster.primary)
    cluster.primary.sql(f"select pg_cancel_backend({pid})")
    again = cluster.connect()
    eventually_blocking(lambda: (shown := read_shard(again, SHARD)) is not None and shown.owner == TWO)
    wait_for_waiting(cluster.primary)
    assert takeover.is_running(), "it is shown, and on one server only"
    cluster.standby.resume_receiver()
    assert takeover.wait().epoch == 2
    connection.close()
    again.close()


def test_a_takeover_whose_session_ends_is_decided_by_a_write_of_the_owner(cluster: Cluster) -> None:
    connection = cluster.connect()
    row = register(connection, SHARD, ONE)
    cluster.standby.pause_receiver()
    takeover = Task(lambda: take_over(connection, row, TWO))
    (pid,) = wait_for_waiting(cluster.primary)
    cluster.primary.sql(f"select pg_terminate_backend({pid})")
    with pytest.raises(Lost):
        takeover.wait()
    assert connection.closed
    again = cluster.connect()
    confirming = Task(lambda: confirm_owner(again, SHARD, 2, TWO))
    wait_for_waiting(cluster.primary)
    assert confirming.is_running()
    cluster.standby.resume_receiver()
    assert confirming.wait().epoch == 2
    assert confirm_owner(again, SHARD, 2, ONE) is None
    again.close()


def test_a_takeover_without_a_standby_does_not_count(cluster: Cluster) -> None:
    """The names are emptied while it waits: its transaction returns like one that is on two servers."""
    connection = cluster.connect()
    row = register(connection, SHARD, ONE)
    cluster.standby.pause_receiver()
    takeover = Task(lambda: take_over(connection, row, TWO))
    wait_for_waiting(cluster.primary)
    cluster.primary.settle("synchronous_standby_names = ''")
    try:
        with pytest.raises(Lost, match="no synchronous standby"):
            takeover.wait()
    finally:
        cluster.primary.settle("synchronous_standby_names = '*'")
    connection.close()


def test_a_takeover_that_was_not_sent_to_its_end_did_not_happen(cluster: Cluster) -> None:
    connection = cluster.connect()
    row = register(connection, SHARD, ONE)
    other = cluster.connect()
    other.run("begin", 10)
    other.run(f"update waypost.shard set epoch = epoch + 1, owner = '{TWO}' where name = '{SHARD}'", 10)
    other.close()
    assert confirm_owner(connection, SHARD, 2, TWO) is None
    assert read_shard(connection, SHARD) == row
    connection.close()


def test_a_renewal_of_which_nothing_was_heard_may_arrive_late(cluster: Cluster) -> None:
    connection = cluster.connect()
    row = register(connection, SHARD, ONE)
    assert renew(connection, row, 0, 2) == (2, "")
    with pytest.raises(Fenced, match="a copy of this machine runs"):
        renew(connection, row, 0, 1)  # the first one arrives now
    assert renew(connection, row, 2, 3) == (3, "")
    connection.close()


def test_a_reservation_is_never_taken_back_and_a_state_is_set_by_the_owner(cluster: Cluster) -> None:
    connection = cluster.connect()
    row = register(connection, SHARD, ONE)
    assert reserve_ids(connection, SHARD, 1, 70) == 70
    assert reserve_ids(connection, SHARD, 1, 40) == 70
    set_state(connection, row, "held")
    taken = take_over(connection, read_shard(connection, SHARD) or row, TWO)
    assert taken is not None
    assert (taken.ids_after, taken.state) == (70, "held")
    connection.close()


def test_a_reservation_that_waits_for_no_standby_does_not_count(cluster: Cluster) -> None:
    connection = cluster.connect()
    register(connection, SHARD, ONE)
    cluster.primary.settle("synchronous_standby_names = ''")
    try:
        with pytest.raises(Lost, match="no synchronous standby"):
            reserve_ids(connection, SHARD, 1, 70)
    finally:
        cluster.primary.settle("synchronous_standby_names = '*'")
    connection.close()


class Ended:
    """Notes why a keeper ended."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []
        self.over = threading.Event()

    def __call__(self, fault: Fault) -> None:
        self.faults.append(fault)
        self.over.set()


def end_sessions(cluster: Cluster, but: int) -> None:
    cluster.primary.sql(
        "select pg_terminate_backend(pid) from pg_stat_activity"
        f" where application_name = 'waypost' and pid <> {but}"
    )  # fmt: skip


def test_the_thread_keeps_the_lease_and_ends_when_the_shard_is_taken(cluster: Cluster) -> None:
    connection = cluster.connect()
    row = register(connection, SHARD, ONE)
    ended = Ended()
    keeper = LeaseKeeper(cluster.parameters(), row, ended)
    assert not keeper.holds()
    keeper.start()

    def beat() -> int:
        shown = read_shard(connection, SHARD)
        assert shown is not None
        return shown.beat

    eventually_blocking(keeper.holds)
    eventually_blocking(lambda: beat() > 1)
    end_sessions(cluster, connection.backend_pid)
    before = beat()
    eventually_blocking(lambda: beat() >= before + 2, "it connects again")
    while take_over(connection, read_shard(connection, SHARD) or row, TWO) is None:
        pass
    eventually_blocking(ended.over.is_set)
    assert not keeper.holds()
    assert [fault.code for fault in ended.faults] == [Code.CONFLICT]
    assert "taken over by node-2" in ended.faults[0].message
    keeper.stop()
    connection.close()


def test_a_lease_holds_from_before_its_renewal_was_sent_whenever_it_returns(cluster: Cluster) -> None:
    connection = cluster.connect()
    now = [100.0]
    keeper = LeaseKeeper(cluster.parameters(), register(connection, SHARD, ONE), Ended(), clock=lambda: now[0])
    cluster.standby.pause_receiver()
    task = Task(keeper.renew_once)
    wait_for_waiting(cluster.primary)
    now[0] += 4
    cluster.standby.resume_receiver()
    task.wait()
    assert keeper.until == 100 + LEASE_S
    keeper.close()
    connection.close()


def test_a_lease_runs_out_while_the_database_must_not_be_used(cluster: Cluster) -> None:
    """Beyond what each renewal says itself; here the role's isolation. The next look finds it mended."""
    connection = cluster.connect()
    row = register(connection, SHARD, ONE)
    now = [100.0]
    keeper = LeaseKeeper(cluster.parameters(), row, Ended(), clock=lambda: now[0])
    keeper.renew_once()
    assert keeper.holds()
    cluster.primary.sql("alter role waypost set default_transaction_isolation = 'repeatable read'")
    try:
        keeper.look_once()
        with pytest.raises(StoreRefused, match="read committed"):
            keeper.renew_once()
        now[0] += 6
        assert not keeper.holds()
    finally:
        cluster.primary.sql("alter role waypost reset default_transaction_isolation")
    keeper.look_once()
    keeper.renew_once()
    assert keeper.holds()
    keeper.close()
    connection.close()


def test_a_lease_that_cannot_be_kept_for_a_bug_ends_the_process(cluster: Cluster) -> None:
    connection = cluster.connect()
    row = register(connection, SHARD, ONE)
    ended = Ended()
    keeper = LeaseKeeper(cluster.parameters(), row._replace(beat="x"), ended)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        keeper._keep()
    assert [fault.code for fault in ended.faults] == [Code.INTERNAL]
    assert not keeper.holds()
    keeper.close()
    connection.close()
