"""The event files of one stretch: a Parquet file for each UTC day its rows fall on.

Laws
- A file is complete or absent: it is written under a name that begins with a dot, synced and renamed; then the directory is
  synced.
- The same stretch gives the same files every time it is written.
- A row group has rows of one kind, so a reader of one kind reads no others. In memory are at most ROWS_MAX rows of each kind
  and day.
- A flipped bit is found: pages and footer have checksums (``checksum``).

Keeps law: same-stretch-same-files (docs/laws.md).
"""

from __future__ import annotations

import contextlib
import json
import os
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from mailcore.events.checksum import Summed
from mailcore.events.day import DAY_S, day_number, day_of
from mailcore.events.rows import Row
from mailcore.events.schema import COLUMNS, FIELDS, VERSION
from mailcore.events.write.counters import add, count
from mailcore.log.disk import Disk
from mailcore.log.segment import Damage

__all__ = ["SCHEMA", "StretchFiles"]

ROWS_MAX = 20_000  # of a row group: some megabytes in memory, and few enough groups for a quick reader
DAMAGES_MAX = 1_000  # named in a file; with more, the disk itself is the problem
COMPRESSION = "zstd"  # decision 0013

_TYPES: dict[str, pa.DataType] = {
    "string": pa.string(),
    "int": pa.int32(),
    "long": pa.int64(),
    "double": pa.float64(),
    "bool": pa.bool_(),
    "strings": pa.list_(pa.string()),
}
SCHEMA = pa.schema([pa.field(name, _TYPES[kind]) for name, kind in COLUMNS.items()])


class _DayFile:
    """One file being written."""

    def __init__(self, disk: Disk, directory: str, name: str, metadata: dict[str, str]) -> None:
        self.disk = disk
        self.directory = directory
        self.path = os.path.join(directory, name)
        self._new = os.path.join(directory, f".{name}")
        disk.make_directory(directory)
        with contextlib.suppress(FileNotFoundError):
            disk.unlink(self._new)
        self._file = os.fdopen(disk.create(self._new), "wb", buffering=1 << 20)
        self._summed = Summed(self._file)
        self._writer = pq.ParquetWriter(
            self._summed,
            SCHEMA.with_metadata(metadata),
            compression=COMPRESSION,
            write_statistics=True,
            write_page_checksum=True,
        )
        self.rows = 0

    def write(self, table: pa.Table) -> None:
        self._writer.write_table(table, row_group_size=ROWS_MAX)
        self.rows += table.num_rows

    def complete(self, metadata: dict[str, str]) -> None:
        """Completes the file and syncs it; the file does not have its final name yet."""
        self._writer.add_key_value_metadata(metadata)
        self._summed.footer_follows()
        self._writer.close()
        self._summed.finish()
        self._file.flush()
        self.disk.sync(self._file.fileno())
        self._file.close()

    def publish(self) -> None:
        self.disk.replace(self._new, self.path)

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self._writer.close()
        with contextlib.suppress(OSError):
            self._file.close()

    def remove(self) -> None:
        """Removes the file, unless it is published."""
        with contextlib.suppress(OSError):
            self.disk.unlink(self._new)


class StretchFiles:
    """Collects the rows of one stretch and writes its files, one a day, named by ``lane`` and ``start``."""

    def __init__(self, disk: Disk, directory: str, lane: str, start: int, shard: int = 0) -> None:
        self._disk = disk
        self._directory = directory
        self._lane = lane
        self._start = start
        self._shard = shard
        self._buffers: dict[tuple[int, str], list[Row]] = {}
        self._files: dict[str, _DayFile] = {}
        self.damages: list[Damage] = []
        self.counts: dict[str, int] = {}  # of the rows in the files

    def add(self, kind: str, offset: int, row: Row) -> None:
        """Adds a row to the file of its day; the row has part, time, queue id and the fields of its kind."""
        at = row[1]
        key = (day_number(at), kind)
        rows = self._buffers.get(key)
        if rows is None:
            rows = self._buffers[key] = []
        rows.append((offset, *row))
        if len(rows) >= ROWS_MAX:
            self._flush(key)

    def damaged(self, damage: Damage) -> None:
        """Notes damage for the files' metadata, up to DAMAGES_MAX."""
        if len(self.damages) < DAMAGES_MAX:
            self.damages.append(damage)

    def complete(self, to: int, written: float, always: bool = False) -> dict[str, int]:
        """Writes and publishes the files; returns their rows by path.

        ``written`` is the time of the segment: its day gets the file of a stretch without rows. Without rows and damage there
        is a file only if ``always``, so that a missing file shows a lost stretch. Raises OSError; then no new name exists.
        """
        for key in list(self._buffers):
            self._flush(key)
        if (self.damages or always) and not self._files:
            self._file(day_of(written))
        damages = [[damage.offset, damage.end, damage.what] for damage in self.damages]
        days = json.dumps(sorted(self._files))
        metadata = {"waypost.to": str(to), "waypost.damaged": json.dumps(damages), "waypost.days": days}
        files = list(self._files.values())
        for file in files:
            file.complete(metadata)
        for file in files:
            file.publish()
        for file in files:
            self._disk.sync_directory(file.directory)
        self._files = {}
        return {file.path: file.rows for file in files}

    def abandon(self) -> None:
        """Removes files that are not published; those of a killed process stay until the stretch is written again."""
        files, self._files = self._files, {}
        for file in files.values():
            file.close()
        for file in files.values():
            file.remove()

    def _file(self, day: str) -> _DayFile:
        file = self._files.get(day)
        if file is None:
            metadata = {"waypost.events": str(VERSION), "waypost.lane": self._lane, "waypost.from": str(self._start)}
            if self._shard:  # so that a file that lies among those of another shard is found
                metadata["waypost.shard"] = str(self._shard)
            directory = os.path.join(self._directory, f"dt={day}")
            file = _DayFile(self._disk, directory, f"{self._lane}.{self._start}.parquet", metadata)
            self._files[day] = file
        return file

    def _flush(self, key: tuple[int, str]) -> None:
        rows = self._buffers.pop(key)
        day, kind = key
        file = self._file(day_of(day * DAY_S))
        try:
            table = self._table(kind, rows)
        except (pa.ArrowException, OverflowError, TypeError, ValueError):
            rows = [row for row in rows if self._fits(kind, row)]
            table = self._table(kind, rows)
        file.write(table)
        self.counts = add(self.counts, count(kind, rows))

    def _fits(self, kind: str, row: Row) -> bool:
        """Returns whether the columns accept a row; if not, it is set aside and the others are written."""
        try:
            self._table(kind, [row])
        except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
            self.damaged(Damage(self._lane, row[0], row[0], f"no event: {error}"))
            return False
        return True

    def _table(self, kind: str, rows: list[Row]) -> pa.Table:
        count = len(rows)
        columns: dict[str, Any] = dict.fromkeys(COLUMNS)
        names = ("offset", "part", "at", "queue_id", *FIELDS[kind])
        columns.update(zip(names, zip(*rows, strict=True), strict=True) if rows else {})
        arrays = []
        for field in SCHEMA:
            if field.name == "lane":
                arrays.append(pa.repeat(pa.scalar(self._lane), count))
            elif field.name == "kind":
                arrays.append(pa.repeat(pa.scalar(kind), count))
            elif columns[field.name] is None:
                arrays.append(pa.nulls(count, field.type))
            else:
                arrays.append(pa.array(columns[field.name], field.type))
        return pa.Table.from_arrays(arrays, schema=SCHEMA)
