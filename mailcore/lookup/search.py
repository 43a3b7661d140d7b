"""Searching for messages, finished ones included: every envelope whose record still exists is tested.

A message is found once, although several of its generations may still exist: by the one that rests in a lane if that matches,
otherwise by the lowest one that matches, which has the most recipients. The journal says how messages ended that do not rest
any more; it is read for a few messages at a time. After the lanes comes the ``archive``, the newest messages first. A search
stops after each piece (``tracing.Steps``) and continues at a cursor, so that a search without matches delays others no more
than any other.

Nothing is locked: a message that moves between two pages may be found twice or not at all; a message that only leaves a lane
is found once (``search_cursor``). Must not know: sockets, the manager.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from mailcore.envelope import Status
from mailcore.log.reader import LaneReader
from mailcore.lookup.answers import Hit
from mailcore.lookup.archive import Archive, Trouble, Window
from mailcore.lookup.browse import WITHOUT_END, Browser, Found, Stretch, lane_order, shown_recipients
from mailcore.lookup.query import Matches, Query
from mailcore.lookup.search_cursor import SearchCursor
from mailcore.lookup.tracing import (
    SLACK_S,
    Body,
    Steps,
    Trace,
    decode,
    earliest_of,
    envelope_in,
    envelopes_of,
    open_lane,
    trace,
)
from mailcore.queue.lanes import JOURNAL
from mailcore.queue.records import Delivery, Finish, Passed, Start

__all__ = ["LaneSearch", "Query"]

TOGETHER_MAX = 20  # messages that are looked up in one pass through indexes and journal
OLDER_TOGETHER_MAX = 200  # the same in the archive, where neighbours mostly arrived within an hour
FATE_S = 31 * 86_400.0  # how long after the arrival the archive is searched for the end: queue lifetimes are days
UNTOLD_RECORDS = 50_000  # records read before a few matches are returned: a quarter of a second
TRACE_BYTES_MAX = 4 << 30  # of the journal, for those few
UNMARKED_BYTES = 8 << 20  # of the journal: a finished message gets its mark one checkpoint later, within a second
TEXT_CHARACTERS = 1_000  # of a Message-ID, which the sender chose
UNKNOWN = "unknown"  # its envelope is garbage, and the record that says why is deleted


@dataclass(slots=True)
class _Fate:
    """Collects what the journal says about the end of a message."""

    statuses: set[int]
    finished_at: float | None = None
    why: str = ""
    begun: bool = False
    whole: bool = False  # its first START was seen

    def hear(self, body: Body) -> None:
        if isinstance(body, Delivery):
            self.statuses.update(verdict.status for verdict in body.verdicts)
        elif isinstance(body, Start):
            self.begun = True
            self.whole = self.whole or bool(body.generation == 0 and body.resting)
            self.statuses.update(verdict.status for verdict in body.owed)
            self.finished_at = None
        elif isinstance(body, Finish):
            self.finished_at, self.why = body.at, body.why
        elif isinstance(body, Passed):
            self.hear(body.delivery)
            self.hear(body.finish)
            self.begun = self.whole = True

    def hear_older(self, body: Body) -> None:
        """Adds a record that is older than all records added so far."""
        if not (isinstance(body, Finish) and self.finished_at is not None):
            self.hear(body)

    @property
    def lacking(self) -> bool:
        """Returns True if the archive may know more: the end, or an earlier bounce. A message without an end is in progress."""
        return not self.whole if self.finished_at is not None else not self.begun

    @property
    def state(self) -> str:
        """Returns the worst status of any recipient."""
        if Status.BOUNCED in self.statuses:
            return "bounced"
        if Status.EXPIRED in self.statuses:
            return "expired"
        if self.why == "deleted" or Status.DELETED in self.statuses:
            return "deleted"
        return "delivered" if Status.DELIVERED in self.statuses else UNKNOWN


class LaneSearch:
    """One search in progress, for at most ``limit`` messages from ``cursor`` on ("" is the beginning).

    ``cursor`` fits the hits taken so far; it is None when everything has been searched. ``examined`` counts records. Set
    ``stopping`` to end ``steps`` soon, with a cursor for the next page. Raises CursorError.
    """

    def __init__(
        self,
        browser: Browser,
        stretches: Mapping[str, Stretch],
        query: Query,
        cursor: str,
        limit: int,
        archive: Archive | None = None,
        *,
        passes_on: bool = False,
    ) -> None:
        """``passes_on``: messages may have been passed on while their clients waited; these are in the journal only."""
        self._browser = browser
        self._stretches = stretches
        self._matches = Matches(query, browser)
        self._queue_id = self._matches.queue_id
        self._limit = limit
        self._archive = archive
        self._trouble = Trouble()
        self._search_cursor = SearchCursor.read(cursor)
        self._lanes = sorted(stretches, key=lane_order)
        self._searched = sorted([*stretches, *([JOURNAL] if passes_on else [])], key=lane_order)
        self._told: set[str] = set()
        self._hits: list[Hit] = []
        self.cursor: str | None = cursor
        self.examined = 0
        self.stopping = False

    @property
    def note(self) -> str:
        """Returns what could not be searched, for a person; "" when everything could."""
        return str(self._trouble)

    @property
    def unread_files(self) -> int:
        """Returns how many files of events could not be read."""
        return self._trouble.count

    def take(self) -> list[Hit]:
        """Returns what was found since the last call."""
        hits, self._hits = self._hits, []
        return hits

    def steps(self) -> Steps[None]:
        """Searches; stops after each piece of work. Raises OSError."""
        if self._queue_id:
            yield from self._one()
            return
        if self._search_cursor.older is None:
            first = self._search_cursor.lane
            for lane in self._searched:
                if first and lane_order(lane) < lane_order(first):
                    continue
                over = yield from self._lane(lane)
                if over:
                    return
        if self._archive is not None:
            over = yield from self._elsewhere(self._archive, Window(), self._search_cursor.older or "")
            if over:
                return
        self.cursor = None

    def _elsewhere(self, archive: Archive, window: Window, place: str) -> Steps[bool]:
        """Searches the archive for messages that no lane holds; returns True if the page ends there."""
        self.cursor = self._search_cursor.elsewhere(place)
        for scanned in archive.arrivals(self._matches, window, place, self._search_cursor.has, self._trouble):
            left = list(scanned.found) if scanned is not None else []
            while left and len(self._told) < self._limit:
                count = min(OLDER_TOGETHER_MAX, self._limit - len(self._told))
                together, left = left[:count], left[count:]
                yield from self._tell_elsewhere([found for found, _ in together])
                self.cursor = self._search_cursor.elsewhere(together[-1][1])
            if scanned is not None:
                self.examined += scanned.examined
                if not left and not scanned.found:
                    self.cursor = self._search_cursor.elsewhere(scanned.place)
                if len(self._told) >= self._limit or self.stopping:
                    return True
            yield
        return False

    def _tell_elsewhere(self, found: Sequence[Found]) -> Steps[None]:
        """Returns hits from the archive, except messages that were found by a generation in a lane."""
        there = yield from self._envelopes({each.envelope.queue_id for each in found})
        gone = [
            each
            for each in found
            if not any(self._matches(other) for other, _ in there.get(each.envelope.queue_id, ()))
        ]
        yield from self._tell_gone(gone, there, elsewhere=True)

    def _one(self) -> Steps[None]:
        """Searches by queue id, which is in the indexes."""
        queue_id = self._queue_id
        there = yield from self._envelopes({queue_id})
        self.examined += len(there.get(queue_id, ()))
        matching = [found for found, _ in there.get(queue_id, ()) if self._matches(found)]
        if matching:
            lowest = min(matching, key=lambda found: found.envelope.generation)
            yield from self._tell_gone([lowest], there)
        elif (passed := (yield from self._passed_on())) is not None and self._matches(passed):
            yield from self._tell_gone([passed], there)
        elif self._archive is not None and (earliest := earliest_of(queue_id)):
            yield from self._elsewhere(self._archive, Window(earliest, earliest + FATE_S), "")
        self.cursor = None

    def _passed_on(self) -> Steps[Found | None]:
        """Returns the message with the queue id if it was passed on while its client waited: then the journal has it."""
        browser, queue_id = self._browser, self._queue_id
        with open_lane(browser.disk, browser.queue_directory, JOURNAL) as reader:
            for told in trace(reader, {queue_id}, earliest_of(queue_id), Trace(TRACE_BYTES_MAX)):
                if told is None:
                    yield
                    continue
                body = decode(told[1])
                if body is not None and body.queue_id == queue_id:
                    return Found(JOURNAL, told[1].offset, body.envelope) if isinstance(body, Passed) else None
        return None

    def _lane(self, lane: str) -> Steps[bool]:
        """Searches one lane, its garbage included; returns True if the page ends in it."""
        end = self._stretches[lane].end if lane in self._stretches else None
        end = WITHOUT_END if end is None else end
        matching: list[tuple[Found, bool]] = []
        untold = 0
        with open_lane(self._browser.disk, self._browser.queue_directory, lane) as reader:
            start = (reader.bases or (end,))[0]
            if lane == self._search_cursor.lane:
                start = max(start, self._search_cursor.offset)
            unread = [base for base in reader.bases if base >= (reader.base_for(start) or 0)]
            for record in reader.records(start, end) if start < end else ():
                if unread and record.offset >= unread[0]:
                    start = self._step_over(lane, start, reader, unread, record.offset)
                self.examined += 1
                untold += 1
                envelope = envelope_in(record)
                if envelope is not None:
                    found = Found(lane, record.offset, envelope)
                    if envelope.queue_id not in self._told and self._matches(found):
                        matching.append((found, record.live))
                enough = len(matching) >= min(TOGETHER_MAX, self._limit - len(self._told))
                if enough or self.stopping or (matching and untold >= UNTOLD_RECORDS):
                    yield from self._tell(matching, self._been(lane, start, record.end))
                    matching, untold = [], 0
                    if len(self._told) >= self._limit or self.stopping:
                        return True
                    yield
                elif not untold & 63:
                    if not matching:
                        self.cursor = self._been(lane, start, record.end)
                    yield
            if reader.bases:
                start = self._step_over(lane, start, reader, unread, WITHOUT_END)
                self._been(lane, start, WITHOUT_END)
        yield from self._tell(matching, self._been(lane, end, end))
        return len(self._told) >= self._limit

    def _step_over(self, lane: str, start: int, reader: LaneReader, unread: list[int], offset: int) -> int:
        """Returns the start of the part that is read without a hole: segments before ``offset`` may have been deleted unread.

        Removes the segments that were passed from ``unread``.
        """
        while unread and unread[0] <= offset:
            base = unread.pop(0)
            following = unread[0] if unread else WITHOUT_END
            if following <= offset and reader.segment(base) is None:
                self._been(lane, start, base)
                start = following if following < WITHOUT_END else base
        return start

    def _been(self, lane: str, start: int, end: int) -> str:
        """Records that the lane was read, and returns the cursor after that part."""
        if self._archive is not None:
            self._search_cursor.been(lane, start, end)
        return self._search_cursor.in_lane(lane, end)

    def _tell(self, matching: list[tuple[Found, bool]], cursor: str) -> Steps[None]:
        gone = []
        for found, live in matching:
            if self._rests(found, live):
                self._hit(found, self._browser.item(found, self._stretches[found.lane]).state, None)
            else:
                gone.append(found)
        if gone:
            there = yield from self._envelopes({found.envelope.queue_id for found in gone})
            first = [found for found in gone if self._speaks(found, there.get(found.envelope.queue_id, ()))]
            yield from self._tell_gone(first, there)
        self.cursor = cursor

    def _speaks(self, found: Found, others: Sequence[tuple[Found, bool]]) -> bool:
        """Returns True if the message is found by this generation."""
        for other, live in others:
            earlier = other.envelope.generation < found.envelope.generation
            if (earlier or self._rests(other, live)) and self._matches(other):
                return False
        return True

    def _tell_gone(
        self, gone: Sequence[Found], there: Mapping[str, Sequence[tuple[Found, bool]]], elsewhere: bool = False
    ) -> Steps[None]:
        """Adds hits for messages that do not rest any more, with how they ended. ``elsewhere``: found in the archive."""
        newest: dict[str, tuple[Found, bool]] = {}
        for queue_id, envelopes in there.items():
            newest[queue_id] = max(envelopes, key=lambda each: each[0].envelope.generation)
        ended: set[str] = set()
        working: set[str] = set()  # or their mark is about to be written
        for found in gone:
            last, live = newest.get(found.envelope.queue_id, (found, False))
            if live and last.lane in self._stretches and last.offset >= self._stretches[last.lane].start:
                if not self._rests(last, live):
                    working.add(found.envelope.queue_id)
            else:
                ended.add(found.envelope.queue_id)
        fates = {queue_id: _Fate(set()) for queue_id in ended | working}
        arrived_at = min((found.envelope.arrived_at for found in gone), default=0.0)
        if elsewhere:
            yield from self._hear_older(fates, ended, arrived_at)
        left = {queue_id for queue_id in ended if fates[queue_id].finished_at is None}
        yield from self._hear_journal(fates, left, 1 << 62)
        if not elsewhere:
            lacking = {queue_id for queue_id in ended if fates[queue_id].lacking}
            yield from self._hear_older(fates, lacking, arrived_at)
        yield from self._hear_journal(fates, working, UNMARKED_BYTES)
        for found in gone:
            queue_id = found.envelope.queue_id
            fate = fates.get(queue_id)
            last, live = newest.get(queue_id, (found, False))
            if fate is not None and fate.finished_at is not None:
                self._hit(found, fate.state, fate.finished_at)
            elif queue_id not in ended:
                self._hit(found, self._browser.item(last, self._stretches[last.lane]).state, None)
            else:
                self._hit(found, UNKNOWN, None)

    def _rests(self, found: Found, live: bool) -> bool:
        stretch = self._stretches.get(found.lane)
        return live and stretch is not None and found.offset >= stretch.runner

    def _envelopes(self, queue_ids: Collection[str]) -> Steps[dict[str, list[tuple[Found, bool]]]]:
        browser = self._browser
        earliest = min(map(earliest_of, queue_ids))
        there = yield from envelopes_of(browser.disk, browser.queue_directory, self._lanes, queue_ids, earliest)
        return there

    def _hear_older(self, fates: Mapping[str, _Fate], queue_ids: set[str], arrived_at: float) -> Steps[None]:
        """Adds the records that the archive holds of these messages."""
        if self._archive is None or not queue_ids:
            return
        window = Window(arrived_at - SLACK_S, arrived_at + FATE_S)
        for told in self._archive.bodies(queue_ids, 0, WITHOUT_END, window, self._trouble):
            if told is None:
                yield
            else:
                fates[told[1].queue_id].hear_older(told[1])

    def _hear_journal(self, fates: Mapping[str, _Fate], queue_ids: set[str], newest_bytes: int) -> Steps[None]:
        left = set(queue_ids)
        if not left:
            return
        browser = self._browser
        with open_lane(browser.disk, browser.queue_directory, JOURNAL) as reader:
            earliest = min(map(earliest_of, left))
            for told in trace(reader, left, earliest, Trace(TRACE_BYTES_MAX), newest_bytes):
                if told is None:
                    yield
                    continue
                body = decode(told[1])
                if body is not None and body.queue_id in queue_ids:
                    fates[body.queue_id].hear(body)
                    if isinstance(body, Finish | Passed):
                        left.discard(body.queue_id)

    def _hit(self, found: Found, state: str, finished_at: float | None) -> None:
        envelope = found.envelope
        if envelope.queue_id in self._told:
            return
        self._told.add(envelope.queue_id)
        self._hits.append(
            Hit(
                queue_id=envelope.queue_id,
                at=envelope.arrived_at,
                sender=envelope.sender,
                recipients=shown_recipients(envelope, found.matching or self._matches.address_in(found)),
                recipient_count=envelope.recipient_count,
                message_id=envelope.message_id[:TEXT_CHARACTERS],
                size_bytes=envelope.size_bytes,
                state=state,
                finished_at=finished_at,
            )
        )
