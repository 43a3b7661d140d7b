"""A copy of the event files of all shards on this node, fetched from the database, of which its reports are made.

The copy is in ``_nodes`` of the directory of events, with a directory for each shard, by its number. Only some days are in it:
those of a report, and those that it may look back to.

- law: gathered-before-told. ``shards.json`` names all shards that the database has, and the files that this copy lacks. It is
  written when everything else is here. A report takes nothing for complete that it does not say, and nothing that it said
  before the day was over: a shard may have come since.
- Event files come before the counts of the queue, so that no count is here whose events are not.
- A file is here when the checksums of all its pieces are those that the database has. One that lies on this disk already, of a
  shard that this node has or had, is compared in the same way and gets a second name instead of a second copy.
- What the database does not have (any more) is removed. So a file that was written again is the new one.

Keeps law: gathered-before-told (docs/laws.md).
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import google_crc32c
import msgspec

from mailcore.config.events_copy import COPY, MANIFEST
from mailcore.config.settings import Settings, shard_place
from mailcore.log.disk import Disk
from mailcore.nodes.kept import EVENTS, is_of_events
from mailcore.nodes.parameters import node_of, parameters_of, shard_of
from mailcore.replication.connection import Connection
from mailcore.replication.node_row import beat_node
from mailcore.replication.parameters import StoreParameters
from mailcore.replication.shard import ShardRow, read_shards
from mailcore.replication.snapshot import ChunkDamaged, Part, Snapshot, StoredFile, snapshot

__all__ = ["Gathered", "GatheredShard", "Gatherer", "Manifest", "copy_of", "read_manifest"]

BYTES_AT_ONCE = 64 << 20  # fetched in one call, so that the exporter does other work in between
SECONDS_AT_ONCE = 10.0
READ_BYTES = 1 << 20
ROOM = 4  # times the reserve of the queue: free space that the copy leaves, as mail needs it
NAMED_MAX = 5  # missing files that are named
SEEN = "seen.json"  # which files were compared already
CUTS = "cuts/"


class GatheredShard(msgspec.Struct, frozen=True):
    """A shard that the database has. ``absent_at``: when it did not have it yet; 0.0: not known."""

    number: int
    name: str
    state: str
    node: str
    absent_at: float = 0.0
    missing: int = 0  # files that this copy lacks
    named: list[str] = []  # some of them, with the reason


class Manifest(msgspec.Struct, frozen=True):
    """The content of ``shards.json``: the copy has all files of the days ``since`` to ``until``, except for those missing."""

    at: float  # wall clock: the database was asked after that
    since: str
    until: str
    shards: list[GatheredShard]
    version: int = 1


class Gathered(msgspec.Struct, frozen=True):
    """The result of one call: ``more``: call again; ``missing``: files that cannot be had now."""

    more: bool
    fetched_bytes: int
    missing: int
    shards: int


def copy_of(settings: Settings) -> Path:
    """Returns the directory of the copy: a node has one, for all its shards."""
    return settings.home / EVENTS / COPY


def read_manifest(directory: Path) -> Manifest | None:
    """Returns the content of ``shards.json``; None if there is none, or it cannot be understood. Raises OSError."""
    try:
        return msgspec.json.decode((directory / MANIFEST).read_bytes(), type=Manifest)
    except (FileNotFoundError, msgspec.MsgspecError):
        return None


class Gatherer:
    """Makes the copy what the database says, in steps. One works at a time; raises Locked."""

    def __init__(
        self,
        settings: Settings,
        *,
        disk: Disk | None = None,
        opener: Callable[[StoreParameters], Connection] = Connection.open,
        clock: Callable[[], float] = time.time,
        bytes_max: int = BYTES_AT_ONCE,
        seconds_max: float = SECONDS_AT_ONCE,
    ) -> None:
        self._settings = settings
        self._disk = disk or Disk()
        self._opener = opener
        self._clock = clock
        self._root = copy_of(settings)
        self._own = shard_of(settings)
        self._bytes_max, self._seconds_max = bytes_max, seconds_max
        self._fetched = 0
        self._until = 0.0

    def gather(self, since: str, until: str, keep: str) -> Gathered:
        """Fetches what is missing of the UTC days from ``since`` to ``until``, and removes days before ``keep``.

        Raises StoreError, OSError, Locked; then ``shards.json`` is as before.
        """
        self._disk.make_directory(str(self._root))
        lock = self._disk.lock(str(self._root / "lock"))
        try:
            self._fetched, self._until = 0, time.monotonic() + self._seconds_max
            return self._gather(since, until, min(keep, since))
        finally:
            self._disk.close(lock)

    def _gather(self, since: str, until: str, keep: str) -> Gathered:
        before = read_manifest(self._root)
        at = self._clock()
        connection = self._opener(parameters_of(self._settings))
        try:
            beat_node(connection, node_of(self._settings))  # behind it, what is shown is on two servers
            rows = read_shards(connection)
            copies = []
            for row in rows.values():
                with snapshot(connection, row.name) as shown:
                    if shown is not None:
                        copies.append(self._shard(shown, row, since, until, keep, before))
        finally:
            connection.close()
        more = any(copy.more for copy in copies)
        for copy in copies:
            if not more:
                copy.tidy()
            copy.save()
        shards = [copy.told() for copy in copies]
        self._disk.write_whole(
            str(self._root / MANIFEST), msgspec.json.encode(Manifest(at, since, until, shards)) + b"\n"
        )
        return Gathered(more, self._fetched, sum(shard.missing for shard in shards), len(shards))

    def _shard(
        self, shown: Snapshot, row: ShardRow, since: str, until: str, keep: str, before: Manifest | None
    ) -> _ShardCopy:
        known = {} if before is None else {shard.name: shard.absent_at for shard in before.shards}
        absent_at = known.get(row.name, 0.0 if before is None else before.at)
        own = [self._settings.home / EVENTS] if row.name == self._own else []
        places = [*own, shard_place(self._settings.home, row.number) / EVENTS]
        copy = _ShardCopy(self._disk, shard_place(self._root, row.number) / EVENTS, places, row, absent_at, keep)
        copy.read(shown, since, until)
        for file in copy.lacking():
            if self._fetched >= self._bytes_max or time.monotonic() > self._until:
                copy.more = True
                break
            self._check_room(file.length)
            self._fetched += copy.fetch(shown, file)
        return copy

    def _check_room(self, size_bytes: int) -> None:
        """Raises OSError if the file would take room that mail needs."""
        if self._disk.free_bytes(str(self._root)) - size_bytes < ROOM * self._settings.queue.reserve_bytes:
            raise OSError(errno.ENOSPC, "no room for the events of other shards", str(self._root))


class _ShardCopy:
    """The copy of one shard's files: what it must have, and what it has."""

    def __init__(
        self, disk: Disk, directory: Path, places: list[Path], row: ShardRow, absent_at: float, keep: str
    ) -> None:
        self.more = False
        self._disk = disk
        self._directory = directory
        self._places = places  # where files of the shard may lie on this disk
        self._row = row
        self._absent_at = absent_at
        self._keep = keep  # not behind ``since``
        self._files: dict[str, StoredFile] = {}
        self._stored: set[str] = set()  # from ``keep`` on, also what is not fetched
        self._failed: dict[str, str] = {}
        self._seen = self._read_seen()

    def read(self, shown: Snapshot, since: str, until: str) -> None:
        """Reads which files the database has: events of these days, the counts from ``since`` on, and two counts that say
        when the shard began, and what was last counted before."""
        for file in Part(shown, EVENTS, f"dt={self._keep}").files():
            if is_of_events(file.name):
                self._stored.add(file.name)
                if since <= _date_of(file.name) <= until:
                    self._files[file.name] = file
        counts = []
        for file in Part(shown, EVENTS, CUTS).files():
            if not file.name.startswith(CUTS):
                break
            if is_of_events(file.name):
                self._stored.add(file.name)
                counts.append(file)
        earlier = [file for file in counts if _date_of(file.name) < since and file.name.endswith(".json")]
        for file in (*earlier[:1], *earlier[-1:], *(file for file in counts if _date_of(file.name) >= since)):
            self._files[file.name] = file

    def lacking(self) -> Iterator[StoredFile]:
        """Yields the files that are not here: events first, the newest days first."""
        names = sorted((name for name in self._files if not name.startswith(CUTS)), reverse=True)
        for name in (*names, *(name for name in self._files if name.startswith(CUTS))):
            file = self._files[name]
            if not self._has(file):
                yield file

    def fetch(self, shown: Snapshot, file: StoredFile) -> int:
        """Makes a file; returns the bytes that were fetched. One whose bytes the database has damaged is missing."""
        path = self._directory / file.name
        self._disk.make_directory(str(path.parent))
        new = path.with_name(f".{path.name}")
        with contextlib.suppress(FileNotFoundError):
            self._disk.unlink(str(new))
        fetched = 0
        if not self._link(file, new):
            try:
                self._write(shown, file, new)
            except ChunkDamaged as error:
                self._failed[file.name] = error.fault.message
                self._disk.unlink(str(new))
                return 0
            fetched = file.length
        self._disk.replace(str(new), str(path))
        self._disk.sync_directory(str(path.parent))
        self._note(file)
        return fetched

    def tidy(self) -> None:
        """Removes files that the database does not have, and days before ``keep``."""
        for name in list(self._local()):
            if name not in self._stored or (name not in self._files and _date_of(name) < self._keep):
                with contextlib.suppress(FileNotFoundError):
                    self._disk.unlink(str(self._directory / name))
                self._seen.pop(name, None)
        for name in self._disk.list(str(self._directory)):
            below = str(self._directory / name)
            if name.startswith("dt=") and not self._disk.list(below):
                self._disk.remove_directory(below)

    def save(self) -> None:
        """Notes which files were compared."""
        self._disk.make_directory(str(self._directory))
        self._disk.write_whole(str(self._directory / SEEN), msgspec.json.encode(self._seen))

    def told(self) -> GatheredShard:
        """Returns what the copy says of this shard."""
        lacking = [file.name for file in self.lacking()]
        named = [f"{name}: {self._failed[name]}" if name in self._failed else name for name in lacking[:NAMED_MAX]]
        return GatheredShard(
            self._row.number, self._row.name, self._row.state, self._row.node, self._absent_at, len(lacking), named
        )

    def _local(self) -> Iterator[str]:
        for name in self._disk.list(str(self._directory)):
            if self._disk.is_own_directory(str(self._directory / name)):
                yield from (f"{name}/{file}" for file in self._disk.list(str(self._directory / name)))

    def _has(self, file: StoredFile) -> bool:
        path = self._directory / file.name
        identity = _identity(path)
        if identity is None:
            return False
        if self._seen.get(file.name) == [*identity, _sum_of(file)]:
            return True
        if not self._is_same(path, file):
            return False
        self._note(file)
        return True

    def _note(self, file: StoredFile) -> None:
        identity = _identity(self._directory / file.name)
        if identity is not None:
            self._seen[file.name] = [*identity, _sum_of(file)]

    def _is_same(self, path: Path, file: StoredFile) -> bool:
        """Returns whether a file has the bytes that the database has, by the checksums of all its pieces."""
        try:
            if self._disk.size_of(str(path)) != file.length:
                return False
            if file.data is not None:
                return self._disk.read_whole(str(path)) == file.data
            fd = self._disk.open_read(str(path))
        except OSError:
            return False
        try:
            return all(
                google_crc32c.value(self._disk.read(fd, each.length, each.at)) == each.crc for each in file.chunks
            )
        except OSError:
            return False
        finally:
            self._disk.close(fd)

    def _link(self, file: StoredFile, new: Path) -> bool:
        """Gives a file that this disk has a second name, if it is the same."""
        for place in self._places:
            if self._is_same(place / file.name, file):
                with contextlib.suppress(OSError):
                    os.link(place / file.name, new)
                    return True
        return False

    def _write(self, shown: Snapshot, file: StoredFile, new: Path) -> None:
        fd = self._disk.create(str(new))
        try:
            if file.data:
                self._disk.write(fd, [file.data], 0)
            for place, data in shown.fetch(file.chunks):
                self._disk.write(fd, [data], place.at)
            self._disk.sync(fd)
        finally:
            self._disk.close(fd)

    def _read_seen(self) -> dict[str, list[int]]:
        try:
            return msgspec.json.decode(self._disk.read_whole(str(self._directory / SEEN)), type=dict[str, list[int]])
        except (OSError, msgspec.MsgspecError):
            return {}


def _date_of(name: str) -> str:
    """Returns the day of an event file or of a count: "2026-11-20"."""
    directory, _, file = name.partition("/")
    return directory.removeprefix("dt=") if directory.startswith("dt=") else file[:10]


def _identity(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns, status.st_ino


def _sum_of(file: StoredFile) -> int:
    """Returns a number that is another one for other pieces."""
    if file.data is not None:
        return int(google_crc32c.value(file.data))
    return int(google_crc32c.value(repr([(each.at, each.length, each.crc) for each in file.chunks]).encode()))
