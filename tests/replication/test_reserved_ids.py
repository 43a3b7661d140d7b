"""Queue ids of a shard over its owners: none comes twice, whatever their clocks, and none without a reservation on two servers.

Proves law: ids-never-reused (docs/laws.md).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import pytest

from mailcore.queue.queue_id import QueueIds, arrival_of
from mailcore.queue.reserved_time import AHEAD_S, Keeper, ReservedTime
from mailcore.replication.connection import Connection
from mailcore.replication.reserved_ids import ReservedInShard
from mailcore.replication.shard import ShardRow, read_shard, register, take_over
from tests.eventually import eventually_blocking
from tests.replication.cluster import Cluster
from tests.replication.writing import SHARD, Task, wait_for_waiting

NOW = 1_790_000_000.0


@contextmanager
def ids_of(cluster: Cluster, clock: Callable[[], float], epoch: int = 1, process: int = 0) -> Iterator[QueueIds]:
    keeper: Keeper = ReservedInShard(cluster.parameters(), SHARD, epoch)
    assert isinstance(keeper, ReservedInShard)
    with closing(keeper):
        yield QueueIds(process, clock, ReservedTime(keeper), shard=1)


@pytest.fixture
def connection(cluster: Cluster) -> Iterator[Connection]:
    with closing(cluster.connect()) as connection:
        register(connection, SHARD, "owner-1")
        yield connection


def row_of(connection: Connection) -> ShardRow:
    row = read_shard(connection, SHARD)
    assert row is not None
    return row


def test_the_ids_of_an_owner_whose_clock_is_behind_lie_beyond_all_before(
    cluster: Cluster, connection: Connection
) -> None:
    with ids_of(cluster, lambda: NOW) as ids:
        first = [ids.next() for _ in range(50)]
        taken = take_over(connection, row_of(connection), "owner-2")
        assert taken is not None
        late = [ids.next() for _ in range(50)]  # of what it had reserved; no commit of them succeeds
    with ids_of(cluster, lambda: NOW - 60, taken.epoch) as ids:
        second = [ids.next() for _ in range(50)]
    assert sorted({*first, *late, *second}) == [*first, *late, *second]
    assert arrival_of(second[-1]) <= NOW + AHEAD_S + 1


def test_an_owner_whose_shard_was_taken_reserves_nothing(cluster: Cluster, connection: Connection) -> None:
    now = [NOW]
    with ids_of(cluster, lambda: now[0]) as ids:
        ids.next()
        take_over(connection, row_of(connection), "owner-2")
        before = row_of(connection).ids_after
        now[0] += 2 * AHEAD_S
        with pytest.raises(OSError, match="not ours any more"):
            ids.next()
    assert row_of(connection).ids_after == before


def test_no_id_is_given_out_before_its_time_is_on_two_servers(cluster: Cluster, connection: Connection) -> None:
    with ids_of(cluster, lambda: NOW) as ids:
        cluster.standby.pause_receiver()
        task = Task(ids.next)
        (pid,) = wait_for_waiting(cluster.primary)
        cluster.primary.sql(f"select pg_cancel_backend({pid})")
        with pytest.raises(OSError, match="cut short"):
            task.wait()
        again = Task(ids.next)
        wait_for_waiting(cluster.primary)
        assert again.is_running()
        cluster.standby.resume_receiver()
        assert arrival_of(again.wait()) == pytest.approx(NOW, abs=1)


def test_who_is_hurried_waits_for_no_connection_and_not_for_a_standby(cluster: Cluster, connection: Connection) -> None:
    hurried = [False]
    with closing(ReservedInShard(cluster.parameters(), SHARD, 1, hurried=lambda: hurried[0])) as keeper:
        keeper.keep(5)
        hurried[0] = True
        keeper.keep(6)
        cluster.standby.pause_receiver()
        with pytest.raises(OSError, match="no answer in time"):
            keeper.keep(7)
        with pytest.raises(OSError, match="there is no connection"):
            keeper.keep(8)
        hurried[0] = False
        other = Task(lambda: keeper.keep(9))
        locked = "select 1 from pg_stat_activity where wait_event_type = 'Lock'"  # behind what the first one left
        eventually_blocking(lambda: cluster.primary.sql(locked))
        hurried[0] = True
        with pytest.raises(OSError, match="does not answer"):
            keeper.keep(10)
        cluster.standby.resume_receiver()
        other.wait()
        assert keeper.read() == 9


@pytest.mark.parametrize("seed", range(5))
def test_they_ascend_over_many_owners_and_restarts_with_any_clock_and_lost_sessions(
    cluster: Cluster, connection: Connection, seed: int
) -> None:
    rng = random.Random(seed)
    given_out: dict[int, list[str]] = {0: [""], 1: [""]}  # by process
    for _ in range(12):
        epoch = row_of(connection).epoch
        if rng.random() < 0.5:
            taken = take_over(connection, row_of(connection), f"owner-{rng.randrange(3)}")
            assert taken is not None
            epoch = taken.epoch
        clock = [NOW + rng.choice([-1e5, -20.0, -5.0, 0.0, 5.0, 20.0, 1e5])]
        process = rng.randrange(2)
        with ids_of(cluster, lambda clock=clock: clock[0], epoch, process) as ids:  # type: ignore[misc]
            for _ in range(rng.randrange(1, 10)):
                clock[0] += rng.choice([0.0, 0.001, 4.0, -30.0, 30.0])
                if rng.random() < 0.1:
                    cluster.primary.sql(
                        "select pg_terminate_backend(pid) from pg_stat_activity"
                        f" where application_name = 'waypost' and pid <> {connection.backend_pid}"
                    )
                try:
                    given_out[process].append(ids.next())
                except OSError:
                    continue
    for each in given_out.values():
        assert sorted(set(each)) == each
