"""A shard with some of everything in the database, and the files that it must become, by a model of their own."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from pathlib import Path

from mailcore.log.disk import Disk
from mailcore.log.record import LIVE
from mailcore.replication.batch import Batch
from mailcore.replication.connection import Connection
from mailcore.replication.files import Changes, make_equal
from mailcore.replication.snapshot import snapshot
from mailcore.replication.writer import StoreWriter
from tests.replication.cluster import Cluster
from tests.replication.writing import SHARD, add_shard, writing
from tests.simulated_disk import SimulatedDisk

DEAD = 2
Files = dict[str, bytes]


@dataclass
class StoredShard:
    """Commits batches, and knows what the files are after them."""

    writer: StoreWriter
    files: dict[str, bytearray] = field(default_factory=dict)
    batch: Batch = field(default_factory=Batch)

    def append(self, name: str, data: bytes, at: int | None = None) -> None:
        file = self.files.setdefault(name, bytearray())
        start = len(file) if at is None else at
        file.extend(bytes(start - len(file)))
        file[start : start + len(data)] = data
        self.batch.append(name, start, [data])

    def blob(self, name: str, data: bytes) -> None:
        self.batch.blob(name, 0, [data])
        self.files[name] = bytearray(data)

    def mark(self, name: str, offsets: list[int]) -> None:
        self.batch.marks(name, offsets, DEAD)
        for offset in offsets:
            assert self.files[name][offset] == LIVE
            self.files[name][offset] = DEAD

    def put(self, name: str, data: bytes) -> None:
        self.batch.put(name, data)
        self.files[name] = bytearray(data)

    def drop(self, *names: str) -> None:
        self.batch.drop(names)
        for name in names:
            self.files.pop(name, None)

    def commit(self) -> None:
        self.writer.commit(self.batch, {"incoming.0": (0, len(self.files.get("incoming.0/0", b"")))})
        self.batch = Batch()


def some_of_everything(shard: StoredShard) -> None:
    """Lanes with marks and a hole, a spool file in chunks, small files, and files that were dropped."""
    record = bytes([LIVE]) + b"-record-" * 4
    shard.append("incoming.0/0", b"head")
    for _ in range(4):
        for _ in range(3):
            shard.append("incoming.0/0", record)
        shard.commit()
    shard.append("incoming.0/1000", record * 2)
    shard.append("incoming.0/1000", record, at=4 * len(record))  # a hole of one record
    shard.append("journal/0", b"old")
    shard.blob("spool/1f/ABC", bytes(range(256)) * 1100)  # more than one chunk
    shard.put("restart", b"positions")
    shard.put("exported", b"")
    shard.commit()
    shard.mark("incoming.0/0", [4, 4 + 2 * len(record)])
    shard.mark("incoming.0/1000", [len(record)])
    shard.commit()
    shard.drop("journal/0", "incoming.1/0")
    shard.append("journal/0", b"new")
    shard.put("restart", b"later")
    shard.append("incoming", b"beside a directory whose name is longer")
    shard.append("incoming.00", b"and behind it")
    shard.commit()


def made_shard(cluster: Cluster) -> Files:
    """Commits it, and returns its files."""
    add_shard(cluster.primary)
    with writing(cluster, "m") as writer:
        shard = StoredShard(writer)
        some_of_everything(shard)
    return {name: bytes(data) for name, data in shard.files.items()}


def concerns(name: str) -> bool:
    return not name.endswith((".index", "/lock"))


def make(connection: Connection, directory: Path) -> Changes:
    with snapshot(connection, SHARD) as shard:
        assert shard is not None
        return make_equal(shard, Disk(), str(directory), concerns)


def make_on(connection: Connection, disk: SimulatedDisk) -> Changes:
    with snapshot(connection, SHARD) as shard:
        assert shard is not None
        return make_equal(shard, disk, "/shard", concerns)


def found_in(directory: Path) -> dict[str, bytes | str]:
    """Everything below but directories; what is no plain file with one name is described."""
    found: dict[str, bytes | str] = {}
    for above, directories, names in os.walk(directory):
        for name in [*names, *directories]:
            path = Path(above, name)
            status = path.lstat()
            if stat.S_ISREG(status.st_mode) and status.st_nlink == 1:
                found[str(path.relative_to(directory))] = path.read_bytes()
            elif not stat.S_ISDIR(status.st_mode):
                found[str(path.relative_to(directory))] = f"mode {status.st_mode:o}, {status.st_nlink} names"
    return found


def found_on(disk: SimulatedDisk, directory: str = "/shard") -> Files:
    found: Files = {}
    for name in disk.list(directory):
        path = f"{directory}/{name}"
        if disk.is_directory(path):
            found |= {f"{name}/{below}": data for below, data in found_on(disk, path).items()}
        else:
            found[name] = disk.image(path)
    return found
