"""Measures a pool of spool files against new files and against data in the log: ``python -m bench.spool_pool``.

Tony Finch (spool file logistics, 2006) proposes to reuse spool files without truncation, with a marker where the content
ends. Each way stores messages until they are durable, with the ENVELOPE record in a lane that all of them share:

- *new file*: ``mailcore.queue.spool``: create, write, fdatasync, sync the directory; later unlink.
- *named ahead*: a new file that was created empty, with ``AHEAD`` others and one sync of the directory: write, fdatasync; later
  unlink. No file is used twice.
- *truncated*: a file of the pool, which was truncated when it was returned: write, fdatasync.
- *pool*: a file of the pool, written over from its beginning: write, marker, fdatasync. Returned by a zero over its head.
- *log*: data and envelope in one record of the lane, whose sync is shared.

The lane has group commit for all of them. ``ALIVE`` messages are there at a time; the oldest goes as a new one comes. Syncs are
counted at the calls, bytes at the device: on a file system mounted from a file (``--filesystems ext4 xfs``, root only) they are
ours alone, on "here" those of other programs are among them. CPU is that of this process, without the kernel's own threads.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import statistics
import struct
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import google_crc32c

from bench.loop_mount import loop_mount, written_bytes
from mailcore.envelope import DataPlace, Envelope, Recipient
from mailcore.log.data_blocks import BLOCK_BYTES, sums_of
from mailcore.log.disk import Disk
from mailcore.log.index import index_path
from mailcore.log.lane import LaneWriter
from mailcore.log.segment import base_of
from mailcore.queue.queue_id import QueueIds
from mailcore.queue.records import append_envelope
from mailcore.queue.spool import Spool

__all__ = ["HEAD", "MAGIC", "MARKER", "METHODS", "Measured", "PoolFile", "main", "read_pooled"]

ALIVE = 64  # messages that are not done
AHEAD = 32  # files created at a time
SEGMENT_BYTES = 32 << 20
IMAGE_BYTES = 2 << 30
WARM = 0.25  # of the messages, not counted: files and segments are made
HEAD = struct.Struct("<8s20sQQI")  # magic, queue id, use, bytes of data, CRC-32C of these and of the data's sums
MARKER = struct.Struct("<8sQ")  # where the content ends: magic, use
MAGIC = b"WAYPOOL\0"


@dataclass(frozen=True, slots=True)
class Measured:
    """One way at one size and concurrency."""

    filesystem: str
    method: str
    size: int
    concurrency: int
    messages: int
    rate: float
    median_ms: float  # from the first byte written until the message is durable
    p99_ms: float
    cpu_ms: float  # a message
    syncs: float  # a message, of files and directories
    device_bytes: float  # for each byte of data


class CountingDisk(Disk):
    """The real disk, with a count of its syncs."""

    def __init__(self) -> None:
        super().__init__()
        self.syncs = 0

    def sync(self, fd: int) -> None:
        self.syncs += 1  # threads may lose one of thousands
        super().sync(fd)

    def sync_directory(self, path: str) -> None:
        self.syncs += 1
        super().sync_directory(path)


class SharedCommit:
    """Lets threads share the syncs of a lane: one of those that wait syncs for all."""

    def __init__(self, writer: LaneWriter) -> None:
        self.writer = writer
        self._turn = threading.Condition()
        self._appended = self._durable = 0
        self._syncing = False

    def append(self, envelope: Envelope, data: bytes) -> int:
        """Appends an envelope and returns when it is durable; returns its offset."""
        with self._turn:
            offset = append_envelope(self.writer, envelope, data)
            self._appended += 1
            mine = self._appended
            while self._durable < mine:
                if self._syncing:
                    self._turn.wait()
                    continue
                self._syncing, covered, batch = True, self._appended, self.writer.take()
                self._turn.release()
                try:
                    batch.write()
                finally:
                    self._turn.acquire()
                    self._syncing = False
                self._durable = covered
                self._turn.notify_all()
        return offset


class PoolFile:
    """A file of the pool. Its content counts only with an ENVELOPE record that names the file and this use of it.

    ``use`` is higher for each message that the file holds, so that neither a head nor an end of an earlier message fits. The
    sums of the data are in the record, and every block is compared before it is believed (``read_pooled``).
    """

    def __init__(self, disk: Disk, path: str, size: int, *, truncate: bool) -> None:
        self._disk, self._truncate, self.path = disk, truncate, path
        self.fd = disk.create(path)
        self._use = 0
        if not truncate:  # real zeros: an allocated block that was never written costs metadata at its first sync
            disk.write(self.fd, [bytes(HEAD.size + size + MARKER.size)], 0)
        disk.sync(self.fd)

    def store(self, queue_id: str, data: bytes) -> None:
        """Writes a message over what was there and syncs the file."""
        self._use += 1
        for at in range(0, len(data), BLOCK_BYTES):
            self._disk.write(self.fd, [memoryview(data)[at : at + BLOCK_BYTES]], HEAD.size + at)
        self._disk.write(self.fd, [MARKER.pack(MAGIC, self._use)], HEAD.size + len(data))
        head = HEAD.pack(MAGIC, queue_id.encode(), self._use, len(data), 0)
        crc = google_crc32c.extend(google_crc32c.value(head), sums_of(data))
        self._disk.write(self.fd, [HEAD.pack(MAGIC, queue_id.encode(), self._use, len(data), crc)], 0)
        self._disk.sync(self.fd)

    def free(self) -> None:
        """Makes the file one that no message claims. Unsynced: the record that named it is over already."""
        self._disk.write(self.fd, [bytes(HEAD.size)], 0)
        if self._truncate:
            self._disk.shorten(self.fd, 0)


def read_pooled(disk: Disk, fd: int, queue_id: str, use: int, size: int, sums: bytes) -> bytes | None:
    """Returns the data of a use of the file; None if it holds another message, an unfinished one, or damage.

    Marker and head alone are not enough: after a power failure both may be on the disk and blocks between them may be those of
    the message before.
    """
    wanted = HEAD.pack(MAGIC, queue_id.encode(), use, size, 0)
    crc = google_crc32c.extend(google_crc32c.value(wanted), sums)
    if disk.read(fd, HEAD.size, 0) != HEAD.pack(MAGIC, queue_id.encode(), use, size, crc):
        return None
    data = disk.read(fd, size + MARKER.size, HEAD.size)
    if data[size:] != MARKER.pack(MAGIC, use) or sums_of(data[:size]) != sums:
        return None
    return data[:size]


class Store:
    """One way of storing, with the lane. ``put`` stores a message durably; ``free`` lets the oldest go."""

    def __init__(self, method: str, directory: Path, size: int, concurrency: int) -> None:
        self.disk = CountingDisk()
        self._method, self._directory = method, directory
        self._spool = Spool(self.disk, str(directory / "spool"))
        self._lane = str(directory / "incoming.0")
        chance = random.Random(1)
        self._commit = SharedCommit(
            LaneWriter(
                self.disk,
                self._lane,
                segment_bytes=SEGMENT_BYTES,
                clock=time.time,
                salt=lambda: chance.getrandbits(64),
            )
        )
        self._ids = QueueIds(0, time.time)
        self._lock = threading.Lock()
        self._alive: deque[tuple[str, int, PoolFile | None]] = deque()
        self._free: deque[PoolFile] = deque()
        self._names: deque[tuple[str, int]] = deque()  # created ahead: path and descriptor
        self._created = 0
        self._paths: dict[str, str] = {}
        if method in ("pool", "truncated"):
            for number in range(ALIVE + 2 * concurrency):
                path = str(directory / f"pool.{number}")
                self._free.append(PoolFile(self.disk, path, size, truncate=method == "truncated"))
            self.disk.sync_directory(str(directory))

    def _envelope(self, size: int, place: DataPlace, sums: bytes) -> Envelope:
        with self._lock:
            queue_id = self._ids.next()
        return Envelope(
            queue_id=queue_id,
            generation=0,
            sender="sender@example.com",
            recipients=(Recipient(number=0, address="someone@example.org", destination="smtp:example.org"),),
            recipient_count=1,
            arrived_at=time.time(),
            size_bytes=size,
            data=place,
            data_sums=sums,
        )

    def put(self, data: bytes, sums: bytes) -> None:
        """Stores a message durably and lets the oldest go."""
        inline = self._method == "log"
        envelope = self._envelope(len(data), DataPlace.INLINE if inline else DataPlace.SPOOL, sums)
        pooled = None
        if self._method == "new file":
            file = self._spool.create(envelope.queue_id)
            for at in range(0, len(data), BLOCK_BYTES):
                file.write([data[at : at + BLOCK_BYTES]])
            file.complete(envelope)
            file.close()
        elif self._method == "named ahead":
            self._put_ahead(envelope.queue_id, data)
        elif not inline:
            with self._lock:
                pooled = self._free.popleft()
            pooled.store(envelope.queue_id, data)
        offset = self._commit.append(envelope, data if inline else b"")
        with self._lock:
            self._alive.append((envelope.queue_id, offset, pooled))
            oldest = self._alive.popleft() if len(self._alive) > ALIVE else None
        if oldest is not None:
            self._let_go(*oldest)

    def _put_ahead(self, queue_id: str, data: bytes) -> None:
        with self._lock:
            if not self._names:
                for _ in range(AHEAD):
                    path = str(self._directory / f"ahead.{self._created}")
                    self._names.append((path, self.disk.create(path)))
                    self._created += 1
                self.disk.sync_directory(str(self._directory))
            path, fd = self._names.popleft()
            self._paths[queue_id] = path
        for at in range(0, len(data), BLOCK_BYTES):
            self.disk.write(fd, [memoryview(data)[at : at + BLOCK_BYTES]], at)
        self.disk.sync(fd)
        self.disk.close(fd)

    def _let_go(self, queue_id: str, offset: int, pooled: PoolFile | None) -> None:
        if pooled is not None:
            pooled.free()
            with self._lock:
                self._free.append(pooled)
        elif self._method == "new file":
            self._spool.remove(queue_id)
        elif self._method == "named ahead":
            self.disk.unlink(self._paths.pop(queue_id))
        with self._lock:
            bases = [base for base in map(base_of, self.disk.list(self._lane)) if base is not None]
            for base, following in itertools.pairwise(bases):
                if following <= offset:
                    path = os.path.join(self._lane, f"{base:020d}.seg")
                    self.disk.unlink(path)
                    if self.disk.exists(index_path(path)):
                        self.disk.unlink(index_path(path))

    def close(self) -> None:
        """Closes all files."""
        self._commit.writer.close()
        for pooled in (*self._free, *(each for _, _, each in self._alive if each is not None)):
            self.disk.close(pooled.fd)
        for _, fd in self._names:
            self.disk.close(fd)


def measure(filesystem: str, directory: Path, method: str, size: int, concurrency: int, messages: int) -> Measured:
    """Stores messages from ``concurrency`` threads."""
    data = random.Random(size).randbytes(size)
    sums = sums_of(data)
    store = Store(method, directory, size, concurrency)
    waits: list[float] = []

    def work(many: int) -> None:
        for _ in range(many):
            begun = time.perf_counter()
            store.put(data, sums)
            waits.append(time.perf_counter() - begun)

    def work_all(many: int) -> None:
        threads = [threading.Thread(target=work, args=(many // concurrency,)) for _ in range(concurrency)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    work_all(max(int(messages * WARM), ALIVE + concurrency))
    os.sync()
    waits.clear()
    syncs, written, cpu, begun = store.disk.syncs, written_bytes(directory), time.process_time(), time.perf_counter()
    work_all(messages)
    seconds, cpu = time.perf_counter() - begun, time.process_time() - cpu
    os.sync()  # the journal may still hold metadata of these messages
    device = written_bytes(directory) - written
    store.close()
    stored = len(waits)
    waits.sort()
    return Measured(
        filesystem,
        method,
        size,
        concurrency,
        stored,
        stored / seconds,
        statistics.median(waits) * 1000,
        waits[int(stored * 0.99)] * 1000,
        cpu * 1000 / stored,
        (store.disk.syncs - syncs) / stored,
        device / (stored * size),
    )


METHODS = ("new file", "named ahead", "truncated", "pool", "log")


@contextmanager
def _file_system(name: str, below: Path) -> Iterator[Path]:
    if name == "here":
        with tempfile.TemporaryDirectory(prefix="bench-spool-pool-", dir=below) as made:
            yield Path(made)
    else:
        with loop_mount(name, below, IMAGE_BYTES) as point:
            yield point


def report(found: Sequence[Measured]) -> list[str]:
    """Returns a line for each measurement."""
    head = f"{'':8}{'kB':>6}{'at once':>8}  {'':12}{'msg/s':>8}{'median ms':>11}{'p99 ms':>9}{'CPU ms':>8}{'syncs':>7}"
    lines = [f"{head}{'device bytes a byte':>21}"]
    lines += [
        f"{one.filesystem:8}{one.size / 1000:>6.0f}{one.concurrency:>8}  {one.method:12}{one.rate:>8.0f}"
        f"{one.median_ms:>11.2f}{one.p99_ms:>9.1f}{one.cpu_ms:>8.2f}{one.syncs:>7.2f}{one.device_bytes:>21.2f}"
        for one in found
    ]
    return lines


def main(argv: Sequence[str] | None = None) -> int:
    """Measures and prints; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.spool_pool", description=__doc__.partition("\n")[0])
    parser.add_argument("--short", action="store_true", help="few messages: a quick check, no result")
    parser.add_argument(
        "--filesystems", nargs="+", default=["here", "ext4", "xfs"], help="here, or one that has a mkfs"
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=[100_000, 300_000, 1_000_000])
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 20])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--bytes", type=int, default=300_000_000, help="of data in one measurement")
    parser.add_argument("--directory", type=Path, default=Path("/var/tmp"), help="no tmpfs; 2 GB for a mounted file")
    parser.add_argument("--json", type=Path, metavar="FILE")
    given = parser.parse_args(argv)
    found: list[Measured] = []
    all_bytes = 20_000_000 if given.short else given.bytes
    for filesystem in given.filesystems:
        for size in given.sizes:
            for concurrency in given.concurrency:
                for method in given.methods:
                    with _file_system(filesystem, given.directory) as directory:
                        found.append(
                            measure(filesystem, directory, method, size, concurrency, max(20, all_bytes // size))
                        )
                    print(report(found)[-1], file=sys.stderr, flush=True)
    print("\n".join(report(found)))
    if given.json is not None:
        given.json.write_text(json.dumps([asdict(one) for one in found], indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
