"""The copy of the events of all shards: what a node fetches of them, and what it says of what it lacks.

Proves law: gathered-before-told (docs/laws.md).
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mailcore.config.settings import Settings
from mailcore.log.disk import Disk, Locked
from mailcore.nodes import gathering
from mailcore.nodes.gathering import Gathered, Gatherer, Manifest, copy_of, read_manifest
from mailcore.nodes.stored_events import open_events
from mailcore.replication.faults import StoreError
from tests.nodes.test_owner import home, owned
from tests.nodes.test_stored_events import disk_of, write
from tests.replication.cluster import Cluster

DAYS = ("2026-11-20", "2026-11-22", "2026-11-20")  # since, until, keep
NORTH = {
    "dt=2026-11-19/journal.0.parquet": b"too old",
    "dt=2026-11-21/journal.100.parquet": b"j" * 3_000_000,
    "dt=2026-11-22/incoming.0.0.parquet": b"i" * 1000,
    "dt=2026-11-23/journal.200.parquet": b"too new",
    "cuts/2026-11-01T000000.000000Z.json": b'{"at": 1}',
    "cuts/2026-11-10T000000.000000Z.json": b'{"at": 2}',
    "cuts/2026-11-18T000000.000000Z.json": b'{"at": 3}',
    "cuts/2026-11-22T000000.000000Z.json": b'{"at": 4}',
    "cuts/2026-11-22T000000.000000Z.ids.jsonl": b"",
}
OF_NORTH = {name: data for name, data in NORTH.items() if data[:3] != b"too" and name[:15] != "cuts/2026-11-10"}
SOUTH = {
    "dt=2026-11-21/journal.0.parquet": b"s" * 500_000,
    "cuts/2026-11-22T000001.000000Z.json": b'{"at": 5}',
}


@pytest.fixture
def north(tmp_path: Path, cluster: Cluster) -> Settings:
    settings = home(tmp_path, cluster, "a", "north")
    owned(settings)
    write(settings, disk_of(settings, open_events(settings)), NORTH)
    return settings


@pytest.fixture
def south(tmp_path: Path, cluster: Cluster, north: Settings) -> Settings:
    settings = home(tmp_path, cluster, "b", "south")
    owned(settings)
    write(settings, disk_of(settings, open_events(settings)), SOUTH)
    return settings


def gather(settings: Settings, **more: float) -> Gathered:
    return Gatherer(settings, **more).gather(*DAYS)  # type: ignore[arg-type]


def copied(settings: Settings, number: int) -> dict[str, bytes]:
    place = copy_of(settings) / "shards" / f"{number:02}" / "events"
    return {
        str(path.relative_to(place)): path.read_bytes()
        for path in place.rglob("*")
        if path.is_file() and path.name != gathering.SEEN
    }


def said(settings: Settings) -> Manifest:
    manifest = read_manifest(copy_of(settings))
    assert manifest is not None
    return manifest


def test_a_node_has_the_events_of_all_shards_with_a_second_name_for_its_own(south: Settings) -> None:
    assert gather(south) == Gathered(more=False, fetched_bytes=sum(map(len, OF_NORTH.values())), missing=0, shards=2)
    assert (copied(south, 1), copied(south, 2)) == (OF_NORTH, SOUTH)
    own = south.events_directory / "dt=2026-11-21/journal.0.parquet"
    assert own.stat().st_nlink == 2
    manifest = said(south)
    assert [(each.number, each.name, each.node, each.missing) for each in manifest.shards] == [
        (1, "north", "a", 0),
        (2, "south", "b", 0),
    ]
    assert (manifest.since, manifest.until) == DAYS[:2]
    assert gather(south).fetched_bytes == 0


def test_it_is_fetched_in_steps_and_events_come_before_counts(south: Settings) -> None:
    steps = [gather(south, bytes_max=1)]
    assert (steps[0].more, sorted(copied(south, 1))) == (True, ["dt=2026-11-22/incoming.0.0.parquet"])
    assert [each.missing > 0 for each in said(south).shards] == [True, True]
    while steps[-1].more:
        has_counts = any(name.startswith("cuts/") for name in copied(south, 1))
        assert not has_counts or set(copied(south, 1)) >= {name for name in OF_NORTH if name.startswith("dt=")}
        steps.append(gather(south, bytes_max=1))
    assert len(steps) > 5
    assert (copied(south, 1), copied(south, 2), said(south).shards[0].missing) == (OF_NORTH, SOUTH, 0)


def test_a_step_that_was_killed_is_done_again(south: Settings) -> None:
    gather(south, bytes_max=1)
    place = copy_of(south) / "shards/01/events"
    (place / "dt=2026-11-21").mkdir(exist_ok=True)
    (place / "dt=2026-11-21/.journal.100.parquet").write_bytes(b"a part")
    (place / "dt=2026-11-21/journal.100.parquet").write_bytes(b"j" * 2_999_999)
    (place / gathering.SEEN).write_bytes(b"{")
    while gather(south).more:
        pass
    assert copied(south, 1) == OF_NORTH


def test_a_file_that_was_written_again_or_changed_here_is_fetched_anew(north: Settings, south: Settings) -> None:
    gather(south)
    name = "dt=2026-11-21/journal.100.parquet"
    again = b"k" * 3_000_000
    write(north, disk_of(north, open_events(north)), {name: again})
    flipped = copy_of(south) / "shards/01/events/dt=2026-11-22/incoming.0.0.parquet"
    flipped.write_bytes(b"i" * 999 + b"j")
    gather(south)
    assert copied(south, 1) == OF_NORTH | {name: again}


def test_a_damaged_file_of_this_node_is_taken_from_the_database(south: Settings) -> None:
    own = south.events_directory / "dt=2026-11-21/journal.0.parquet"
    own.write_bytes(b"s" * 499_999 + b"t")
    gather(south)
    assert copied(south, 2) == SOUTH


def test_what_the_database_does_not_have_is_removed_and_so_are_old_days(north: Settings, south: Settings) -> None:
    gather(south)
    disk_of(north, open_events(north)).unlink(str(north.events_directory / "dt=2026-11-22/incoming.0.0.parquet"))
    foreign = copy_of(south) / "shards/01/events/dt=2026-11-21/journal.7.parquet"
    foreign.write_bytes(b"of nobody")
    gather(south)
    assert sorted(OF_NORTH.keys() - copied(south, 1).keys()) == ["dt=2026-11-22/incoming.0.0.parquet"]
    assert not foreign.exists()
    Gatherer(south).gather("2026-11-23", "2026-11-24", "2026-11-22")
    assert "dt=2026-11-21/journal.100.parquet" not in copied(south, 1)
    assert not (copy_of(south) / "shards/01/events/dt=2026-11-21").exists()
    assert "dt=2026-11-23/journal.200.parquet" in copied(south, 1)


def test_a_file_that_the_database_has_damaged_is_missing_and_named(own_cluster: Cluster, tmp_path: Path) -> None:
    settings = home(tmp_path, own_cluster, "a", "north")
    owned(settings)
    write(settings, disk_of(settings, open_events(settings)), NORTH)
    reader = home(tmp_path, own_cluster, "b", "south")
    owned(reader)
    own_cluster.primary.sql(
        "update waypost.chunk set bytes = 'other' where file = 'events/dt=2026-11-22/incoming.0.0.parquet'"
    )
    assert gather(reader).missing == 1
    north = said(reader).shards[0]
    assert (north.name, north.missing) == ("north", 1)
    assert north.named[0].startswith("dt=2026-11-22/incoming.0.0.parquet: The database returns other bytes")
    assert "dt=2026-11-22/incoming.0.0.parquet" not in copied(reader, 1)


def test_it_says_since_when_it_knows_a_shard(tmp_path: Path, cluster: Cluster, north: Settings) -> None:
    Gatherer(north, clock=lambda: 100.0).gather(*DAYS)
    later = home(tmp_path, cluster, "c", "west")
    owned(later)
    Gatherer(north, clock=lambda: 200.0).gather(*DAYS)
    Gatherer(north, clock=lambda: 300.0).gather(*DAYS)
    assert [(each.name, each.absent_at) for each in said(north).shards] == [("north", 0.0), ("west", 100.0)]


def test_without_the_database_it_says_no_more_than_before(own_cluster: Cluster, tmp_path: Path) -> None:
    settings = home(tmp_path, own_cluster, "a", "north")
    owned(settings)
    write(settings, disk_of(settings, open_events(settings)), NORTH)
    gather(settings)
    before = said(settings)
    own_cluster.primary.stop()
    with pytest.raises(StoreError):
        gather(settings)
    assert said(settings) == before


def test_room_that_mail_needs_is_left(south: Settings) -> None:
    class Full(Disk):
        def free_bytes(self, path: str) -> int:
            return gathering.ROOM * south.queue.reserve_bytes + 1000

    with pytest.raises(OSError, match="no room for the events of other shards"):
        Gatherer(south, disk=Full()).gather(*DAYS)


def test_two_do_not_work_at_once(south: Settings) -> None:
    os.makedirs(copy_of(south), exist_ok=True)
    held = Disk().lock(str(copy_of(south) / "lock"))
    with pytest.raises(Locked):
        gather(south)
    os.close(held)
