"""Lanes and a journal with messages whose lives are written as the manager writes them, for tests of who reads them later."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from mailcore.envelope import Envelope, Recipient, Status, Verdict
from mailcore.log.disk import Disk
from mailcore.log.lane import LaneWriter
from mailcore.log.record import RecordType
from mailcore.lookup.answers import History, Hit
from mailcore.lookup.archive import Archive
from mailcore.lookup.browse import Browser, Stretch
from mailcore.lookup.history import HistoryReader
from mailcore.lookup.query import Query
from mailcore.lookup.search import LaneSearch
from mailcore.lookup.tracing import Walk
from mailcore.queue.queue_id import QueueIds
from mailcore.queue.records import Administrative, Delivery, Finish, Place, Replaced, Start, append_envelope, encode
from tests.lookup.sample_messages import NOW, Lane, envelope

DELAYS = (1.0, 2.0, 0.25, 0.5)


def events_of(history: History) -> list[dict[str, Any]]:
    """The events as a client gets them."""
    events: list[dict[str, Any]] = msgspec.to_builtins(history.events)
    return events


class RecordedLives:
    """``now`` moves only when a test moves it."""

    def __init__(self, directory: Path, journal_segment_bytes: int = 64 << 10) -> None:
        self.directory = directory
        self.now = NOW
        self.ids = QueueIds(3, lambda: self.now)
        self.lanes: dict[str, Lane] = {}
        self.runners: dict[str, int] = {}
        self.journal = LaneWriter(
            Disk(),
            str(directory / "journal"),
            segment_bytes=journal_segment_bytes,
            clock=lambda: self.now,
            salt=lambda: 77,
        )
        self.ticks = 0.0
        self.note = ""  # of the last search
        self.browser = Browser(Disk(), str(directory), lambda: self.now, lambda: self.ticks)
        self.archive: Archive | None = None

    def close(self) -> None:
        self.journal.close()
        for lane in self.lanes.values():
            lane.close()

    def lane(self, name: str) -> Lane:
        if name not in self.lanes:
            self.lanes[name] = Lane(self.directory, name)
        return self.lanes[name]

    # -- what the manager writes

    def arrive(self, to: list[str] | str = "user@example.org", lane: str = "incoming.0", **fields: Any) -> Life:
        message = envelope(to, queue_id=self.ids.next(), arrived_at=self.now, **fields)
        return Life(self, lane, message, self.lane(lane).write(message)[0])

    def say(self, type_: RecordType, body: Any) -> None:
        self.journal.append(type_, encode(body))
        self.journal.sync()

    def chatter(self, count: int = 1_000) -> None:
        """Others' records."""
        for number in range(count):
            reply = f"250 queued as {number:013d}"
            verdict = Verdict(0, Status.DELIVERED, "2.0.0", reply)
            self.journal.append(RecordType.DELIVERY, encode(Delivery("0" * 13, 0, (verdict,), self.now, "mx", "")))
        self.journal.sync()

    # -- questions

    @property
    def stretches(self) -> dict[str, Stretch]:
        return {name: Stretch(0, self.runners.get(name, 0), lane.end) for name, lane in self.lanes.items()}

    def history(self, queue_id: str) -> History:
        history: History = self.walked(Walk(HistoryReader(self.browser, archive=self.archive).history(queue_id)))
        return history

    def search(self, limit: int = 50, **wanted: str) -> list[Hit]:
        """All pages."""
        hits: list[Hit] = []
        cursor: str | None = ""
        while cursor is not None:
            page, cursor = self.page(cursor, limit, **wanted)
            hits += page
        return hits

    def page(self, cursor: str, limit: int = 50, **wanted: str) -> tuple[list[Hit], str | None]:
        """And the cursor of the next."""
        search = self.begun(cursor, limit, **wanted)
        self.walked(Walk(search.steps()))
        self.note = search.note
        return search.take(), search.cursor

    def begun(self, cursor: str, limit: int, **wanted: str) -> LaneSearch:
        return LaneSearch(self.browser, self.stretches, Query(**wanted), cursor, limit, self.archive)

    def walked(self, walk: Walk[Any]) -> Any:
        while not walk.go(0.0, lambda: self.ticks):
            pass
        return walk.result


class Life:
    """One message from its arrival to its end."""

    def __init__(self, recorded: RecordedLives, lane: str, message: Envelope, offset: int) -> None:
        self.recorded = recorded
        self.lane = lane
        self.envelope = message
        self.offset = offset

    @property
    def queue_id(self) -> str:
        return self.envelope.queue_id

    def start(self, *, anew: bool = False, refused: tuple[Verdict, ...] = ()) -> None:
        message = self.envelope
        resting = {} if anew else {"": message.recipient_count}
        place = Place(self.lane, self.offset)
        self.recorded.runners[self.lane] = max(self.recorded.runners.get(self.lane, 0), self.offset + 1)
        self.recorded.say(
            RecordType.START,
            Start(message.queue_id, message.generation, place, message.recipient_count, -1, resting, (), refused),
        )

    def attempt(self, status: Status = Status.DELIVERED, *numbers: int, reply: str = "250 OK") -> None:
        verdicts = tuple(Verdict(number, status, "2.0.0", reply) for number in numbers or (0,))
        message = self.envelope
        self.recorded.say(
            RecordType.DELIVERY,
            Delivery(
                message.queue_id,
                message.generation,
                verdicts,
                self.recorded.now,
                "mx[192.0.2.1]:25",
                "",
                DELAYS,
                "smtp:x",
            ),
        )

    def settle(self, status: Status, *numbers: int, destination: str = "") -> None:
        """Recipients end by verdicts of our own."""
        verdicts = tuple(Verdict(number, status, "2.0.0", status.name.lower()) for number in numbers)
        message, at = self.envelope, self.recorded.now
        delivery = Delivery(message.queue_id, message.generation, verdicts, at, "none", destination=destination)
        self.recorded.say(RecordType.DELIVERY, delivery)

    def replace(self, lane: str, *numbers: int, **fields: Any) -> None:
        """It rests in a lane again; ``numbers``: who is left; ``fields``: of the new envelope."""
        before = Place(self.lane, self.offset)
        old = self.envelope
        left = tuple(r for r in old.recipients if not numbers or r.number in numbers)
        self.envelope = msgspec.structs.replace(
            old,
            generation=old.generation + 1,
            **{
                "recipients": left,
                "recipient_count": len(left),
                "numbers_used": old.numbers_used or old.recipient_count,
                "due_at": self.recorded.now + 300,
                **fields,
            },
        )
        self.lane, (self.offset,) = lane, self.recorded.lane(lane).write(self.envelope)
        self.recorded.say(
            RecordType.REPLACED,
            Replaced(old.queue_id, old.generation, Place(lane, self.offset), None, self.recorded.now),
        )
        self.recorded.lane(before.lane).mark_garbage(before.offset)

    def order(self, operation: str, why: str = "because", arguments: dict[str, Any] | None = None) -> Administrative:
        change = Administrative(operation, self.queue_id, "alice (uid 7)", why, self.recorded.now, arguments or {})
        self.recorded.say(RecordType.ADMINISTRATIVE, change)
        return change

    def order_again(self, change: Administrative) -> None:
        self.recorded.say(RecordType.ADMINISTRATIVE, msgspec.structs.replace(change, anew=True))

    def finish(self, why: str = "", bounce: Place | None = None, *, marked: bool = True) -> None:
        message = self.envelope
        self.recorded.say(
            RecordType.FINISH, Finish(message.queue_id, message.generation, bounce, self.recorded.now, why)
        )
        if marked:
            self.recorded.lane(self.lane).mark_garbage(self.offset)


def bounce_of(life: Life) -> Envelope:
    return envelope("author@example.org", queue_id=f"{life.queue_id}B{life.envelope.generation}", sender="")


def many(count: int) -> list[Recipient]:
    return [Recipient(number, f"u{number}@example.org") for number in range(count)]


__all__ = ["DELAYS", "Life", "RecordedLives", "append_envelope", "bounce_of", "events_of", "many"]
