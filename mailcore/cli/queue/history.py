"""``waypost queue history`` and ``search``: events of messages, including finished ones."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import Any

from mailcore.control.client import ControlClient
from mailcore.control.protocol.messages import (
    SEARCH_MAX,
    Accepted,
    Administered,
    Attempt,
    BounceQueued,
    Deferred,
    Finished,
    History,
    HistoryEvent,
    HistoryPart,
    Hit,
    Moved,
    SearchPart,
)
from mailcore.terminal.command import DONE, NOT_DONE, UsageError, add_common, control_client
from mailcore.terminal.output import complain, cut, plain, print_json, say, size_shown, width
from mailcore.terminal.times import shown

__all__ = ["configure"]


def configure(commands: Any) -> None:
    """Adds ``history`` and ``search`` to the subcommands of ``waypost queue``."""
    history = commands.add_parser("history", help="show all events of a message, finished or not")
    history.add_argument("queue_id", metavar="QUEUE_ID")
    add_common(history)
    history.set_defaults(run=_history)
    searching = commands.add_parser("search", help="search messages, including finished ones whose records still exist")
    searching.add_argument("--message-id", default="", metavar="TEXT", help="value of the header field Message-ID")
    searching.add_argument("--sender", default="", metavar="ADDRESS", help='envelope sender; "<>" is the empty sender')
    searching.add_argument("--recipient", default="", metavar="ADDRESS", help="one of the recipients")
    searching.add_argument(
        "--limit", type=int, default=50, metavar="N", help="maximum number of messages (default: 50)"
    )
    add_common(searching)
    searching.set_defaults(run=_search)


def _history(arguments: argparse.Namespace) -> int:
    with control_client(arguments) as control:
        history = control.ask("history", HistoryPart, {"queue_id": arguments.queue_id.upper()})
    known = bool(history.events)
    if arguments.json:
        print_json({name: getattr(history, name) for name in History.__struct_fields__})
        return DONE if known else NOT_DONE
    for event in history.events:
        for line in _event_lines(event):
            say(line)
    if history.events_left_out or history.verdicts_left_out:
        complain(f"{history.events_left_out} events and {history.verdicts_left_out} verdicts are not shown")
    if history.note:
        complain(history.note)
    return DONE if known else NOT_DONE


def _event_lines(event: HistoryEvent) -> Iterator[str]:
    """Formats an event, and below it the reply for each recipient."""
    yield f"{shown(event.at)}  {_summary(event)}"
    if isinstance(event, Attempt):
        delays = "/".join(f"{delay:.2g}" for delay in event.delays)
        yield f"    relay {plain(event.relay)}, delays {delays} s{', ' + plain(event.tls) if event.tls else ''}"
        for verdict in event.verdicts:
            recipient = plain(verdict.address) or f"recipient {verdict.number}"
            yield f"    {verdict.status}  {recipient}: {plain(verdict.reply)}"
        if event.verdicts_left_out:
            yield f"    and {event.verdicts_left_out} more recipients"


def _summary(event: HistoryEvent) -> str:
    match event:
        case Accepted():
            client = f" from {plain(event.client_address)} ({plain(event.helo)})" if event.client_address else ""
            recipients = "1 recipient" if event.recipients == 1 else f"{event.recipients} recipients"
            sender = plain(event.sender) or "<>"
            return f"accepted{client}: {sender} to {recipients}, {size_shown(event.size_bytes)}"
        case Attempt():
            destination = plain(event.destination)
            return f"attempt{' for ' + destination if destination else ', without a delivery'}"
        case Deferred():
            return f"deferred until {shown(event.due_at)}"
        case Moved():
            return f"moved to {plain(event.lane)}"
        case BounceQueued():
            return f"bounce to the sender: {plain(event.queue_id)}"
        case Administered():
            why = f": {plain(event.why)}" if event.why else ""
            return f"{plain(event.operation)} by {plain(event.who)}{why}"
        case Finished():
            return f"finished{' (' + plain(event.how) + ')' if event.how else ''}"


class _Notes:
    """Collects from the pages of a search what could not be searched."""

    def __init__(self) -> None:
        self.texts: dict[str, None] = {}  # each once
        self.manager_away = False
        self.unread_files = 0  # of events

    def add(self, part: SearchPart) -> None:
        """Adds the notes of a part."""
        if part.note:
            self.texts[part.note] = None
        self.manager_away = self.manager_away or part.manager_away
        self.unread_files = max(self.unread_files, part.unread_files)


def _search(arguments: argparse.Namespace) -> int:
    if arguments.limit < 1:
        raise UsageError(f"queue search: --limit {arguments.limit}; allowed: 1 or more")
    query = {name: getattr(arguments, name) for name in ("message_id", "sender", "recipient")}
    if not any(query.values()):
        raise UsageError("queue search: give --message-id, --sender or --recipient")
    notes = _Notes()
    with control_client(arguments) as control:
        found = list(_found(control, query, arguments.limit, notes))
    for note in notes.texts:
        complain(note)
    if arguments.json:
        print_json({"items": found, "manager_away": notes.manager_away, "unread_files": notes.unread_files})
        return DONE
    columns = width(sys.stdout)
    for item in found:
        for line in _item_lines(item):
            say(cut(line, columns))
    say(f"-- {len(found)} messages" if len(found) != 1 else "-- 1 message")
    return DONE


def _found(control: ControlClient, query: dict[str, str], limit: int, notes: _Notes) -> Iterator[Hit]:
    cursor: str | None = ""
    while cursor is not None and limit:
        asked = {**query, "cursor": cursor, "limit": min(limit, SEARCH_MAX)}
        for part in control.ask_parts("search", SearchPart, asked):
            yield from part.items
            limit -= len(part.items)
            cursor = part.cursor
            notes.add(part)


def _item_lines(item: Hit) -> Iterator[str]:
    yield f"{item.queue_id:<13}  {item.state:<9}  {size_shown(item.size_bytes):>6}  {shown(item.at)}  " + (
        plain(item.sender) or "<>"
    )
    more = item.recipient_count - len(item.recipients[:2])
    to = ", ".join(plain(address) for address in item.recipients[:2])
    yield f"  to {to}{f' and {more} more' if more > 0 else ''}"
    if item.finished_at:
        yield f"  finished {shown(item.finished_at)}"
