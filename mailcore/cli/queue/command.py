"""``waypost queue``: looking at the queue; the changes to it are in ``changes``."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from typing import Any

from mailcore.cli.queue import changes, history
from mailcore.cli.queue.filter import add_filters, filter_of
from mailcore.control.arguments import PAGE_MAX
from mailcore.control.client import ControlClient
from mailcore.terminal.command import DONE, UsageError, add_common, control_client
from mailcore.terminal.output import complain, cut, plain, print_json, rows_to_lines, say, size_shown, table, width
from mailcore.terminal.times import shown, shown_duration

__all__ = ["configure"]

DESTINATIONS_SHOWN = 30


def configure(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    listing = commands.add_parser("list", help="messages, a page at a time", description="Messages, a page at a time.")
    add_filters(listing)
    listing.add_argument("--limit", type=int, default=100, metavar="N", help="messages of the page (100)")
    listing.add_argument("--cursor", default="", metavar="CURSOR", help="go on where a page ended: lane:offset")
    listing.add_argument("--all", action="store_true", help="all pages")
    add_common(listing)
    listing.set_defaults(run=_list)
    showing = commands.add_parser("show", help="one message: recipients, replies, why it waits")
    showing.add_argument("queue_id")
    add_common(showing)
    showing.set_defaults(run=_show)
    explaining = commands.add_parser("explain", help="why a message is not delivered now, a line for each reason")
    explaining.add_argument("queue_id")
    add_common(explaining)
    explaining.set_defaults(run=_explain)
    size = commands.add_parser("size", help="messages and recipients, by lane and by destination")
    add_common(size)
    size.set_defaults(run=_size)
    history.configure(commands)
    changes.configure(commands)


def _list(arguments: argparse.Namespace) -> int:
    if arguments.limit < 1:
        raise UsageError(f"queue list: --limit {arguments.limit}; allowed: 1 or more")
    listing = _Listing(arguments)
    with control_client(arguments) as control:
        if arguments.json:
            # Written as it comes: a million messages are one document, and not in memory.
            sys.stdout.write('{"items": [')
            for number, item in enumerate(listing.items(control)):
                sys.stdout.write((", " if number else "") + json.dumps(item))
            rest = {"cursor": listing.cursor, "note": listing.note, "damage": listing.damage}
            sys.stdout.write("], " + json.dumps(rest)[1:] + "\n")
            return DONE
        columns = width(sys.stdout)
        count = 0
        for item in listing.items(control):
            count += 1
            for line in _item_lines(item, time.time()):
                say(cut(line, columns))
    for damage in listing.damage:
        complain(f"damaged: {damage}")
    if listing.note:
        complain(listing.note)
    if listing.cursor is not None:
        say(f"-- {count} messages; more: --cursor {listing.cursor}")
    else:
        say(f"-- {count} messages" if count != 1 else "-- 1 message")
    return DONE


class _Listing:
    """Pages asked for until there are enough messages. After that: where to go on, and what was said besides."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._filter = filter_of(arguments)
        self._wanted = sys.maxsize if arguments.all else arguments.limit
        self.cursor: str | None = arguments.cursor
        self.note = ""
        self.damage: list[str] = []

    def items(self, control: ControlClient) -> Iterator[dict[str, Any]]:
        left = self._wanted
        while left and self.cursor is not None:
            page = control.call("list", {"filter": self._filter, "cursor": self.cursor, "limit": min(left, PAGE_MAX)})
            self.cursor = page["cursor"]
            self.note = page.get("note") or self.note
            self.damage += page.get("damage") or []
            left -= len(page["items"])
            yield from page["items"]


def _item_lines(item: dict[str, Any], now: float) -> list[str]:
    """As mailq does: who and when, to whom, and why it is still here."""
    sender = plain(item["sender"]) or "<>"
    head = (
        f"{item['queue_id']:<13}  {item['state']:<8}  {size_shown(item['size_bytes']):>6}  {shown(item['arrived_at'])}"
    )
    lines = [f"{head}  {sender}"]
    shown_recipients = ", ".join(plain(address) for address in item["recipients"][:2])
    more = item["recipient_count"] - len(item["recipients"][:2])
    to = shown_recipients + (f" and {more} more" if shown_recipients and more > 0 else "")
    lines.append(f"  to {to or str(item['recipient_count']) + ' recipients'}")
    waits = []
    if item["state"] == "deferred":
        left = item["due_at"] - now
        waits.append(f"next try in {shown_duration(left)}" if left > 0 else "due")
    if item["reason"]:
        waits.append(plain(item["reason"]))
    if waits:
        lines.append(f"  {': '.join(waits)}")
    return lines


def _show(arguments: argparse.Namespace) -> int:
    recipients: list[dict[str, Any]] = []
    answer: dict[str, Any] = {}
    with control_client(arguments) as control:
        for part in control.parts("show", {"queue_id": arguments.queue_id.upper()}):
            recipients += part.pop("recipients", [])
            answer |= part
    if arguments.json:
        print_json(answer | {"recipients": recipients})
        return DONE
    if answer.get("note"):
        complain(answer["note"])
    item, details = answer["message"], answer["envelope"]
    client = (
        f"{details['client_address']}:{details['client_port']} ({details['helo']})" if details["client_address"] else ""
    )
    pairs: list[tuple[str, object]] = [
        ("queue id", item["queue_id"]),
        ("state", item["state"]),
        ("lane", f"{item['lane']}:{item['offset']}, generation {item['generation']}"),
        ("sender", item["sender"] or "<>"),
        ("arrived", f"{shown(item['arrived_at'])} ({shown_duration(time.time() - item['arrived_at'])} ago)"),
        ("next try", _next_try(item)),
        ("attempts", item["attempts"]),
        ("size", f"{item['size_bytes']} bytes, {details['data']}"),
        ("from client", client or details["origin"]),
        ("tls", details["tls"]),
        ("login", details["login"]),
        ("message-id", details["message_id"]),
        ("held because", details["held_because"]),
        ("recipients", item["recipient_count"]),
    ]
    for line in rows_to_lines((name, value) for name, value in pairs if value != ""):
        say(line)
    _say_why(answer["explain"] or [])
    for each in recipients:
        done = " (done)" if each["done"] else ""
        destination = f"  {plain(each['destination'])}" if each["destination"] else ""
        say(f"  {plain(each['address'])}{done}{destination}")
        if each["reply"]:
            say(f"      {plain(each['reply'])}")
    return DONE


def _explain(arguments: argparse.Namespace) -> int:
    with control_client(arguments) as control:
        groups = control.call("explain", {"queue_id": arguments.queue_id.upper()})
    if arguments.json:
        print_json(groups)
    else:
        _say_why(groups)
    return DONE


def _say_why(groups: list[dict[str, Any]]) -> None:
    for group in groups:
        count = group.get("recipients")
        who = f"{count} recipients" if count != 1 else "1 recipient"
        destination = plain(group.get("destination", ""))
        say(f"  {who}{' for ' + destination if destination else ''}: {plain(group.get('sentence', ''))}")


def _next_try(item: dict[str, Any]) -> str:
    if item["state"] == "held":
        return "when it is released"
    if item["state"] == "deleted":
        return f"none; it can be undeleted until {shown(item['due_at'])}"
    return shown(item["due_at"]) if item["due_at"] else "at once"


def _size(arguments: argparse.Namespace) -> int:
    with control_client(arguments) as control:
        size = control.call("size")
    if arguments.json:
        print_json(size)
        return DONE
    say(f"{size['messages']} messages, {size['recipients']} recipients")
    if size["unheard"]:
        say(
            f"without the newest in {', '.join(size['unheard'])}: its receiver has not told the manager yet how far it is"
        )
    lanes = [(lane, there["messages"], there["recipients"]) for lane, there in sorted(size["lanes"].items())]
    destinations = sorted(size["destinations"].items(), key=lambda pair: (-pair[1], pair[0]))
    columns = width(sys.stdout)
    if lanes:
        say()
        for line in table(("LANE", "MESSAGES", "RECIPIENTS"), lanes, columns, frozenset({1, 2})):
            say(line)
    if destinations:
        say()
        rows = [(name or "(not routed, or without a name here)", count) for name, count in destinations]
        for line in table(("DESTINATION", "RECIPIENTS"), rows[:DESTINATIONS_SHOWN], columns, frozenset({1})):
            say(line)
        if len(rows) > DESTINATIONS_SHOWN:
            say(f"and {len(rows) - DESTINATIONS_SHOWN} more; --json has them")
    return DONE
