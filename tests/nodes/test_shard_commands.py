"""``waypost shard import|rebuild|close`` on a terminal: what they take, what they say, and with which status they end.

Proves law: disk-or-shard (docs/laws.md).
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import msgspec
import pytest

from mailcore.cli.main import main
from mailcore.config.settings import Settings
from mailcore.config.shards import adopted, of_shard
from mailcore.log.disk import Disk
from mailcore.nodes.taking_in import CannotTakeIn
from mailcore.queue.shard_copy import (
    ShardCopy,
    read_copy,
    read_taking_in,
    refuse_copy,
    write_copy,
    write_taking_in,
)
from mailcore.queue.versions import NotOurs
from mailcore.supervisor.preparation import prepare_home
from tests.nodes.node import conninfo_of
from tests.nodes.test_owner import Said, home, owned
from tests.nodes.test_taking_in import Forked, disk_has_it, queue_on_disk, taken_in
from tests.replication.cluster import Cluster
from tests.replication.writing import add_shard

Captured = pytest.CaptureFixture[str]


def given(cluster: Cluster, settings: Settings, *words: str) -> int:
    config = settings.home / "waypost.toml"
    config.write_text(
        f'home = "{settings.home}"\n[nodes]\ndatabase = "{conninfo_of(cluster)}"\nnode = "a"\nshard = "north"\n'
    )
    return main(["shard", *words, "--config", str(config)])


def rows(cluster: Cluster) -> list[tuple[str, ...]]:
    return cluster.primary.sql("select name, number, state, placed from waypost.shard order by number")


def test_an_import_is_given_up_and_given_again(cluster: Cluster, tmp_path: Path, capsys: Captured) -> None:
    settings = queue_on_disk(tmp_path, cluster)
    assert Forked(lambda step: taken_in(settings, step), lambda _, name: name == "open").wait()
    assert given(cluster, settings, "import", "--abandon") == 0
    assert "the mail is that of this disk again" in capsys.readouterr().out
    assert disk_has_it(settings)
    assert rows(cluster) == []
    assert given(cluster, settings, "import", "--abandon") == 1
    assert "is not being taken into a database" in capsys.readouterr().err
    assert given(cluster, settings, "import", "--json") == 0
    done = json.loads(capsys.readouterr().out)
    assert (done["shard"], done["number"], done["held"], done["damaged"]) == ("north", 1, False, 0)
    assert rows(cluster) == [("north", "1", "open", "")]
    assert given(cluster, settings, "import") == 0
    assert "shard north has the mail already" in capsys.readouterr().out
    write_copy(Disk(), str(settings.queue_directory), ShardCopy("north", 77))
    assert given(cluster, settings, "import") == 1, "its mail must be held"
    assert "is the copy of shard north" in capsys.readouterr().err
    cluster.primary.sql("delete from waypost.writer; delete from waypost.shard")
    assert given(cluster, settings, "import") == 1
    assert rows(cluster) == []


def test_a_home_that_runs_or_has_no_queue_is_refused(cluster: Cluster, tmp_path: Path, capsys: Captured) -> None:
    settings = home(tmp_path, cluster, "a", "north")
    assert given(cluster, settings, "import") == 2
    assert "has no queue" in capsys.readouterr().err
    (tmp_path / "x").mkdir()
    settings = queue_on_disk(tmp_path / "x", cluster)
    lock = prepare_home(of_shard(settings, 0))
    assert given(cluster, settings, "import") == 1
    assert "another Waypost" in capsys.readouterr().err
    assert disk_has_it(settings)
    assert lock >= 0


def test_a_copy_is_rebuilt_and_what_was_put_aside_becomes_another_shard(
    cluster: Cluster, tmp_path: Path, capsys: Captured
) -> None:
    settings = queue_on_disk(tmp_path, cluster)
    assert given(cluster, settings, "rebuild", "north") == 2
    assert "no files here are the copy of a shard north" in capsys.readouterr().err
    aside = "aside-20260102T030405"
    for directory in (settings.queue_directory, settings.spool_directory):
        names = [each for each in directory.iterdir() if not each.name.startswith(("identity", "aside"))]
        (directory / aside).mkdir()
        for each in names:
            each.rename(directory / aside / each.name)
    (tmp_path / "y").mkdir()
    second = queue_on_disk(tmp_path / "y", cluster)
    write_copy(Disk(), str(second.queue_directory), ShardCopy("north", 77))
    assert given(cluster, second, "rebuild", "north") == 0
    assert "and its mail is held" in capsys.readouterr().out
    assert given(cluster, second, "rebuild", "north") == 0, "again"
    assert given(cluster, settings, "rebuild", "north", "--from", aside) == 1
    assert "has a shard north already" in capsys.readouterr().err
    assert given(cluster, settings, "rebuild", "lost", "--from", "../aside-1") == 2
    lock = Disk().lock(str(settings.queue_directory / aside / "lock"))
    assert given(cluster, settings, "rebuild", "lost", "--from", aside) == 1
    assert "another command takes" in capsys.readouterr().err
    os.close(lock)
    assert given(cluster, settings, "rebuild", "lost", "--from", aside) == 0
    assert rows(cluster) == [("north", "1", "open", ""), ("lost", "2", "draining", "a")]
    # Where it lies, nothing is delivered: it stays.
    assert (settings.queue_directory / aside / "journal").is_dir()
    markers = cluster.primary.sql("select shard from waypost.state where file = 'queue/restored' order by shard")
    assert markers == [("lost",), ("north",)]


@pytest.mark.parametrize("at", ["register", "commit", "open"])
def test_a_rebuild_that_was_killed_is_not_ended_as_an_import(
    cluster: Cluster, tmp_path: Path, capsys: Captured, at: str
) -> None:
    """Its mail would not be held, and could go out twice."""
    settings = queue_on_disk(tmp_path, cluster)
    write_copy(Disk(), str(settings.queue_directory), ShardCopy("north", 77))
    assert Forked(lambda step: taken_in(settings, step, is_held=True), lambda _, name: name == at).wait()
    with pytest.raises(NotOurs, match="run waypost shard rebuild north;"):
        refuse_copy(Disk(), str(settings.queue_directory))
    with pytest.raises(Said, match="give waypost shard rebuild north again"):
        owned(settings)
    assert given(cluster, settings, "import") == 1
    assert "end that first with waypost shard rebuild north" in capsys.readouterr().err
    assert [row[2] for row in rows(cluster)] == ([] if at == "register" else ["held"])
    # Nor behind a note of another kind: the files are a copy.
    note = read_taking_in(Disk(), str(settings.queue_directory))
    assert note is not None
    write_taking_in(Disk(), str(settings.queue_directory), msgspec.structs.replace(note, is_held=False))
    assert given(cluster, settings, "import") == 1
    assert "is the copy of shard north" in capsys.readouterr().err
    write_taking_in(Disk(), str(settings.queue_directory), note)
    assert given(cluster, settings, "rebuild", "north") == 0
    assert cluster.primary.sql("select shard from waypost.state where file = 'queue/restored'") == [("north",)]
    assert read_taking_in(Disk(), str(settings.queue_directory)) is None


def test_an_import_that_was_killed_is_not_ended_as_a_rebuild(
    cluster: Cluster, tmp_path: Path, capsys: Captured
) -> None:
    settings = queue_on_disk(tmp_path, cluster)
    assert Forked(lambda step: taken_in(settings, step), lambda _, name: name == "open").wait()
    with pytest.raises(CannotTakeIn, match="end that first with waypost shard import"):
        taken_in(settings, is_held=True)
    assert given(cluster, settings, "import") == 0


def test_what_was_begun_in_another_database_is_taken_in_here_only_to_be_held(
    cluster: Cluster, tmp_path: Path, capsys: Captured
) -> None:
    """That one may have opened the shard, and delivered its mail."""
    settings = queue_on_disk(tmp_path, cluster)
    queue = str(settings.queue_directory)
    assert Forked(lambda step: taken_in(settings, step), lambda _, name: name == "finish").wait()
    note = read_taking_in(Disk(), queue)
    assert note is not None
    write_taking_in(Disk(), queue, msgspec.structs.replace(note, system=77))
    cluster.primary.sql("delete from waypost.writer; delete from waypost.shard; delete from waypost.chunk")
    for words in (["import"], ["import", "--abandon"], ["rebuild", "north", "--abandon"]):
        assert given(cluster, settings, *words) == 1
        assert "taken into another database (system 77) as shard north" in capsys.readouterr().err
    with pytest.raises(Said, match=r"another database \(system 77\).* waypost shard rebuild north takes"):
        owned(settings)
    assert not disk_has_it(settings)
    assert rows(cluster) == []
    assert given(cluster, settings, "rebuild", "north") == 0
    assert "and its mail is held" in capsys.readouterr().out
    assert rows(cluster) == [("north", "1", "open", "")]
    assert owned(settings).state == "open"


def test_the_copy_of_an_adopted_shard_is_rebuilt(cluster: Cluster, tmp_path: Path, capsys: Captured) -> None:
    settings = queue_on_disk(tmp_path, cluster)
    place = adopted(settings, 4, "south")
    for here, there in (
        (settings.queue_directory, place.queue_directory), (settings.spool_directory, place.spool_directory)
    ):  # fmt: skip
        there.parent.mkdir(parents=True, exist_ok=True)
        here.rename(there)
    write_copy(Disk(), str(place.queue_directory), ShardCopy("south", 77))
    assert given(cluster, settings, "rebuild", "south") == 0
    assert rows(cluster) == [("south", "1", "draining", "a")]
    copy = read_copy(Disk(), str(place.queue_directory))
    assert copy is not None
    assert copy.system != 77
    assert "shard south has" in capsys.readouterr().out


def test_of_several_copies_one_is_named(cluster: Cluster, tmp_path: Path, capsys: Captured) -> None:
    settings = queue_on_disk(tmp_path, cluster)
    places = [adopted(settings, number, "south") for number in (4, 7)]
    for at, place in enumerate(places):
        place.queue_directory.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(settings.queue_directory, place.queue_directory)
        shutil.copytree(settings.spool_directory, place.spool_directory)
        write_copy(Disk(), str(place.queue_directory), ShardCopy("south", 77))
        for each in (*place.queue_directory.rglob("*"), *place.spool_directory.rglob("*")):
            os.utime(each, (1.8e9 + at, 1.8e9 + at))
    first, second = (str(place.queue_directory) for place in places)
    assert given(cluster, settings, "rebuild", "south") == 2
    said = " ".join(capsys.readouterr().err.split())
    assert f"{first} (written 2027-01-15 08:00:00 UTC), {second} (written 2027-01-15 08:00:01 UTC)" in said
    assert given(cluster, settings, "rebuild", "south", "--from", str(settings.queue_directory)) == 2
    assert "is not a copy of shard south" in capsys.readouterr().err
    assert rows(cluster) == []
    assert given(cluster, settings, "rebuild", "south", "--from", second) == 0
    assert rows(cluster) == [("south", "1", "draining", "a")]
    copies = [read_copy(Disk(), each) for each in (first, second)]
    assert [copy is not None and copy.system == 77 for copy in copies] == [True, False]


def test_a_shard_that_does_not_answer_is_not_closed(cluster: Cluster, tmp_path: Path, capsys: Captured) -> None:
    settings = home(tmp_path, cluster, "a", "north")
    add_shard(cluster.primary, name="old", number=3, owner="a/x/y/z")
    cluster.primary.sql("update waypost.shard set state = 'draining'")
    assert given(cluster, settings, "close", "old") == 1
    assert "an unknown amount, because it does not answer" in capsys.readouterr().err
    assert given(cluster, settings, "close", "none") == 1
    assert "There is no shard none" in capsys.readouterr().err
    assert rows(cluster) == [("old", "3", "draining", "")]
