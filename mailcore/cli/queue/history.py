"""``waypost queue history`` and ``search``: what became of messages, those that are finished included."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import Any

from mailcore.control.arguments import SEARCH_MAX
from mailcore.control.client import ControlClient
from mailcore.terminal.command import DONE, NOT_DONE, UsageError, add_common, control_client
from mailcore.terminal.output import complain, cut, plain, print_json, say, size_shown, width
from mailcore.terminal.times import shown

__all__ = ["configure"]


def configure(commands: Any) -> None:
    history = commands.add_parser("history", help="what became of a message, also when it is finished")
    history.add_argument("queue_id")
    add_common(history)
    history.set_defaults(run=_history)
    searching = commands.add_parser("search", help="messages, also finished ones whose records still exist")
    searching.add_argument("--message-id", default="", metavar="TEXT", help="the header field Message-ID")
    searching.add_argument("--sender", default="", metavar="ADDRESS", help='"<>" is the empty one')
    searching.add_argument("--recipient", default="", metavar="ADDRESS", help="any of them")
    searching.add_argument("--limit", type=int, default=50, metavar="N", help="messages at the most (50)")
    add_common(searching)
    searching.set_defaults(run=_search)


def _history(arguments: argparse.Namespace) -> int:
    with control_client(arguments) as control:
        history = control.call("history", {"queue_id": arguments.queue_id.upper()})
    known = bool(history["events"])
    if arguments.json:
        print_json({name: value for name, value in history.items() if name != "done"})
        return DONE if known else NOT_DONE
    for event in history["events"]:
        for line in _event_lines(event):
            say(line)
    left_out = history["events_left_out"] + history["verdicts_left_out"]
    if left_out:
        complain(f"{history['events_left_out']} events and {history['verdicts_left_out']} verdicts are left out")
    if history["note"]:
        complain(history["note"])
    return DONE if known else NOT_DONE


def _event_lines(event: dict[str, Any]) -> Iterator[str]:
    """When and what; below it, for each recipient, what was said."""
    kind = event["event"]
    yield f"{shown(event['at'])}  {_in_words(kind, event)}"
    if kind == "attempt":
        delays = "/".join(f"{delay:.2g}" for delay in event["delays"])
        yield f"    relay {plain(event['relay'])}, delays {delays} s{', ' + plain(event['tls']) if event['tls'] else ''}"
        for verdict in event["verdicts"]:
            who = plain(verdict["address"]) or f"recipient {verdict['number']}"
            yield f"    {verdict['status']}  {who}: {plain(verdict['reply'])}"
        if event["verdicts_left_out"]:
            yield f"    and {event['verdicts_left_out']} recipients more"


def _in_words(kind: str, event: dict[str, Any]) -> str:
    if kind == "accepted":
        client = f" from {plain(event['client_address'])} ({plain(event['helo'])})" if event["client_address"] else ""
        recipients = "1 recipient" if event["recipients"] == 1 else f"{event['recipients']} recipients"
        sender = plain(event["sender"]) or "<>"
        return f"accepted{client}: {sender} to {recipients}, {size_shown(event['size_bytes'])}"
    if kind == "attempt":
        destination = plain(event["destination"])
        return f"attempt{' for ' + destination if destination else ', without a delivery'}"
    if kind == "deferred_until":
        return f"deferred until {shown(event['due_at'])}"
    if kind == "replaced":
        return f"put into {plain(event['lane'])}"
    if kind == "bounce":
        return f"bounce to the sender: {plain(event['queue_id'])}"
    if kind == "administrative":
        why = f": {plain(event['why'])}" if event["why"] else ""
        return f"{plain(event['operation'])} by {plain(event['who'])}{why}"
    if kind == "finished":
        return f"finished{' (' + plain(event['how']) + ')' if event['how'] else ''}"
    return plain(kind)


def _search(arguments: argparse.Namespace) -> int:
    if arguments.limit < 1:
        raise UsageError(f"queue search: --limit {arguments.limit}; allowed: 1 or more")
    wanted = {name: getattr(arguments, name) for name in ("message_id", "sender", "recipient")}
    if not any(wanted.values()):
        raise UsageError("queue search: one of --message-id, --sender and --recipient is needed")
    notes: dict[str, None] = {}  # what could not be searched, each once
    with control_client(arguments) as control:
        found = list(_found(control, wanted, arguments.limit, notes))
    for note in notes:
        complain(note)
    if arguments.json:
        print_json({"items": found})
        return DONE
    columns = width(sys.stdout)
    for item in found:
        for line in _item_lines(item):
            say(cut(line, columns))
    say(f"-- {len(found)} messages" if len(found) != 1 else "-- 1 message")
    return DONE


def _found(
    control: ControlClient, wanted: dict[str, str], limit: int, notes: dict[str, None]
) -> Iterator[dict[str, Any]]:
    cursor: str | None = ""
    while cursor is not None and limit:
        for part in control.parts("search", {**wanted, "cursor": cursor, "limit": min(limit, SEARCH_MAX)}):
            yield from part["items"]
            limit -= len(part["items"])
            cursor = part["cursor"]
            if part.get("note"):
                notes[part["note"]] = None


def _item_lines(item: dict[str, Any]) -> Iterator[str]:
    yield f"{item['queue_id']:<13}  {item['state']:<9}  {size_shown(item['size_bytes']):>6}  {shown(item['at'])}  " + (
        plain(item["sender"]) or "<>"
    )
    more = item["recipient_count"] - len(item["recipients"][:2])
    to = ", ".join(plain(address) for address in item["recipients"][:2])
    yield f"  to {to}{f' and {more} more' if more > 0 else ''}"
    if item["finished_at"]:
        yield f"  finished {shown(item['finished_at'])}"
