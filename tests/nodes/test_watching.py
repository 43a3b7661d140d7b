"""The process that watches the shards of other nodes, with a clock of its own: what it takes, and what it leaves.

Proves law: lease-by-own-clock, law: handed-over-at-rest, law: foreign-queue-stays (docs/laws.md).
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from mailcore.config.settings import Settings
from mailcore.config.shards import adopted, shards_of
from mailcore.log.disk import Disk
from mailcore.nodes.names import new_owner
from mailcore.nodes.owned import read_owned
from mailcore.nodes.spare import Spare
from mailcore.queue.shard_copy import ShardCopy, read_copy, write_copy
from mailcore.supervisor.adopted import TakenOver, read_taken
from tests.nodes.test_owner import home
from tests.replication.cluster import Cluster
from tests.replication.writing import add_shard


class Watcher(Spare):
    """One whose clock is moved by each look."""

    def __init__(self, settings: Settings) -> None:
        self.now = 0.0
        self.said: list[str] = []
        super().__init__(settings, say=self.said.append, clock=lambda: self.now)

    def look_for(self, seconds: float) -> None:
        until = self.now + seconds
        while self.now < until:
            self.now += 0.5
            self.look()


def row_of(cluster: Cluster, shard: str = "x") -> tuple[str, ...]:
    columns = "split_part(owner, '/', 1), epoch, state, wanted"
    (row,) = cluster.primary.sql(f"select {columns} from waypost.shard where name = '{shard}'")
    return tuple(row)


def beaten(cluster: Cluster) -> None:
    cluster.primary.sql("update waypost.shard set beat = beat + 1")


@pytest.fixture
def watcher(cluster: Cluster, tmp_path: Path) -> Watcher:
    add_shard(cluster.primary, name="x", number=4, owner="dead/x/y/z")
    return Watcher(home(tmp_path, cluster, "a", "own"))


def test_a_silent_shard_is_taken_and_named_to_the_node_and_a_living_one_is_not(
    cluster: Cluster, watcher: Watcher
) -> None:
    add_shard(cluster.primary, name="own", number=5, owner="dead/x/y/z")
    watcher.look_for(8)
    beaten(cluster)
    watcher.look_for(8)
    assert row_of(cluster) == ("dead", "1", "open", "")
    watcher.look_for(2)
    assert row_of(cluster) == ("a", "2", "draining", "")
    assert row_of(cluster, "own") == ("dead", "1", "open", ""), "the owner step takes it"
    assert read_taken(watcher._settings.run_directory) == [TakenOver(4, "x", 2)]
    owned = read_owned(Disk(), adopted(watcher._settings, 4, "x"))
    assert owned is not None
    assert (owned.name, owned.number, owned.epoch) == ("x", 4, 2)
    watcher.close()


@pytest.mark.parametrize("noted", [None, ShardCopy("x", 1)])
def test_the_place_of_a_shard_is_noted_before_its_processes_begin(
    cluster: Cluster, watcher: Watcher, noted: ShardCopy | None
) -> None:
    """Killed in front of the note, a node made a queue of its own there, and never took the shard again."""
    place = adopted(watcher._settings, 4, "x")
    if noted is not None:
        place.queue_directory.mkdir(parents=True)
        write_copy(Disk(), str(place.queue_directory), noted)
    watcher.look_for(10)
    assert row_of(cluster) == ("a", "2", "draining", "")
    copy = read_copy(Disk(), str(place.queue_directory))
    assert copy == (noted or ShardCopy("x", watcher._system)), (
        "of which database the files are, the owner step compares"
    )
    assert shards_of(watcher._settings) == [0]
    watcher.close()


def test_of_two_nodes_that_want_a_shard_exactly_one_gets_it(cluster: Cluster, tmp_path: Path, watcher: Watcher) -> None:
    other = Watcher(home(tmp_path, cluster, "b", "other"))
    both = (watcher, other)
    for _ in range(30):
        for each in both:
            each.look_for(0.5)
            cluster.primary.sql(
                "update waypost.shard set beat = beat + 1 where split_part(owner, '/', 1) in ('a', 'b')"
            )
    taken = [list(each.taken) for each in both]
    assert sorted(taken) == [[], ["x"]]
    assert row_of(cluster)[1] == "2", "it was taken once"
    for each in both:
        each.close()


def test_what_a_home_owns_is_its_own_again_after_a_restart_and_what_it_lost_is_not(
    cluster: Cluster, watcher: Watcher
) -> None:
    watcher.look_for(11)
    watcher.close()
    again = Watcher(watcher._settings)
    again.look()
    assert again.taken == {"x": TakenOver(4, "x", 2)}
    cluster.primary.sql(f"update waypost.shard set epoch = 3, owner = '{new_owner(again._settings, Disk())}'")
    again.look()
    assert again.taken == {}
    assert read_taken(again._settings.run_directory) == []
    again.close()


@pytest.mark.parametrize("why", ["closed", "held", "drained", "setting", "database"])
def test_a_shard_is_left(cluster: Cluster, tmp_path: Path, watcher: Watcher, why: str) -> None:
    if why in ("closed", "held"):
        cluster.primary.sql(f"update waypost.shard set state = '{why}'")
    elif why == "drained":
        cluster.primary.sql("insert into waypost.node (name, state) values ('a', 'drained')")
    elif why == "setting":
        settings = watcher._settings
        watcher = Watcher(dataclasses.replace(settings, nodes=dataclasses.replace(settings.nodes, takes_over=False)))
    else:
        watcher.look_for(8)
        watcher.now += 5  # nothing was read meanwhile
    watcher.look_for(8 if why == "database" else 20)
    assert row_of(cluster)[0] == "dead"
    watcher.close()


def test_files_of_another_queue_are_left_and_the_shard_to_another_node(cluster: Cluster, watcher: Watcher) -> None:
    place = adopted(watcher._settings, 4, "x").queue_directory / "journal"
    place.mkdir(parents=True)
    (place / "00000000000000000000.seg").write_bytes(b"mail of before")
    watcher.look_for(20)
    assert row_of(cluster)[0] == "dead"
    (said,) = watcher.said
    assert "shard x is not taken over by this node" in said
    watcher.close()


def test_a_shard_that_is_placed_here_is_asked_for_and_taken_when_it_is_handed_over(
    cluster: Cluster, watcher: Watcher
) -> None:
    cluster.primary.sql("update waypost.shard set placed = 'a'")
    for _ in range(30):
        watcher.look_for(0.5)
        beaten(cluster)
    assert row_of(cluster) == ("dead", "1", "open", "a")
    cluster.primary.sql("update waypost.shard set released = epoch")
    watcher.look_for(0.5)
    assert row_of(cluster) == ("a", "2", "draining", "")
    watcher.close()


def test_a_node_that_drains_places_its_shards_elsewhere_one_after_the_other_and_is_drained_then(
    cluster: Cluster, watcher: Watcher
) -> None:
    watcher.look()  # the row of the node
    cluster.primary.sql(
        "insert into waypost.node (name, seen_at) values ('b', now() + interval '1 day'), ('c', now() + interval '1 day');"
        "insert into waypost.node (name, state) values ('d', 'drained')"
    )
    add_shard(cluster.primary, name="of-b", number=5, owner="b/x/y/z")
    for name, number in (("one", 6), ("two", 7)):
        add_shard(cluster.primary, name=name, number=number, owner="a/x/y/z")
    cluster.primary.sql("update waypost.node set state = 'draining' where name = 'a'")
    wanted = "select name, wanted, placed from waypost.shard where split_part(owner, '/', 1) = 'a' order by name"
    watcher.look_for(2)
    assert cluster.primary.sql(wanted) == [("one", "c", ""), ("two", "", "")], "c has the fewest, one at a time"
    cluster.primary.sql("update waypost.shard set owner = 'c/x/y/z', wanted = '', epoch = 2 where name = 'one'")
    watcher.look_for(1)
    assert cluster.primary.sql(wanted) == [("two", "b", "")]
    cluster.primary.sql("update waypost.shard set owner = 'b/x/y/z', wanted = '', epoch = 2 where name = 'two'")
    state = "select state from waypost.node where name = 'a'"
    watcher.look_for(2)
    assert cluster.primary.sql(state) == [("draining",)]
    watcher.look_for(2)
    assert cluster.primary.sql(state) == [("drained",)]
    cluster.primary.sql("update waypost.node set state = 'open' where name = 'a'")
    watcher.look_for(5)
    assert cluster.primary.sql(state) == [("open",)], "who ended the drain is not overruled"


def test_a_drain_without_another_node_waits(cluster: Cluster, watcher: Watcher) -> None:
    add_shard(cluster.primary, name="one", number=6, owner="a/x/y/z")
    watcher.look()
    cluster.primary.sql("update waypost.node set state = 'draining' where name = 'a'")
    watcher.look_for(6)
    assert cluster.primary.sql("select wanted from waypost.shard where name = 'one'") == [("",)]
    assert cluster.primary.sql("select state from waypost.node where name = 'a'") == [("draining",)]


def test_a_node_that_drains_takes_back_what_nobody_took_and_places_it_elsewhere_when_it_can(
    cluster: Cluster, watcher: Watcher
) -> None:
    watcher.look()
    cluster.primary.sql(
        "update waypost.node set state = 'draining' where name = 'a';"
        "update waypost.shard set owner = 'a/x/y/z', wanted = 'b', released = epoch;"
        "insert into waypost.node (name, seen_at) values ('b', now() - interval '1 minute')"
    )
    watcher.look_for(8)
    assert row_of(cluster) == ("a", "1", "open", "b"), "b may still take it"
    watcher.look_for(3)
    assert row_of(cluster) == ("a", "2", "draining", "")
    assert watcher.taken == {"x": TakenOver(4, "x", 2)}
    assert cluster.primary.sql("select state from waypost.node where name = 'a'") == [("draining",)]
    cluster.primary.sql("insert into waypost.node (name) values ('c')")
    watcher.look_for(1)
    assert row_of(cluster) == ("a", "2", "draining", "c")
    watcher.close()


def test_a_node_that_drains_takes_nothing_else(cluster: Cluster, watcher: Watcher) -> None:
    watcher.look()
    cluster.primary.sql("update waypost.node set state = 'draining' where name = 'a'")
    add_shard(cluster.primary, name="given", number=5, owner="dead/x/y/z")
    cluster.primary.sql("update waypost.shard set wanted = 'b', released = epoch where name = 'given'")
    watcher.look_for(20)
    assert {row_of(cluster, name)[0] for name in ("x", "given")} == {"dead"}
    watcher.close()


def test_a_drain_asks_another_node_when_one_does_not_take_the_shard_and_then_waits_longer_and_longer(
    cluster: Cluster, watcher: Watcher
) -> None:
    """Before, the first one was asked again each ten seconds for ever, and no page said why."""
    cluster.primary.sql(
        "insert into waypost.node (name, state, seen_at) values ('a', 'draining', now()),"
        " ('b', 'open', now() + interval '1 day'), ('c', 'open', now() + interval '1 day')"
    )
    cluster.primary.sql(f"update waypost.shard set owner = '{new_owner(watcher._settings, Disk())}'")
    asked = []
    for _ in range(2):
        watcher.look_for(1)
        asked.append(row_of(cluster)[3])
        cluster.primary.sql("update waypost.shard set released = epoch where wanted <> ''")
        watcher.look_for(11)
    assert asked == ["b", "c"]
    epoch = row_of(cluster)[1]
    watcher.look_for(30)
    assert row_of(cluster) == ("a", epoch, "draining", ""), "it stays and is delivered"
    (trouble,) = watcher.troubles
    words = "the drain waits: b, c did not take shard x, and waypost node state there says why; asked again in "
    assert trouble.startswith(words)
    watcher.look_for(31)
    assert row_of(cluster)[3] == "b"
    cluster.primary.sql("update waypost.shard set epoch = epoch + 1, owner = 'b/x/y/z', wanted = ''")
    watcher.look_for(1)
    assert watcher.troubles == []
    watcher.close()


def test_why_a_shard_is_not_taken_is_told_until_its_place_is_free(cluster: Cluster, watcher: Watcher) -> None:
    place = adopted(watcher._settings, 4, "x").queue_directory / "journal"
    place.mkdir(parents=True)
    segment = place / "00000000000000000000.seg"
    segment.write_bytes(b"mail of before")
    watcher.look_for(20)
    (trouble,) = watcher.troubles
    assert "shard x is not taken over by this node" in trouble
    assert "has another queue; let it drain and move it away" in trouble
    segment.unlink()
    watcher.look_for(1)
    assert watcher.troubles == []
    watcher.close()


def test_a_shard_that_is_placed_here_is_not_asked_for_before_its_place_is_free(
    cluster: Cluster, watcher: Watcher
) -> None:
    """Before, its owner handed it over each ten seconds, and no node took it."""
    place = adopted(watcher._settings, 4, "x").queue_directory / "journal"
    place.mkdir(parents=True)
    segment = place / "00000000000000000000.seg"
    segment.write_bytes(b"mail of before")
    cluster.primary.sql("update waypost.shard set placed = 'a'")
    for _ in range(5):
        beaten(cluster)
        watcher.look_for(1)
    assert row_of(cluster) == ("dead", "1", "open", "")
    (trouble,) = watcher.troubles
    assert "shard x is not taken over by this node" in trouble
    segment.unlink()
    beaten(cluster)
    watcher.look_for(1)
    assert row_of(cluster) == ("dead", "1", "open", "a")
    watcher.close()
