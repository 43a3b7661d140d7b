"""Orders that the control process writes: a row when they can be carried out, and a sentence when they cannot."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from mailcore.cli.main import main
from mailcore.config.known_nodes import NodesSeen, write_seen
from mailcore.config.load import load
from mailcore.nodes import moving
from mailcore.nodes.moving import CannotMove
from mailcore.nodes.ordering import NodeOrders
from mailcore.nodes.parameters import parameters_of
from mailcore.replication import node_row
from mailcore.replication.connection import Connection
from mailcore.replication.faults import NotReached
from mailcore.replication.shard import read_shards
from tests.nodes.node import conninfo_of
from tests.nodes.test_owner import home
from tests.replication.cluster import Cluster
from tests.replication.writing import add_shard


def add_living(cluster: Cluster, name: str) -> None:
    """A node that lives as long as the test does: nothing writes that it was seen."""
    cluster.primary.sql(f"insert into waypost.node (name, seen_at) values ('{name}', now() + interval '1 hour')")


@pytest.fixture
def orders(cluster: Cluster, tmp_path: Path) -> NodeOrders:
    for name in ("a", "b"):
        add_living(cluster, name)
    cluster.primary.sql("insert into waypost.node (name, seen_at) values ('dead', now() - interval '1 minute')")
    cluster.primary.sql("insert into waypost.node (name, state) values ('out', 'drained')")
    add_shard(cluster.primary, name="north", number=4, owner="a/x/y/z")
    return NodeOrders(home(tmp_path, cluster, "a", "own"))


def row(cluster: Cluster) -> tuple[str, ...]:
    (found,) = cluster.primary.sql("select wanted, placed from waypost.shard where name = 'north'")
    return found


def test_a_move_is_a_row_and_may_be_ordered_elsewhere_before_it_is_done(cluster: Cluster, orders: NodeOrders) -> None:
    orders.move("north", "b")
    assert row(cluster) == ("b", "b")
    orders.move("north", "a")
    assert row(cluster) == ("", "a"), "it stays where it is"


@pytest.mark.parametrize(
    ("shard", "node", "words"),
    [
        ("north", "a", "is at a already"),
        ("north", "dead", r"was seen last 6\d s ago"),
        ("north", "out", "is drained, and takes no shard"),
        ("north", "c", "There is no node c"),
        ("west", "b", "There is no shard west"),
    ],
)
def test_a_move_that_cannot_be_carried_out_changes_nothing(
    cluster: Cluster, orders: NodeOrders, shard: str, node: str, words: str
) -> None:
    with pytest.raises(CannotMove, match=words):
        orders.move(shard, node)
    assert row(cluster) == ("", "")


def test_a_shard_that_is_handed_over_or_closed_is_not_moved(cluster: Cluster, orders: NodeOrders) -> None:
    cluster.primary.sql("update waypost.shard set wanted = 'b', released = epoch where name = 'north'")
    with pytest.raises(CannotMove, match="is moving at this moment"):
        orders.move("north", "b")
    cluster.primary.sql("update waypost.shard set wanted = '', released = 0, state = 'held' where name = 'north'")
    with pytest.raises(CannotMove, match="is held, and is not moved"):
        orders.move("north", "b")


def test_a_node_drains_only_while_another_takes_shards_and_is_resumed(cluster: Cluster, orders: NodeOrders) -> None:
    state = "select state from waypost.node where name = 'a'"
    orders.drain("a")
    assert cluster.primary.sql(state) == [("draining",)]
    with pytest.raises(CannotMove, match="No other node lives and takes shards"):
        orders.drain("b")
    orders.resume("a")
    assert cluster.primary.sql(state) == [("open",)]
    for order in (orders.drain, orders.resume):
        with pytest.raises(CannotMove, match="There is no node c"):
            order("c")


@pytest.mark.parametrize("when", ["it moves", "it is placed", "all have left"])
def test_a_command_that_drains_a_node_ends_when_the_drain_is_ended(
    cluster: Cluster, tmp_path: Path, orders: NodeOrders, when: str
) -> None:
    connection = Connection.open(parameters_of(home(tmp_path, cluster, "a", "own")))
    now = 0.0
    if when == "all have left":
        cluster.primary.sql("delete from waypost.shard")

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds
        if when == "it is placed" and now < 1:
            cluster.primary.sql("update waypost.shard set epoch = epoch + 1, wanted = ''")  # it is to be ordered again
            orders.resume("a")
        elif now < 0.3:
            orders.resume("a")

    with pytest.raises(CannotMove, match="The drain of node a was ended meanwhile"):
        moving.drain(connection, "a", sleep=sleep, clock=lambda: now)
    assert now < 1
    connection.close()
    assert cluster.primary.sql("select state from waypost.node where name = 'a'") == [("open",)]
    if when == "it is placed":
        assert row(cluster) == ("", "")


def test_a_node_places_nothing_when_its_drain_was_ended_after_it_looked(cluster: Cluster, orders: NodeOrders) -> None:
    connection = cluster.connect()
    rows = read_shards(connection)
    orders.drain("a")
    orders.resume("a")
    assert not moving.continue_drain(connection, "a", rows)
    assert row(cluster) == ("", "")
    orders.drain("a")
    assert not moving.continue_drain(connection, "a", rows)
    assert row(cluster) == ("b", "")
    connection.close()


def test_of_two_drains_at_once_that_leave_no_node_one_is_refused(cluster: Cluster, orders: NodeOrders) -> None:
    """Each looks whether the other node takes shards before the other one has written that it does not."""
    together = Barrier(2)

    def drained(node: str) -> str:
        connection = cluster.connect()
        connection.run("select 1", 5.0)
        together.wait()
        try:
            moving.begin_drain(connection, node)
        except CannotMove as error:
            return error.fault.message
        finally:
            connection.close()
        return ""

    with ThreadPoolExecutor(2) as threads:
        for _ in range(20):
            found = sorted(threads.map(drained, ("a", "b")))
            assert found[0] == ""
            assert found[1].startswith("No other node lives and takes shards")
            cluster.primary.sql("update waypost.node set state = 'open' where name in ('a', 'b')")


def test_a_drain_waits_for_one_that_is_under_way_and_then_says_so(
    cluster: Cluster, orders: NodeOrders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_row, "LOCK_TIMEOUT_S", 0.1)
    other = cluster.connect()
    with node_row.drains_in_turn(other, "b"), pytest.raises(CannotMove, match="Another drain begins at this moment"):
        orders.drain("a")
    other.close()
    orders.drain("a")


def test_a_drain_that_waits_for_another_node_is_named(
    cluster: Cluster, tmp_path: Path, orders: NodeOrders, capsys: pytest.CaptureFixture[str]
) -> None:
    orders.drain("a")

    def waiting() -> list[str]:
        connection = cluster.connect()
        found = moving.waiting_drains(node_row.list_nodes(connection), read_shards(connection).values())
        connection.close()
        return found

    assert waiting() == [], "b takes its shard"
    cluster.primary.sql("update waypost.node set seen_at = now() - interval '1 minute' where name = 'b'")
    assert waiting() == ["a"]
    config = tmp_path / "waypost.toml"
    config.write_text(f'[nodes]\ndatabase = "{conninfo_of(cluster)}"\nnode = "a"\n')
    assert main(["node", "state", "--config", str(config)]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[-1] == "the drain of node a waits: no other node lives and takes shards"
    assert main(["node", "state", "--config", str(config), "--json"]) == 0
    states = json.loads(capsys.readouterr().out)["nodes"]
    assert {each["name"]: each["waits"] for each in states} == {"a": True, "b": False, "dead": False, "out": False}
    cluster.primary.sql("update waypost.shard set owner = 'b/x/y/z'")
    assert waiting() == [], "it has none"


def test_why_this_node_does_not_do_what_rows_ask_of_it_is_shown_while_it_is_of_now(
    cluster: Cluster, tmp_path: Path, orders: NodeOrders, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "waypost.toml"
    config.write_text(f'[nodes]\ndatabase = "{conninfo_of(cluster)}"\nnode = "a"\n')
    run = load(config).node_run_directory
    run.mkdir(parents=True)
    trouble = "the drain waits: b did not take shard north"
    for at, told in ((time.time(), [trouble]), (time.time() - 60, [])):
        write_seen(run, NodesSeen(node="a", at=at, troubles=[trouble]))
        assert main(["node", "state", "--config", str(config)]) == 0
        assert [line for line in capsys.readouterr().out.splitlines() if line == trouble] == told
        assert main(["node", "state", "--config", str(config), "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["troubles"] == told


def test_a_drain_asks_another_node_when_one_does_not_take_a_shard_and_names_them_when_none_does(
    cluster: Cluster, orders: NodeOrders
) -> None:
    add_living(cluster, "c")
    now, asked, said = 0.0, list[str](), list[str]()

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds
        wanted, _ = row(cluster)
        if wanted and asked[-1:] != [wanted]:
            asked.append(wanted)
            cluster.primary.sql("update waypost.shard set released = epoch")
        else:  # its owner takes it back
            cluster.primary.sql("update waypost.shard set epoch = epoch + 1, wanted = '', released = 0")

    connection = cluster.connect()
    with pytest.raises(CannotMove, match="Shard north stays at a, which delivers the mail: b, c did not take it"):
        moving.drain(connection, "a", say=said.append, sleep=sleep, clock=lambda: now)
    connection.close()
    assert asked == ["b", "c"]
    assert "Node b has not taken shard north; its log says why." in said


def test_a_drain_goes_on_with_other_shards_when_no_node_takes_one(cluster: Cluster, orders: NodeOrders) -> None:
    cluster.primary.sql(
        "insert into waypost.shard (name, number, epoch, owner) values ('zone', 7, 1, 'a/x/y/z'), ('apex', 8, 1, 'a/x/y/z')"
    )
    now, said = 0.0, list[str]()

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds
        # North is handed over and taken back; the others go to the node that waits for them.
        cluster.primary.sql(
            "update waypost.shard set epoch = epoch + 1, wanted = '', released = 0 where name = 'north' and released > 0;"
            " update waypost.shard set released = epoch where name = 'north' and wanted <> '';"
            " update waypost.shard set epoch = epoch + 1, owner = wanted || '/x/y/z', wanted = ''"
            " where name <> 'north' and wanted <> ''"
        )

    connection = cluster.connect()
    with pytest.raises(CannotMove, match="Shard north stays at a, which delivers the mail: b did not take it"):
        moving.drain(connection, "a", say=said.append, sleep=sleep, clock=lambda: now)
    connection.close()
    assert {"shard apex is at b", "shard zone is at b"} <= set(said)
    owners = cluster.primary.sql("select name, split_part(owner, '/', 1) from waypost.shard order by name")
    assert owners == [("apex", "b"), ("north", "a"), ("zone", "b")]


def test_without_a_database_nothing_is_ordered(own_cluster: Cluster, tmp_path: Path) -> None:
    orders = NodeOrders(home(tmp_path, own_cluster, "a", "own"))
    own_cluster.kill()
    with pytest.raises(NotReached):
        orders.drain("a")
