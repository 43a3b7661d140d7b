"""Which files of a home the store keeps, and what a single process makes what the database says, while the others run.

Proves law: files-as-the-database-says (docs/laws.md).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mailcore.config.settings import Settings
from mailcore.log.disk import Disk
from mailcore.log.segment import name_of, retired_name_of
from mailcore.nodes import kept
from mailcore.nodes.parameters import parameters_of
from mailcore.replication.batch import Batch
from mailcore.replication.connection import Connection
from mailcore.replication.snapshot import Snapshot, snapshot
from mailcore.replication.writer import StoreWriter
from tests.nodes.test_owner import home, owned
from tests.replication.cluster import Cluster
from tests.replication.writing import SHARD

FIRST, SECOND, THIRD = name_of(0), name_of(100), name_of(200)
LANE = "queue/incoming.0"


@pytest.mark.parametrize(
    ("name", "is_kept"),
    [
        ("restart", True),
        ("restart.previous", True),
        ("restored", True),
        ("restart.new", False),
        ("identity", False),
        ("shard", False),
        ("ids.control", False),
        (f"journal/{FIRST}", True),
        (f"retry.300/{FIRST}", True),
        (f"incoming.1021/{FIRST}", True),
        (f"hold/{retired_name_of(0)}", True),
        (f"incoming.0/{FIRST}".replace(".seg", ".idx"), False),
        (f"incoming.0/{FIRST}".replace(".seg", ".damaged"), False),
        ("incoming.0/lock", False),
        ("incoming.0/ids", False),
        (f"incoming.x/{FIRST}", False),
        (f"aside-20260101T000000/{FIRST}", False),
        (f"lost+found/{FIRST}", False),
        (".ballast/space", False),
    ],
)
def test_a_file_of_the_queue_is_kept_by_its_name(name: str, is_kept: bool) -> None:
    assert kept.is_of_queue(name) is is_kept


@pytest.mark.parametrize(
    ("name", "is_kept"),
    [("1f/CABC", True), ("1f/.hidden", False), ("identity", False), ("aside-x/1f/CABC", False), ("xx/CABC", False)],
)
def test_a_file_of_the_spool_is_kept_by_its_name(name: str, is_kept: bool) -> None:
    assert kept.is_of_spool(name) is is_kept


class Stored:
    """A shard of a receiver with two segments, a manager and an upload, in the database and in a home."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        self.settings: Settings = home(directory, cluster)
        self.row = owned(self.settings)
        ends = {"incoming.0": (100, 105)}
        self.commit("r0", {f"{LANE}/{FIRST}": b"first", f"{LANE}/{SECOND}": b"second"}, ends)
        self.commit("m", {f"queue/journal/{FIRST}": b"journal"}, {"journal": (0, 7)})
        self.commit("u0", {"spool/1f/CABC": b"data"}, {})
        owned(self.settings)

    def commit(self, writer: str, files: dict[str, bytes], ends: dict[str, tuple[int, int]], *, put: str = "") -> None:
        made = StoreWriter(parameters_of(self.settings), SHARD, writer, self.row.epoch)
        made.begin()
        batch = Batch()
        for file, data in files.items():
            batch.append(file, 0, [data])
        if put:
            batch.put(f"queue/{put}", put.encode())
        made.commit(batch, ends)
        made.close()

    def make(self, work: Callable[[Snapshot], Any]) -> Any:
        connection = Connection.open(parameters_of(self.settings))
        with snapshot(connection, SHARD) as shown:
            assert shown is not None
            done = work(shown)
        connection.close()
        return done

    def path(self, name: str) -> Path:
        return self.settings.home / name

    def read(self, name: str) -> bytes | None:
        path = self.path(name)
        return path.read_bytes() if path.exists() else None


@pytest.fixture
def stored(cluster: Cluster, tmp_path: Path) -> Stored:
    return Stored(cluster, tmp_path)


def test_a_receiver_gets_the_batch_that_was_committed_and_not_written_here(stored: Stored) -> None:
    stored.path(f"{LANE}/{SECOND}").write_bytes(b"sec")
    stored.commit("r0", {f"{LANE}/{THIRD}": b"third"}, {"incoming.0": (200, 205)})
    stored.path(f"queue/journal/{FIRST}").write_bytes(b"journal and more, by the manager at this moment")
    changes = stored.make(lambda shown: kept.make_lane(shown, Disk(), stored.settings, "incoming.0"))
    assert (stored.read(f"{LANE}/{SECOND}"), stored.read(f"{LANE}/{THIRD}")) == (b"second", b"third")
    assert sorted([*changes.made, *changes.fetched]) == [SECOND, THIRD]
    assert stored.read(f"queue/journal/{FIRST}") == b"journal and more, by the manager at this moment"


def test_a_receiver_leaves_the_marks_that_the_manager_has_made_and_not_committed(stored: Stored) -> None:
    stored.path(f"{LANE}/{SECOND}").write_bytes(b"#ec")
    stored.make(lambda shown: kept.make_lane(shown, Disk(), stored.settings, "incoming.0"))
    assert stored.read(f"{LANE}/{SECOND}") == b"#econd"
    stored.path(f"{LANE}/{SECOND}").write_bytes(b"#econ#")
    assert not stored.make(lambda shown: kept.make_lane(shown, Disk(), stored.settings, "incoming.0")).any
    assert stored.read(f"{LANE}/{SECOND}") == b"#econ#"


def test_a_receiver_leaves_the_segments_that_were_whole_to_the_manager(stored: Stored) -> None:
    stored.path(f"{LANE}/{FIRST}").rename(stored.path(f"{LANE}/{retired_name_of(0)}"))  # it retires one at this moment
    changes = stored.make(lambda shown: kept.make_lane(shown, Disk(), stored.settings, "incoming.0"))
    assert not changes.any
    assert stored.read(f"{LANE}/{retired_name_of(0)}") == b"first"


def test_a_manager_gets_its_own_files_and_leaves_what_others_write_at_this_moment(stored: Stored) -> None:
    stored.commit("m", {f"queue/hold/{FIRST}": b"held"}, {"hold": (0, 4)}, put="restart")
    stored.path(f"queue/journal/{FIRST}").write_bytes(b"jou")
    stored.path(f"queue/retry.5/{FIRST}").parent.mkdir()
    stored.path(f"queue/retry.5/{FIRST}").write_bytes(b"a deletion that was committed, and not done")
    stored.path(f"{LANE}/{FIRST}").rename(
        stored.path(f"{LANE}/{retired_name_of(0)}")
    )  # a rename that was not committed
    growing = {f"{LANE}/{SECOND}": b"second, and more", f"{LANE}/{THIRD}": b"begun", "spool/1f/CNEW": b"an upload"}
    for name, data in growing.items():
        stored.path(name).write_bytes(data)
    new_lane = stored.path(f"queue/incoming.7/{FIRST}")
    new_lane.parent.mkdir()
    new_lane.write_bytes(b"of a receiver that has just begun")
    stored.make(lambda shown: kept.make_managers(shown, Disk(), stored.settings))
    expected = {
        f"queue/journal/{FIRST}": b"journal", f"queue/hold/{FIRST}": b"held", "queue/restart": b"restart",
        f"queue/retry.5/{FIRST}": None, f"{LANE}/{FIRST}": b"first", f"{LANE}/{retired_name_of(0)}": None,
        f"queue/incoming.7/{FIRST}": b"of a receiver that has just begun", **growing,
    }  # fmt: skip
    assert {name: stored.read(name) for name in expected} == expected
