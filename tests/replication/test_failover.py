"""A primary that dies under writing: what was acknowledged is there, and what is unknown is found out by a write of one's own.

Proves law: replicated-before-done, law: unknown-until-own-write, law: takeover-returned-first, law: never-back-in-time
(docs/laws.md).
"""

from __future__ import annotations

import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mailcore.log.disk import Disk
from mailcore.replication.confirmed import ConfirmedNumbers
from mailcore.replication.faults import BackInTime, Fenced, Lost, StoreRefused
from mailcore.replication.guarantees import open_checked
from mailcore.replication.node_row import beat_node
from mailcore.replication.schema import VERSION, check_schema, make_schema
from mailcore.replication.shard import ShardRow, confirm_owner, read_shard, register, take_over
from mailcore.replication.snapshot import snapshot
from mailcore.replication.writer import Stopped, StoreWriter
from tests.eventually import eventually_blocking
from tests.replication.cluster import Cluster, Server
from tests.replication.stored_shard import found_in, make
from tests.replication.writing import SHARD, Task, add_shard, appended, wait_for_waiting

ONE, TWO = "node-1/boot-1", "node-2/boot-1"
NAMES = ("r0", "r1", "m")


class Load:
    """Writers that commit without an end, each in a thread, and note what was acknowledged."""

    def __init__(self, cluster: Cluster, names: tuple[str, ...] = NAMES) -> None:
        self.acknowledged: dict[str, int] = dict.fromkeys(names, 0)
        self.writers = {name: StoreWriter(cluster.parameters(answer_timeout_s=2.0), SHARD, name, 1) for name in names}
        self._stopping = threading.Event()
        self.tasks = [Task(lambda name=name: self._write(name)) for name in names]  # type: ignore[misc]

    def _write(self, name: str) -> None:
        writer = self.writers[name]
        writer.begin()
        at = 0
        try:
            while not self._stopping.is_set():
                data = f"{name} {self.acknowledged[name] + 1}\n".encode()
                number = writer.commit(appended(data, at, f"incoming.{name}/0"), {name: (0, at + len(data))})
                at += len(data)
                self.acknowledged[name] = number
        except Stopped:
            pass
        finally:
            writer.close()

    def wait_for(self, more: int) -> None:
        """Waits until each writer has committed this number of further batches."""
        wanted = {name: number + more for name, number in self.acknowledged.items()}

        def reached() -> bool:
            for task in self.tasks:
                if not task.is_running():
                    task.wait()  # raises what it raised
            return all(self.acknowledged[name] >= number for name, number in wanted.items())

        eventually_blocking(reached, lambda: f"{self.acknowledged} to reach {wanted}")

    def kill(self) -> dict[str, int]:
        """Ends the writers wherever they are. Returns what was acknowledged."""
        for writer in self.writers.values():
            writer.stopping.set()
        self.finish()
        return self.acknowledged

    def finish(self) -> None:
        """Lets each writer end behind its batch."""
        self._stopping.set()
        for task in self.tasks:
            task.wait()


@contextmanager
def loaded(cluster: Cluster) -> Iterator[Load]:
    load = Load(cluster)
    try:
        yield load
    finally:
        load.kill()


def lines(server: Server) -> dict[str, list[str]]:
    """The lines of each writer's file, by the number of their batch."""
    found: dict[str, list[str]] = {name: [] for name in NAMES}
    query = "select writer, n, rtrim(convert_from(bytes, 'UTF8'), chr(10)) from waypost.chunk order by writer, n"
    for writer, n, text in server.sql(query):
        assert text == f"{writer} {n}"
        found[writer].append(n)
    return found


def registered(cluster: Cluster) -> ShardRow:
    connection = cluster.connect()
    row = register(connection, SHARD, ONE)
    connection.close()
    return row


def taken_over(cluster: Cluster, row: ShardRow, directory: Path) -> dict[str, bytes | str]:
    """Another node takes the shard over, and makes its files."""
    connection, _ = open_checked(cluster.parameters())
    shown = read_shard(connection, SHARD)
    assert shown is not None
    assert shown.epoch == row.epoch
    taken = take_over(connection, shown, TWO)
    assert taken is not None
    make(connection, directory)
    connection.close()
    return found_in(directory)


def assert_all_there(found: dict[str, bytes | str], acknowledged: dict[str, int], *, unknown: int = 1) -> None:
    """Each acknowledged batch, in order, and at most the one whose outcome was unknown."""
    for name, number in acknowledged.items():
        data = found.get(f"incoming.{name}/0", b"")
        assert isinstance(data, bytes)
        written = data.decode().splitlines()
        assert written == [f"{name} {each}" for each in range(1, len(written) + 1)]
        assert number <= len(written) <= number + unknown


def test_a_primary_dies_under_writing_and_the_standby_is_promoted(own_cluster: Cluster, tmp_path: Path) -> None:
    """The writers find the new primary, ask for what is unknown, and continue; then another node takes the shard over."""
    row = registered(own_cluster)
    with loaded(own_cluster) as load:
        load.wait_for(50)
        own_cluster.primary.kill()
        own_cluster.standby.promote()
        own_cluster.add_standby(own_cluster.standby)
        load.wait_for(50)
        found = lines(own_cluster.standby)
        for name, number in load.acknowledged.items():
            assert number - 50 >= 50
            assert found[name] == [str(each) for each in range(1, len(found[name]) + 1)], "once each, none is missing"
        load.finish()
        acknowledged = dict(load.acknowledged)
    assert_all_there(taken_over(own_cluster, row, tmp_path), acknowledged, unknown=0)


def test_owner_and_primary_die_at_once(own_cluster: Cluster, tmp_path: Path) -> None:
    """Nobody is left who knows what was unknown: what was acknowledged is there."""
    row = registered(own_cluster)
    with loaded(own_cluster) as load:
        load.wait_for(50)
        own_cluster.primary.kill()
        acknowledged = dict(load.kill())
    own_cluster.standby.promote()
    own_cluster.add_standby(own_cluster.standby)
    assert_all_there(taken_over(own_cluster, row, tmp_path), acknowledged)


def test_a_primary_that_begins_again_shows_what_no_standby_has_and_nobody_believes_it(
    own_cluster: Cluster, tmp_path: Path
) -> None:
    """It is killed while commits wait, and started again: it shows them. Then the standby is promoted, which lacks them."""
    row = registered(own_cluster)
    with loaded(own_cluster) as load:
        load.wait_for(20)
        own_cluster.standby.pause_receiver()
        wait_for_waiting(own_cluster.primary, len(NAMES))
        waiting = dict(load.acknowledged)
        own_cluster.primary.kill()
        own_cluster.standby.kill()  # so that it does not get them from the primary that begins again
        own_cluster.primary.start()
        shown = {name: len(numbers) for name, numbers in lines(own_cluster.primary).items()}
        assert shown == {name: number + 1 for name, number in waiting.items()}
        wait_for_waiting(own_cluster.primary, len(NAMES))
        assert load.acknowledged == waiting, "each writer asks, and waits for its own write"
        own_cluster.primary.kill()
        own_cluster.standby.start()
        own_cluster.standby.promote()
        own_cluster.add_standby(own_cluster.standby)
        load.wait_for(20)
        load.finish()
        acknowledged = dict(load.acknowledged)
    assert_all_there(taken_over(own_cluster, row, tmp_path), acknowledged, unknown=0)


def test_a_takeover_that_no_standby_had_did_not_happen(own_cluster: Cluster) -> None:
    """The primary dies with the takeover on it alone. Both nodes ask by a write of their own: the owner goes on."""
    row = registered(own_cluster)
    writer = StoreWriter(own_cluster.parameters(), SHARD, "r0", 1)
    writer.begin()
    writer.commit(appended(b"r0 1\n", 0), {})
    own_cluster.standby.pause_receiver()
    connection = own_cluster.connect()
    takeover = Task(lambda: take_over(connection, row, TWO))
    wait_for_waiting(own_cluster.primary)
    own_cluster.standby.kill()  # what is still in its socket is gone with it
    own_cluster.primary.kill()
    with pytest.raises(Lost):
        takeover.wait()
    own_cluster.standby.start()
    own_cluster.standby.promote()
    own_cluster.add_standby(own_cluster.standby)
    again = own_cluster.connect()
    assert confirm_owner(again, SHARD, 2, TWO) is None
    assert confirm_owner(again, SHARD, 1, ONE) is not None
    again.close()
    assert writer.commit(appended(b"r0 2\n", 5), {}) == 2
    writer.close()


def test_a_zombie_of_the_former_owner_is_waited_for_and_read(own_cluster: Cluster, tmp_path: Path) -> None:
    """The owner is gone; its session still waits for the standby. It commits before the takeover, so its mail is taken over."""
    row = registered(own_cluster)
    writer = StoreWriter(own_cluster.parameters(), SHARD, "r0", 1)
    writer.begin()
    writer.commit(appended(b"r0 1\n", 0, "incoming.r0/0"), {})
    own_cluster.standby.pause_receiver()
    zombie = Task(lambda: writer.commit(appended(b"r0 2\n", 5, "incoming.r0/0"), {}))
    wait_for_waiting(own_cluster.primary)
    writer.stopping.set()
    connection = own_cluster.connect()
    takeover = Task(lambda: take_over(connection, row, TWO, lock_timeout_s=100))
    locked = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'"
    eventually_blocking(lambda: own_cluster.primary.sql(locked) == [("1",)])
    assert takeover.is_running()
    own_cluster.standby.resume_receiver()
    assert takeover.wait().epoch == 2
    make(connection, tmp_path)
    connection.close()
    assert found_in(tmp_path) == {"incoming.r0/0": b"r0 1\nr0 2\n"}
    assert zombie.wait() == 2
    writer.stopping.clear()
    with pytest.raises(Fenced):
        writer.commit(appended(b"r0 3\n", 10, "incoming.r0/0"), {})
    writer.close()


def test_a_database_that_was_restored_to_an_earlier_time_is_not_believed(own_cluster: Cluster, tmp_path: Path) -> None:
    """Copies of both servers from before come back; a failover that lost nothing is believed."""
    registered(own_cluster)
    numbers = ConfirmedNumbers(Disk(), str(tmp_path))

    def look() -> None:
        connection, findings = open_checked(own_cluster.parameters())
        confirmed = confirm_owner(connection, SHARD, 1, ONE)
        assert confirmed is not None
        with snapshot(connection, SHARD) as shown:
            assert shown is not None
            numbers.check(findings.system, shown)
            rows = {row.writer: row.n for row in shown.writers.values()}
        numbers.note(findings.system, SHARD, confirmed.epoch, rows)
        numbers.save()
        connection.close()

    def commit(number: int) -> None:
        writer = StoreWriter(own_cluster.parameters(), SHARD, "r0", 1)
        writer.begin()
        assert writer.commit(appended(b"x", number, "incoming.r0/0"), {}) == number
        writer.close()

    commit(1)
    look()
    both = (own_cluster.primary, own_cluster.standby)
    for server in both:
        server.stop()
    for server in both:
        subprocess.run(["cp", "-a", server.data, server.directory / "earlier"], check=True)
    own_cluster.start()
    commit(2)
    look()
    own_cluster.primary.kill()
    own_cluster.standby.promote()
    own_cluster.add_standby(own_cluster.standby)
    look()
    own_cluster.kill()
    own_cluster.others.clear()
    for server in both:
        shutil.rmtree(server.data)
        (server.directory / "earlier").rename(server.data)
    own_cluster.start()
    with pytest.raises(BackInTime, match="has 1 batches of writer r0, and once had 2"):
        look()


def test_tables_of_another_version_are_refused_with_what_to_do(own_cluster: Cluster) -> None:
    connection = own_cluster.connect()
    make_schema(connection)  # they are there: nothing happens
    check_schema(connection)
    for version, remedy in ((VERSION + 1, "upgrade this node"), (0, "upgrade the tables")):
        own_cluster.primary.sql(f"update waypost.schema_version set version = {version}")
        calls: list[Callable[[], object]] = [
            lambda: check_schema(connection),
            lambda: make_schema(connection),
            lambda: open_checked(own_cluster.parameters()),
            StoreWriter(own_cluster.parameters(), SHARD, "r0", 1).begin,
        ]
        for call in calls:
            with pytest.raises(StoreRefused, match=f"version {version} of Waypost's tables.*{remedy}") as error:
                call()
            assert error.value.argument == "schema_version"
    own_cluster.primary.sql("drop schema waypost cascade")
    with pytest.raises(StoreRefused, match="no tables of Waypost"):
        open_checked(own_cluster.parameters())
    make_schema(connection)
    check_schema(connection)
    connection.close()


@pytest.mark.parametrize("before", [1, 2])
def test_tables_of_an_earlier_version_are_upgraded_and_keep_their_rows(own_cluster: Cluster, before: int) -> None:
    connection = own_cluster.connect()
    add_shard(own_cluster.primary, epoch=3)
    own_cluster.primary.sql(
        "drop table waypost.settings_state, waypost.settings, waypost.settings_node, waypost.kept_file"
    )
    if before == 1:
        own_cluster.primary.sql(
            "drop table waypost.node, waypost.node_authority, waypost.node_trust, waypost.node_token"
        )
        own_cluster.primary.sql("alter table waypost.shard drop placed, drop wanted, drop released")
    own_cluster.primary.sql(f"update waypost.schema_version set version = {before}")
    words = f"version {before} of Waypost's tables.*start it, which upgrades the tables"
    with pytest.raises(StoreRefused, match=words):
        open_checked(own_cluster.parameters())
    make_schema(connection)
    check_schema(connection)
    upgraded = own_cluster.connect()
    row = read_shard(upgraded, SHARD)
    assert row is not None
    assert (row.epoch, row.placed, row.wanted, row.released) == (3, "", "", 0)
    assert beat_node(upgraded, "mx1") == "open"
    columns = "select table_name, column_name, data_type, column_default from information_schema.columns"
    query = f"{columns} where table_schema = 'waypost' order by 1, 2"
    as_upgraded = own_cluster.primary.sql(query)
    own_cluster.primary.sql("drop schema waypost cascade")
    make_schema(connection)
    assert own_cluster.primary.sql(query) == as_upgraded, "as those that are made anew"
    for each in (connection, upgraded):
        each.close()
