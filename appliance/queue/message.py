"""One message, queued or finished, as its page shows it: from the core's answers to ``show``, ``history`` and ``headers``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from appliance.common.door import Door
from appliance.queue.timeline import Timeline, fates, timeline
from mailcore.control.client import Refused

__all__ = ["RECIPIENTS_PAGE", "Message", "message_of", "recipients_of", "waiting_of"]

RECIPIENTS_PAGE = 200


@dataclass
class Message:
    """Holds one message. ``item`` and ``envelope``: None if it is no longer queued; ``accepted``: None if it is not known."""

    queue_id: str
    item: dict[str, Any] | None = None
    envelope: dict[str, Any] | None = None
    explain: list[dict[str, Any]] = field(default_factory=list)
    note: str = ""
    recipients: list[dict[str, Any]] = field(default_factory=list)
    more_recipients: int | None = None  # where the next page of recipients begins
    recipients_known: int = 0
    history: Timeline = field(default_factory=Timeline)
    accepted: dict[str, Any] | None = None
    finished: dict[str, Any] | None = None
    headers: dict[str, Any] | None = None
    why_no_headers: str = ""

    @property
    def known(self) -> bool:
        """Returns whether the message is in the queue or in the history."""
        return self.item is not None or bool(self.history.events)

    @property
    def state(self) -> str:
        """Returns its state; for a message that has left the queue, how it ended."""
        if self.item is not None:
            return str(self.item["state"])
        if self.finished is None:
            return "unknown"
        if self.finished.get("how") == "deleted":
            return "deleted for good"
        statuses = {verdict["status"] for event in self.history.events for verdict in event.get("verdicts", ())}
        return next((each for each in ("bounced", "expired", "delivered") if each in statuses), "finished")

    @property
    def sender(self) -> str | None:
        """Returns the sender; None if it is not known. "" is the sender of bounces."""
        known = self.item or self.accepted
        return None if known is None else str(known["sender"])


def message_of(core: Door, queue_id: str) -> Message:
    """Returns one message, with three questions to the core at most. Raises ControlError."""
    told = Message(queue_id)
    remaining = _show(core, told)
    history = core.read("history", {"queue_id": queue_id})
    told.history = timeline(history)
    for event in history["events"]:
        if event["event"] == "accepted":
            told.accepted = event
        elif event["event"] == "finished":
            told.finished = event
    rows = _rows(remaining, history)
    told.recipients, told.more_recipients = _page(rows, 0)
    told.recipients_known = len(rows)
    if told.item is not None:
        try:
            told.headers = core.read("headers", {"queue_id": queue_id})
            # A field that was folded with tabs reads as one line.
            told.headers["headers"] = [[name, value.replace("\t", " ")] for name, value in told.headers["headers"]]
        except Refused as error:  # such as: delivered a moment ago
            told.why_no_headers = str(error)
    return told


def recipients_of(core: Door, queue_id: str, start: int) -> tuple[list[dict[str, Any]], int | None]:
    """Returns a page of the recipients, and where the next page begins. Raises ControlError."""
    told = Message(queue_id)
    remaining = _show(core, told)
    history = core.read("history", {"queue_id": queue_id})
    return _page(_rows(remaining, history), start)


def waiting_of(core: Door, queue_id: str) -> tuple[list[dict[str, Any]], str]:
    """Returns why a message waits now; if it is not queued, an empty list and the core's message. Raises ControlError."""
    try:
        return core.read("explain", {"queue_id": queue_id}), ""
    except Refused as error:
        return [], str(error)


def _show(core: Door, told: Message) -> list[dict[str, Any]]:
    """Fills in the answer to ``show``; returns the remaining recipients."""
    remaining: list[dict[str, Any]] = []
    try:
        for part in core.parts("show", {"queue_id": told.queue_id}):
            remaining += part.get("recipients", ())
            if "message" in part:
                told.item, told.envelope = part["message"], part["envelope"]
                told.explain, told.note = part["explain"] or [], part["note"]
    except Refused as error:
        if told.item is not None:
            told.note = str(error)
    return remaining


def _rows(remaining: list[dict[str, Any]], history: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns all recipients, by number: remaining ones as they are queued, the others with their last verdict."""
    rows: dict[int, dict[str, Any]] = {}
    for number, verdict in fates(history).items():
        rows[number] = {**verdict, "state": verdict["status"], "destination": verdict["relay"]}
    for each in remaining:
        before = rows.get(each["number"], {})
        if each["done"] and before:
            continue
        state = "done" if each["done"] else "deferred" if each["reply"] else "waiting"
        rows[each["number"]] = {**before, **each, "state": state, "reply": each["reply"] or before.get("reply", "")}
    return [rows[number] for number in sorted(rows)]


def _page(rows: list[dict[str, Any]], start: int) -> tuple[list[dict[str, Any]], int | None]:
    end = start + RECIPIENTS_PAGE
    return rows[start:end], end if end < len(rows) else None
