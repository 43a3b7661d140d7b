"""A message's history: everything that is still known about it, from its arrival to its end, also long ago.

It is made of the message's records in the journal's remaining segments, and of its envelopes in lanes, garbage or not;
records that are not there any more come from the events (``archive``). It says how far back it reaches, and whether everything
was found. The events of a history are defined in ``answers``.

Law: only the answer is kept in memory, for a journal of any size. Must not know: sockets, the manager.

Keeps law: lookup-memory-bounded (docs/laws.md).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from mailcore.bounce.dsn import bounce_queue_id
from mailcore.envelope import Envelope
from mailcore.lookup.answers import Attempt, Deferred, History, HistoryEvent, Moved, Placed, Settled
from mailcore.lookup.archive import Archive, Trouble, Window
from mailcore.lookup.browse import WITHOUT_END, Browser, Found
from mailcore.lookup.next_due import next_due
from mailcore.lookup.timeline import Timeline, accepted
from mailcore.lookup.tracing import (
    SLACK_S,
    Steps,
    Trace,
    decode,
    earliest_of,
    envelopes_of,
    lanes_in,
    open_lane,
    trace,
)
from mailcore.queue.lanes import JOURNAL, LOCAL

__all__ = ["HistoryReader"]

BEHIND_END_BYTES = (
    64 << 20
)  # read on behind a FINISH that rests on a bounce: a crash may have undone it, a checkpoint later
BOUNCES_MAX = 20  # looked for, of one message
QUEUE_ID_CHARACTERS = 13  # a bounce's queue id is longer: its message's, and a suffix
ARRIVED_S = 86_400.0  # the longest time from giving out a queue id to the arrival; clocks jump
UNARRIVED_S = 31 * 86_400.0  # how far to search for a bounce, or for a message without a known arrival
TRACE_BYTES_MAX = 16 << 30  # of the journal, for one history: about ten seconds of reading cached data


@dataclass
class HistoryReader:
    """Reads journal and lanes, and ``archive`` when they do not have everything; keeps nothing between calls."""

    browser: Browser
    trace_bytes_max: int = TRACE_BYTES_MAX
    archive: Archive | None = None

    def history(self, queue_id: str) -> Steps[History]:
        """Returns all that is known of a message; without any record of it, a history without events. Raises OSError."""
        history = yield from self._history(queue_id, None)
        if history.complete or self.archive is None or not earliest_of(queue_id):
            return history
        elsewhere = _Elsewhere(self.archive)
        elsewhere.since = self.archive.since(elsewhere.trouble)
        yield
        if elsewhere.since is None:
            return history
        with_older = yield from self._history(queue_id, elsewhere)
        return with_older

    def _history(self, queue_id: str, elsewhere: _Elsewhere | None) -> Steps[History]:
        so_far = Trace(self.trace_bytes_max)
        timeline = Timeline(queue_id)
        if elsewhere is not None:
            yield from elsewhere.find(queue_id)
        yield from self._read_journal(timeline, so_far, elsewhere)
        envelopes = yield from self._envelopes(timeline)
        for found, _ in envelopes:
            yield from self._name(timeline, found)
        if elsewhere is None:
            complete = bool(envelopes) and timeline.complete(*_top(envelopes)) and not so_far.cut_short
        else:
            yield from elsewhere.name(timeline)
            yield from self._find_bounces(timeline, elsewhere)
            if elsewhere.arrival is not None and not (envelopes and envelopes[0][0].envelope.generation == 0):
                envelopes.insert(0, (elsewhere.arrival, False))
            complete = bool(envelopes) and timeline.complete_with_older(*_top(envelopes), _recipients(envelopes))
            complete = complete and not (so_far.cut_short or elsewhere.trouble.count)
        events = self._told(timeline, envelopes)
        kept_since = None if elsewhere is None else elsewhere.since
        return History(
            queue_id=queue_id,
            events=events,
            complete=complete,
            since=min((at for at in (so_far.oldest, kept_since) if at is not None), default=None),
            note=_note(queue_id, bool(events), bool(envelopes), complete, so_far, elsewhere),
            examined=so_far.examined_bytes,
            events_left_out=timeline.events_left_out,
            verdicts_left_out=timeline.verdicts_left_out,
        )

    def _read_journal(self, timeline: Timeline, so_far: Trace, elsewhere: _Elsewhere | None) -> Steps[None]:
        wanted = {timeline.queue_id}
        ended_at = 0
        with open_lane(self.browser.disk, self.browser.queue_directory, JOURNAL) as reader:
            if elsewhere is not None:
                yield from elsewhere.tell(timeline, 0, reader.bases[0] if reader.bases else WITHOUT_END)
            for found in trace(reader, wanted, earliest_of(timeline.queue_id), so_far):
                while elsewhere is not None and so_far.missing:
                    yield from elsewhere.tell(timeline, *so_far.missing.pop(0))
                if found is None:
                    if timeline.ended and so_far.examined_bytes - ended_at > BEHIND_END_BYTES:
                        return
                    yield
                    continue
                body = decode(found[1])
                if body is not None and body.queue_id == timeline.queue_id:
                    timeline.hear(body)
                    ended_at = so_far.examined_bytes
                    if timeline.ended and timeline.bounce is None:
                        return

    def _envelopes(self, timeline: Timeline) -> Steps[list[tuple[Found, bool]]]:
        """Returns the remaining envelopes, by generation, and whether each is live.

        The journal says where they are if it holds the message's first START; otherwise they are searched.
        """
        if timeline.passed is not None:  # it was in no lane
            return [(Found(JOURNAL, 0, timeline.passed), False)]
        if 0 not in timeline.starts:
            browser, queue_id = self.browser, timeline.queue_id
            there = yield from envelopes_of(
                browser.disk, browser.queue_directory, lanes_in(browser), {queue_id}, earliest_of(queue_id)
            )
            return sorted(there.get(queue_id, ()), key=lambda entry: entry[0].envelope.generation)
        envelopes = []
        for generation, place in sorted(timeline.places.items()):
            found = self.browser.read(place.lane, place.offset)
            if found is not None and _is(found.envelope, timeline.queue_id, generation):
                envelopes.append((found, True))
            yield
        return envelopes

    def _find_bounces(self, timeline: Timeline, elsewhere: _Elsewhere) -> Steps[None]:
        """Finds the bounces of FINISH and REPLACED records from the archive, which does not keep their places."""
        browser = self.browser
        for event, generation in timeline.unbounced[:BOUNCES_MAX]:
            queue_id, at = bounce_queue_id(timeline.queue_id, generation), event.at
            there = yield from envelopes_of(browser.disk, browser.queue_directory, [LOCAL], {queue_id}, at - SLACK_S)
            found = next((bounce for bounce, _ in there.get(queue_id, ()) if bounce.envelope.generation == 0), None)
            if found is None:
                window = Window(at - SLACK_S, at + SLACK_S)
                found = yield from elsewhere.archive.arrival(queue_id, window, elsewhere.trouble)
            if found is not None:
                timeline.rests_on(event, queue_id, Placed(lane=found.lane, offset=found.offset))

    def _name(self, timeline: Timeline, found: Found) -> Steps[None]:
        """Adds addresses for the recipients' numbers; reads batches only until no address is missing."""
        batches = self.browser.recipients(found)
        while timeline.unnamed and (batch := next(batches, None)) is not None:
            for recipient in batch:
                if recipient.number in timeline.unnamed:
                    timeline.unnamed.discard(recipient.number)
                    timeline.names[recipient.number] = recipient.address
            yield

    def _told(self, timeline: Timeline, envelopes: list[tuple[Found, bool]]) -> list[HistoryEvent]:
        events: list[HistoryEvent] = [accepted(envelopes[0][0].envelope)] if envelopes else []
        resting = {found.envelope.generation: found.envelope for found, _ in envelopes}
        for event in timeline.events:
            if isinstance(event, Attempt | Settled):
                for verdict in event.verdicts:
                    verdict.address = timeline.names.get(verdict.number, "")
            elif isinstance(event, Deferred | Moved) and (envelope := resting.get(event.generation)) is not None:
                events.append(_placed(event, envelope))
                continue
            events.append(event)
        return events


@dataclass
class _Elsewhere:
    """Asks the archive about one message."""

    archive: Archive
    since: float | None = None
    trouble: Trouble = field(default_factory=Trouble)
    arrival: Found | None = None
    window: Window = field(default_factory=Window)

    def find(self, queue_id: str) -> Steps[None]:
        """Finds the message's arrival, and the time from which on records may exist."""
        earliest = earliest_of(queue_id)
        latest = earliest + (ARRIVED_S if len(queue_id) == QUEUE_ID_CHARACTERS else UNARRIVED_S)
        self.arrival = yield from self.archive.arrival(queue_id, Window(earliest, latest), self.trouble)
        # An unknown queue id may be mistyped: the events of years are not searched for it.
        self.window = Window(earliest) if self.arrival is not None else Window(earliest, earliest + UNARRIVED_S)

    def tell(self, timeline: Timeline, start: int, end: int) -> Steps[None]:
        """Adds the records of the archive at journal offsets [start, end)."""
        bodies = self.archive.bodies({timeline.queue_id}, start, end, self.window, self.trouble, beyond=1)
        for told in bodies:
            if told is None:
                yield
            else:
                timeline.hear(told[1], elsewhere=True)

    def name(self, timeline: Timeline) -> Steps[None]:
        """Adds the addresses of recipients that are in no remaining envelope."""
        if self.arrival is None or not timeline.unnamed:
            return
        envelope = self.arrival.envelope
        timeline.know({recipient.number: recipient.address for recipient in envelope.recipients})
        added = {envelope.recipient_count + number: address for number, address in enumerate(timeline.added)}
        timeline.know(added)
        if any(number < envelope.recipient_count for number in timeline.unnamed):
            names = yield from self.archive.names(self.arrival, timeline.unnamed, self.trouble)
            timeline.know(names)


def _placed(event: Deferred | Moved, envelope: Envelope) -> Deferred | Moved:
    """Returns the event with the time of the envelope that was written then.

    A message may rest in a retry lane although none of its recipients waits for an attempt: it was moved, not deferred.
    """
    due = next_due(envelope)
    if isinstance(event, Deferred) and due.tried:
        return Deferred(at=event.at, lane=event.lane, due_at=due.at, generation=event.generation)
    return Moved(at=event.at, lane=event.lane, due_at=due.at, generation=event.generation)


def _recipients(envelopes: list[tuple[Found, bool]]) -> int:
    """Returns the number of recipients according to the oldest envelope."""
    return envelopes[0][0].envelope.recipient_count


def _top(envelopes: list[tuple[Found, bool]]) -> tuple[int, bool]:
    found, live = envelopes[-1]
    return found.envelope.generation, live


def _is(envelope: Envelope, queue_id: str, generation: int) -> bool:
    """Checks queue id and generation (law: believe-only-a-match)."""
    return envelope.queue_id == queue_id and envelope.generation == generation


def _note(
    queue_id: str, known: bool, envelopes: bool, complete: bool, so_far: Trace, elsewhere: _Elsewhere | None
) -> str:
    since = "" if so_far.oldest is None else f"the journal goes back to {_when(so_far.oldest)}"
    if so_far.cut_short:
        return "the journal is too long to be read to its end"
    if complete:
        return ""
    more = ""
    if elsewhere is not None and elsewhere.since is not None:
        more = f"; events go back to {_when(elsewhere.since)}"
        more += f"; {elsewhere.trouble}" if elsewhere.trouble.count else ""
    if not known:
        return f"nothing is known about {queue_id}" + (f"; {since}" if since else "") + more
    what = "" if envelopes else "; its envelope is deleted, so sender and recipients are unknown"
    return f"its history is incomplete; {since or 'there is no journal'}{more}{what}"


def _when(at: float) -> str:
    return datetime.fromtimestamp(at).astimezone().isoformat(" ", "seconds")
