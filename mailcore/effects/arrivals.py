"""The messages that clients handed in within the last week, newest day first: out of the log's lanes and of event files.

Messages that are not exported yet are read from the lanes, where they lie at least until they are.
A message appears once.
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec

from mailcore.effects.budget import Deadline
from mailcore.envelope import Origin
from mailcore.events.day import DAY_S
from mailcore.events.read import rows
from mailcore.events.read.files import EventFile, EventFiles
from mailcore.log.disk import Disk
from mailcore.log.reader import LaneReader
from mailcore.log.record import RecordType
from mailcore.log.segment import Damage
from mailcore.lookup.archive import Window
from mailcore.lookup.browse import WITHOUT_END, Stretch
from mailcore.queue.exported import EXPORTED, read_exported
from mailcore.queue.lanes import is_incoming
from mailcore.queue.records import decode_envelope

__all__ = ["Arrival", "Arrivals"]

_COLUMNS = ("offset", "part", "at", "sender", "size_bytes", "recipients", "origin", "client_address", "login", "tls")


class Arrival(NamedTuple):
    """A message as it came, or a further part of its recipients: ``first`` is False then."""

    at: float
    client_address: str
    login: str
    tls: str
    sender: str
    size_bytes: int
    recipients: tuple[str, ...]
    first: bool


class Arrivals:
    """Reads arrivals since a time. ``back_to``: everything from then on was read; ``damaged``: files that could not be."""

    def __init__(self, disk: Disk, queue: str, events: str, stretches: Mapping[str, Stretch], since: float) -> None:
        self._disk = disk
        self._queue = queue
        self._files = EventFiles(disk, events)
        self._events = events
        self._stretches = stretches
        self._since = since
        self.back_to = 0.0
        self.reaches_back = False
        self.damaged: list[str] = []

    def read(self, now: float, deadline: Deadline) -> Iterator[Arrival]:
        """Yields the arrivals until the time is over. Raises OSError."""
        oldest = now
        for arrival in self._not_exported():
            oldest = min(oldest, arrival.at)
            if arrival.at >= self._since:
                yield arrival
            if deadline.over():
                self.back_to = now  # the lanes are read oldest first: the newest are missing
                return
        self.back_to = oldest
        day = ""
        for file in self._event_files(now):
            if file.day != day:
                self.back_to, day = oldest, file.day
            for arrival in self._in_file(file.path, deadline):
                oldest = min(oldest, arrival.at)
                if arrival.at >= self._since:
                    yield arrival
            if deadline.is_over:
                return
        self.reaches_back = oldest <= self._since
        self.back_to = max(oldest, self._since)

    def _event_files(self, now: float) -> Iterator[EventFile]:
        with contextlib.suppress(FileNotFoundError):  # nothing was ever exported
            yield from self._files.arrivals(
                Window(self._since - DAY_S, now), None
            )  # a day more, to see that it reaches back

    def _in_file(self, path: str, deadline: Deadline) -> Iterator[Arrival]:
        try:
            with rows.opened(path) as groups:
                for group, _ in rows.of_kind(groups, "accepted"):
                    if not group.may_have("at", self._since - DAY_S, float("inf")):
                        continue
                    for _, batch in group.batches(_COLUMNS):
                        columns = {name: batch.column(name).to_pylist() for name in batch.schema.names}
                        for at in range(batch.num_rows):
                            if columns["origin"][at] != "smtp":
                                continue
                            yield Arrival(
                                columns["at"][at],
                                columns["client_address"][at] or "",
                                columns["login"][at] or "",
                                columns["tls"][at] or "",
                                columns["sender"][at] or "",
                                columns["size_bytes"][at] or 0,
                                tuple(each or "" for each in columns["recipients"][at] or ()),
                                not columns["part"][at],
                            )
                            if deadline.over():
                                return
        except rows.DAMAGED as error:
            self.damaged.append(f"{path}: {error}")

    def _not_exported(self) -> Iterator[Arrival]:
        try:
            exported = read_exported(self._disk, os.path.join(self._events, EXPORTED))
        except ValueError as error:
            self.damaged.append(str(error))
            exported = None
        for lane in sorted(filter(is_incoming, self._disk.list(self._queue))):
            at = exported.lanes.get(lane) if exported is not None else None
            stretch = self._stretches.get(lane)
            end = WITHOUT_END if stretch is None or stretch.end is None else stretch.end
            reader = LaneReader(self._disk, os.path.join(self._queue, lane), _told_elsewhere)
            try:
                for record in reader.records(0 if at is None else at.at, end):
                    if record.type != RecordType.ENVELOPE:
                        continue
                    try:
                        envelope = decode_envelope(record.body)
                    except (msgspec.MsgspecError, struct.error):
                        continue
                    if envelope.origin is not Origin.SMTP:
                        continue
                    yield Arrival(
                        envelope.arrived_at,
                        envelope.client_address,
                        envelope.login,
                        envelope.tls,
                        envelope.sender,
                        envelope.size_bytes,
                        tuple(each.address for each in envelope.recipients),
                        True,
                    )
            finally:
                reader.close()


def _told_elsewhere(damage: Damage) -> None:
    """Ignores damage: ``waypost doctor`` and the positions page tell of it."""
