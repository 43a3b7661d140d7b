"""The queue as it was at a moment, from events.

A message was queued at a moment if it arrived before and some recipient had no final verdict yet. Journal files are read from
the moment backwards, by column; the ends found in them are kept until the arrival that they belong to is read. An arrival of
which more recipients came than ended is queued. Reading stops where what was found agrees with the count of the queue before
the moment (``cuts``), brought up by what came and ended since; so it goes back as far as the oldest mail, and no further.

The records of these messages are read a chunk at a time, for ``PastMessage``.

Laws
- In memory are: the place of each queued message (about 60 bytes), the ends whose arrivals are not read yet (those of about an
  hour), some columns of a row group, and the states of CHUNK_MAX messages.
- Each row counts once, also if its stretch was exported again in another range.
- A file that cannot be read is reported, and the balance shows it. A file that is missing behind the count is reported: the
  balance does not show it.

Keeps law: past-balances (docs/laws.md).
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Generator, Iterator, Sequence
from itertools import islice, repeat
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mailcore.envelope import Envelope, Recipient, Status
from mailcore.events.read.arrivals import Row, envelopes_at, names_in
from mailcore.events.read.cuts import CountedQueue
from mailcore.events.read.files import EventFile, EventFiles, words_of
from mailcore.events.read.rows import DAMAGED, Group, of_kind, opened, shared
from mailcore.events.schema import CHECKSUM_WRAPS
from mailcore.lookup.archive import Balance, Then, Trouble, Window
from mailcore.lookup.browse import CursorError
from mailcore.lookup.past_message import ADD_RECIPIENTS, PastMessage
from mailcore.lookup.tracing import SLACK_S, Steps
from mailcore.queue.lanes import JOURNAL, tells_of_mail
from mailcore.queue.records import Administrative

__all__ = ["Queued", "find_queued"]

QUEUED_MAX = 2_000_000  # messages: some 120 MB; more are not read
ENDS_MAX = 4_000_000  # messages with ends and no arrival yet; far more than an hour has
CHUNK_MIN = 200  # messages whose state is read together: at first a page, then more
CHUNK_MAX = 50_000  # about 50 MB
NAMED_MAX = 1_000  # recipients of one message whose addresses are read, if no address is asked for
_STATUSES = {status.name.lower(): status for status in Status}
_TELLING = ("attempt", "order", "replaced")  # kinds of the journal that change a message's state
_IDS = pa.schema([("id", pa.string()), ("n", pa.int64())])


class _Arrivals(NamedTuple):
    """A file with arrivals that wait until all later rows of the journal were read."""

    first_at: float
    last_at: float
    file: EventFile


class _JournalGroup(NamedTuple):
    """A row group of the journal, and what its statistics say."""

    number: int
    kind: str
    ids: tuple[str, str] | None
    last_at: float


class _Ends:
    """Counts, by queue id, how many recipients ended; added recipients count as less."""

    def __init__(self) -> None:
        self._parts: list[Any] = []
        self._table = _IDS.empty_table()

    def __len__(self) -> int:
        return sum(int(part.num_rows) for part in (self._table, *self._parts))

    def add(self, ids: Any, counts: Any) -> None:
        self._parts.append(pa.Table.from_arrays([ids, counts.cast(pa.int64())], schema=_IDS))

    def take(self, ids: Any) -> Any:
        """Returns the counts of messages, 0 of those without any, and forgets them."""
        if self._parts:
            whole = pa.concat_tables([self._table, *self._parts])
            summed = whole.group_by("id", use_threads=False).aggregate([("n", "sum")])
            self._table = summed.select(["id", "n_sum"]).rename_columns(["id", "n"])
            self._parts = []
        known = self._table["id"].combine_chunks()
        at = pc.index_in(ids, value_set=known)
        counts = pc.fill_null(self._table["n"].combine_chunks().take(at), 0)
        self._table = self._table.filter(pc.invert(pc.is_in(known, value_set=ids)))
        return counts


class _Scan:
    """Reads backwards until the queue of the moment is found."""

    def __init__(self, files: EventFiles, at: float, count: CountedQueue | None, trouble: Trouble) -> None:
        self.files, self.at, self.count = files, at, count
        self._trouble = trouble
        self._ends = _Ends()
        self._pending: list[_Arrivals] = []
        self._starts: dict[str, dict[int, EventFile]] = {}  # of a stretch with several days: the file of the first
        self._frontier = float("inf")  # all rows of the journal since then are read
        self.journal: list[tuple[EventFile, list[_JournalGroup]]] = []  # the newest first
        self.arrivals: list[EventFile] = []  # those with a queued message
        self.tables: list[Any] = []
        self.messages = 0
        self.found = self._sum = 0  # recipients, and their checksum
        self.expected = 0 if count is None else count.recipients
        self._expected_sum = 0 if count is None else count.checksum
        self.cut_short = ""

    @property
    def agrees(self) -> bool:
        """Returns whether what was found is what the count says must be there."""
        same_sum = (self._sum - self._expected_sum) % CHECKSUM_WRAPS == 0
        return self.count is not None and self.found == self.expected and same_sum

    def run(self) -> Steps[None]:
        days = self.files.days(Window(0.0, self.at))
        for after in self.files.days(Window(self.at))[:2]:  # a stretch that continues beyond midnight
            self._list(after)
        for day in reversed(days):
            of_day = self._list(day)
            for file in of_day:
                if file.lane != JOURNAL:
                    self._note(file)
            yield
            for file in sorted((each for each in of_day if each.lane == JOURNAL), key=lambda each: -each.start):
                yield from self._read_ends(file)
                yield from self._settle(self._frontier + SLACK_S)
                if self._is_over():
                    return
        yield from self._settle(float("-inf"))

    def _list(self, day: str) -> list[EventFile]:
        of_day = self.files.of_day(day)
        for file in of_day:
            self._starts.setdefault(file.lane, {})[file.start] = file
        return of_day

    def note_gaps(self) -> Steps[None]:
        """Notes the parts of lanes that no file has, between the count and the moment. Neither side of the balance has their
        arrivals and ends, so it would agree without them."""
        if self.count is None:
            return
        for lane, files in sorted(self._starts.items()):
            if not tells_of_mail(lane):
                continue
            at = self.count.lanes.get(lane, min(files))
            first = max((start for start in files if start <= at), default=0)
            for start in sorted(each for each in files if each >= first):
                try:
                    end, began_at = _stretch(files[start])
                except DAMAGED as error:
                    self._trouble.add(words_of(files[start], error))
                    break
                if began_at > self.at:
                    break
                if start > at:
                    self._trouble.add(f"{lane}: {at} to {start}: no event file has it")
                at = max(at, end)
                yield

    def upto(self, file: EventFile) -> int:
        """Returns the offset from which on another file has the rows."""
        return min((start for start in self._starts.get(file.lane, ()) if start > file.start), default=1 << 62)

    def _note(self, file: EventFile) -> None:
        """Puts a file into the line of those whose arrivals wait."""
        try:
            with opened(file.path) as groups:
                self._note_groups(file, [group for group, _ in of_kind(groups, "accepted")])
        except DAMAGED as error:
            self._trouble.add(words_of(file, error))

    def _note_groups(self, file: EventFile, groups: Sequence[Group]) -> None:
        bounds = [group.bounds("at") or (0.0, float("inf")) for group in groups]
        if bounds:
            first, last = min(each[0] for each in bounds), max(each[1] for each in bounds)
            self._pending.append(_Arrivals(first, last, file))

    def _is_over(self) -> bool:
        """Returns whether nothing more has to be read."""
        if self.messages > QUEUED_MAX:
            self.cut_short = f"more than {QUEUED_MAX} messages were queued"
        elif len(self._ends) > ENDS_MAX:
            self.cut_short = f"the arrivals of more than {ENDS_MAX} messages are missing"
        if self.cut_short:
            return True
        if not self.agrees or self.count is None or self._frontier > self.count.at - 2 * SLACK_S:
            return False
        return not any(each.last_at >= self.count.at - SLACK_S for each in self._pending)

    def mask(self, file: EventFile, offsets: Any, ats: Any) -> Any:
        """Returns which rows are of before the moment, each once."""
        there = pc.or_(pc.less_equal(ats, self.at), pc.less(offsets, self._counted(file)))
        return pc.fill_null(pc.and_(there, pc.less(offsets, self.upto(file))), False)

    def _counted(self, file: EventFile) -> int:
        """Returns the offset up to which the count has the rows of the lane; 0 without one."""
        return 0 if self.count is None else self.count.lanes.get(file.lane, 0)

    def _since(self, file: EventFile, ids: Any, offsets: Any, counts: Any, sign: int) -> None:
        """Adds what came (1) or ended (-1) since the count to what is expected."""
        if self.count is None:
            return
        late = pc.greater_equal(offsets, self._counted(file))
        ids, counts = ids.filter(late), counts.filter(late)
        if len(ids):
            self.expected += sign * (pc.sum(counts).as_py() or 0)
            self._expected_sum += sign * _checksum(ids, counts)

    # -- the journal

    def _read_ends(self, file: EventFile) -> Steps[None]:
        told: list[_JournalGroup] = []
        try:
            with opened(file.path) as groups:
                self._note_groups(file, [group for group, _ in of_kind(groups, "accepted")])
                for group, kind in of_kind(groups, *_TELLING):
                    first, last = group.bounds("at") or (0.0, float("inf"))
                    self._frontier = min(self._frontier, first)
                    told.append(_JournalGroup(group.number, kind, group.bounds("queue_id"), last))
                    if kind == "attempt":
                        self._ended(file, group)
                    elif kind == "order":
                        self._added(file, group)
                    yield
        except DAMAGED as error:
            self._trouble.add(words_of(file, error))
        if told:
            self.journal.append((file, told))

    def _ended(self, file: EventFile, group: Group) -> None:
        for _, batch in group.batches(("queue_id", "offset", "at", "status")):
            ended = self.mask(file, batch.column("offset"), batch.column("at"))
            ended = pc.and_(ended, pc.not_equal(pc.fill_null(batch.column("status"), ""), "deferred"))
            ids = pc.fill_null(batch.column("queue_id").filter(ended), "")
            ones = pa.repeat(pa.scalar(1, pa.int64()), len(ids))
            self._ends.add(ids, ones)
            self._since(file, ids, batch.column("offset").filter(ended), ones, -1)

    def _added(self, file: EventFile, group: Group) -> None:
        for _, batch in group.batches(("queue_id", "offset", "at", "operation", "arguments")):
            adds = self.mask(file, batch.column("offset"), batch.column("at"))
            adds = pc.and_(adds, pc.equal(pc.fill_null(batch.column("operation"), ""), ADD_RECIPIENTS))
            if not pc.any(adds).as_py():
                continue
            ids = pc.fill_null(batch.column("queue_id").filter(adds), "")
            lists = (_arguments(text).get("recipients") for text in batch.column("arguments").filter(adds).to_pylist())
            counts = pa.array([len(each) if isinstance(each, list) else 0 for each in lists], pa.int64())
            self._ends.add(ids, pc.negate(counts))
            self._since(file, ids, batch.column("offset").filter(adds), counts, 1)

    # -- arrivals

    def _settle(self, since: float) -> Steps[None]:
        """Reads the arrivals whose messages have no row in the journal that was not read."""
        ready = sorted((each for each in self._pending if each.first_at >= since), reverse=True)
        self._pending = [each for each in self._pending if each.first_at < since]
        for each in ready:
            if each.first_at <= self.at or self._counted(each.file) > each.file.start:
                try:
                    self._read_arrivals(each.file)
                except DAMAGED as error:
                    self._trouble.add(words_of(each.file, error))
            yield
            if self.messages > QUEUED_MAX:
                return

    def _read_arrivals(self, file: EventFile) -> None:
        columns: list[list[Any]] = [[], [], [], [], []]
        with opened(file.path) as groups:
            for group, _ in of_kind(groups, "accepted"):
                for first, batch in group.batches(("queue_id", "offset", "part", "at", "recipient_count")):
                    wanted = self.mask(file, batch.column("offset"), batch.column("at"))
                    wanted = pc.and_(wanted, pc.equal(batch.column("part"), 0))
                    ids = pc.fill_null(batch.column("queue_id").filter(wanted), "")
                    counts = pc.fill_null(batch.column("recipient_count").filter(wanted), 0).cast(pa.int64())
                    offsets = batch.column("offset").filter(wanted)
                    self._since(file, ids, offsets, counts, 1)
                    rows = pa.array(range(first, first + batch.num_rows), pa.int64()).filter(wanted)
                    rows = pc.add(rows, group.number << 32)
                    arrived = batch.column("at").filter(wanted)
                    for column, part in zip(columns, (ids, arrived, counts, offsets, rows), strict=True):
                        column.append(part)
        if columns[0]:
            self._keep(file, *(pa.chunked_array(column).combine_chunks() for column in columns))

    def _keep(self, file: EventFile, ids: Any, arrived: Any, counts: Any, offsets: Any, rows: Any) -> None:
        left = pc.subtract(counts, self._ends.take(ids))
        queued = pc.greater(left, 0)
        ids, left = ids.filter(queued), left.filter(queued)
        if not len(ids):
            return
        number = pa.repeat(pa.scalar(len(self.arrivals), pa.int32()), len(ids))
        self.arrivals.append(file)
        self.messages += len(ids)
        self.found += pc.sum(left).as_py()
        self._sum += _checksum(ids, left)
        names = ["id", "arrived", "count", "offset", "row", "file"]
        others = [each.filter(queued) for each in (arrived, counts, offsets, rows)]
        self.tables.append(pa.Table.from_arrays([ids, *others, number], names=names))


class Queued:
    """``lookup.archive.QueueThen``."""

    def __init__(self, scan: _Scan, undo_s: float) -> None:
        self.at = scan.at
        self._undo_s = undo_s
        self._scan = scan
        table = pa.concat_tables(scan.tables).combine_chunks() if scan.tables else None
        scan.tables = []
        if table is not None:
            table = table.take(pc.sort_indices(table, [("arrived", "ascending"), ("id", "ascending")]))
        self._table: Any = table
        count = scan.count
        self.balance = Balance(
            scan.found,
            None if count is None else scan.expected,
            None if count is None else count.at,
            scan.agrees,
            scan.cut_short,
        )

    @property
    def messages(self) -> int:
        """Returns how many messages were queued, deleted ones included."""
        return 0 if self._table is None else int(self._table.num_rows)

    def walk(self, after: str, trouble: Trouble) -> Generator[list[Then] | None, None, None]:
        """Yields the messages in the order of their arrival, as ``QueueThen.walk``."""
        at = self._behind(after)
        size = CHUNK_MIN
        while at < self.messages:
            columns = self._table.slice(at, size).to_pydict()
            lanes = [self._scan.arrivals[number].lane for number in columns["file"]]
            told = [
                PastMessage(count, lane, arrived, self._undo_s)
                for count, lane, arrived in zip(columns["count"], lanes, columns["arrived"], strict=True)
            ]
            yield from self._tell(columns["id"], min(columns["arrived"]), told, trouble)
            places = zip(columns["file"], columns["offset"], columns["row"], strict=True)
            yield [
                Then(queue_id, arrived, message, f"{arrived!r}:{queue_id}", (file, offset, row >> 32, row & 0xFFFFFFFF))
                for queue_id, arrived, message, (file, offset, row) in zip(
                    columns["id"], columns["arrived"], told, places, strict=True
                )
            ]
            at += size
            size = min(size * 4, CHUNK_MAX)

    def _behind(self, after: str) -> int:
        if not after or self._table is None:
            return 0
        arrived, _, queue_id = after.partition(":")
        try:
            key = float(arrived), queue_id
        except ValueError:
            raise CursorError(f"{after[:50]!r} is not a cursor; allowed: the cursor that a page returned") from None
        ats, ids = self._table["arrived"], self._table["id"]
        low, high = 0, self.messages
        while low < high:
            middle = (low + high) // 2
            if (ats[middle].as_py(), ids[middle].as_py()) <= key:
                low = middle + 1
            else:
                high = middle
        return low

    def _tell(self, ids: Sequence[str], earliest: float, told: Sequence[PastMessage], trouble: Trouble) -> Steps[None]:
        """Tells these messages what the journal has about them, oldest first."""
        wanted = pa.array(ids, pa.string())
        low, high = min(ids), max(ids)
        for file, groups in reversed(self._scan.journal):
            needed = {
                each.number: each.kind
                for each in groups
                if each.last_at >= earliest - SLACK_S
                and (each.ids is None or (each.ids[0] <= high and low <= each.ids[1]))
            }
            if not needed:
                continue
            hits: list[tuple[Any, ...]] = []
            try:
                with opened(file.path) as there:
                    for group in there:
                        if group.number in needed:
                            hits += self._hits(file, group, needed[group.number], wanted)
                            yield
            except DAMAGED as error:
                trouble.add(words_of(file, error))
            hits.sort(key=itemgetter(0, 1))
            for _, _, number, kind, at, *row in hits:
                _TELL[kind](told[number], ids[number], at or 0.0, *row)

    def _hits(self, file: EventFile, group: Group, kind: str, wanted: Any) -> Iterator[tuple[Any, ...]]:
        """Yields (offset, part, number of the message, kind, time, its columns) of rows of these messages."""
        columns = _COLUMNS[kind]
        for _, batch in group.batches(("queue_id", "offset", "part", "at", *columns)):
            numbers = pc.index_in(batch.column("queue_id"), value_set=wanted)
            mask = pc.and_(pc.is_valid(numbers), self._scan.mask(file, batch.column("offset"), batch.column("at")))
            if not pc.any(mask).as_py():
                continue
            rows = batch.filter(mask)
            values = [
                shared(rows.column(name)) if name in _TEXTS else rows.column(name).to_pylist()
                for name in ("at", *columns)
            ]
            offsets, parts = rows.column("offset").to_pylist(), rows.column("part").to_pylist()
            yield from zip(offsets, parts, numbers.filter(mask).to_pylist(), repeat(kind), *values, strict=False)

    def envelopes(
        self, some: Sequence[Then], trouble: Trouble, *, all_recipients: bool = False
    ) -> Steps[dict[str, Envelope]]:
        """Returns their envelopes with the recipients that were left, as ``QueueThen.envelopes``."""
        found: dict[str, Envelope] = {}
        by_group: dict[tuple[int, int], list[Then]] = {}
        for each in some:
            by_group.setdefault((each.place[0], each.place[2]), []).append(each)
        for (number, group), those in by_group.items():
            file = self._scan.arrivals[number]
            those.sort(key=lambda each: each.place[3])
            rows = [Row(group, each.place[3], each.place[1]) for each in those]
            try:
                envelopes = envelopes_at(file.path, rows)
                for each, envelope in zip(those, envelopes, strict=True):
                    found[each.queue_id] = yield from self._with_recipients(file, each, envelope, all_recipients)
            except DAMAGED as error:
                trouble.add(words_of(file, error))
            yield
        return found

    def _with_recipients(
        self, file: EventFile, then: Then, envelope: Envelope, all_recipients: bool
    ) -> Steps[Envelope]:
        """Returns the envelope with the recipients that were left, as the moment shows them."""
        most = None if all_recipients else NAMED_MAX
        names = {recipient.number: recipient.address for recipient in envelope.recipients}
        missing = then.message.remaining(range(len(names), envelope.recipient_count))[:most]
        if missing:
            names |= yield from names_in(file.path, then.place[1], set(missing))
        recipients: list[Recipient] = list(islice(then.message.recipients(names, self.at), most))
        return msgspec.structs.replace(envelope, recipients=tuple(recipients), recipient_count=then.message.left)


def find_queued(
    files: EventFiles, at: float, count: CountedQueue | None, undo_s: float, trouble: Trouble
) -> Steps[Queued]:
    """Returns the queue as it was. ``count``: the last one before the moment."""
    scan = _Scan(files, at, count, trouble)
    yield from scan.run()
    yield from scan.note_gaps()
    return Queued(scan, undo_s)


def _stretch(file: EventFile) -> tuple[int, float]:
    """Returns the offset at which the stretch of a file ends, and the time of its first row. Raises what is in DAMAGED."""
    end = int((pq.read_metadata(file.path).metadata or {})[b"waypost.to"])
    with opened(file.path) as groups:
        bounds = [each[0] for group in groups if (each := group.bounds("at")) is not None]
    return end, min(bounds, default=0.0)


def _checksum(ids: Any, counts: Any) -> int:
    crc = zlib.crc32
    return sum(crc(each.encode()) * count for each, count in zip(ids.to_pylist(), counts.to_pylist(), strict=True))


def _arguments(text: str | None) -> dict[str, Any]:
    try:
        given = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {}
    return given if isinstance(given, dict) else {}


# -- the rows of each kind: the columns that are read, and how a message takes them

_TEXTS = frozenset({"status", "destination", "reply", "to_lane", "operation"})
_COLUMNS = {
    "attempt": ("number", "status", "destination", "reply"),
    "replaced": ("to_lane",),
    "order": ("operation", "who", "why", "arguments"),
}


def _attempt(
    message: PastMessage,
    queue_id: str,
    at: float,
    number: int | None,
    status: str | None,
    destination: str | None,
    reply: str | None,
) -> None:
    known = _STATUSES.get(status or "", Status.DEFERRED)
    message.verdict(number or 0, known, destination or "", reply or "", at)


def _replaced(message: PastMessage, queue_id: str, at: float, to_lane: str | None) -> None:
    message.replaced(to_lane or "", at)


def _order(
    message: PastMessage,
    queue_id: str,
    at: float,
    operation: str | None,
    who: str | None,
    why: str | None,
    arguments: str | None,
) -> None:
    message.order(Administrative(operation or "", queue_id, who or "", why or "", at, _arguments(arguments)))


_TELL: dict[str, Callable[..., None]] = {"attempt": _attempt, "replaced": _replaced, "order": _order}
