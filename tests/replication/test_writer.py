"""A writer against a real primary and its standby: each way in which a commit can end without an answer."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mailcore.replication.batch import Batch
from mailcore.replication.connection import Connection
from mailcore.replication.faults import Fenced, Lost, ServerError, StoreRefused
from mailcore.replication.statements import COMMIT_ONE
from mailcore.replication.writer import StoreWriter
from tests.eventually import PATIENCE_S, eventually_blocking
from tests.replication.cluster import Cluster, Template
from tests.replication.writing import SHARD, WAITING, Task, add_shard, appended, stored, wait_for_waiting, writing

ENDS = {"incoming.0": (0, 4)}


def test_batches_are_numbered_and_what_begins_is_told_where_they_end(cluster: Cluster) -> None:
    add_shard(cluster.primary)
    with writing(cluster) as writer:
        assert writer.commit(appended(b"one", 0), {}) == 1
        assert writer.commit(appended(b"two", 3), ENDS) == 2
        assert writer.waiting_since is None
    again = StoreWriter(cluster.parameters(), SHARD, "r0", 1)
    begun = again.begin()
    assert (begun.incarnation, begun.n, begun.ends) == (2, 2, ENDS)
    assert again.commit(Batch(), ENDS) == 3, "an empty batch confirms all before it"
    again.close()
    assert stored(cluster.primary) == [("r0", "1", "one"), ("r0", "2", "two")]


def test_a_batch_of_everything_is_one_commit(cluster: Cluster) -> None:
    add_shard(cluster.primary)
    with writing(cluster, "m") as writer:
        first = appended(b"old", 0, "journal/0")
        first.put("restored", b"R")
        first.append("journal/9", 0, [b"kept"])
        writer.commit(first, {})
        batch = Batch()
        batch.append("journal/0", 3, [b"left out"])
        batch.drop(["journal/0", "restored", "never/was"])
        batch.append("journal/0", 0, [b"new"])  # the same name begins again
        batch.marks("incoming.0/0", [4, 1 << 31], 2)
        batch.put("restart", b"P2")
        batch.put("restart.previous", b"P1")
        batch.rename("journal/9", "journal/9.data")
        writer.commit(batch, ENDS)
    found = cluster.primary.sql("select n, part, kind, file, at, bytes from waypost.chunk order by n, part")
    assert found == [
        ("1", "1", "a", "journal/9.data", "0", r"\x6b657074"),
        ("2", "0", "a", "journal/0", "0", r"\x6e6577"),
        ("2", "1", "m", "incoming.0/0", "2", r"\x0400000000000080"),
    ]
    assert cluster.primary.sql("select file, bytes from waypost.state order by file") == [
        ("restart", r"\x5032"),
        ("restart.previous", r"\x5031"),
    ]


def cancel(cluster: Cluster, pid: int) -> None:
    cluster.primary.sql(f"select pg_cancel_backend({pid})")


def terminate(cluster: Cluster, pid: int) -> None:
    cluster.primary.sql(f"select pg_terminate_backend({pid})")


@pytest.mark.parametrize("end", [cancel, terminate])
def test_a_commit_whose_wait_an_administrator_ends_is_not_done_until_a_standby_has_it(
    cluster: Cluster, end: Callable[[Cluster, int], None]
) -> None:
    """It is visible all that while; the question for it waits for the standby, too, and may be ended as often as one likes."""
    add_shard(cluster.primary)
    with writing(cluster) as writer:
        cluster.standby.pause_receiver()
        task = Task(lambda: writer.commit(appended(b"mail", 0), {}))
        for _ in range(3):
            (pid,) = wait_for_waiting(cluster.primary)
            end(cluster, pid)
            eventually_blocking(lambda: not task.is_running() or (str(pid),) not in cluster.primary.sql(WAITING))  # noqa: B023
            assert task.is_running()
            assert stored(cluster.primary) == [("r0", "1", "mail")]
        wait_for_waiting(cluster.primary)
        assert writer.fault
        assert writer.waiting_since
        assert task.is_running()
        cluster.standby.resume_receiver()
        assert task.wait() == 1
    assert stored(cluster.primary) == [("r0", "1", "mail")]


def test_a_commit_without_an_answer_is_asked_for_and_is_there_once(cluster: Cluster) -> None:
    """The time-out leaves a session that still commits: the question waits behind it for the row."""
    add_shard(cluster.primary)
    with writing(cluster, parameters=cluster.parameters(answer_timeout_s=0.3)) as writer:
        cluster.standby.pause_receiver()
        task = Task(lambda: writer.commit(appended(b"mail", 0), {}))
        locked = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'"
        eventually_blocking(lambda: cluster.primary.sql(locked) != [("0",)], "the question waits for the row")
        assert task.is_running()
        cluster.standby.resume_receiver()
        assert task.wait() == 1
    assert stored(cluster.primary) == [("r0", "1", "mail")]


def test_a_server_without_a_standby_acknowledges_nothing(cluster: Cluster) -> None:
    """The names are emptied while a commit waits: it returns like one that is kept by two servers."""
    add_shard(cluster.primary)
    with writing(cluster) as writer:
        cluster.standby.pause_receiver()
        cluster.primary.settle("synchronous_standby_names = ''")
        try:
            task = Task(lambda: writer.commit(appended(b"mail", 0), {}))
            eventually_blocking(
                lambda: writer.fault is not None and writer.fault.argument == "synchronous_standby_names"
            )
            assert task.is_running()
        finally:
            cluster.primary.settle("synchronous_standby_names = '*'")
        cluster.standby.resume_receiver()
        assert task.wait() == 1
    assert stored(cluster.primary) == [("r0", "1", "mail")]


def test_a_process_that_begins_ends_its_predecessor_and_waits_for_what_it_left(cluster: Cluster) -> None:
    """The predecessor is dead, and its session waits for the standby: it holds the row, and its batch is there afterwards."""
    add_shard(cluster.primary)
    with writing(cluster) as dead:
        cluster.standby.pause_receiver()
        Task(lambda: dead.commit(appended(b"unanswered", 0), ENDS))
        wait_for_waiting(cluster.primary)
        dead.stopping.set()
        again = StoreWriter(cluster.parameters(), SHARD, "r0", 1)
        task = Task(again.begin)
        locked = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'"
        eventually_blocking(lambda: cluster.primary.sql(locked) == [("1",)])
        cluster.standby.resume_receiver()
        begun = task.wait()
        assert (begun.incarnation, begun.n, begun.ends) == (2, 1, ENDS)
        again.close()


def test_what_a_predecessor_left_on_its_way_finds_no_row(cluster: Cluster) -> None:
    add_shard(cluster.primary)
    with writing(cluster) as old, writing(cluster) as new:
        values = [SHARD, "r0", 1, old.state.incarnation, 1, b"", "a", "incoming.0/0", 0, 0, b"late"]
        late = cluster.connect()
        assert late.execute(COMMIT_ONE, values, PATIENCE_S).rows == []
        late.close()
        with pytest.raises(Fenced):
            old.commit(appended(b"mine", 0), {})
        assert new.commit(appended(b"new", 0), {}) == 1
    assert stored(cluster.primary) == [("r0", "1", "new")]


def test_a_number_is_taken_once(cluster: Cluster) -> None:
    add_shard(cluster.primary)
    with writing(cluster) as writer:
        writer.commit(appended(b"one", 0), {})
        double = cluster.connect()
        for number in (0, 1, 3):
            values = [SHARD, "r0", 1, writer.state.incarnation, number, b"", "a", "incoming.0/0", 0, 0, b"x"]
            assert double.execute(COMMIT_ONE, values, PATIENCE_S).rows == []
        double.close()
    assert stored(cluster.primary) == [("r0", "1", "one")]


def test_an_error_of_the_database_is_a_no_and_the_writer_continues(cluster: Cluster) -> None:
    """A full disk, here a trigger that says so."""
    add_shard(cluster.primary)
    cluster.primary.sql(
        "create function is_full() returns trigger language plpgsql as $$ begin raise disk_full; end $$;"
        " create trigger is_full before insert on waypost.chunk for each row execute function is_full()"
    )
    with writing(cluster) as writer:
        try:
            with pytest.raises(ServerError) as error:
                writer.commit(appended(b"no", 0), {})
            assert error.value.sqlstate == "53100"
        finally:
            cluster.primary.sql("drop trigger is_full on waypost.chunk; drop function is_full")
        assert writer.commit(appended(b"yes", 0), {}) == 1
    assert stored(cluster.primary) == [("r0", "1", "yes")]


def test_a_batch_that_is_refused_after_an_attempt_without_an_answer_is_given_up_behind_a_new_incarnation(
    cluster: Cluster,
) -> None:
    """The first attempt may still be on its way; here it arrives when the batch was refused, and finds no row."""
    add_shard(cluster.primary)
    with writing(cluster) as writer:
        first = writer.state.incarnation
        late: list[Connection] = []
        run = Connection.execute

        def lost_at_first(self: Connection, statement: object, values: list[object], timeout_s: float) -> object:
            if statement is COMMIT_ONE and not late:
                late.append(cluster.connect())
                self.close()
                raise Lost("it never arrived")
            return run(self, statement, values, timeout_s)  # type: ignore[arg-type]

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Connection, "execute", lost_at_first)
            cluster.primary.sql("alter table waypost.chunk add constraint no check (octet_length(bytes) > 100)")
            try:
                with pytest.raises(ServerError):
                    writer.commit(appended(b"no", 0), {})
            finally:
                cluster.primary.sql("alter table waypost.chunk drop constraint no")
        values = [SHARD, "r0", 1, first, 1, b"", "a", "incoming.0/0", 0, 0, b"no"]
        assert run(late[0], COMMIT_ONE, values, PATIENCE_S).rows == []
        late[0].close()
        assert writer.commit(appended(b"yes", 0), {}) == 1
    assert stored(cluster.primary) == [("r0", "1", "yes")]


def test_a_shard_that_is_not_there_or_has_another_epoch_gives_no_writer(cluster: Cluster) -> None:
    for epoch in (1, 2):
        with pytest.raises(Fenced), writing(cluster, epoch=epoch):
            pass
        cluster.empty()
        add_shard(cluster.primary)


def test_a_database_that_keeps_nothing_is_refused_at_the_begin(template: Template) -> None:
    with template.copy("alone", standby=False) as alone:
        alone.primary.settle("synchronous_standby_names = ''")
        add_shard(alone.primary)
        with pytest.raises(StoreRefused, match="has no synchronous standby"), writing(alone):
            pass
