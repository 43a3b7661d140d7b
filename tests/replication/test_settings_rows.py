"""The rows of the settings that all nodes have once: one change for a version, also if its outcome is unknown.

Proves law: settings-once (docs/laws.md).
"""

from __future__ import annotations

import threading

import pytest

from mailcore.replication.connection import Connection
from mailcore.replication.faults import Lost, ServerError, StoreError
from mailcore.replication.settings_rows import (
    STATES_MAX,
    Head,
    NodeTaken,
    add_kept,
    ask_head,
    is_written,
    note_taken,
    read_heads,
    read_kept,
    read_states,
    read_taken,
    write_states,
)
from tests.replication.cluster import Cluster

KIND = "managed"


def newest(connection: Connection) -> tuple[int, str]:
    rows = read_states(connection, KIND)
    return rows[-1].version, rows[-1].change


def test_states_are_written_in_their_order_and_read_above_a_version(cluster: Cluster) -> None:
    connection = cluster.connect()
    assert read_heads(connection) == {}
    head = ask_head(connection, KIND)
    assert head.version == 0
    assert write_states(connection, KIND, head, [("a", b"1"), ("b", b"2")])
    assert read_heads(connection) == {KIND: 2}
    assert write_states(connection, KIND, ask_head(connection, KIND), [("c", b"3")])
    assert [(row.version, row.change, row.sealed) for row in read_states(connection, KIND, 1)] == [
        (2, "b", b"2"), (3, "c", b"3"),
    ]  # fmt: skip
    assert read_states(connection, "tuned") == []
    connection.close()


def test_law_settings_of_two_changes_for_one_version_one_is_made(cluster: Cluster) -> None:
    one, other = cluster.connect(), cluster.connect()
    ask_head(one, KIND)
    head = ask_head(other, KIND)
    made: list[bool] = []
    barrier = threading.Barrier(2)

    def change(connection: Connection, name: str) -> None:
        barrier.wait()
        made.append(write_states(connection, KIND, head, [(name, b"x")]))

    threads = [threading.Thread(target=change, args=each) for each in ((one, "one"), (other, "other"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(made) == [False, True]
    assert newest(one)[0] == 1
    assert not write_states(one, KIND, head, [("late", b"x")]), "it was made for an older version"
    one.close()
    other.close()


def test_law_settings_a_change_that_is_still_under_way_finds_nothing_when_its_outcome_was_asked_for(
    cluster: Cluster,
) -> None:
    late, asks = cluster.connect(), cluster.connect()
    head = ask_head(late, KIND)
    states = [("late", b"x")]
    assert not is_written(asks, KIND, head, states)
    assert not write_states(late, KIND, head, states)
    assert read_states(asks, KIND) == []
    late.close()
    asks.close()


def test_law_settings_a_change_whose_answer_was_lost_is_found(cluster: Cluster) -> None:
    connection, asks = cluster.connect(), cluster.connect()
    head = ask_head(connection, KIND)
    states = [("mine", b"x")]
    cluster.standby.pause_receiver()
    with pytest.raises(Lost):
        write_states(connection, KIND, head, states)  # the commit waits for the standby
    cluster.standby.resume_receiver()
    assert is_written(asks, KIND, head, states)
    assert not is_written(asks, KIND, head, [("other", b"x")])
    asks.close()


def test_a_change_that_fails_in_the_middle_changes_nothing(cluster: Cluster) -> None:
    connection = cluster.connect()
    head = ask_head(connection, KIND)
    assert write_states(connection, KIND, head, [("a", b"1")])
    cluster.primary.sql(f"insert into waypost.settings_state values ('{KIND}', 2, 'in the way', '')")
    with pytest.raises(ServerError):
        write_states(connection, KIND, ask_head(connection, KIND), [("b", b"2")])
    assert read_heads(connection) == {KIND: 1}
    connection.close()


def test_old_states_go(cluster: Cluster) -> None:
    connection = cluster.connect()
    many = [(str(number), b"") for number in range(STATES_MAX)]
    assert write_states(connection, KIND, ask_head(connection, KIND), many)
    assert write_states(connection, KIND, ask_head(connection, KIND), [("new", b"")])
    rows = read_states(connection, KIND, 0, STATES_MAX + 1)
    assert [rows[0].version, rows[-1].version, len(rows)] == [2, STATES_MAX + 1, STATES_MAX]
    connection.close()


def test_what_nodes_have_taken_over_and_kept_files(cluster: Cluster) -> None:
    connection = cluster.connect()
    note_taken(connection, NodeTaken("b", KIND, 1, ""))
    note_taken(connection, NodeTaken("a", KIND, 1, "why"))
    note_taken(connection, NodeTaken("b", KIND, 2, ""))
    assert read_taken(connection) == [NodeTaken("a", KIND, 1, "why"), NodeTaken("b", KIND, 2, "")]
    assert read_kept(connection, "kept:map/x.0") is None
    add_kept(connection, "kept:map/x.0", b"sealed")
    assert read_kept(connection, "kept:map/x.0") == b"sealed"
    connection.close()


def test_without_a_standby_no_change_is_believed(cluster: Cluster) -> None:
    connection = cluster.connect()
    cluster.standby.pause_receiver()
    with pytest.raises(StoreError):
        ask_head(connection, KIND)
    cluster.standby.resume_receiver()
    assert isinstance(ask_head(cluster.connect(), KIND), Head)
