"""The settings of the shards of a node, and which shards there are."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from mailcore.config.document import ConfigError
from mailcore.config.known_shards import (
    DRAINED,
    NOT_KNOWN,
    OLD_S,
    OTHERS,
    KnownShard,
    Others,
    OtherShard,
    all_shards,
    doubt_others,
    forget_known,
    forget_others,
    known_shards,
    name_of,
    write_known,
    write_others,
)
from mailcore.config.load import load_text
from mailcore.config.settings import Settings
from mailcore.config.shards import all_of, are_several, of_shard, running_of, shards_of


def settings_with(text: str, base: Path = Path("/srv/waypost")) -> Settings:
    return load_text(base / "waypost.toml", text)


def test_a_queue_that_is_alone_has_the_settings_of_the_file() -> None:
    settings = settings_with("")
    assert settings.shard is None
    assert (settings.place, settings.node_run_directory) == (settings.home, settings.run_directory)
    assert settings.shard_directories == []
    assert not are_several(settings)
    assert all_of(settings) == running_of(settings) == [settings]


def test_the_first_shard_stays_where_the_home_is_and_others_get_places_of_their_own() -> None:
    settings = settings_with("[core]\nshards = 2\n")
    first, second = running_of(settings)
    home = settings.home
    assert first.identified_directories == settings.identified_directories
    assert first.tuned_file == settings.tuned_file
    assert second.identified_directories == {
        "home": home / "shards/01",
        "queue": home / "shards/01/queue",
        "spool": home / "shards/01/spool",
        "events": home / "shards/01/events",
    }
    assert second.tuned_file == home / "shards/01/tuned.toml"
    assert [each.run_directory for each in (first, second)] == [home / "run/shards/00", home / "run/shards/01"]
    assert first.node_run_directory == second.node_run_directory == settings.run_directory
    # There once: what people configure, and the log.
    for each in (first, second):
        assert (each.home, each.log_directory, each.users_file) == (home, settings.log_directory, settings.users_file)
        assert each.reports_directory == settings.reports_directory


def test_the_queues_of_shards_are_on_the_disk_of_the_first() -> None:
    text = 'queue_directory = "/fast/queue"\nspool_directory = "/large/spool"\n[core]\nshards = 2\n'
    shard = of_shard(settings_with(text), 1)
    assert shard.queue_directory == Path("/fast/shards/01/queue")
    assert shard.spool_directory == Path("/large/shards/01/spool")
    above = [str(each) for each in shard.shard_directories]
    assert above[-4:] == ["/fast/shards", "/fast/shards/01", "/large/shards", "/large/shards/01"]


@pytest.mark.parametrize(
    ("processes", "shards", "receivers"),
    [(1, 2, [1, 1]), (2, 2, [1, 1]), (4, 2, [2, 2]), (5, 2, [3, 2]), (4, 3, [2, 1, 1]), (64, 16, [4] * 16)],
)
def test_processes_are_divided_evenly_and_each_shard_has_one(processes: int, shards: int, receivers: list[int]) -> None:
    text = f"[core]\nshards = {shards}\n[receiver]\nprocesses = {processes}\n[deliverer]\nprocesses = {min(processes, 16)}\n"
    found = running_of(settings_with(text))
    assert [each.receiver.processes for each in found] == receivers
    assert min(each.deliverer.processes for each in found) >= 1


def test_a_shard_beyond_the_settings_drains_without_receivers_until_it_is_marked(tmp_path: Path) -> None:
    settings = settings_with("[core]\nshards = 1\n", tmp_path)
    place = settings.home / "shards" / "01"
    place.mkdir(parents=True)
    (settings.home / "shards" / "lost+found").mkdir()
    assert shards_of(settings) == [0, 1]
    assert are_several(settings)
    first, second = running_of(settings)
    assert (first.receiver.processes, second.receiver.processes, second.deliverer.processes) == (1, 0, 1)
    (place / DRAINED).write_text("")
    assert shards_of(settings) == [0]
    assert running_of(settings) == [settings]
    # Its events are still there to be read, and the first shard is a queue that is alone again.
    assert [each.shard for each in all_of(settings)] == [None, 1]
    again = replace(settings, core=replace(settings.core, shards=2))
    assert shards_of(again) == [0, 1]


def test_a_place_for_the_copy_of_a_shard_is_no_queue_that_drains(tmp_path: Path) -> None:
    """Whenever a node is killed that makes it: a queue of its own there would keep the shard away until a person moves it."""
    settings = settings_with("", tmp_path)
    queue = settings.home / "shards" / "01" / "queue"
    queue.mkdir(parents=True)
    assert shards_of(settings) == [0]
    (queue / "shard.new").write_text("{")
    assert shards_of(settings) == [0]
    (queue / "shard.new").rename(queue / "shard")
    (queue / "journal").mkdir()
    assert shards_of(settings) == [0]
    (queue / "shard").unlink()
    assert shards_of(settings) == [0, 1], "it has a queue, and may have mail"
    (queue / "journal").rmdir()
    assert shards_of(settings) == [0]
    (settings.home / "shards" / "01" / "identity").write_text("{}")
    assert shards_of(settings) == [0, 1], "the disk of its queue may be away, and the start says so"


def test_a_database_keeps_one_queue_of_a_node_and_not_one_that_drains_beside_it() -> None:
    database = '[nodes]\ndatabase = "host=a.example,b.example dbname=waypost"\n'
    with pytest.raises(ConfigError, match=r"\[core\] shards must be 1 with \[nodes\] database"):
        settings_with(f"{database}[core]\nshards = 2\n")
    settings = settings_with(database)
    assert of_shard(settings, 0).nodes == settings.nodes
    assert not of_shard(settings, 1).nodes.is_on


def test_who_asks_the_shards_learns_which_there_are(tmp_path: Path) -> None:
    assert known_shards(tmp_path) == []
    known = [KnownShard(0, tmp_path / "shards/00", True), KnownShard(3, tmp_path / "shards/03", False)]
    write_known(tmp_path, known)
    assert known_shards(tmp_path) == known
    forget_known(tmp_path)
    forget_known(tmp_path)
    assert known_shards(tmp_path) == []


def test_all_shards_of_the_database_are_known_wherever_they_are(tmp_path: Path) -> None:
    """law: silent-is-unknown."""
    here = tmp_path / "shards"
    rows = [
        OtherShard(4, "north", "a"),
        OtherShard(5, "south", "b"),
        OtherShard(6, "east", "a"),
        OtherShard(7, "west", ""),
    ]
    write_known(tmp_path, [KnownShard(0, here / "00", True, 4), KnownShard(1, here / "01", False)])
    assert all_shards(tmp_path) == known_shards(tmp_path), "nothing is known of others"
    write_others(tmp_path, Others("a", 4, rows))
    assert all_shards(tmp_path) == [
        KnownShard(0, here / "00", True, 4, "north", "a"),
        KnownShard(1, here / "01", False, -1, "", "a"),  # it is on this disk alone
        KnownShard(5, tmp_path / "nodes" / "05", False, 5, "south", "b", is_here=False),
        KnownShard(6, here / "06", False, 6, "east", "a"),  # it begins
        KnownShard(7, tmp_path / "nodes" / "07", False, 7, "west", "", is_here=False),
    ]
    assert len(known_shards(tmp_path)) == 2, "metrics and doctor have those of the node"

    write_known(tmp_path, [KnownShard(0, here / "00", True, -1), KnownShard(5, here / "05", False, 5)])
    write_others(tmp_path, Others("a", 4, [OtherShard(4, "north", "b"), OtherShard(5, "south", "a")]))
    assert all_shards(tmp_path) == [
        KnownShard(0, tmp_path / "nodes" / "04", False, 4, "north", "b", is_here=False),  # its number stays
        KnownShard(5, here / "05", False, 5, "south", "a"),
    ]
    write_known(tmp_path, [KnownShard(0, here / "00", True, 4), KnownShard(5, here / "05", False)])
    write_others(tmp_path, Others("a", 4, [OtherShard(4, "north", "a"), OtherShard(5, "south", "b")]))
    assert [(each.number, each.of_ids, each.is_here) for each in all_shards(tmp_path)] == [
        (0, 4, True), (5, 5, True), (69, 5, False)
    ], "one that drains beside them has the number of another"  # fmt: skip
    forget_others(tmp_path)
    assert all_shards(tmp_path) == known_shards(tmp_path)


def test_shards_of_other_nodes_that_were_not_read_lately_are_not_known(tmp_path: Path) -> None:
    """law: silent-is-unknown."""
    here = tmp_path / "shards"
    unknown = KnownShard(128, tmp_path / "nodes" / "unknown", False, name="other nodes", is_here=False, why=NOT_KNOWN)
    write_known(tmp_path, [KnownShard(0, here / "00", True, 4)])
    doubt_others(tmp_path)
    assert all_shards(tmp_path) == [KnownShard(0, here / "00", True, 4), unknown], "this node has just started"

    rows = [OtherShard(4, "north", "a"), OtherShard(5, "south", "b")]
    known = [
        KnownShard(0, here / "00", True, 4, "north", "a"),
        KnownShard(5, tmp_path / "nodes" / "05", False, 5, "south", "b", is_here=False),
    ]
    write_others(tmp_path, Others("a", 4, rows))
    assert all_shards(tmp_path) == known
    doubt_others(tmp_path)
    assert all_shards(tmp_path) == [*known, unknown], "it starts again"

    write_others(tmp_path, Others("a", 4, rows))
    at = time.time()
    os.utime(tmp_path / OTHERS, (at - OLD_S + 10, at - OLD_S + 10))
    assert all_shards(tmp_path) == known
    for old in (at - OLD_S - 1, at + OLD_S + 10):
        os.utime(tmp_path / OTHERS, (old, old))
        assert all_shards(tmp_path) == [*known, unknown]


def test_names_of_processes_are_unique_on_a_node_and_those_of_the_first_shard_as_before() -> None:
    assert [name_of("receiver.0", 0), name_of("receiver.0", 2)] == ["receiver.0", "receiver.0@2"]
    assert [name_of("supervisor", 0), name_of("supervisor", 1)] == ["supervisor@0", "supervisor@1"]
