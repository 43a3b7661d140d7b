"""The files of a shard become what the database says: from any state of a directory, and interrupted anywhere.

Proves law: files-as-the-database-says (docs/laws.md).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mailcore.log.record import LIVE
from mailcore.replication import files as module
from mailcore.replication.connection import Connection
from mailcore.replication.faults import Lost
from mailcore.replication.files import NameRefused
from mailcore.replication.snapshot import ChunkDamaged
from tests.replication.cluster import Cluster, Template
from tests.replication.stored_shard import (
    DEAD,
    Files,
    found_in,
    found_on,
    made_shard,
    make,
    make_on,
)
from tests.replication.writing import add_shard, appended, writing
from tests.simulated_disk import PowerLoss, RandomChoice, SimulatedDisk

LANE, SPOOLED = "incoming.0/0", "spool/1f/ABC"


class Stored:
    """A shard in the database, and its files. Hypothesis writes no dataclass of this size."""

    def __init__(self, cluster: Cluster, files: Files) -> None:
        self.cluster = cluster
        self.files = files


@pytest.fixture(scope="module")
def shard(template: Template) -> Iterator[Stored]:
    """A shard that no test of this file changes."""
    with template.copy("files") as cluster:
        yield Stored(cluster, made_shard(cluster))


@pytest.fixture
def files(shard: Stored) -> Files:
    return shard.files


@pytest.fixture
def connection(shard: Stored) -> Iterator[Connection]:
    connection = shard.cluster.connect()
    yield connection
    connection.close()


def write(directory: Path, files: Files) -> None:
    for name, data in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def test_an_empty_directory_gets_all_and_an_equal_one_nothing(
    connection: Connection, files: Files, tmp_path: Path
) -> None:
    changes = make(connection, tmp_path)
    assert found_in(tmp_path) == files
    assert sorted(changes.made) == sorted(files)
    again = make(connection, tmp_path)
    assert not again.any
    assert again.bytes_fetched == 0
    assert again.bytes_kept > 256 * 1100


def test_only_what_differs_is_fetched(connection: Connection, files: Files, tmp_path: Path) -> None:
    write(tmp_path, files)
    data = bytearray(files[SPOOLED])
    data[-1] ^= 1  # in the second chunk, which is the shorter one
    (tmp_path / SPOOLED).write_bytes(data)
    changes = make(connection, tmp_path)
    assert found_in(tmp_path) == files
    assert (changes.fetched, changes.bytes_fetched) == ([SPOOLED], len(data) - 256 * 1024)


def test_what_does_not_concern_the_store_is_left_alone(connection: Connection, files: Files, tmp_path: Path) -> None:
    own = {"incoming.0/0.index": b"index", "incoming.0/lock": b"", "elsewhere/lock": b"x"}
    write(tmp_path, own | {"incoming.0/5": b"a segment without a commit"})
    assert make(connection, tmp_path).deleted == ["incoming.0/5"]
    assert found_in(tmp_path) == files | own


# -- Any state of a directory

ABOVE = ["incoming.0", "spool", "spool/1f", "journal"]
EXTRA = ["incoming.0/7", "incoming.7/0", "incoming.00.x", "zz/z/z", "0", "spool/1f/ABCD", "journal/0.new"]


def make_missing(path: Path, _: bytes, __: int) -> None:
    path.unlink()


def make_cut(path: Path, data: bytes, number: int) -> None:
    os.truncate(path, number % (len(data) + 1))


def make_longer(path: Path, data: bytes, number: int) -> None:
    path.write_bytes(data + b"\0x"[number % 2 :][:1] * (1 + number % 5000))


def make_other_byte(path: Path, data: bytes, number: int) -> None:
    changed = bytearray(data or b"\0")
    changed[number % len(changed)] ^= 1 + number % 255
    path.write_bytes(changed)


def make_zeros(path: Path, data: bytes, number: int) -> None:
    """Sparse: a hole where bytes were, as a power failure leaves."""
    start = number % (len(data) + 1)
    path.write_bytes(data[:start])
    os.truncate(path, len(data))


def make_marked(path: Path, data: bytes, number: int) -> None:
    """Marks that the database has not, or lacks."""
    places = [at for at, byte in enumerate(data) if byte in (LIVE, DEAD)] or [0]
    changed = bytearray(data or b"L")
    at = places[number % len(places)]
    changed[at] = DEAD if changed[at] == LIVE else LIVE
    path.write_bytes(changed)


def make_directory(path: Path, _: bytes, number: int) -> None:
    path.unlink()
    (path / "deep").mkdir(parents=True)
    if number % 2:
        (path / "deep" / "file").write_bytes(b"in the way")
        (path / "x").symlink_to("/")


def make_link(path: Path, data: bytes, number: int) -> None:
    """To a file with the same content."""
    other = path.with_name(f"{path.name}.target")
    path.rename(other)
    path.symlink_to(other if number % 2 else other.name)


def make_second_name(path: Path, _: bytes, __: int) -> None:
    other = path.with_name(f"{path.name}.twice")
    other.unlink(missing_ok=True)
    os.link(path, other)


def make_pipe(path: Path, _: bytes, __: int) -> None:
    path.unlink()
    os.mkfifo(path)


DAMAGES: list[Callable[[Path, bytes, int], None]] = [
    make_missing, make_cut, make_longer, make_other_byte, make_zeros, make_marked, make_directory, make_link,
    make_second_name, make_pipe,
]  # fmt: skip


def replace_directory(directory: Path, name: str, number: int) -> None:
    """A link to a directory with the same files, a file, or nothing where a directory was."""
    path = directory / name
    if not path.is_dir() or path.is_symlink():
        return
    if number % 3:
        outside = directory.parent / "outside" / name.replace("/", "_")
        shutil.rmtree(outside, ignore_errors=True)
        outside.parent.mkdir(exist_ok=True)
        path.rename(outside)
        if number % 3 == 1:
            path.symlink_to(outside)
        else:
            path.write_bytes(b"a file")
    else:
        shutil.rmtree(path)


def outside_of(directory: Path) -> dict[str, bytes | str]:
    return found_in(directory.parent / "outside")


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    damages=st.lists(st.tuples(st.integers(0, 99), st.sampled_from(DAMAGES), st.integers(0, 1 << 20)), max_size=8),
    extra=st.lists(st.sampled_from(EXTRA), max_size=3, unique=True),
    above=st.lists(st.tuples(st.sampled_from(ABOVE), st.integers(0, 99)), max_size=2),
)
def test_from_any_state_the_files_become_what_the_database_says(
    connection: Connection,
    shard: Stored,
    tmp_path_factory: pytest.TempPathFactory,
    damages: list[tuple[int, Callable[[Path, bytes, int], None], int]],
    extra: list[str],
    above: list[tuple[str, int]],
) -> None:
    directory = tmp_path_factory.mktemp("any") / "shard"
    directory.mkdir()
    files = shard.files
    write(directory, files | dict.fromkeys(extra, b"extra"))
    names = sorted(files)
    for which, damage, number in damages:
        path = directory / names[which % len(names)]
        if path.is_file() and not path.is_symlink():
            damage(path, files[names[which % len(names)]], number)
    for name, number in above:
        replace_directory(directory, name, number)
    outside = outside_of(directory)
    make(connection, directory)
    assert found_in(directory) == files
    assert outside_of(directory) == outside, "nothing outside was touched"
    assert not make(connection, directory).any
    shutil.rmtree(directory.parent)


def test_a_block_that_cannot_be_read_is_written(connection: Connection, files: Files) -> None:
    disk = SimulatedDisk()
    make_on(connection, disk)
    for name in (LANE, SPOOLED, "restart"):
        disk.break_blocks(f"/shard/{name}", 0, 3)
    changes = make_on(connection, disk)
    assert sorted(changes.fetched) == [LANE, "restart", SPOOLED]
    assert found_on(disk) == files


def test_bytes_that_were_written_twice_are_those_of_the_later_batch(cluster: Cluster, tmp_path: Path) -> None:
    add_shard(cluster.primary)
    with writing(cluster) as writer:
        writer.commit(appended(b"abcdef", 2), {})
        writer.commit(appended(b"XY", 4), {})
        writer.commit(appended(b"ZZZZZ", 10), {})
    own = cluster.connect()
    expected = {LANE: b"\0\0abXYef\0\0ZZZZZ"}
    make(own, tmp_path)
    assert found_in(tmp_path) == expected
    (tmp_path / LANE).write_bytes(b"x" * 30)
    make(own, tmp_path)
    assert found_in(tmp_path) == expected
    own.close()


def test_a_shard_that_has_nothing_leaves_nothing(cluster: Cluster, tmp_path: Path) -> None:
    add_shard(cluster.primary)
    write(tmp_path, {"incoming.0/0": b"bytes without a commit", "restart": b"P", "incoming.0/lock": b""})
    own = cluster.connect()
    assert sorted(make(own, tmp_path).deleted) == ["incoming.0/0", "restart"]
    assert found_in(tmp_path) == {"incoming.0/lock": b""}
    own.close()


# -- Interrupted


def partly_right(files: Files) -> SimulatedDisk:
    """A disk on which something of everything is to be done."""
    disk = SimulatedDisk()
    disk.make_directory("/shard/incoming.0")
    disk.make_directory("/shard/journal/0/deep")
    disk.make_directory("/shard/spool/1f")
    disk.put("/shard/journal/0/deep/file", b"in the way")
    disk.put("/shard/incoming.0/0", files[LANE] + b"longer")
    disk.put("/shard/incoming.0/9", b"without a commit")
    disk.put("/shard/incoming.0/lock", b"")
    disk.put("/shard/exported", b"longer than it is")
    disk.put("/shard/restart", b"other")
    disk.put(f"/shard/{SPOOLED}", files[SPOOLED][:1000])
    return disk


def test_interrupted_before_any_call_it_is_run_again(connection: Connection, files: Files) -> None:
    """By a power failure that keeps any part of what was written, or by a kill that keeps all."""
    whole = partly_right(files)
    before = whole.changes
    make_on(connection, whole)
    expected = files | {"incoming.0/lock": b""}
    assert found_on(whole) == expected
    steps = whole.changes - before
    assert steps > 20
    for point in range(1, steps + 1):
        disk = partly_right(files)
        disk.crash_before(before + point)
        with pytest.raises(PowerLoss):
            make_on(connection, disk)
        for after in (disk.kill(), *(disk.crash(RandomChoice(seed)) for seed in range(3))):
            make_on(connection, after)
            assert found_on(after) == expected, f"crash before call {point}"
            assert not make_on(connection, after).any


def test_a_connection_that_is_lost_leaves_what_is_run_again(shard: Stored) -> None:
    """The session ends in front of each write; the statement after it is lost, if there is one."""
    cluster, files = shard.cluster, shard.files
    lost = 0
    for point in range(1, 40):
        disk = partly_right(files)
        own = cluster.connect()
        left = [point]

        def look(_: str, __: str, own: Connection = own, left: list[int] = left) -> None:
            left[0] -= 1
            if not left[0]:
                own.close()

        disk.on_change = look
        try:
            make_on(own, disk)
        except Lost:
            lost += 1
        disk.on_change = None
        own.close()
        again = cluster.connect()
        make_on(again, disk)
        assert found_on(disk) == files | {"incoming.0/lock": b""}
        again.close()
    assert lost > 10


def test_a_disk_that_fails_ends_it(connection: Connection, files: Files) -> None:
    for call in ("write", "create", "unlink", "shorten", "remove_directory"):
        disk = partly_right(files)
        disk.fail(call)
        with pytest.raises(OSError, match="Input/output"):
            make_on(connection, disk)
        disk.heal()
        make_on(connection, disk)
        assert found_on(disk) == files | {"incoming.0/lock": b""}
        assert disk.open_files() == []


# -- What must not be believed


def test_a_chunk_that_is_damaged_in_the_database_ends_it_and_is_not_written(cluster: Cluster, tmp_path: Path) -> None:
    files = made_shard(cluster)
    cluster.primary.sql("update waypost.chunk set bytes = 'damaged' where file = 'spool/1f/ABC' and part = 3")
    cluster.primary.sql("update waypost.chunk set bytes = 'damaged' where file = 'spool/1f/ABC' and part = 2")
    own = cluster.connect()
    with pytest.raises(ChunkDamaged, match="let the other one take over"):
        make(own, tmp_path)
    path = tmp_path / SPOOLED
    assert not path.exists() or b"damaged" not in path.read_bytes()
    own.close()
    assert files


@pytest.mark.parametrize(
    "name", ["../outside", "incoming.0/../../outside", "/etc/outside", "incoming.0//0", "./0", ".", "..", "a/", ""]
)
@pytest.mark.parametrize("table", ["chunk", "state"])
def test_a_name_that_leads_outside_is_refused(cluster: Cluster, tmp_path: Path, name: str, table: str) -> None:
    made_shard(cluster)
    if table == "chunk":
        with writing(cluster) as writer:
            writer.commit(appended(b"evil", 0, name), {})
    else:
        cluster.primary.sql(f"insert into waypost.state values ('north', '{name}', 'evil')")
    directory = tmp_path / "shard"
    directory.mkdir()
    own = cluster.connect()
    with pytest.raises(NameRefused, match="not below the shard's directory"):
        make(own, directory)
    own.close()
    assert [path.name for path in tmp_path.iterdir()] == ["shard"]
    assert not Path("/etc/outside").exists()


@pytest.mark.parametrize("name", ["incoming.0/0/below", "restart", "incoming.0"])
def test_files_that_exclude_each_other_are_refused(cluster: Cluster, tmp_path: Path, name: str) -> None:
    made_shard(cluster)
    with writing(cluster) as writer:
        writer.commit(appended(b"double", 0, name), {})
    own = cluster.connect()
    with pytest.raises(NameRefused, match="both cannot be there"):
        make(own, tmp_path)
    own.close()


def test_zeros_are_made_in_pieces(
    connection: Connection, files: Files, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(module, "ZEROS_BYTES", 7)
    write(tmp_path, files)
    content = bytearray(files["incoming.0/1000"])
    start = content.index(b"\0")
    content[start : start + 20] = b"x" * 20
    (tmp_path / "incoming.0/1000").write_bytes(content)
    changes = make(connection, tmp_path)
    assert (found_in(tmp_path), changes.bytes_fetched) == (files, 0)
