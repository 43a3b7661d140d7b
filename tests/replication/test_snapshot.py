"""A snapshot shows one moment of a shard, in pages of any size, and no byte that is not what was committed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mailcore.replication import snapshot as module
from mailcore.replication.connection import Connection
from mailcore.replication.faults import Lost
from mailcore.replication.snapshot import ChunkDamaged, Snapshot, snapshot
from tests.eventually import PATIENCE_S
from tests.replication.cluster import Cluster
from tests.replication.stored_shard import Files, made_shard
from tests.replication.writing import SHARD, add_shard, appended, writing


@pytest.fixture
def connection(cluster: Cluster) -> Iterator[Connection]:
    connection = cluster.connect()
    yield connection
    connection.close()


def bytes_of(shown: Snapshot) -> Files:
    """All files without their marks."""
    found: Files = {}
    for file in shown.files():
        content = bytearray(file.data or bytes(file.length))
        for place, data in shown.fetch(file.chunks):
            content[place.at : place.at + place.length] = data
        found[file.name] = bytes(content)
    return found


def test_a_shard_that_is_not_there_has_no_snapshot(connection: Connection) -> None:
    with snapshot(connection, SHARD) as shown:
        assert shown is None
    assert connection.run("select 1", PATIENCE_S)[0].rows == [(b"1",)]


def test_it_is_of_one_moment_with_the_rows_of_the_writers(cluster: Cluster, connection: Connection) -> None:
    add_shard(cluster.primary)
    add_shard(cluster.primary, name="south", number=2)
    with writing(cluster) as writer, writing(cluster, "m") as manager:
        writer.commit(appended(b"one", 0), {"incoming.0": (0, 3)})
        with snapshot(connection, SHARD) as shown:
            assert shown is not None
            writer.commit(appended(b"two", 3), {"incoming.0": (0, 6)})
            manager.commit(appended(b"mine", 0, "journal/0"), {})
            rows = {row.writer: (row.n, row.ends) for row in shown.writers.values()}
            assert rows == {"r0": (1, {"incoming.0": (0, 3)}), "m": (0, {})}
            assert bytes_of(shown) == {"incoming.0/0": b"one"}
        with snapshot(connection, SHARD) as shown:
            assert shown is not None
            assert bytes_of(shown) == {"incoming.0/0": b"onetwo", "journal/0": b"mine"}
        with snapshot(connection, "south") as shown:
            assert shown is not None
            assert (bytes_of(shown), shown.writers) == ({}, {})


@pytest.mark.parametrize("listed", [1, 2, 3, 7, 5000])
def test_pages_of_any_size_show_the_same_files_in_order(
    cluster: Cluster, connection: Connection, monkeypatch: pytest.MonkeyPatch, listed: int
) -> None:
    files = made_shard(cluster)
    monkeypatch.setattr(module, "LISTED", listed)
    monkeypatch.setattr(module, "FETCHED_BYTES", listed * 40)
    with snapshot(connection, SHARD) as shown:
        assert shown is not None
        names = [file.name for file in shown.files()]
        assert names == sorted(files, key=str.encode)
        assert [file.name for file in shown.files() if file.marked] == ["incoming.0/0", "incoming.0/1000"]
        assert {name: len(data) for name, data in bytes_of(shown).items()} == {
            name: len(data) for name, data in files.items()
        }
        assert bytes_of(shown)["spool/1f/ABC"] == files["spool/1f/ABC"]


@pytest.mark.parametrize("damage", ["bytes = '\\x00'", "crc = crc + 1", "bytes = bytes || '\\x00'"])
@pytest.mark.parametrize("kind", ["a", "m"])
def test_a_chunk_that_is_damaged_is_not_given_out(
    cluster: Cluster, connection: Connection, damage: str, kind: str
) -> None:
    made_shard(cluster)
    cluster.primary.sql(f"update waypost.chunk set {damage} where file = 'incoming.0/0' and kind = '{kind}' and n > 1")

    def read() -> None:
        with snapshot(connection, SHARD) as shown:
            assert shown is not None
            (file,) = [file for file in shown.files() if file.name == "incoming.0/0"]
            list(shown.fetch(file.chunks))
            shown.marks(file.name)

    with pytest.raises(ChunkDamaged, match=r"shard north, writer m, batch \d+, chunk 0"):
        read()
    assert connection.run("select 1", PATIENCE_S)[0].rows == [(b"1",)], "the transaction has ended"


def test_a_session_that_ends_within_it_is_lost(cluster: Cluster, connection: Connection) -> None:
    made_shard(cluster)

    def read() -> None:
        with snapshot(connection, SHARD) as shown:
            assert shown is not None
            cluster.primary.sql(f"select pg_terminate_backend({connection.backend_pid})")
            list(shown.files())

    with pytest.raises(Lost):
        read()
    assert connection.closed
