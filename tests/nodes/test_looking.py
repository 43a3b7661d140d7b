"""What people are shown of nodes, shards and servers: read from real servers, written down, and said to be old when it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from mailcore.config.known_nodes import read_seen
from mailcore.faults import FaultError
from mailcore.nodes.joining import begin
from mailcore.nodes.looking import Looking, look
from mailcore.replication.connection import Connection
from tests.eventually import eventually_blocking
from tests.nodes.test_owner import home
from tests.nodes.test_watching import Watcher
from tests.replication.cluster import Cluster
from tests.replication.writing import add_shard


def test_a_look_has_each_node_and_shard_and_the_standby(cluster: Cluster, tmp_path: Path) -> None:
    settings = home(tmp_path, cluster, "a", "own")
    begin(settings, again=False)  # a is in, and has not been seen yet
    add_shard(cluster.primary, name="x", number=4, owner="gone/x/y/z")
    cluster.primary.sql("update waypost.shard set wanted = 'a', placed = 'a', renewed_at = now() - interval '1 minute'")
    cluster.primary.sql("insert into waypost.node (name, state) values ('b', 'drained')")
    connection = Connection.open(cluster.parameters())
    seen = look(connection, "a")
    connection.close()
    assert [(each.name, each.state, each.alive, each.is_in, each.shards) for each in seen.nodes] == [
        ("a", "", False, True, []),
        ("b", "drained", True, False, []),
        ("gone", "", False, False, ["x"]),
    ]
    assert seen.nodes[0].seen_s_ago is None
    (shard,) = seen.shards
    assert (shard.name, shard.number, shard.node, shard.moves_to, shard.placed) == ("x", 4, "gone", "a", "a")
    assert 59 < shard.renewed_s_ago < 600
    assert seen.standbys is not None
    assert [(each.state, each.sync_state in ("sync", "quorum")) for each in seen.standbys] == [("streaming", True)]
    assert seen.giver == ""
    assert str(cluster.primary.directory) in seen.server


def test_without_a_standby_the_list_is_empty_and_without_the_right_it_is_unknown(own_cluster: Cluster) -> None:
    connection = Connection.open(own_cluster.parameters())
    own_cluster.standby.kill()
    eventually_blocking(lambda: look(connection, "a").standbys == [])
    own_cluster.primary.sql("set synchronous_commit = local; revoke pg_read_all_stats from waypost")
    assert look(connection, "a").standbys is None
    connection.close()


def test_the_process_that_watches_writes_it_down_and_says_when_the_database_is_gone(
    own_cluster: Cluster, tmp_path: Path
) -> None:
    settings = home(tmp_path, own_cluster, "a", "own")
    watcher, looking = Watcher(settings), Looking(settings)
    watcher.look()
    looking.once()
    seen = read_seen(settings.run_directory)
    assert seen is not None
    assert (seen.node, seen.fault, [each.name for each in seen.nodes]) == ("a", "", ["a"])
    assert seen.at > 0
    own_cluster.kill()
    watcher.close()
    with pytest.raises(FaultError):
        looking.once()
    after = read_seen(settings.run_directory)
    assert after is not None
    assert after.fault
    assert (after.at, after.nodes) == (seen.at, seen.nodes)  # what was seen keeps its time


def test_a_file_that_is_not_one_is_named(tmp_path: Path) -> None:
    assert read_seen(tmp_path) is None
    (tmp_path / "nodes.json").write_text("{")
    with pytest.raises(ValueError, match=r"nodes\.json"):
        read_seen(tmp_path)
