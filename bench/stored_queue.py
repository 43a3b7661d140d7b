"""A queue in the tables of the store: fills them with mail that waits, and lets mail pass through them as a shard does.

The rows of the filling are those that the same commits would have made, but come by COPY: by commits, 20 GB take an hour. All
later rows come by the store's own writers: one each for a receiver, its uploads and the manager, in threads of their own.

A turn is a segment of mail that arrives and one that leaves: the receiver appends batches, large messages go to spool files,
checkpoints bring marks, restart positions and a piece of the journal, and then a segment and as many spool files are dropped.
In four of five turns these are the ones of the turn before: their mail was delivered. In each fifth turn mail of before leaves,
a segment and files that are chosen by chance from all that waits, and the new mail stays in its place.
"""

from __future__ import annotations

import queue
import random
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import NamedTuple

import google_crc32c
import psycopg

from mailcore.log.record import GARBAGE
from mailcore.log.retired import retired_path
from mailcore.log.segment import name_of
from mailcore.queue.spool import DATA_AT, FANOUT
from mailcore.replication.batch import APPENDED, MARKS, UPLOADED, Batch
from mailcore.replication.writer import StoreWriter
from tests.replication.cluster import ROLE, Cluster
from tests.replication.writing import SHARD, add_shard

__all__ = ["DROPS", "KINDS", "MESSAGE_BYTES", "Commit", "StoredQueue", "Turn"]

KIB = 1024
MESSAGE_BYTES = 4 * KIB
# The batches of a receiver: of a single message, and of up to 64 that came meanwhile.
BATCHES = tuple(size * KIB for size in (4, 64, 16, 64, 4, 256, 16, 64))
# A message of 600 kB is above the default of ``inline_limit``. Its data is uploaded in pieces; envelope and head follow.
SPOOLED = (64 * KIB,) * 9 + (24 * KIB, 1 * KIB, DATA_AT)
SPOOL_PLACES = (*(DATA_AT + sum(SPOOLED[:number]) for number in range(len(SPOOLED) - 1)), 0)
SPOOL_BYTES = DATA_AT + sum(SPOOLED[:-1])
SPOOL_SHARE = 0.15  # of all bytes
CHECKPOINT_EVERY = 8  # batches of the receiver
JOURNAL_BYTES = 8 * KIB  # START and FINISH of the messages in these batches
POSITIONS_BYTES = 2 * KIB
MARKED = 128  # messages in a checkpoint
KEEP_EVERY = 5  # turns; the mail of one stays, and mail of before leaves
PIECES = 8  # of each size, by chance, with their checksums

RECEIVER, UPLOADS, MANAGER = "receiver.0", "uploads.0", "manager"
APPEND, UPLOAD, CHECKPOINT, DROP_FILE, DROP_SEGMENT = "append", "upload", "checkpoint", "drop file", "drop segment"
KINDS = (APPEND, UPLOAD, CHECKPOINT, DROP_FILE, DROP_SEGMENT)
DROPS = (DROP_FILE, DROP_SEGMENT)

# Frozen, as rows are that are there for days.
_COPY = "copy waypost.chunk (shard, writer, n, part, kind, file, at, crc, bytes) from stdin (format binary, freeze)"
_COPY_BLOCK = 1 << 20
_HEAD, _END = b"PGCOPY\n\xff\r\n\0" + bytes(8), b"\xff\xff"
_LENGTH, _INT2, _INT8 = struct.Struct(">i"), struct.Struct(">ih"), struct.Struct(">iq")


class Commit(NamedTuple):
    """One commit of a turn."""

    kind: str
    seconds: float


class _Piece(NamedTuple):
    data: bytes
    crc: int


@dataclass
class Turn:
    """The commits of a turn, and the bytes of mail that arrived and left."""

    commits: list[Commit] = field(default_factory=list)
    seconds: float = 0.0
    arrived_bytes: int = 0
    left_bytes: int = 0


class _Pool:
    """Pieces by their size. They are random, so nothing between here and the disk makes them smaller."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        sizes = {*BATCHES, *SPOOLED, JOURNAL_BYTES}
        self._pieces = {size: [self._made(size) for _ in range(PIECES)] for size in sorted(sizes)}

    def _made(self, size: int) -> _Piece:
        data = self._chance.randbytes(size)
        return _Piece(data, google_crc32c.value(data))

    def take(self, size: int) -> _Piece:
        return self._chance.choice(self._pieces[size])


class StoredQueue:
    """The queue of one shard on a cluster. ``fill`` comes first, while no standby is there; then ``open`` and turns."""

    def __init__(self, cluster: Cluster, segment_bytes: int, seed: int) -> None:
        self._cluster = cluster
        self._chance = random.Random(seed)
        self._pool = _Pool(seed)
        # As many whole rounds of batches as make a segment.
        self._batches = BATCHES * max(1, segment_bytes // sum(BATCHES))
        self._segment_bytes = sum(self._batches)
        self._files_a_turn = max(1, round(self._segment_bytes * SPOOL_SHARE / (1 - SPOOL_SHARE) / SPOOL_BYTES))
        self.bytes: dict[str, int] = {}  # file -> the bytes of it that are not marks: all that waits
        self._segments: list[str] = []  # that stay
        self._spooled: list[str] = []  # that stay
        self._passing: tuple[str, list[str]] | None = None  # of the turn before
        self._numbers = {RECEIVER: 0, UPLOADS: 0, MANAGER: 0}
        self._base = 0
        self._ids = 0
        self._turns = 0
        self._journal, self._journal_base, self._journal_end = f"queue/journal/{name_of(0)}", 0, 0
        self._turn = Turn()
        self._writers: dict[str, StoreWriter] = {}
        self._threads = ThreadPoolExecutor(3)

    @property
    def turn_bytes(self) -> int:
        """Returns the bytes of mail that arrive in a turn."""
        return self._segment_bytes + self._files_a_turn * SPOOL_BYTES

    @property
    def live_bytes(self) -> int:
        """Returns the bytes of all files that are there."""
        return sum(self.bytes.values())

    def _new_segment(self) -> str:
        self._base += self._segment_bytes
        return f"queue/incoming.0/{name_of(self._base)}"

    def _new_spool_file(self) -> str:
        self._ids += 1
        queue_id = f"1{self._ids:015X}"
        return f"spool/{google_crc32c.value(queue_id.encode()) % FANOUT:02x}/{queue_id}"

    def fill(self, wanted_bytes: int) -> None:
        """Makes the rows of shard and writers, and fills the table: in one transaction, which needs no log of writes."""
        add_shard(self._cluster.primary)
        host = self._cluster.primary.host
        with (
            psycopg.connect(host=host.address, port=host.port, user=ROLE, dbname="waypost") as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute("set local synchronous_commit = off")
            cursor.execute("truncate waypost.chunk")
            with cursor.copy(_COPY) as copy:
                for block in _blocks(self._rows(wanted_bytes)):
                    copy.write(block)
            for writer, n in self._numbers.items():
                cursor.execute(
                    "insert into waypost.writer (shard, writer, epoch, n) values (%s, %s, 1, %s)", (SHARD, writer, n)
                )
            connection.commit()
            connection.autocommit = True
            cursor.execute("vacuum (analyze) waypost.chunk")

    def _rows(self, wanted_bytes: int) -> Iterator[bytes]:
        """Yields rows in COPY's binary form: segments, and behind each the spool files of the same time."""
        made = 0
        while made < wanted_bytes:
            name = retired_path(self._new_segment())
            self._segments.append(name)
            at = 0
            for number, size in enumerate(self._batches, 1):
                yield self._row(RECEIVER, APPENDED, name, at, self._pool.take(size))
                at += size
                if number % CHECKPOINT_EVERY == 0:
                    marks = self._marks(name, at)
                    data = marks.chunks[0].joined()
                    yield self._row(MANAGER, MARKS, name, GARBAGE, _Piece(data, google_crc32c.value(data)))
            self.bytes[name] = at
            for _ in range(self._files_a_turn):
                name = self._new_spool_file()
                self._spooled.append(name)
                for size, at in zip(SPOOLED, SPOOL_PLACES, strict=True):
                    yield self._row(UPLOADS, UPLOADED, name, at, self._pool.take(size))
                self.bytes[name] = SPOOL_BYTES
            made += self.turn_bytes

    def _row(self, writer: str, kind: str, file: str, at: int, piece: _Piece) -> bytes:
        self._numbers[writer] += 1
        fields = [
            *(_LENGTH.pack(len(text)) + text for text in (SHARD.encode(), writer.encode())),
            _INT8.pack(8, self._numbers[writer]),
            _INT2.pack(2, 0),
            *(_LENGTH.pack(len(text)) + text for text in (kind.encode(), file.encode())),
            _INT8.pack(8, at),
            _INT8.pack(8, piece.crc),
            _LENGTH.pack(len(piece.data)),
            piece.data,
        ]
        return b"\0\x09" + b"".join(fields)

    def _marks(self, file: str, end: int) -> Batch:
        """Returns a batch that marks messages in the last batches of a segment."""
        start = end - sum(BATCHES)
        batch = Batch()
        batch.marks(file, sorted(self._chance.sample(range(start, end, 1 * KIB), MARKED)), GARBAGE)
        return batch

    def open(self) -> None:
        """Begins as each of the writers."""
        for name in self._numbers:
            self._writers[name] = StoreWriter(self._cluster.parameters(), SHARD, name, 1)
            self._writers[name].begin()

    def close(self) -> None:
        """Closes the connections."""
        for writer in self._writers.values():
            writer.stopping.set()
        self._threads.shutdown()
        for writer in self._writers.values():
            writer.close()

    def turn(self) -> Turn:
        """Lets a segment of mail arrive and one leave."""
        self._turn = turn = Turn(arrived_bytes=self.turn_bytes)
        begun = time.monotonic()
        segment, spooled = self._new_segment(), [self._new_spool_file() for _ in range(self._files_a_turn)]
        checkpoints: queue.SimpleQueue[int] = queue.SimpleQueue()  # where the segment ends then; 0: no more follow
        uploads: queue.SimpleQueue[bool] = queue.SimpleQueue()
        works: list[Callable[[], None]] = [
            lambda: self._receive(segment, checkpoints, uploads),
            lambda: self._upload(spooled, uploads),
            lambda: self._manage(segment, checkpoints),
        ]
        for done in [self._threads.submit(work) for work in works]:
            done.result()
        self._passing = segment, spooled
        turn.seconds = time.monotonic() - begun
        self._turns += 1
        return turn

    def _commit(self, writer: str, kind: str, batch: Batch) -> None:
        before = time.perf_counter()
        self._writers[writer].commit(batch, {"incoming.0": (self._base, self._segment_bytes)})
        self._turn.commits.append(Commit(kind, time.perf_counter() - before))

    def _receive(self, segment: str, checkpoints: queue.SimpleQueue[int], uploads: queue.SimpleQueue[bool]) -> None:
        try:
            at = 0
            for number, size in enumerate(self._batches, 1):
                batch = Batch()
                batch.append(segment, at, [self._pool.take(size).data])
                self._commit(RECEIVER, APPEND, batch)
                at += size
                self.bytes[segment] = at
                if number % CHECKPOINT_EVERY == 0:
                    checkpoints.put(at)
                    uploads.put(True)
        finally:
            checkpoints.put(0)
            uploads.put(False)

    def _upload(self, files: Sequence[str], uploads: queue.SimpleQueue[bool]) -> None:
        """Uploads the files, spread over the turn."""
        rounds = len(self._batches) // CHECKPOINT_EVERY
        done = 0
        for number in range(1, rounds + 1):
            if not uploads.get():
                return
            while done < len(files) * number // rounds:
                for size, at in zip(SPOOLED, SPOOL_PLACES, strict=True):
                    batch = Batch()
                    batch.blob(files[done], at, [self._pool.take(size).data])
                    self._commit(UPLOADS, UPLOAD, batch)
                self.bytes[files[done]] = SPOOL_BYTES
                done += 1

    def _manage(self, segment: str, checkpoints: queue.SimpleQueue[int]) -> None:
        """Writes checkpoints, and in the middle of the turn drops the mail that leaves."""
        dropped = False
        while at := checkpoints.get():
            self._commit(MANAGER, CHECKPOINT, self._checkpoint(segment, at))
            if at >= self._segment_bytes // 2 and not dropped:
                dropped = True
                self._retire()

    def _checkpoint(self, segment: str, at: int) -> Batch:
        batch = self._marks(segment, at)
        if self._journal_end >= self._segment_bytes:
            batch.drop([self._journal])
            self.bytes.pop(self._journal)
            self._journal_base += self._segment_bytes
            self._journal, self._journal_end = f"queue/journal/{name_of(self._journal_base)}", 0
        batch.append(self._journal, self._journal_end, [self._pool.take(JOURNAL_BYTES).data])
        for each in ("restart", "restart.previous"):
            batch.put(f"queue/{each}", bytes(POSITIONS_BYTES))
        self._journal_end += JOURNAL_BYTES
        self.bytes[self._journal] = self._journal_end
        return batch

    def _retire(self) -> None:
        """Drops a segment and spool files: those of the turn before, or others in the place of which those stay."""
        if self._passing is None:
            return
        segment, spooled = self._passing
        batch = Batch()
        if self._turns % KEEP_EVERY == 0:
            stays = retired_path(segment)
            batch.rename(segment, stays)
            self.bytes[stays] = self.bytes.pop(segment)
            segment = self._exchanged(self._segments, stays)
            spooled = [self._exchanged(self._spooled, each) for each in spooled]
        batch.drop([segment])
        self._drop(DROP_SEGMENT, segment, batch)
        for file in spooled:
            batch = Batch()
            batch.drop([file])
            self._drop(DROP_FILE, file, batch)

    def _drop(self, kind: str, file: str, batch: Batch) -> None:
        self._commit(MANAGER, kind, batch)
        self._turn.left_bytes += self.bytes.pop(file)

    def _exchanged(self, waiting: list[str], stays: str) -> str:
        place = self._chance.randrange(len(waiting))
        leaves, waiting[place] = waiting[place], stays
        return leaves


def _blocks(rows: Iterator[bytes]) -> Iterator[bytes]:
    """Joins rows to blocks that are worth a call."""
    parts, size = [_HEAD], len(_HEAD)
    for row in rows:
        parts.append(row)
        size += len(row)
        if size >= _COPY_BLOCK:
            yield b"".join(parts)
            parts, size = [], 0
    yield b"".join([*parts, _END])
