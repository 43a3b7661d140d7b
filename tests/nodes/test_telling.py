"""Why a node does not take a shard, or why its drain waits, is shown at each node, while it is so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mailcore.cli.main import main
from mailcore.config.shards import adopted
from mailcore.log.disk import Disk
from mailcore.nodes.looking import look
from mailcore.nodes.names import new_owner
from mailcore.nodes.telling import NOTE_EVERY_S, Telling
from mailcore.replication.faults import StoreError
from mailcore.replication.node_row import read_troubles
from tests.nodes.node import conninfo_of
from tests.nodes.test_owner import home
from tests.nodes.test_watching import Watcher, row_of
from tests.replication.cluster import Cluster
from tests.replication.writing import add_shard

WAITS = "the drain waits: b did not take shard north; asked again in {} s"


def seen_at_c(cluster: Cluster) -> dict[str, list[str]]:
    """What a third node sees of each node."""
    connection = cluster.connect()
    seen = look(connection, "c")
    connection.close()
    return {each.name: each.troubles for each in seen.nodes}


def words_of(capsys: pytest.CaptureFixture[str], config: Path, *command: str) -> str:
    """What a command prints at a third node."""
    assert main([*command, "--config", str(config)]) == 0
    return capsys.readouterr().out


def test_a_third_node_shows_why_a_drain_waits_and_why_the_other_does_not_take_the_shard(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before, each reason was shown at its own node alone."""
    a, b = (Watcher(home(tmp_path, cluster, name, f"own-{name}")) for name in "ab")
    add_shard(cluster.primary, name="x", number=4, owner=new_owner(a._settings, Disk()))
    place = adopted(b._settings, 4, "x").queue_directory / "journal"
    place.mkdir(parents=True)
    (place / "00000000000000000000.seg").write_bytes(b"mail of before")
    cluster.primary.sql("insert into waypost.node (name, state) values ('a', 'draining')")
    b.look()
    a.look_for(1)
    assert row_of(cluster)[3] == "b"
    cluster.primary.sql("update waypost.shard set released = epoch")
    b.look_for(1)
    a.look_for(10)
    assert row_of(cluster)[0] == "a", "it has it back"
    for each in (a, b):
        Telling(each._settings, lambda each=each: each.troubles).once()  # type: ignore[misc]
    cluster.primary.sql("update waypost.node set seen_at = now()")

    config = tmp_path / "waypost.toml"
    config.write_text(f'[nodes]\ndatabase = "{conninfo_of(cluster)}"\nnode = "c"\n')
    (of_a,), (of_b,) = (seen_at_c(cluster)[name] for name in "ab")
    assert of_a.startswith("the drain waits: b did not take shard x")
    assert of_b.startswith("shard x is not taken over by this node: ")
    for command in ("node state", "shard list"):
        lines = words_of(capsys, config, *command.split()).splitlines()
        assert lines[-2:] == [f"node a says: {of_a}", f"node b says: {of_b}"]
    told = json.loads(words_of(capsys, config, "node", "state", "--json"))
    assert {each["name"]: each["troubles"] for each in told["nodes"]} == {"a": [of_a], "b": [of_b]}
    assert told["troubles"] == [], "of c"
    told = json.loads(words_of(capsys, config, "shard", "list", "--json"))
    assert told["troubles"] == {"a": [of_a], "b": [of_b]}
    assert "shards" not in words_of(capsys, config, "node", "settings"), "it is none of the settings"
    a.close()
    b.close()


def test_what_is_over_or_old_or_of_a_node_that_is_gone_is_not_shown(cluster: Cluster, tmp_path: Path) -> None:
    now, troubles = 0.0, [WAITS.format(60)]
    telling = Telling(home(tmp_path, cluster, "a"), lambda: troubles, clock=lambda: now)
    cluster.primary.sql("insert into waypost.node (name) values ('a')")
    telling.once()
    assert seen_at_c(cluster) == {"a": troubles}
    cluster.primary.sql("update waypost.node set seen_at = now() - interval '11 seconds'")
    assert seen_at_c(cluster) == {"a": []}, "the node is silent"
    cluster.primary.sql("update waypost.node set seen_at = now()")
    troubles = []
    telling.once()
    assert seen_at_c(cluster) == {"a": []}, "it is over"
    troubles = [WAITS.format(60), "shard y is not taken over by this node"]
    telling.once()
    assert seen_at_c(cluster) == {"a": troubles}
    cluster.primary.sql("update waypost.settings_node set seen_at = now() - interval '31 seconds'")
    assert seen_at_c(cluster) == {"a": []}, "it is old"
    now += NOTE_EVERY_S - 1
    telling.once()
    assert seen_at_c(cluster) == {"a": []}, "not with each second that is counted down"
    now += 1
    telling.once()
    assert seen_at_c(cluster) == {"a": troubles}


def test_a_process_that_begins_again_takes_back_what_the_one_before_told_and_writes_nothing_else(
    cluster: Cluster, tmp_path: Path
) -> None:
    settings = home(tmp_path, cluster, "a")
    cluster.primary.sql("insert into waypost.node (name) values ('a')")
    Telling(settings, list).once()
    assert cluster.primary.sql("select * from waypost.settings_node") == []
    Telling(settings, lambda: [WAITS.format(60)]).once()
    Telling(settings, list).once()
    assert seen_at_c(cluster) == {"a": []}


def test_what_could_not_be_told_is_told_when_the_database_is_back(own_cluster: Cluster, tmp_path: Path) -> None:
    telling = Telling(home(tmp_path, own_cluster, "a"), lambda: [WAITS.format(60)])
    own_cluster.primary.stop()
    with pytest.raises(StoreError):
        telling.once()
    own_cluster.primary.start()
    telling.once()
    connection = own_cluster.connect()
    assert read_troubles(connection) == {"a": [WAITS.format(60)]}
    connection.close()
