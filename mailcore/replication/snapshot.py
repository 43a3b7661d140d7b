"""One snapshot of a shard: its row, its writers, its small files, and the list of the chunks of each file.

It is read in one transaction, behind a write of the reader that has returned (BEGIN, or a takeover), so that all earlier
commits that it shows are on two servers. The bytes are fetched file by file.

Keeps law: files-as-the-database-says (docs/laws.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import google_crc32c

from mailcore.replication.batch import MARKS, Ends, decode_ends
from mailcore.replication.connection import Connection
from mailcore.replication.faults import StoreError
from mailcore.replication.shard import ShardRow, read_shard
from mailcore.replication.statements import CHUNKS, FETCH, FETCH_MARKS, STATES, WRITERS
from mailcore.replication.values import as_int, as_text

__all__ = ["ChunkDamaged", "ChunkPlace", "Part", "Snapshot", "StoredFile", "WriterRow", "snapshot"]

TIMEOUT_S = 60.0
LISTED = 5_000  # chunks in one answer: 400 kB
FETCHED_BYTES = 8 << 20  # in one answer


class ChunkDamaged(StoreError):
    """Raised if the database returns other bytes for a chunk than were committed."""


class ChunkPlace(NamedTuple):
    """Where a chunk is in its file, and in the database."""

    writer: str
    n: int
    part: int
    at: int
    length: int
    crc: int


class StoredFile(NamedTuple):
    """A file as the database has it: its chunks by their offsets, and whether it has marks; or the bytes of a small file."""

    name: str
    chunks: list[ChunkPlace]
    marked: bool = False
    data: bytes | None = None

    @property
    def length(self) -> int:
        """Returns the length of the file."""
        if self.data is not None:
            return len(self.data)
        return max((place.at + place.length for place in self.chunks), default=0)


class WriterRow(NamedTuple):
    """The row of a writer."""

    writer: str
    epoch: int
    incarnation: int
    n: int
    ends: Ends


class Snapshot:
    """A snapshot that is open: its connection is in a transaction."""

    def __init__(self, connection: Connection, shard: ShardRow) -> None:
        self._connection = connection
        self.shard = shard
        self.writers: dict[str, WriterRow] = {}
        for writer, epoch, incarnation, n, ends in connection.execute(WRITERS, [shard.name], TIMEOUT_S).rows:
            name = as_text(writer)
            self.writers[name] = WriterRow(
                name, as_int(epoch), as_int(incarnation), as_int(n), decode_ends(ends or b"")
            )
        states = connection.execute(STATES, [shard.name], TIMEOUT_S).rows
        self.states = {as_text(row[0]): row[1] or b"" for row in states}

    def files(self, first: str = "") -> Iterator[StoredFile]:
        """Yields all files in the order of the bytes of their names; from the name ``first`` on."""
        names = sorted((name for name in self.states if name.encode() >= first.encode()), key=str.encode)
        states = [StoredFile(name, [], data=self.states[name]) for name in names]
        for file in self._chunked(first):
            while states and states[0].name.encode() < file.name.encode():
                yield states.pop(0)
            yield file
        yield from states

    def _chunked(self, first: str) -> Iterator[StoredFile]:
        """Yields the files that consist of chunks. Marks alone make none: a deletion was committed just before them."""
        after: tuple[str, str, int, int] = (first, "", 0, -1)
        file: StoredFile | None = None
        while True:
            rows = self._connection.execute(CHUNKS, [self.shard.name, *after, LISTED], TIMEOUT_S).rows
            for row in rows:
                name = as_text(row[0])
                if file is None or name != file.name:
                    if file is not None and file.chunks:
                        yield _in_order(file)
                    file = StoredFile(name, [])
                after = name, as_text(row[1]), as_int(row[2]), as_int(row[3])
                if row[4] == MARKS.encode():
                    file = file._replace(marked=True)
                else:
                    file.chunks.append(ChunkPlace(*after[1:], as_int(row[5]), as_int(row[6]), as_int(row[7])))
            if len(rows) < LISTED:
                break
        if file is not None and file.chunks:
            yield _in_order(file)

    def fetch(self, places: list[ChunkPlace]) -> Iterator[tuple[ChunkPlace, bytes]]:
        """Yields the chunks with their bytes, in the order given. Raises ChunkDamaged."""
        start = 0
        while start < len(places):
            stop, size = start, 0
            while stop < len(places) and (stop == start or size + places[stop].length <= FETCHED_BYTES):
                size += places[stop].length
                stop += 1
            group = places[start:stop]
            columns = [[place.writer for place in group], [place.n for place in group], [place.part for place in group]]
            rows = self._connection.execute(FETCH, [self.shard.name, *columns], TIMEOUT_S).rows
            found = {(as_text(row[0]), as_int(row[1]), as_int(row[2])): row[3] for row in rows}
            for place in group:
                yield place, self._checked(place[:3], found.get(place[:3]), place.crc)
            start = stop

    def marks(self, file: str) -> list[tuple[int, bytes]]:
        """Returns the marks of a file in order: the value, and the offsets as stored. Raises ChunkDamaged."""
        rows = self._connection.execute(FETCH_MARKS, [self.shard.name, file], TIMEOUT_S).rows
        return [
            (as_int(at), self._checked((as_text(writer), as_int(n), as_int(part)), data, as_int(crc)))
            for writer, n, part, at, crc, data in rows
        ]

    def _checked(self, place: tuple[str, int, int], data: bytes | None, crc: int) -> bytes:
        if data is None or google_crc32c.value(data) != crc:
            writer, n, part = place
            raise ChunkDamaged(
                f"The database returns other bytes than were committed: shard {self.shard.name}, writer {writer}, batch {n},"
                f" chunk {part}. Find out which server's disk or index is damaged, and let the other one take over."
            )
        return data


class Part:
    """The files of a snapshot below one directory, by names relative to it; from the name ``first`` on."""

    def __init__(self, snapshot: Snapshot, directory: str, first: str = "") -> None:
        self._snapshot = snapshot
        self._prefix = f"{directory}/"
        self._first = first

    def files(self) -> Iterator[StoredFile]:
        """Yields them in the order of the bytes of their names."""
        for file in self._snapshot.files(self._prefix + self._first):
            if not file.name.startswith(self._prefix):
                break
            yield file._replace(name=file.name.removeprefix(self._prefix))

    def fetch(self, places: list[ChunkPlace]) -> Iterator[tuple[ChunkPlace, bytes]]:
        """Yields chunks with their bytes, as ``Snapshot.fetch``."""
        return self._snapshot.fetch(places)

    def marks(self, file: str) -> list[tuple[int, bytes]]:
        """Returns the marks of a file, as ``Snapshot.marks``."""
        return self._snapshot.marks(self._prefix + file)


def _in_order(file: StoredFile) -> StoredFile:
    file.chunks.sort(key=lambda place: (place.at, place.n, place.part))
    return file


@contextmanager
def snapshot(connection: Connection, shard: str) -> Iterator[Snapshot | None]:
    """Opens a snapshot; None if the shard is not there. Raises Lost, ServerError."""
    connection.run(
        "begin isolation level repeatable read read only; set local idle_in_transaction_session_timeout = 0", TIMEOUT_S
    )
    try:
        row = read_shard(connection, shard)
        yield None if row is None else Snapshot(connection, row)
    finally:
        if not connection.closed:
            connection.run("rollback", TIMEOUT_S)
