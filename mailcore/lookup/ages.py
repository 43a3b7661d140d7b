"""The age of queued mail, by destination: a scan of all lanes in short steps.

Messages are counted, not recipients: one with mail for three destinations counts once for each of them, and once in the
total and in the counts of all messages. Nothing is locked: a message that moves between two steps may be counted twice or
not at all.
Must not know: sockets, the manager.
"""

from __future__ import annotations

import os
import struct
import threading
from bisect import bisect_left
from collections.abc import Iterator, Mapping

import msgspec

from mailcore.envelope import Envelope, Recipient
from mailcore.log.reader import LaneReader
from mailcore.log.record import RecordType
from mailcore.log.segment import Damage
from mailcore.lookup.answers import AgesRow, AgesTable, Oldest
from mailcore.lookup.browse import WITHOUT_END, Browser, Stretch, lane_order
from mailcore.mail_state import MailState, in_order, main_state
from mailcore.queue.aside import states_of
from mailcore.queue.lanes import DELETED, HOLD
from mailcore.queue.records import decode_envelope, decode_recipients

__all__ = ["ACTIVE_MAX", "BOUNDS_S", "OTHERS", "ROWS_MAX", "AgesScan"]

# qshape(1) begins at five minutes and doubles, too; here so that each is a round number of minutes, hours or days.
BOUNDS_S = (300, 600, 1_200, 2_400, 3_600, 7_200, 14_400, 28_800, 57_600, 86_400, 172_800, 432_000)
ROWS_MAX = 200  # destinations shown, those with the most mail
NAMES_MAX = 10_000  # destinations counted by name, some 3 MB; the rest is one row
OTHERS = "others"
ACTIVE_MAX = 100_000  # active messages told apart by their states, some 7 MB; five times the default of the active set


class AgesScan:
    """One scan of all lanes. Several threads may call ``step``; they take turns."""

    def __init__(self, browser: Browser, stretches: Mapping[str, Stretch]) -> None:
        self._browser = browser
        self._stretches = stretches
        self._lanes = sorted((lane for lane in stretches if lane != DELETED), key=lane_order)
        self._offset = 0  # where to continue in the first of them
        self._turn = threading.Lock()
        self._rows: dict[str, list[int]] = {}
        self._counts = [0] * (len(BOUNDS_S) + 1)  # messages, each once
        self._others = [0] * (len(BOUNDS_S) + 1)
        self._by_state = dict.fromkeys(
            map(str, (MailState.QUEUED, MailState.ACTIVE, MailState.DEFERRED, MailState.HELD)), 0
        )
        self.active: list[str] = []  # queue ids, bounded by ACTIVE_MAX
        self._oldest: Oldest | None = None
        self.as_of = browser.clock()
        self.touched_at = browser.monotonic()  # when it last made a step
        self.took_s = 0.0
        self.examined = 0  # records
        self.total = 0
        self.done = not self._lanes

    def step(self, seconds: float) -> None:
        """Reads for ``seconds``, or to the end. Raises OSError."""
        with self._turn:
            monotonic = self._browser.monotonic
            began = monotonic()
            try:
                while self._lanes:
                    stopped = self._read(self._lanes[0], began + seconds)
                    if stopped is not None:
                        self._offset = stopped
                        return
                    del self._lanes[0]
                    self._offset = 0
                self.done = True
            finally:
                self.touched_at = monotonic()
                self.took_s += self.touched_at - began

    def table(self) -> AgesTable:
        """Returns the ages; complete once ``done`` is True."""
        rows = sorted(
            (AgesRow(destination=name, counts=counts, total=sum(counts)) for name, counts in self._rows.items()),
            key=lambda row: (-row.total, row.destination),
        )
        others = list(self._others)
        for row in rows[ROWS_MAX:]:
            others = [have + more for have, more in zip(others, row.counts, strict=True)]
        rows = rows[:ROWS_MAX]
        if any(others):
            rows.append(AgesRow(destination=OTHERS, counts=others, total=sum(others)))
        return AgesTable(
            buckets_s=[*BOUNDS_S, None],
            rows=rows,
            total=self.total,
            counts=list(self._counts),
            by_state=in_order(self._by_state),
            oldest=self._oldest,
            as_of=self.as_of,
            took_s=self.took_s,
            examined=self.examined,
        )

    def restate(self, states: Mapping[str, str]) -> None:
        """Counts active messages under the states that the manager knows: queue id -> state."""
        for queue_id, state in states.items():
            self._by_state[MailState.ACTIVE] -= 1
            self._by_state[state] = self._by_state.get(state, 0) + 1
            if self._oldest is not None and self._oldest.queue_id == queue_id:
                self._oldest.state = state

    # -- inside

    def _read(self, lane: str, until: float) -> int | None:
        """Continues reading one lane; returns where to continue, None at its end."""
        stretch = self._stretches[lane]
        start, end = max(stretch.start, self._offset), WITHOUT_END if stretch.end is None else stretch.end
        if start >= end:
            return None
        browser = self._browser
        reader = LaneReader(browser.disk, os.path.join(browser.queue_directory, lane), _told_elsewhere)
        try:
            for record in reader.records(start, end):
                self.examined += 1
                if record.live and record.type == RecordType.ENVELOPE:
                    try:
                        self._count(reader, lane, record.offset, decode_envelope(record.body))
                    except (msgspec.MsgspecError, struct.error):
                        continue
                if self.examined & 63 == 0 and browser.monotonic() >= until:
                    return record.end
        finally:
            reader.close()
        return None

    def _count(self, reader: LaneReader, lane: str, offset: int, envelope: Envelope) -> None:
        self.total += 1
        active = lane != HOLD and offset < self._stretches[lane].runner
        state = MailState.ACTIVE if active else main_state(states_of(envelope, lane, self.as_of))
        self._by_state[state] = self._by_state.get(state, 0) + 1
        if active and len(self.active) < ACTIVE_MAX:
            self.active.append(envelope.queue_id)
        bucket = bisect_left(BOUNDS_S, self.as_of - envelope.arrived_at)
        self._counts[bucket] += 1
        names = self._destinations(reader, offset, envelope)
        for name in names:
            counts = self._rows.get(name)
            if counts is None:
                if len(self._rows) >= NAMES_MAX:
                    counts = self._others
                else:
                    counts = self._rows[name] = [0] * (len(BOUNDS_S) + 1)
            counts[bucket] += 1
        if self._oldest is None or envelope.arrived_at < self._oldest.arrived_at:
            self._oldest = Oldest(
                queue_id=envelope.queue_id,
                arrived_at=envelope.arrived_at,
                sender=envelope.sender,
                destination=next(iter(names), ""),
                state=state,
            )

    def _destinations(self, reader: LaneReader, offset: int, envelope: Envelope) -> dict[str, None]:
        """Returns the destinations, each once. For a long list that was routed before, the envelope has the names."""
        names = dict.fromkeys(map(self._name, envelope.recipients))
        if not envelope.batches:
            return names
        if envelope.resting and "" not in envelope.resting:
            return names | dict.fromkeys(envelope.resting)
        for recipients in _batches(reader, offset, envelope):
            names |= dict.fromkeys(map(self._name, recipients))
        return names

    def _name(self, recipient: Recipient) -> str:
        return recipient.route or recipient.destination or self._browser.route_of(recipient)


def _batches(reader: LaneReader, offset: int, envelope: Envelope) -> Iterator[tuple[Recipient, ...]]:
    for at in envelope.batches:
        record = reader.read(at, offset)
        if record is not None and record.type == RecordType.RECIPIENTS:
            yield decode_recipients(record.body)


def _told_elsewhere(damage: Damage) -> None:
    """Ignores damage: browsing reports it."""
