"""Reads the rows of a lane from event files, for the part of it whose segments are deleted.

The files of a lane are a chain: each says where its stretch begins and ends, and on which days its rows are. A link that is
missing, or cannot be read, is an error and not an end: nothing is left out without saying so. Lanes of retries have files only
where mail was handed in for later, so there a missing link says nothing.

Law: in memory are some hundred rows of each kind at a time.
"""

from __future__ import annotations

import heapq
import itertools
import json
import os
from collections.abc import Iterator
from typing import Any

import pyarrow.parquet as pq

from mailcore.events.feed.live import Told
from mailcore.events.feed.making import KINDS_OF_ROWS
from mailcore.events.read.files import EventFile, EventFiles
from mailcore.events.read.rows import DAMAGED, Group, of_kind, opened
from mailcore.events.schema import FIELDS
from mailcore.lookup.archive import Window
from mailcore.queue.lanes import tells_of_mail

__all__ = ["Missing", "first_kept", "kept_rows"]

TOGETHER = 512  # rows made into Python values at once
DAYS_BEYOND = 2  # looked at for files of a clock that was set back


class Missing(Exception):
    """A part of a lane that no file has: from ``start`` on to ``end``; the message says why."""

    def __init__(self, words: str, end: int) -> None:
        super().__init__(words)
        self.end = end


def first_kept(files: EventFiles, lane: str) -> int | None:
    """Returns where the first stretch of a lane begins that has all its files; None without one."""
    starts: set[int] = set()
    for day in files.days(Window()):
        found = sorted((file for file in files.of_day(day) if file.lane == lane), key=lambda file: file.start)
        for file in found:
            if file.start in starts:
                continue
            starts.add(file.start)
            try:
                _stretch(files, file)
            except (Missing, *DAMAGED):
                continue
            return file.start
    return None


def kept_rows(files: EventFiles, lane: str, start: int, end: int) -> Iterator[Told]:
    """Yields the records at offsets in [start, end), in order. Raises Missing; what is in front of it was yielded then."""
    chain = _chain(files, lane, start, end)
    at = start
    for file in chain:
        if file.start > at and tells_of_mail(lane):
            raise Missing(_words(lane, at, file.start, "no event file has it"), min(file.start, end))
        following = min((each.start for each in chain if each.start > file.start), default=end)
        try:
            of_days, to = _stretch(files, file)
            yield from _merged(of_days, max(at, start), min(end, to))
        except Missing as error:
            raise Missing(str(error), min(following, end)) from None
        except DAMAGED as error:
            name = f"dt={file.day}/{os.path.basename(file.path)}"
            raise Missing(f"{name}: {' '.join(str(error).split())[:200]}", min(following, end)) from error
        at = max(at, to)
        if at >= end:
            return
    if at < end and tells_of_mail(lane):
        raise Missing(_words(lane, at, end, "no event file has it"), end)


def _words(lane: str, start: int, end: int, why: str) -> str:
    return f"{lane}: {start} to {end}: {why}"


def _chain(files: EventFiles, lane: str, start: int, end: int) -> list[EventFile]:
    """Returns a file of each stretch that may have something in [start, end), in order; newer days are looked at first."""
    found: dict[int, EventFile] = {}
    beyond = 0
    for day in reversed(files.days(Window())):
        for file in files.of_day(day):
            if file.lane == lane and file.start < end:
                found.setdefault(file.start, file)
        if found and min(found) <= start:
            beyond += 1
            if beyond > DAYS_BEYOND:
                break
    first = max((each for each in found if each <= start), default=None)
    return [found[each] for each in sorted(found) if first is None or each >= first]


def _stretch(files: EventFiles, file: EventFile) -> tuple[list[str], int]:
    """Returns the files of a stretch, one for each of its days, and where it ends. Raises Missing, and what is in DAMAGED."""
    metadata = pq.read_metadata(file.path).metadata or {}
    to = int(metadata[b"waypost.to"])
    days = json.loads(metadata.get(b"waypost.days", b"[]")) or [file.day]
    name = os.path.basename(file.path)
    paths = [os.path.join(files.directory, f"dt={day}", name) for day in days]
    for day, path in zip(days, paths, strict=True):
        if not os.path.exists(path):
            raise Missing(_words(file.lane, file.start, to, f"dt={day}/{name} is not kept any more"), to)
    return paths, to


def _merged(paths: list[str], start: int, end: int) -> Iterator[Told]:
    """Yields the records of some files together, by offset, and the rows of each in the order of the export."""
    streams = [_rows_of(path, kind, start, end) for path in paths for kind in range(len(KINDS_OF_ROWS))]
    merged = heapq.merge(*streams, key=lambda each: each[:3])
    for offset, rows in itertools.groupby(merged, key=lambda each: each[0]):
        yield Told(offset, offset + 1, ((KINDS_OF_ROWS[kind], row) for _, kind, _, row in rows))


def _rows_of(path: str, kind: int, start: int, end: int) -> Iterator[tuple[int, int, int, dict[str, Any]]]:
    """Yields offset, number of the kind, part and columns of the rows of one kind in one file, in order."""
    name = KINDS_OF_ROWS[kind]
    columns = ("offset", "part", "at", "queue_id", *FIELDS[name])
    with opened(path) as groups:
        for group, _ in of_kind(groups, name):
            if group.may_have("offset", start, end - 1):
                for row in _in_range(group, columns, start, end):
                    yield row["offset"], kind, row["part"], row


def _in_range(group: Group, columns: tuple[str, ...], start: int, end: int) -> Iterator[dict[str, Any]]:
    for _, batch in group.batches(columns):
        offsets = batch.column("offset").to_pylist()
        first = next((at for at, offset in enumerate(offsets) if offset >= start), len(offsets))
        last = next((at for at, offset in enumerate(offsets) if offset >= end), len(offsets))
        for begin in range(first, last, TOGETHER):
            rows = batch.slice(begin, min(TOGETHER, last - begin)).to_pylist()
            for row in rows:
                yield _with_all(row, columns)


def _with_all(row: dict[str, Any], columns: tuple[str, ...]) -> dict[str, Any]:
    """Returns the row; columns that a file of an earlier version lacks are None."""
    return row if len(row) == len(columns) else {**dict.fromkeys(columns), **row}
