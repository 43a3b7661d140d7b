"""A shard that was being taken in from a disk is given up at another node: its mail is the disk's, and never the shard's.

Proves law: disk-or-shard (docs/laws.md).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from mailcore.log.disk import Disk
from mailcore.nodes.giving_up import CannotGiveUp, give_up_held
from mailcore.nodes.parameters import parameters_of
from mailcore.nodes.taking_in import CannotTakeIn
from mailcore.queue.shard_copy import read_taking_in
from mailcore.replication.connection import Connection
from mailcore.replication.faults import Fenced, Lost
from mailcore.replication.shard import ShardRow, read_shard, set_state
from mailcore.replication.writer import StoreWriter
from tests.nodes.test_owner import Said, home, owned
from tests.nodes.test_shard_commands import given
from tests.nodes.test_taking_in import (
    Forked,
    disk_has_it,
    files_of,
    given_up,
    queue_on_disk,
    shard_has_it,
    stored_in,
    taken_in,
)
from tests.replication.cluster import Cluster

STEPS = ("register", "begin", "free", "commit", "ends", "reserve", "open")


def given_up_elsewhere(cluster: Cluster, shard: str = "north") -> ShardRow:
    connection = cluster.connect()
    try:
        return give_up_held(connection, shard)
    finally:
        connection.close()


@pytest.mark.parametrize("at", STEPS[1:])
def test_law_disk_what_is_given_up_elsewhere_is_never_the_shards_and_a_disk_that_is_back_has_its_mail(
    cluster: Cluster, tmp_path: Path, at: str
) -> None:
    settings = queue_on_disk(tmp_path, cluster)
    before = files_of(settings)
    assert Forked(lambda step: taken_in(settings, step), lambda _, name: name == at).wait()
    row = given_up_elsewhere(cluster)
    assert (row.state, row.owner) == ("closed", "")
    assert stored_in(cluster, "north") == []
    assert cluster.primary.sql("select 1 from waypost.writer") == []
    assert not shard_has_it(settings)
    assert files_of(settings) == before

    with pytest.raises(Said, match="which has not ended"):
        owned(settings)
    with pytest.raises(CannotTakeIn, match="was given up at another node"):
        taken_in(settings)
    given_up(settings)
    assert disk_has_it(settings)
    assert files_of(settings) == before
    with pytest.raises(CannotTakeIn, match=r"has a shard north already \(number 1, closed\)"):
        taken_in(settings)
    assert read_taking_in(Disk(), str(settings.queue_directory)) is None


def test_a_command_of_a_disk_that_was_only_away_finds_no_row(cluster: Cluster, tmp_path: Path) -> None:
    """It continues in the middle of each of its steps, when all has been given up."""
    for number, at in enumerate(STEPS):
        settings = queue_on_disk(tmp_path / at, cluster, f"s{number}")

        def step(name: str, number: int = number, at: str = at) -> None:
            if name == at and f"s{number}" in {row[0] for row in cluster.primary.sql("select name from waypost.shard")}:
                given_up_elsewhere(cluster, f"s{number}")

        if at == "register":
            continue  # there is no row yet
        with pytest.raises((CannotTakeIn, Fenced, Lost)):
            taken_in(settings, step)
        assert not shard_has_it(settings), at
        assert stored_in(cluster, f"s{number}") == []


def test_epochs_of_the_disk_are_used_by_nothing_else(cluster: Cluster, tmp_path: Path) -> None:
    settings = queue_on_disk(tmp_path, cluster)
    assert Forked(lambda step: taken_in(settings, step), lambda _, name: name == "open").wait()
    connection = cluster.connect()
    held = read_shard(connection, "north")
    assert held is not None
    closed = given_up_elsewhere(cluster)
    assert closed.epoch > held.epoch + 1, "the command of the disk could have begun again at the same moment"
    for epoch in range(1, closed.epoch):
        writer = StoreWriter(parameters_of(settings), "north", "i", epoch)
        with pytest.raises(Fenced):
            writer.begin()
        writer.close()
        with pytest.raises(Fenced):
            set_state(connection, held._replace(epoch=epoch), "open")
    connection.close()
    assert not shard_has_it(settings)


def test_what_has_mail_or_is_not_there_is_not_given_up(cluster: Cluster, tmp_path: Path) -> None:
    settings = queue_on_disk(tmp_path, cluster)
    with pytest.raises(CannotGiveUp, match="There is no shard north"):
        given_up_elsewhere(cluster)
    taken_in(settings)
    with pytest.raises(CannotGiveUp, match="is open at a, and has its mail"):
        given_up_elsewhere(cluster)
    assert shard_has_it(settings)


def test_a_disk_that_is_not_gone_is_noticed(cluster: Cluster, tmp_path: Path) -> None:
    settings = queue_on_disk(tmp_path, cluster)
    assert Forked(lambda step: taken_in(settings, step), lambda _, name: name == "open").wait()
    for at in ("begin again", "free writers", "free", "close"):
        connection: Connection = cluster.connect()

        def step(name: str, at: str = at) -> None:
            if name == at:
                cluster.primary.sql("update waypost.shard set epoch = epoch + 1")  # it begins again

        with pytest.raises(CannotGiveUp, match="the disk that it is taken in from is not gone"):
            give_up_held(connection, "north", step=step)
        connection.close()
    taken_in(settings)
    assert shard_has_it(settings)


def test_the_command_asks_first(cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = queue_on_disk(tmp_path / "gone", cluster)
    assert Forked(lambda step: taken_in(settings, step), lambda _, name: name == "open").wait()
    here = home(tmp_path / "here", cluster, "b", "north")
    assert given(cluster, here, "give-up", "north") == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "this would give up shard north, which a takes in from its disk" in said
    assert "Confirm with --yes" in said
    assert cluster.primary.sql("select state from waypost.shard") == [("held",)]
    assert given(cluster, here, "give-up", "north", "--yes") == 0
    assert "shard north is given up" in capsys.readouterr().out
    assert given(cluster, here, "give-up", "north", "--yes") == 1
    assert "Shard north is closed already" in capsys.readouterr().err
