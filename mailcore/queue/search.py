"""Searching for messages, those that are gone included: every envelope whose record still exists is looked at.

A message is found once, although several of its generations may still be there: by the one that rests in a lane, when that
matches, else by the lowest that does, which has the most recipients. What became of those that no longer rest is looked up
in the journal, for a handful at a time. A search stops after each piece (``tracing.Steps``) and goes on at a cursor, so that
looking for what is nowhere costs nobody else more than a search that finds something.

Nothing is locked: a message that moves between two pages may be found twice or not at all. Must not know: sockets, the
manager.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from mailcore.envelope import Status
from mailcore.queue.browse import RECIPIENTS_SHOWN, WITHOUT_END, Browser, CursorError, Found, Stretch, lane_order
from mailcore.queue.lanes import JOURNAL
from mailcore.queue.matching import NULL_SENDER, text_matcher
from mailcore.queue.records import Delivery, Finish, Start
from mailcore.queue.tracing import (
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

__all__ = ["Hit", "LaneSearch", "Wanted"]

TOGETHER_MAX = 20  # messages that are looked up in one going through indexes and journal
UNTOLD_RECORDS = 50_000  # looked at before a few matches are told: a quarter of a second
TRACE_BYTES_MAX = 4 << 30  # of the journal, for those few
UNMARKED_BYTES = 8 << 20  # of the journal: what is finished has its mark a checkpoint later, and that is a second
TEXT_CHARACTERS = 1_000  # of a Message-ID: a stranger wrote it
UNKNOWN = "unknown"  # its envelope is garbage, and the record that says why is gone


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What is searched for; all that is given must hold. Texts as in ``matching.Filter``; ``queue_id`` is one, whole."""

    queue_id: str = ""
    message_id: str = ""  # with or without its angle brackets
    sender: str = ""
    recipient: str = ""


class Hit(msgspec.Struct, kw_only=True):
    """A message as a search shows it. ``state``: those of ``browse.State``, or how it ended: delivered, bounced, expired,
    deleted (then with ``finished_at``), unknown."""

    queue_id: str
    at: float  # arrival, wall clock
    sender: str
    recipients: list[str]  # the first RECIPIENTS_SHOWN
    recipient_count: int
    message_id: str
    size_bytes: int
    state: str
    finished_at: float | None


@dataclass(slots=True)
class _Fate:
    """What the journal says became of a message."""

    statuses: set[int]
    finished_at: float | None = None
    why: str = ""

    def hear(self, body: Body) -> None:
        if isinstance(body, Delivery):
            self.statuses.update(verdict.status for verdict in body.verdicts)
        elif isinstance(body, Start):
            self.statuses.update(verdict.status for verdict in body.refused)
            self.finished_at = None
        elif isinstance(body, Finish):
            self.finished_at, self.why = body.at, body.why

    @property
    def state(self) -> str:
        """The worst that happened to anybody."""
        if Status.BOUNCED in self.statuses:
            return "bounced"
        if Status.EXPIRED in self.statuses:
            return "expired"
        if self.why == "deleted" or Status.DELETED in self.statuses:
            return "deleted"
        return "delivered" if Status.DELIVERED in self.statuses else UNKNOWN


class LaneSearch:
    """See ``past.Search``."""

    def __init__(
        self, browser: Browser, stretches: Mapping[str, Stretch], wanted: Wanted, cursor: str, limit: int
    ) -> None:
        self._browser = browser
        self._stretches = stretches
        self._matches = _Matches(wanted, browser)
        self._queue_id = wanted.queue_id
        self._limit = limit
        self._first, self._offset = _place_of(cursor)
        self._lanes = sorted(stretches, key=lane_order)
        self._told: set[str] = set()
        self._hits: list[Hit] = []
        self.cursor: str | None = cursor
        self.examined = 0
        self.stopping = False

    def take(self) -> list[Hit]:
        hits, self._hits = self._hits, []
        return hits

    def steps(self) -> Steps[None]:
        if self._queue_id:
            yield from self._one()
            return
        for lane in self._lanes:
            if self._first and lane_order(lane) < lane_order(self._first):
                continue
            over = yield from self._lane(lane)
            if over:
                return
        self.cursor = None

    def _one(self) -> Steps[None]:
        """By queue id, which the indexes have."""
        queue_id = self._queue_id
        there = yield from self._envelopes({queue_id})
        self.examined += len(there.get(queue_id, ()))
        matching = [found for found, _ in there.get(queue_id, ()) if self._matches(found)]
        if matching:
            lowest = min(matching, key=lambda found: found.envelope.generation)
            yield from self._tell_gone([lowest], there)
        self.cursor = None

    def _lane(self, lane: str) -> Steps[bool]:
        """Reads on in one lane, its garbage included; whether the page ends in it."""
        end = self._stretches[lane].end
        end = WITHOUT_END if end is None else end
        matching: list[tuple[Found, bool]] = []
        untold = 0
        with open_lane(self._browser.disk, self._browser.queue_directory, lane) as reader:
            start = self._offset if lane == self._first else (reader.bases or (0,))[0]
            for record in reader.records(start, end) if start < end else ():
                self.examined += 1
                untold += 1
                envelope = envelope_in(record)
                if envelope is not None:
                    found = Found(lane, record.offset, envelope)
                    if envelope.queue_id not in self._told and self._matches(found):
                        matching.append((found, record.live))
                enough = len(matching) >= min(TOGETHER_MAX, self._limit - len(self._told))
                if enough or self.stopping or (matching and untold >= UNTOLD_RECORDS):
                    yield from self._tell(matching, f"{lane}:{record.end}")
                    matching, untold = [], 0
                    if len(self._told) >= self._limit or self.stopping:
                        return True
                    yield
                elif not untold & 63:
                    if not matching:
                        self.cursor = f"{lane}:{record.end}"
                    yield
        yield from self._tell(matching, f"{lane}:{end}")
        return len(self._told) >= self._limit

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
        """Whether this is the generation by which its message is found."""
        for other, live in others:
            earlier = other.envelope.generation < found.envelope.generation
            if (earlier or self._rests(other, live)) and self._matches(other):
                return False
        return True

    def _tell_gone(self, gone: Sequence[Found], there: Mapping[str, Sequence[tuple[Found, bool]]]) -> Steps[None]:
        """Those that no longer rest, or by a generation that no longer does."""
        newest: dict[str, tuple[Found, bool]] = {}
        for queue_id, envelopes in there.items():
            newest[queue_id] = max(envelopes, key=lambda each: each[0].envelope.generation)
        ended: set[str] = set()
        working: set[str] = set()  # or their mark is just about to be written
        for found in gone:
            last, live = newest.get(found.envelope.queue_id, (found, False))
            if live and last.lane in self._stretches and last.offset >= self._stretches[last.lane].start:
                if not self._rests(last, live):
                    working.add(found.envelope.queue_id)
            else:
                ended.add(found.envelope.queue_id)
        fates = yield from self._fates(ended, 1 << 62)
        fates |= yield from self._fates(working, UNMARKED_BYTES)
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

    def _fates(self, queue_ids: set[str], newest_bytes: int) -> Steps[dict[str, _Fate]]:
        fates = {queue_id: _Fate(set()) for queue_id in queue_ids}
        if not queue_ids:
            return fates
        left = set(queue_ids)
        browser = self._browser
        with open_lane(browser.disk, browser.queue_directory, JOURNAL) as reader:
            earliest = min(map(earliest_of, queue_ids))
            for told in trace(reader, left, earliest, Trace(TRACE_BYTES_MAX), newest_bytes):
                if told is None:
                    yield
                    continue
                body = decode(told[1])
                if body is not None and body.queue_id in fates:
                    fates[body.queue_id].hear(body)
                    if isinstance(body, Finish):
                        left.discard(body.queue_id)
        return fates

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
                recipients=[each.address for each in envelope.recipients[:RECIPIENTS_SHOWN]],
                recipient_count=envelope.recipient_count,
                message_id=envelope.message_id[:TEXT_CHARACTERS],
                size_bytes=envelope.size_bytes,
                state=state,
                finished_at=finished_at,
            )
        )


class _Matches:
    """The tests made of what is wanted, cheapest first."""

    def __init__(self, wanted: Wanted, browser: Browser) -> None:
        self._browser = browser
        self._null_sender = wanted.sender == NULL_SENDER
        self._sender = None if self._null_sender else text_matcher(wanted.sender)
        self._message_id = text_matcher(_bare(wanted.message_id))
        self._recipient = text_matcher(wanted.recipient)

    def __call__(self, found: Found) -> bool:
        envelope = found.envelope
        if self._null_sender and envelope.sender:
            return False
        if self._sender is not None and not self._sender(envelope.sender):
            return False
        if self._message_id is not None and not self._message_id(_bare(envelope.message_id)):
            return False
        return self._recipient is None or self._has_recipient(self._recipient, found)

    def _has_recipient(self, matches: Callable[[str], bool], found: Found) -> bool:
        if any(matches(recipient.address) for recipient in found.envelope.recipients):
            return True
        if not found.envelope.batches:
            return False
        return any(matches(recipient.address) for batch in self._browser.recipients(found) for recipient in batch)


def _bare(message_id: str) -> str:
    """Without the angle brackets, which people leave out."""
    return message_id.strip().removeprefix("<").removesuffix(">")


def _place_of(cursor: str) -> tuple[str, int]:
    if not cursor:
        return "", 0
    lane, colon, offset = cursor.rpartition(":")
    if not colon or not lane or not (offset.isascii() and offset.isdigit()) or len(offset) > 19:
        raise CursorError(f"{cursor!r} is no cursor; allowed: what a search gave as its cursor")
    return lane, int(offset)
