"""The store of a shard over a real primary and standby: a queue works with it, and another node finds all of it there."""

from __future__ import annotations

import errno
import random
from typing import NoReturn

import pytest

from mailcore.faults import Fault
from mailcore.log.lane import LaneFailed, LaneWriter
from mailcore.replication.batch import MARKS, offsets_in
from mailcore.replication.files import make_equal
from mailcore.replication.snapshot import snapshot
from mailcore.replication.store import ShardStore
from mailcore.replication.writer import StoreWriter
from tests.queue.audit import audit
from tests.queue.memory_store import MemoryStore
from tests.queue.outside_memory import OutsideMemory
from tests.queue.simulated_machine import HOME, SPOOL
from tests.queue.test_laws_histories import SEGMENT_BYTES, Story, short_lists, to_the_end
from tests.replication.cluster import Cluster, Server
from tests.replication.writing import SHARD, Task, add_shard, wait_for_waiting
from tests.simulated_disk import RandomChoice, SimulatedDisk

__all__ = ["short_lists"]  # a fixture

DIRECTORIES = {HOME: "queue", SPOOL: "spool"}


class Ended(BaseException):
    """The process."""


def end(fault: Fault) -> NoReturn:
    raise Ended(fault.message)


def made_equal(cluster: Cluster, disk: SimulatedDisk) -> SimulatedDisk:
    """The disk of a node whose files were made what the database says; it may have had others."""
    connection = cluster.connect()
    with snapshot(connection, SHARD) as found:
        assert found is not None
        make_equal(found, disk, "/", lambda name: not name.endswith((".idx", "lock")))
    connection.close()
    return disk


def store_of(cluster: Cluster, name: str = "m", epoch: int = 1) -> ShardStore:
    store = ShardStore(StoreWriter(cluster.parameters(), SHARD, name, epoch), DIRECTORIES, end)
    store.begin()
    return store


def in_memory(server: Server) -> MemoryStore:
    """What the database has, as the tests of the queue take it."""
    found = MemoryStore()
    places = {name: directory for directory, name in DIRECTORIES.items()}

    def path(name: str) -> str:
        first, _, rest = name.partition("/")
        return f"{places[first]}/{rest}"

    for name, data in server.sql("select file, encode(bytes, 'hex') from waypost.state"):
        found.files[path(name)] = bytearray.fromhex(data)
        found.ever.setdefault(path(name), set()).add(bytes.fromhex(data))
    query = "select kind, file, at, encode(bytes, 'hex') from waypost.chunk order by kind = 'm', writer, n, part"
    for kind, name, at, data in server.sql(query):
        content, piece = found.files.setdefault(path(name), bytearray()), bytes.fromhex(data)
        if kind == MARKS:
            for offset in offsets_in(piece):
                content[offset] = int(at)
        else:
            content.extend(bytes(max(0, int(at) + len(piece) - len(content))))
            content[int(at) : int(at) + len(piece)] = piece
    return found


@pytest.mark.parametrize("seed", range(2))
def test_a_queue_in_the_database_is_the_same_on_another_node(cluster: Cluster, seed: int) -> None:
    add_shard(cluster.primary)
    rng, outside = random.Random(seed), OutsideMemory()
    disk = SimulatedDisk()
    for life in range(3):
        store = store_of(cluster)
        story = Story(disk, outside, rng, store)
        for step in range(30):
            story.step()
            if step % 10 == 9:
                found = in_memory(cluster.primary)
                audit(found.disk(), outside, SEGMENT_BYTES, store=found)
        found = in_memory(cluster.primary)
        # The next node has nothing, or what the power left on this one's disk.
        disk = made_equal(cluster, SimulatedDisk() if life == 0 else disk.crash(RandomChoice(seed)))
        for path, data in found.files.items():
            assert disk.image(path) == data, path
        assert store.ends, f"life {life}: no lane has an end"
    to_the_end(audit(disk, outside, SEGMENT_BYTES, store=found), outside, seed)


def test_a_mark_of_a_file_that_is_gone_makes_no_file(cluster: Cluster) -> None:
    """A segment may be deleted while a checkpoint with its marks is on its way."""
    add_shard(cluster.primary)
    store = store_of(cluster)
    changes = store.changes()
    changes.marks("queue/incoming.0/gone", [12], 71)
    changes.append("queue/incoming.0/there", 0, [b"there"])
    store.commit(changes, {})
    disk = made_equal(cluster, SimulatedDisk())
    assert disk.list(f"{HOME}/incoming.0") == ["there"]


def lane_of(disk: SimulatedDisk, store: ShardStore) -> LaneWriter:
    return LaneWriter(disk, f"{HOME}/incoming.0", segment_bytes=1 << 20, clock=lambda: 1.0, salt=lambda: 7, store=store)


def test_a_record_is_durable_when_the_standby_has_it_and_not_before(cluster: Cluster) -> None:
    """The local file has nothing of it until then."""
    add_shard(cluster.primary)
    store, disk = store_of(cluster, "r0"), SimulatedDisk()
    lane = lane_of(disk, store)
    lane.append(1, b"one")
    lane.sync()
    durable, size = lane.durable, disk.size_of(f"{HOME}/incoming.0/{0:020d}.seg")
    assert store.ends == {"incoming.0": (0, durable)}
    cluster.standby.pause_receiver()
    lane.append(1, b"two")
    batch = lane.take()
    task = Task(batch.write)
    wait_for_waiting(cluster.primary)
    assert (lane.durable, disk.size_of(f"{HOME}/incoming.0/{0:020d}.seg")) == (durable, size)
    cluster.standby.resume_receiver()
    task.wait()
    assert lane.durable == batch.end == disk.size_of(f"{HOME}/incoming.0/{0:020d}.seg")
    assert store_of(cluster, "r0").ends == {"incoming.0": (0, batch.end)}, "a process that begins again reads it"


def test_a_batch_that_the_database_refuses_fails_the_lane_and_leaves_nothing(cluster: Cluster) -> None:
    add_shard(cluster.primary)
    store, disk = store_of(cluster, "r0"), SimulatedDisk()
    lane = lane_of(disk, store)
    body = "begin raise exception 'no space left' using errcode = '53100'; end"
    cluster.primary.sql(f"create function waypost.full_disk() returns trigger language plpgsql as $$ {body} $$")
    cluster.primary.sql("create trigger full_disk before insert on waypost.chunk execute function waypost.full_disk()")
    try:
        lane.append(1, b"one")
        with pytest.raises(LaneFailed) as error:
            lane.sync()
        assert isinstance(error.value.__cause__, OSError)
        assert error.value.__cause__.errno == errno.ENOSPC
        assert disk.list(f"{HOME}/incoming.0") == ["lock"]
    finally:
        cluster.primary.sql("drop trigger full_disk on waypost.chunk; drop function waypost.full_disk()")
    lane.reopen()
    lane.append(1, b"two")
    lane.sync()
    assert [data for _, data in sorted(in_memory(cluster.primary).files.items()) if b"one" in data] == []


def test_a_process_whose_shard_was_taken_ends(cluster: Cluster) -> None:
    add_shard(cluster.primary)
    store, disk = store_of(cluster, "r0"), SimulatedDisk()
    lane = lane_of(disk, store)
    cluster.primary.sql("update waypost.shard set epoch = 2; update waypost.writer set epoch = 2, incarnation = 9")
    lane.append(1, b"late")
    with pytest.raises(Ended, match="not ours"):
        lane.sync()
    assert disk.list(f"{HOME}/incoming.0") == ["lock"]


def test_a_local_disk_that_fails_behind_a_commit_ends_the_process(cluster: Cluster) -> None:
    """The mail is safe, and this node cannot read it: another one takes the shard over."""
    add_shard(cluster.primary)
    store, disk = store_of(cluster, "r0"), SimulatedDisk()
    lane = lane_of(disk, store)
    disk.fail("write")
    lane.append(1, b"one")
    with pytest.raises(Ended, match="local disk failed behind a commit: lane incoming"):
        lane.sync()
    assert any(b"one" in data for data in in_memory(cluster.primary).files.values())


def test_a_path_outside_of_the_shard_is_refused(cluster: Cluster) -> None:
    add_shard(cluster.primary)
    store = store_of(cluster, "r0")
    assert store.name(f"{SPOOL}/ab/ID") == "spool/ab/ID"
    for path in ("/elsewhere/a", "/queues/a", HOME):
        with pytest.raises(ValueError, match="no directory of the shard"):
            store.name(path)
