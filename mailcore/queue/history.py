"""A message's history: everything that is still known of it, from its arrival to its end, when that is long ago, too.

It is put together from what the journal's segments that still exist say of the message, and the envelopes of it that are
still in lanes, garbage or not. It says how far back it goes, and whether the beginning was found.

An event is a map of plain values, as clients get it: ``at`` (wall clock, seconds) and ``event``

- accepted: sender, size_bytes, recipients (how many), client_address, helo, tls, login, message_id, origin
- attempt: destination, relay, tls, delays (before the manager, in the queue, connecting, transmitting), verdicts: number,
  address ("" when its envelope is gone), status, dsn, reply; verdicts_left_out
- deferred_until (into a retry lane) and replaced (into any other): lane, due_at, generation
- bounce: queue_id of the message that tells the sender, lane, offset
- administrative: operation, who, why, arguments
- finished: how ("" or "deleted"), bounce

Law: no more is kept than is answered, whatever the journal holds. Must not know: sockets, the manager.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec

from mailcore.bounce.dsn import bounce_queue_id
from mailcore.envelope import Envelope, Origin, Status
from mailcore.queue.browse import Browser, Found
from mailcore.queue.lanes import JOURNAL, interval_of
from mailcore.queue.records import Administrative, Delivery, Finish, Place, Replaced, Start
from mailcore.queue.tracing import Body, Steps, Trace, decode, earliest_of, envelopes_of, lanes_in, open_lane, trace

__all__ = ["History", "HistoryReader"]

EVENTS_MAX = 2_000  # of one answer; with the verdicts below a frame of wire.FRAME_BYTES_MAX at the most a tenth full
VERDICTS_MAX = 1_000
REPLY_CHARACTERS = 1_000  # of one reply; a line has at most 512 octets (RFC 5321 4.5.3.1.5), some have more lines
LISTED_MAX = 10  # of an order's recipients; there may be 1 000
TEXT_CHARACTERS = 1_000  # of what a client said of itself
BEHIND_END_BYTES = (
    64 << 20
)  # read on behind a FINISH that rests on a bounce: a crash may have undone it, a checkpoint later
TRACE_BYTES_MAX = 16 << 30  # of the journal, for one history: about ten seconds of reading what is cached


class History(msgspec.Struct, kw_only=True):
    """``complete``: its arrival and each of its passes were found. ``since``: what happened before is known to nobody here."""

    queue_id: str
    events: list[dict[str, Any]]  # oldest first
    complete: bool
    since: float | None  # wall clock, seconds
    note: str
    examined: int  # bytes of the journal
    events_left_out: int = 0
    verdicts_left_out: int = 0


@dataclass
class HistoryReader:
    """Reads journal and lanes; keeps nothing between calls."""

    browser: Browser
    trace_bytes_max: int = TRACE_BYTES_MAX

    def history(self, queue_id: str) -> Steps[History]:
        """As ``past.Past.history``."""
        so_far = Trace(self.trace_bytes_max)
        story = _Story(queue_id)
        yield from self._read_journal(story, so_far)
        envelopes = yield from self._envelopes(story)
        for found, _ in envelopes:
            yield from self._name(story, found)
        complete = bool(envelopes) and story.complete(*_top(envelopes)) and not so_far.cut_short
        events = self._told(story, envelopes)
        return History(
            queue_id=queue_id,
            events=events,
            complete=complete,
            since=so_far.oldest,
            note=_note(queue_id, bool(events), bool(envelopes), complete, so_far),
            examined=so_far.examined_bytes,
            events_left_out=story.events_left_out,
            verdicts_left_out=story.verdicts_left_out,
        )

    def _read_journal(self, story: _Story, so_far: Trace) -> Steps[None]:
        wanted = {story.queue_id}
        ended_at = 0
        with open_lane(self.browser.disk, self.browser.queue_directory, JOURNAL) as reader:
            for found in trace(reader, wanted, earliest_of(story.queue_id), so_far):
                if found is None:
                    if story.ended and so_far.examined_bytes - ended_at > BEHIND_END_BYTES:
                        return
                    yield
                    continue
                body = decode(found[1])
                if body is not None and body.queue_id == story.queue_id:
                    story.hear(body)
                    ended_at = so_far.examined_bytes
                    if story.ended and story.bounce is None:
                        return

    def _envelopes(self, story: _Story) -> Steps[list[tuple[Found, bool]]]:
        """Those that are still there, by generation, with whether they are live. The journal says where they are when it
        knows the message from its beginning; else they are looked for."""
        if 0 not in story.starts:
            browser, queue_id = self.browser, story.queue_id
            there = yield from envelopes_of(
                browser.disk, browser.queue_directory, lanes_in(browser), {queue_id}, earliest_of(queue_id)
            )
            return sorted(there.get(queue_id, ()), key=lambda each: each[0].envelope.generation)
        envelopes = []
        for generation, place in sorted(story.places.items()):
            found = self.browser.read(place.lane, place.offset)
            if found is not None and _is(found.envelope, story.queue_id, generation):
                envelopes.append((found, True))
            yield
        return envelopes

    def _name(self, story: _Story, found: Found) -> Steps[None]:
        """Addresses for the recipients' numbers; one envelope's batches are read only as far as somebody lacks his."""
        batches = self.browser.recipients(found)
        while story.unnamed and (batch := next(batches, None)) is not None:
            for recipient in batch:
                if recipient.number in story.unnamed:
                    story.unnamed.discard(recipient.number)
                    story.names[recipient.number] = recipient.address
            yield

    def _told(self, story: _Story, envelopes: list[tuple[Found, bool]]) -> list[dict[str, Any]]:
        events = [_accepted(envelopes[0][0].envelope)] if envelopes else []
        resting = {found.envelope.generation: found.envelope for found, _ in envelopes}
        for event in story.events:
            for verdict in event.get("verdicts", ()):
                verdict["address"] = story.names.get(verdict["number"], "")
            envelope = resting.get(event.get("generation", -1))
            if envelope is not None:
                event["due_at"] = max(envelope.due_at, envelope.not_before)
            events.append(event)
        return events


@dataclass
class _Story:
    """What the journal says of one message, in the order it says it."""

    queue_id: str
    events: list[dict[str, Any]] = field(default_factory=list)
    starts: set[int] = field(default_factory=set)  # generations whose pass was seen from its beginning
    begun: set[int] = field(default_factory=set)  # generations of which anything was seen
    places: dict[int, Place] = field(default_factory=dict)  # of each generation's envelope
    unnamed: set[int] = field(default_factory=set)  # recipients whose verdicts are told, without an address yet
    names: dict[int, str] = field(default_factory=dict)
    ended: bool = False
    bounce: Place | None = None  # of the FINISH
    events_left_out: int = 0
    verdicts_left_out: int = 0
    verdicts_told: int = 0
    _order: tuple[str, float] = ("", 0.0)

    def hear(self, body: Body) -> None:
        if not isinstance(body, Administrative):
            self.begun.add(body.generation)
        match body:
            case Start():
                self._start(body)
            case Delivery():
                self._delivery(body)
            case Replaced():
                self._replaced(body)
            case Finish():
                self.ended, self.bounce = True, body.bounce
                self._bounce(body)
                bounce = None if body.bounce is None else msgspec.structs.asdict(body.bounce)
                self._add({"at": body.at, "event": "finished", "how": body.why, "bounce": bounce})
            case Administrative():
                self._administrative(body)

    def complete(self, generation: int, live: bool) -> bool:
        """Whether all its passes were seen; ``generation``: of its newest envelope that is there, which rests or not."""
        last = max([generation, *self.begun, *self.places])
        rests = last not in self.begun and (live or last in self.places)
        return self.starts.issuperset(range(last if rests else last + 1))

    def _add(self, event: dict[str, Any]) -> None:
        if len(self.events) < EVENTS_MAX or event["event"] == "finished":
            self.events.append(event)
        else:
            self.events_left_out += 1

    def _start(self, start: Start) -> None:
        # One that was stated anew lacks what it was counted with (``suffix``), and perhaps verdicts before it.
        if start.resting:
            self.starts.add(start.generation)
        self.places[start.generation] = start.place
        self.ended, self.bounce = False, None

    def _delivery(self, delivery: Delivery) -> None:
        told = delivery.verdicts[: VERDICTS_MAX - self.verdicts_told]
        self.verdicts_told += len(told)
        self.verdicts_left_out += len(delivery.verdicts) - len(told)
        self.unnamed.update(verdict.number for verdict in told)
        self._add(
            {
                "at": delivery.at,
                "event": "attempt",
                "destination": delivery.destination,
                "relay": delivery.relay,
                "tls": delivery.tls,
                "delays": list(delivery.delays),
                "verdicts": [
                    {
                        "number": verdict.number,
                        "address": "",
                        "status": Status(verdict.status).name.lower(),
                        "dsn": verdict.dsn,
                        "reply": verdict.reply[:REPLY_CHARACTERS],
                    }
                    for verdict in told
                ],
                "verdicts_left_out": len(delivery.verdicts) - len(told),
            }
        )

    def _replaced(self, replaced: Replaced) -> None:
        lane = replaced.place.lane
        generation = replaced.generation + 1
        self.places[generation] = replaced.place
        self._bounce(replaced)
        interval = interval_of(lane, 0) if lane.startswith("retry.") else 0.0
        event = "deferred_until" if interval else "replaced"
        due_at = replaced.at + interval if interval else 0.0  # its envelope, when it is there, knows better
        self._add({"at": replaced.at, "event": event, "lane": lane, "due_at": due_at, "generation": generation})

    def _bounce(self, body: Finish | Replaced) -> None:
        if body.bounce is not None:
            queue_id, place = bounce_queue_id(body.queue_id, body.generation), msgspec.structs.asdict(body.bounce)
            self._add({"at": body.at, "event": "bounce", "queue_id": queue_id, **place})

    def _administrative(self, order: Administrative) -> None:
        if self._order == (order.operation, order.at):
            return  # stated anew, with the START
        self._order = order.operation, order.at
        self._add(
            {
                "at": order.at,
                "event": "administrative",
                "operation": order.operation,
                "who": order.who,
                "why": order.why,
                "arguments": {name: _few(value) for name, value in order.arguments.items()},
            }
        )


def _top(envelopes: list[tuple[Found, bool]]) -> tuple[int, bool]:
    found, live = envelopes[-1]
    return found.envelope.generation, live


def _is(envelope: Envelope, queue_id: str, generation: int) -> bool:
    """Law 4."""
    return envelope.queue_id == queue_id and envelope.generation == generation


def _few(value: Any) -> Any:
    """Of an argument that is a list, the first."""
    return list(value[:LISTED_MAX]) if isinstance(value, list | tuple) else value


def _accepted(envelope: Envelope) -> dict[str, Any]:
    return {
        "at": envelope.arrived_at,
        "event": "accepted",
        "sender": envelope.sender,
        "size_bytes": envelope.size_bytes,
        "recipients": max(envelope.recipient_count, envelope.numbers_used),
        "client_address": envelope.client_address,
        "helo": envelope.helo[:TEXT_CHARACTERS],
        "tls": envelope.tls,
        "login": envelope.login[:TEXT_CHARACTERS],
        "message_id": envelope.message_id[:TEXT_CHARACTERS],
        "origin": Origin(envelope.origin).name.lower(),
    }


def _note(queue_id: str, known: bool, envelopes: bool, complete: bool, so_far: Trace) -> str:
    since = ""
    if so_far.oldest is not None:
        since = (
            f"the journal goes back to {datetime.fromtimestamp(so_far.oldest).astimezone().isoformat(' ', 'seconds')}"
        )
    if so_far.cut_short:
        return "the journal is so long that it was not read to its end"
    if complete:
        return ""
    if not known:
        return f"nothing is known of {queue_id}" + (f"; {since}" if since else "")
    what = "" if envelopes else "; its envelope is gone, and with it who sent it to whom"
    return f"not all of it is known; {since or 'there is no journal'}{what}"
