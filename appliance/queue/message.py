"""One message, queued or finished, as its page shows it: from the core's answers to ``show``, ``history`` and ``headers``."""

from __future__ import annotations

from dataclasses import dataclass, field

from appliance.common.door import Door
from appliance.queue.timeline import ShownAttempt, ShownSettled, Timeline, fates, timeline
from mailcore.control.client import Refused
from mailcore.control.protocol.messages import (
    Accepted,
    Details,
    Finished,
    Headers,
    History,
    HistoryEvent,
    HistoryPart,
    Item,
    Reason,
    Reasons,
    ShownRecipient,
    ShowPart,
)

__all__ = ["RECIPIENTS_PAGE", "Message", "RecipientRow", "message_of", "recipients_of", "waiting_of"]

RECIPIENTS_PAGE = 200
CHECKS = {"spf": "SPF", "dkim": "DKIM", "arc": "ARC", "dmarc": "DMARC"}
_BADGES = {"pass": "good", "fail": "bad", "none": "", "neutral": ""}  # of a result (RFC 8601 2.7); other ones: warn


@dataclass
class RecipientRow:
    """Holds a recipient as the page shows it."""

    number: int
    address: str  # "" if it is not known
    state: str
    destination: str  # or the relay of the last attempt; "" where there is none
    reply: str
    since: float = 0.0  # of its state; 0.0 if it is not known
    until: float = 0.0  # of its state; 0.0 without an end
    why: str = ""  # the operator's reason


@dataclass
class Message:
    """Holds one message. ``item`` and ``envelope``: None if it is no longer queued; ``accepted``: None if it is not known."""

    queue_id: str
    item: Item | None = None
    envelope: Details | None = None
    explain: list[Reason] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)  # that its state allows
    note: str = ""
    recipients: list[RecipientRow] = field(default_factory=list)
    more_recipients: int | None = None  # where the next page of recipients begins
    recipients_known: int = 0
    history: Timeline = field(default_factory=Timeline)
    events: list[HistoryEvent] = field(default_factory=list)  # of the history, as the core gave them
    since: float | None = None  # of the history: before it no records exist
    accepted: Accepted | None = None
    finished: Finished | None = None
    headers: Headers | None = None
    why_no_headers: str = ""

    @property
    def known(self) -> bool:
        """Returns whether the message is in the queue or in the history."""
        return self.item is not None or bool(self.history.events)

    @property
    def state(self) -> str:
        """Returns its state; for a message that has left the queue, how it ended."""
        if self.item is not None:
            return self.item.state
        if self.finished is None:
            return "unknown"
        if self.finished.how == "deleted":
            return "deleted for good"
        settled = (event for event in self.history.events if isinstance(event, ShownAttempt | ShownSettled))
        statuses = {verdict.status for event in settled for verdict in event.verdicts}
        return next((each for each in ("bounced", "expired", "delivered") if each in statuses), "finished")

    @property
    def checks(self) -> list[tuple[str, str, str]]:
        """Returns the results of the core's own check of the sender: name, result, kind of badge; [] if there was none.

        They are those that the core stored with the message, never a field of its header, which any client can write.
        """
        of = self.envelope or self.accepted
        pairs = [word.partition("=") for word in (of.authentication if of is not None else "").split()]
        return [(CHECKS[name], result, _BADGES.get(result, "warn")) for name, _, result in pairs if name in CHECKS]

    @property
    def sender(self) -> str | None:
        """Returns the sender; None if it is not known. "" is the sender of bounces."""
        if self.item is not None:
            return self.item.sender
        return None if self.accepted is None else self.accepted.sender


def message_of(core: Door, queue_id: str) -> Message:
    """Returns one message, with three questions to the core at most. Raises ControlError."""
    told = Message(queue_id)
    remaining = _show(core, told)
    history = core.ask("history", HistoryPart, {"queue_id": queue_id})
    told.history, told.events, told.since = timeline(history), history.events, history.since
    for event in history.events:
        if isinstance(event, Accepted):
            told.accepted = event
        elif isinstance(event, Finished):
            told.finished = event
    rows = _rows(remaining, history)
    told.recipients, told.more_recipients = _page(rows, 0)
    told.recipients_known = len(rows)
    if told.item is not None:
        try:
            told.headers = core.ask("headers", Headers, {"queue_id": queue_id})
            # A field that was folded with tabs reads as one line.
            told.headers.headers = [[name, value.replace("\t", " ")] for name, value in told.headers.headers]
        except Refused as error:  # such as: delivered a moment ago
            told.why_no_headers = str(error)
    return told


def recipients_of(core: Door, queue_id: str, start: int) -> tuple[list[RecipientRow], int | None]:
    """Returns a page of the recipients, and where the next page begins. Raises ControlError."""
    told = Message(queue_id)
    remaining = _show(core, told)
    history = core.ask("history", HistoryPart, {"queue_id": queue_id})
    return _page(_rows(remaining, history), start)


def waiting_of(core: Door, queue_id: str) -> tuple[list[Reason], str]:
    """Returns why a message waits now; if it is not queued, an empty list and the core's message. Raises ControlError."""
    try:
        return core.ask("explain", Reasons, {"queue_id": queue_id}).reasons, ""
    except Refused as error:
        return [], str(error)


def _show(core: Door, told: Message) -> list[ShownRecipient]:
    """Fills in the answer to ``show``; returns the remaining recipients."""
    remaining: list[ShownRecipient] = []
    try:
        for part in core.ask_parts("show", ShowPart, {"queue_id": told.queue_id}):
            match part:
                case ShowPart(message=Item() as item, envelope=Details() as envelope):
                    told.item, told.envelope = item, envelope
                    told.explain, told.changes, told.note = part.explain or [], part.changes or [], part.note or ""
                case ShowPart(recipients=list() as batch):
                    remaining += batch
    except Refused as error:
        if told.item is not None:
            told.note = str(error)
    return remaining


def _rows(remaining: list[ShownRecipient], history: History) -> list[RecipientRow]:
    """Returns all recipients, by number: remaining ones as they are queued, the others with their last verdict."""
    rows: dict[int, RecipientRow] = {}
    for number, (verdict, relay) in fates(history).items():
        rows[number] = RecipientRow(number, verdict.address, verdict.status, relay, verdict.reply)
    for each in remaining:
        before = rows.get(each.number)
        if each.done and before is not None:
            continue
        state = "done" if each.done else each.state
        reply = each.reply or (before.reply if before is not None else "")
        apart = () if each.done else (each.since, each.until, each.why)
        rows[each.number] = RecipientRow(each.number, each.address, state, each.destination, reply, *apart)
    return [rows[number] for number in sorted(rows)]


def _page(rows: list[RecipientRow], start: int) -> tuple[list[RecipientRow], int | None]:
    end = start + RECIPIENTS_PAGE
    return rows[start:end], end if end < len(rows) else None
