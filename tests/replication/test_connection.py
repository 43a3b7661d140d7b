"""The connection: an answer is complete, nothing is ever cancelled, and a time-out closes the socket."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Iterator

import pytest

from mailcore.faults import Code
from mailcore.replication import connection as module
from mailcore.replication.connection import SESSION, Connection
from mailcore.replication.faults import Lost, NotReached, ServerError
from mailcore.replication.parameters import Host, StoreParameters
from mailcore.replication.statements import COMMIT
from tests.eventually import PATIENCE_S, eventually_blocking
from tests.replication.cluster import Cluster, Server
from tests.replication.writing import WAITING, Task, wait_for_waiting

INSERT = "insert into waypost.state values ('s', 'f', 'x')"


@pytest.fixture
def connection(cluster: Cluster) -> Iterator[Connection]:
    connection = cluster.connect()
    yield connection
    connection.close()


def states(server: Server) -> list[tuple[str, ...]]:
    return server.sql("select file from waypost.state")


def test_the_member_that_takes_writes_is_found_in_any_order(cluster: Cluster) -> None:
    for hosts in (cluster.parameters().hosts, cluster.parameters().hosts[::-1]):
        connection = cluster.connect(hosts=(Host(str(cluster.directory / "nowhere")), *hosts))
        assert connection.host == cluster.primary.host
        connection.close()


def test_each_host_that_cannot_be_used_has_its_reason(cluster: Cluster) -> None:
    nowhere = Host(str(cluster.directory / "nowhere"))
    with pytest.raises(
        NotReached, match=r"nowhere:5432: .*No such file.*read-only|nowhere:5432: .*No such file.*read.write"
    ) as error:
        cluster.connect(hosts=(nowhere, cluster.standby.host))
    assert error.value.code is Code.UNAVAILABLE


def test_a_session_has_the_settings_on_which_the_laws_rest(cluster: Cluster, connection: Connection) -> None:
    columns = ", ".join(f"current_setting('{name}')" for name in SESSION)
    (answer,) = connection.run(f"select {columns}", PATIENCE_S)
    assert [(value or b"").decode() for value in answer.rows[0]] == list(SESSION.values())


def test_parameters_and_rows_of_every_type_come_back_as_they_were(cluster: Cluster, connection: Connection) -> None:
    """Binary, with an empty array, an empty text, a nul byte and letters beyond ASCII."""
    cluster.primary.sql("insert into waypost.shard (name, number, epoch, owner) values ('ä', 1, 1, 'o')")
    cluster.primary.sql("insert into waypost.writer (shard, writer, epoch) values ('ä', 'r0', 1)")
    values = [
        "ä",
        "r0",
        1,
        1,
        1,
        b"\0\xff",
        [],
        ["restart", ""],
        [b"", b"\0"],
        ["a", "m"],
        ["é", "f"],
        [0, 1 << 62],
        [7, 8],
        [b"\0\n\\", b""],
        [],
        [],
    ]
    answer = connection.execute(COMMIT, values, PATIENCE_S)
    assert answer.rows == [(b"\0" * 7 + b"\1", b"\1")]
    assert cluster.primary.sql("select ends from waypost.writer") == [(r"\x00ff",)]
    assert cluster.primary.sql("select part, kind, file, at, crc, bytes from waypost.chunk order by part") == [
        ("0", "a", "é", "0", "7", r"\x000a5c"),
        ("1", "m", "f", str(1 << 62), "8", r"\x"),
    ]
    assert cluster.primary.sql("select file, bytes from waypost.state order by file") == [
        ("", r"\x00"),
        ("restart", r"\x"),
    ]


def test_an_error_of_the_server_changes_nothing_and_the_connection_lives(connection: Connection) -> None:
    with pytest.raises(ServerError) as error:
        connection.run("select 1/0", PATIENCE_S)
    assert error.value.sqlstate == "22012"
    assert connection.run("select 1", PATIENCE_S)[0].rows == [(b"1",)]


def test_a_wait_that_is_cancelled_has_a_notice(cluster: Cluster, connection: Connection) -> None:
    """It is reported like any commit, and before the commit: only what follows up to "ready for query" says more."""
    cluster.standby.pause_receiver()
    task = Task(lambda: connection.run(INSERT, PATIENCE_S))
    (pid,) = wait_for_waiting(cluster.primary)
    cluster.primary.sql(f"select pg_cancel_backend({pid})")
    (answer,) = task.wait()
    assert [(notice.severity, notice.sqlstate) for notice in answer.notices] == [("WARNING", "01000")]
    assert states(cluster.primary) == [("f",)], "and it is visible, on one server"


def test_a_role_that_hides_warnings_does_not_hide_that_one(cluster: Cluster) -> None:
    cluster.primary.sql("alter role waypost set client_min_messages = error")
    try:
        connection = cluster.connect()
        cluster.standby.pause_receiver()
        task = Task(lambda: connection.run(INSERT, PATIENCE_S))
        (pid,) = wait_for_waiting(cluster.primary)
        cluster.primary.sql(f"select pg_cancel_backend({pid})")
        assert task.wait()[0].notices
        connection.close()
    finally:
        cluster.primary.sql("alter role waypost reset client_min_messages")


def test_a_wait_that_is_terminated_is_lost_although_the_command_was_reported(
    cluster: Cluster, connection: Connection
) -> None:
    cluster.standby.pause_receiver()
    task = Task(lambda: connection.run(INSERT, PATIENCE_S))
    (pid,) = wait_for_waiting(cluster.primary)
    cluster.primary.sql(f"select pg_terminate_backend({pid})")
    with pytest.raises(Lost) as error:
        task.wait()
    assert error.value.code is Code.OUTCOME_UNKNOWN
    assert connection.closed
    assert states(cluster.primary) == [("f",)]


def left_alone(cluster: Cluster, pid: int) -> None:
    """The session waits on without its client, and commits when the standby has it: it was not cancelled."""
    assert [int(row[0]) for row in cluster.primary.sql(WAITING)] == [pid]
    assert states(cluster.primary) == [], "a wait that was cut short would show it"
    cluster.standby.resume_receiver()
    eventually_blocking(lambda: states(cluster.primary) == [("f",)])


def test_a_time_out_closes_the_socket_and_cancels_nothing(cluster: Cluster, connection: Connection) -> None:
    cluster.standby.pause_receiver()
    # The time-out is over once the session waits.
    over = threading.Event()
    connection._clock = lambda: 1e9 if over.is_set() else 0.0
    task = Task(lambda: connection.run(INSERT, 0.2))
    (pid,) = wait_for_waiting(cluster.primary)
    over.set()
    with pytest.raises(Lost, match="no answer in time"):
        task.wait()
    assert connection.closed
    left_alone(cluster, pid)


def test_a_signal_closes_the_socket_and_cancels_nothing(cluster: Cluster, connection: Connection) -> None:
    """psycopg's own connection would send a cancel, and the commit would return like any other."""
    cluster.standby.pause_receiver()
    found: list[int] = []

    def interrupt() -> None:
        found.extend(wait_for_waiting(cluster.primary))
        os.kill(os.getpid(), signal.SIGINT)

    task = Task(interrupt)
    with pytest.raises(KeyboardInterrupt):
        connection.run(INSERT, PATIENCE_S)
    task.wait()
    assert connection.closed
    left_alone(cluster, found[0])


def test_a_session_whose_client_is_gone_waits_for_a_standby_and_for_no_lock(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``client_connection_check_interval`` ends what waits for a lock; the commit that holds it is not touched."""
    monkeypatch.setattr(module, "_SET", module._SET.replace("'5s'", "'100ms'"))
    cluster.primary.sql("insert into waypost.state values ('s', 'locked', 'x')")
    update = "update waypost.state set bytes = 'y'"
    first, second = cluster.connect(), cluster.connect()
    cluster.standby.pause_receiver()
    task = Task(lambda: first.run(update, PATIENCE_S))
    (pid,) = wait_for_waiting(cluster.primary)
    other = Task(lambda: second.run(update, PATIENCE_S))
    locked = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'"
    eventually_blocking(lambda: cluster.primary.sql(locked) == [("1",)])
    for connection in (first, second):
        with socket.socket(fileno=os.dup(connection._pgconn.socket)) as shared:
            shared.shutdown(socket.SHUT_RDWR)  # as a kill of the process does
    eventually_blocking(lambda: cluster.primary.sql(locked) == [("0",)], "the session that waits for the lock ends")
    assert [int(row[0]) for row in cluster.primary.sql(WAITING)] == [pid]
    for each in (task, other):
        with pytest.raises(Lost):
            each.wait()
    cluster.standby.resume_receiver()
    eventually_blocking(lambda: cluster.primary.sql("select bytes from waypost.state") == [(r"\x79",)])


def test_a_host_that_does_not_answer_costs_its_time_only(cluster: Cluster) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        host = Host("127.0.0.1", silent.getsockname()[1])
        parameters = cluster.parameters(hosts=(host, cluster.primary.host), connect_timeout_s=0.5)
        connection = Connection.open(parameters)
        assert connection.host == cluster.primary.host
        connection.close()


def test_parameters_name_a_host() -> None:
    with pytest.raises(ValueError, match="at least one member"):
        StoreParameters(hosts=())
