"""Browsing and finding: the queue read straight from its lanes, so that looking at it costs the manager nothing.

The cost of a page does not depend on the queue: reading begins at the cursor (a position) and stops when the page is full or
its budget is spent, also if the filter matches nothing. Every lane is read from its browse start to its durable end, and only
ENVELOPE records whose mark is live count; if a message appears twice on one page, the higher generation stays.

Nothing is locked: a message that moves between two pages may be listed twice or not at all. While no message moves, the items
of all pages are exactly the messages that ``size`` counts. Must not know: sockets, the manager, routes (a function that routes
unrouted recipients comes as an argument).

Keeps law: browse-matches-sizes (docs/laws.md).
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field

import msgspec
from msgspec import UNSET

from mailcore.envelope import Envelope, Recipient
from mailcore.log.disk import Disk
from mailcore.log.reader import LaneReader
from mailcore.log.record import Record, RecordType
from mailcore.log.segment import Damage
from mailcore.lookup.answers import DAMAGES_SHOWN, DESTINATIONS_SHOWN, RECIPIENTS_SHOWN, Item, Page, Selected
from mailcore.lookup.filter import Filter, Matcher
from mailcore.lookup.next_due import next_due
from mailcore.lookup.pattern import text_matcher
from mailcore.lookup.selection import Selection
from mailcore.mail_state import MailState, main_state
from mailcore.queue.aside import ranges_of, states_of
from mailcore.queue.lanes import DELETED, HOLD, LOCAL, is_incoming
from mailcore.queue.records import decode_envelope, decode_recipients

__all__ = [
    "Browser",
    "Budget",
    "CursorError",
    "Found",
    "Item",
    "Page",
    "Stretch",
    "envelope_of",
    "is_taken",
    "shown_recipients",
]

REASON_CHARACTERS = 500  # a reply line has at most 512 octets (RFC 5321 4.5.3.1.5)
FEW = 4  # up to this many ids, searching the indexes for each id is faster than reading every entry once
WITHOUT_END = 1 << 62  # "up to the end of the file": beyond any lane offset


class CursorError(ValueError):
    """Raised for a text that is not a cursor; the message is for a person."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """The part of a lane to read. ``end`` None: up to the last valid record.

    ``replaced`` gives, by queue id, the generation of the newest envelope of messages that have moved; an older one that
    has no mark yet does not count. The manager marks them before it answers, so it leaves this empty.
    """

    start: int
    runner: int
    end: int | None
    replaced: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits the cost of one page. The default of a fifth of a second lets a few slow filters share a core."""

    items: int = 100
    records: int = 100_000
    seconds: float = 0.2


@dataclass(frozen=True, slots=True)
class Found:
    """An envelope and its position."""

    lane: str
    offset: int
    envelope: Envelope
    matching: str = ""  # the recipient that was asked for, if it is known already


def lane_order(lane: str) -> tuple[int, int, str]:
    """Sorts lanes: incoming, local, retry by interval, others, hold, deleted. The order is fixed: cursors rely on it."""
    group = 3
    if is_incoming(lane):
        group = 0
    elif lane == LOCAL:
        group = 1
    elif lane.startswith("retry."):
        group = 2
    elif lane == HOLD:
        group = 4
    elif lane == DELETED:
        group = 5
    number = lane.rpartition(".")[2]
    return group, int(number) if number.isascii() and number.isdigit() else 0, lane


def _unrouted(recipient: Recipient) -> str:
    return ""


@dataclass
class Browser:
    """Reads the lanes below ``queue_directory``; keeps nothing open between calls. May be used by several threads."""

    disk: Disk
    queue_directory: str
    clock: Callable[[], float]  # wall clock
    monotonic: Callable[[], float]
    route_of: Callable[[Recipient], str] = field(default=_unrouted)

    def page(
        self,
        stretches: Mapping[str, Stretch],
        filter_: Filter,
        cursor: str,
        budget: Budget,
        selection: Selection | None = None,
    ) -> Page:
        """Returns the page that begins at ``cursor`` ("" is the beginning); with ``selection``, only messages of which it
        selects recipients, and which these are. Raises CursorError, OSError."""
        lanes = _lanes(stretches, filter_)
        first, offset = _parse_cursor(cursor)
        if first:
            lanes = [lane for lane in lanes if lane_order(lane) >= lane_order(first)]
        matcher = Matcher(filter_, self.clock(), self.route_of)
        page = _PageInMaking(budget, self.monotonic() + budget.seconds, selection)
        for lane in lanes:
            stretch = stretches[lane]
            start = max(stretch.start, offset) if lane == first else stretch.start
            end = self._read_lane(lane, start, stretch, matcher, page)
            if end is not None:
                return page.done(f"{lane}:{end}")
        return page.done(None)

    def find(self, stretches: Mapping[str, Stretch], queue_ids: Collection[str]) -> dict[str, Found]:
        """Returns the live envelope with the highest generation of each message; messages without one are left out."""
        found: dict[str, Found] = {}
        if not queue_ids:
            return found
        wanted = frozenset(queue_ids)
        for lane in sorted(stretches, key=lane_order):
            stretch = stretches[lane]
            with self._reader(lane, []) as reader:
                for record in _search(reader, wanted, stretch):
                    envelope = envelope_of(record)
                    if envelope is None or not record.live or envelope.queue_id not in wanted:
                        continue
                    before = found.get(envelope.queue_id)
                    if before is None or before.envelope.generation < envelope.generation:
                        found[envelope.queue_id] = Found(lane, record.offset, envelope)
        return found

    def read(self, lane: str, offset: int) -> Found | None:
        """Returns the envelope at a position; None if it cannot be read there any more."""
        with self._reader(lane, []) as reader:
            record = reader.read(offset, WITHOUT_END)
            envelope = None if record is None else envelope_of(record)
            return None if envelope is None else Found(lane, offset, envelope)

    def recipients(self, found: Found) -> Iterator[tuple[Recipient, ...]]:
        """Yields all recipients of a message, a record at a time: RECIPIENTS records first, then those of the envelope."""
        with self._reader(found.lane, []) as reader:
            for batch in found.envelope.batches:
                yield from _batch(reader, batch, found.offset)
        yield found.envelope.recipients

    def item(self, found: Found, stretch: Stretch | None) -> Item:
        """Returns the envelope as an item of a list; ``stretch`` is that of its lane, None if unknown."""
        runner = stretch.runner if stretch is not None else 0
        return _item(found.lane, found.offset, runner, found.envelope, self.clock())

    def _reader(self, lane: str, damage: list[Damage]) -> _OpenLane:
        return _OpenLane(LaneReader(self.disk, os.path.join(self.queue_directory, lane), damage.append))

    def _read_lane(self, lane: str, start: int, stretch: Stretch, matcher: Matcher, page: _PageInMaking) -> int | None:
        """Continues reading one lane; returns where the next page begins, or None at the end of the lane."""
        damage: list[Damage] = []
        now = self.clock()
        end = stretch.end if stretch.end is not None else WITHOUT_END
        if start >= end:
            return None
        stopped = None
        with self._reader(lane, damage) as reader:
            bounds = matcher.bounds
            records: Iterator[Record | int] = (
                reader.records(start, end) if bounds is None else reader.records_within(start, end, bounds)
            )
            for record in records:
                if isinstance(record, int):  # nothing in front of it matches
                    if self.monotonic() >= page.until:
                        stopped = record
                        break
                    continue
                page.examined += 1
                if record.live and record.type == RecordType.ENVELOPE:
                    envelope = envelope_of(record)
                    if envelope is None:
                        page.damage.append(f"{lane}:{record.offset}: an envelope that cannot be read")
                    elif stretch.replaced.get(envelope.queue_id, -1) > envelope.generation:
                        pass  # it counts where it moved to
                    elif matcher.of_envelope(envelope) and (
                        found := self._match(reader, Found(lane, record.offset, envelope), matcher, page)
                    ):
                        page.add(
                            _item(lane, record.offset, stretch.runner, envelope, now, found.address), found.selected
                        )
                if page.full or (page.examined & 63 == 0 and self.monotonic() >= page.until):
                    stopped = record.end
                    break
        for each in damage:
            # At the very start the cursor was not a record's offset; at an unknown end a record is being written.
            if each.offset != start and not (stretch.end is None and each.end >= _file_end(self.disk, each.path)):
                page.damage.append(f"{lane}:{each.offset} to {each.end}: {each.what}")
        return stopped

    def _match(self, reader: LaneReader, found: Found, matcher: Matcher, page: _PageInMaking) -> _Match | None:
        """Returns what matches of a message; None if nothing does."""
        envelope, selection = found.envelope, page.selection
        if selection is None:
            if not matcher.asks_recipients:
                return _Match("")
            address = next((each.address for each in self._matching(reader, found, matcher, page)), None)
            return None if address is None else _Match(address)
        if not selection.may_fit(envelope, found.lane):
            return None
        if not matcher.asks_recipients and selection.fits_all(envelope, found.lane):
            return _Match("", Selected(envelope.recipient_count))
        numbers = [
            each.number
            for each in self._matching(reader, found, matcher, page)
            if selection.fits(each, envelope, found.lane)
        ]
        if not numbers:
            return None
        some = matcher.asks_recipients or len(numbers) < envelope.recipient_count
        return _Match("", Selected(len(numbers), ranges_of(sorted(numbers)) if some else None))

    def _matching(self, reader: LaneReader, found: Found, matcher: Matcher, page: _PageInMaking) -> Iterator[Recipient]:
        """Yields the recipients that match."""
        because = found.envelope.held_because
        for each in found.envelope.recipients:
            if matcher.of_recipient(each, because):
                yield each
        for batch in found.envelope.batches:
            page.examined += 1
            for recipients in _batch(reader, batch, found.offset):
                for each in recipients:
                    if matcher.of_recipient(each, because):
                        yield each


@dataclass(frozen=True, slots=True)
class _Match:
    """Holds the match of a message: the first matching address, if addresses were asked for, and the selected recipients."""

    address: str
    selected: Selected | None = None


class _OpenLane:
    """A LaneReader that is closed at the end of a block."""

    def __init__(self, reader: LaneReader) -> None:
        self._reader = reader

    def __enter__(self) -> LaneReader:
        return self._reader

    def __exit__(self, *_: object) -> None:
        self._reader.close()


class _PageInMaking:
    def __init__(self, budget: Budget, until: float, selection: Selection | None) -> None:
        self.budget = budget
        self.until = until
        self.selection = selection
        self.examined = 0
        self.damage: list[str] = []
        self._items: dict[str, Item] = {}
        self._selected: dict[str, Selected] = {}

    def add(self, item: Item, selected: Selected | None) -> None:
        before = self._items.get(item.queue_id)
        if before is None or before.generation < item.generation:
            self._items.pop(item.queue_id, None)
            self._items[item.queue_id] = item
            if selected is not None:
                self._selected[item.queue_id] = selected

    @property
    def full(self) -> bool:
        return len(self._items) >= self.budget.items or self.examined >= self.budget.records

    def done(self, cursor: str | None) -> Page:
        return Page(
            items=list(self._items.values()),
            cursor=cursor,
            examined=self.examined,
            damage=self.damage[:DAMAGES_SHOWN],
            selected=self._selected,
        )


def _lanes(stretches: Mapping[str, Stretch], filter_: Filter) -> list[str]:
    if filter_.lane is UNSET:
        return sorted((name for name in stretches if name != DELETED), key=lane_order)
    return sorted(filter(text_matcher(filter_.lane), stretches), key=lane_order)


def _parse_cursor(cursor: str) -> tuple[str, int]:
    if not cursor:
        return "", 0
    lane, colon, offset = cursor.rpartition(":")
    if not colon or not lane or not (offset.isascii() and offset.isdigit()) or len(offset) > 19:
        raise CursorError(f"{cursor!r} is not a cursor; allowed: the cursor that a page returned (lane:offset)")
    return lane, int(offset)


def _search(reader: LaneReader, wanted: frozenset[str], stretch: Stretch) -> Iterator[Record]:
    end = stretch.end if stretch.end is not None else WITHOUT_END
    if len(wanted) > FEW:
        yield from reader.find_all(wanted, stretch.start, end)
        return
    for queue_id in wanted:
        yield from reader.find(queue_id, stretch.start, end)


def envelope_of(record: Record) -> Envelope | None:
    """Returns the envelope; None if the record is another or cannot be read."""
    try:
        return decode_envelope(record.body) if record.type == RecordType.ENVELOPE else None
    except (msgspec.MsgspecError, struct.error):
        return None


def _batch(reader: LaneReader, offset: int, envelope_at: int) -> Iterator[tuple[Recipient, ...]]:
    record = reader.read(offset, envelope_at)  # batches lie before their envelope
    if record is None or record.type != RecordType.RECIPIENTS:
        return
    try:
        yield decode_recipients(record.body)
    except msgspec.MsgspecError:
        return


def _file_end(disk: Disk, path: str) -> int:
    try:
        return int(os.path.basename(path).removesuffix(".seg")) + disk.size_of(path)
    except OSError:
        return 0


def _item(lane: str, offset: int, runner: int, envelope: Envelope, now: float, matching: str = "") -> Item:
    """Returns the item of a list; ``matching`` is the address that was asked for, which is then shown.

    What the runner has passed is taken as active; the manager knows more of it.
    """
    active = _is_taken(lane, offset, runner)
    states = {str(MailState.ACTIVE): envelope.recipient_count} if active else states_of(envelope, lane, now)
    due = next_due(envelope)
    destinations = dict.fromkeys(each.route or each.destination for each in envelope.recipients)
    destinations.update(dict.fromkeys(envelope.resting))
    destinations.pop("", None)
    return Item(
        queue_id=envelope.queue_id,
        lane=lane,
        offset=offset,
        generation=envelope.generation,
        state=main_state(states),
        states=states,
        active=active,
        sender=envelope.sender,
        recipients=shown_recipients(envelope, matching),
        recipient_count=envelope.recipient_count,
        size_bytes=envelope.size_bytes,
        arrived_at=envelope.arrived_at,
        due_at=due.at,
        attempts=envelope.attempts,
        reason=due.reason[:REASON_CHARACTERS],
        destinations=list(destinations)[:DESTINATIONS_SHOWN],
    )


def is_taken(found: Found, stretch: Stretch) -> bool:
    """Returns True if the runner has passed the message: it is active, or its pass has ended."""
    return _is_taken(found.lane, found.offset, stretch.runner)


def _is_taken(lane: str, offset: int, runner: int) -> bool:
    return offset < runner and lane not in (HOLD, DELETED)


def shown_recipients(envelope: Envelope, matching: str = "") -> list[str]:
    """Returns the first recipients for a list; ``matching``, the address that was asked for, is in front of them."""
    shown = [each.address for each in envelope.recipients[:RECIPIENTS_SHOWN]]
    return [matching, *(each for each in shown if each != matching)][:RECIPIENTS_SHOWN] if matching else shown
