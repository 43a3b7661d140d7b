"""``waypost queue``: commands that show the queue; ``changes`` has the commands that change it."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import UNSET

from mailcore.cli.pages import Pages, print_pages, say_pages
from mailcore.cli.queue import changes, history, message, overview, past
from mailcore.cli.queue.filter import add_filters, filter_of
from mailcore.control.protocol.messages import PAGE_MAX, Item, ListPage, Reason, Reasons, ShownRecipient, ShowPart
from mailcore.control.protocol.past import PastItem
from mailcore.counted import counted
from mailcore.mail_state import next_attempt, other_states
from mailcore.manager_answers import Size
from mailcore.terminal.command import DONE, NOT_DONE, UsageError, add_common, control_client, not_empty, queue_id
from mailcore.terminal.output import complain, plain, print_json, rows_to_lines, say, size_shown, table, width
from mailcore.terminal.times import in_local_time, shown, shown_duration

__all__ = ["configure"]

DESTINATIONS_SHOWN = 30
DAMAGES_MAX = 100  # places named at the end of a list


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this command to ``parser``."""
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    listing = commands.add_parser("list", help="list messages", description="List messages.")
    add_filters(listing)
    listing.add_argument(
        "--limit", type=int, default=100, metavar="N", help="maximum number of messages (default: 100)"
    )
    listing.add_argument(
        "--cursor", type=not_empty, metavar="CURSOR", help="continue after the last page; printed below it"
    )
    listing.add_argument("--all", action="store_true", help="list all messages")
    past.add_at(listing)
    add_common(listing, document=False)
    listing.set_defaults(run=_list)
    showing = commands.add_parser("show", help="show one message: recipients, replies, reason for waiting")
    showing.add_argument("queue_id", type=queue_id, metavar="QUEUE_ID")
    add_common(showing)
    showing.set_defaults(run=_show)
    explaining = commands.add_parser("explain", help="explain why a message waits, one line per reason")
    explaining.add_argument("queue_id", type=queue_id, metavar="QUEUE_ID")
    add_common(explaining)
    explaining.set_defaults(run=_explain)
    size = commands.add_parser("size", help="count messages and recipients by lane and destination")
    past.add_at(size)
    add_common(size)
    size.set_defaults(run=_size)
    history.configure(commands)
    message.configure(commands)
    overview.configure(commands)
    changes.configure(commands)


def _list(arguments: argparse.Namespace) -> int:
    if arguments.limit < 1:
        raise UsageError(f"queue list: --limit {arguments.limit}; allowed: 1 or more")
    if arguments.at is not None:
        return past.list_at(arguments, _item_lines)
    with control_client(arguments) as control:
        pages = Pages(
            control,
            "list",
            ListPage,
            {"filter": filter_of(arguments)},
            _Notes(),
            cursor=arguments.cursor or "",
            limit=sys.maxsize if arguments.all else arguments.limit,
            page_max=PAGE_MAX,
        )
        if arguments.json:
            return print_pages(pages)
        return say_pages(pages, lambda item: _item_lines(item, time.time()))


class _Notes:
    """Collects from the pages of a list what could not be read."""

    def __init__(self) -> None:
        self._manager_away = False
        self._note = ""
        self._unanswered = ""
        self._damage: dict[str, None] = {}  # each once

    def add(self, page: ListPage) -> None:
        """Adds the notes of a page."""
        self._manager_away = page.manager_away or self._manager_away
        self._note = page.note or self._note
        self._unanswered = page.unanswered or self._unanswered
        for damage in page.damage:
            if len(self._damage) < DAMAGES_MAX:
                self._damage[damage] = None

    def missing(self) -> bool:
        """Returns True if messages may be missing: their records are damaged, or a shard did not answer."""
        return bool(self._damage or self._unanswered)

    def texts(self) -> Iterator[str]:
        """Yields the damage, and from when the list is."""
        yield from (f"damaged: {damage}" for damage in self._damage)
        if self._note:
            yield in_local_time(self._note)

    def keys(self) -> dict[str, Any]:
        """Returns the same for programs."""
        return {
            "manager_away": self._manager_away,
            "note": self._note,
            "unanswered": self._unanswered,
            "damage": list(self._damage),
        }


def _item_lines(item: Item | PastItem, now: float) -> list[str]:
    """Formats a message as mailq does: sender and time, recipients, and the reason for waiting."""
    sender = plain(item.sender) or "<>"
    head = f"{item.queue_id:<13}  {item.state:<8}  {size_shown(item.size_bytes):>6}  {shown(item.arrived_at)}"
    lines = [f"{head}  {sender}"]
    shown_recipients = ", ".join(plain(address) for address in item.recipients[:2])
    more = item.recipient_count - len(item.recipients[:2])
    to = shown_recipients + (f" and {more} more" if shown_recipients and more > 0 else "")
    lines.append(f"  to {to or str(item.recipient_count) + ' recipients'}")
    waits = []
    if item.state == "deferred":
        left = item.due_at - now
        waits.append(f"next attempt in {shown_duration(left)}" if left > 0 else "due")
    if item.reason:
        waits.append(plain(item.reason))
    if waits:
        lines.append(f"  {': '.join(waits)}")
    if item.apart:
        lines.append(f"  {_apart(item.states)}")
    return lines


def _apart(states: Mapping[str, int]) -> str:
    """Formats the recipients in other states than the one that is shown first: 1 recipient held, 2 recipients deleted."""
    return ", ".join(
        f"{count} recipient{'' if count == 1 else 's'} {state}" for state, count in other_states(states).items()
    )


def _show(arguments: argparse.Namespace) -> int:
    with control_client(arguments) as control:
        first, *others = control.ask_parts("show", ShowPart, {"queue_id": arguments.queue_id})
    recipients = [each for part in others if part.recipients is not UNSET for each in part.recipients]
    if arguments.json:
        print_json(msgspec.to_builtins(first) | {"recipients": recipients})
        return DONE
    _say_message(first)
    for each in recipients:
        _say_recipient(each)
    return DONE


def _say_message(first: ShowPart) -> None:
    item, details = first.message, first.envelope
    assert item is not UNSET, "the first part has all but the recipients"
    assert details is not UNSET
    if first.note:
        complain(in_local_time(first.note))
    client = f"{details.client_address}:{details.client_port} ({details.helo})" if details.client_address else ""
    pairs: list[tuple[str, object]] = [
        ("queue ID", item.queue_id),
        ("state", f"{item.state}; {_apart(item.states)}" if item.apart else item.state),
        ("lane", f"{item.lane}:{item.offset}, generation {item.generation}"),
        ("sender", item.sender or "<>"),
        ("arrived", f"{shown(item.arrived_at)} ({shown_duration(time.time() - item.arrived_at)} ago)"),
        ("next attempt", _next_try(item)),
        ("attempts", item.attempts),
        ("size", f"{item.size_bytes} bytes, {details.data}"),
        ("from client", client or details.origin),
        ("tls", details.tls),
        ("login", details.login),
        ("message-id", details.message_id),
        ("authenticity", details.authentication),
        ("hold reason", details.held_because),
        ("recipients", item.recipient_count),
    ]
    for line in rows_to_lines((name, value) for name, value in pairs if value != ""):
        say(line)
    _say_why(first.explain or [])


def _say_recipient(recipient: ShownRecipient) -> None:
    done = " (done)" if recipient.done else ""
    destination = f"  {plain(recipient.destination)}" if recipient.destination else ""
    say(f"  {plain(recipient.address)}{done}{destination}")
    if state := _state_of(recipient):
        say(f"      {state}")
    if recipient.reply:
        say(f"      {plain(recipient.reply)}")


def _state_of(recipient: ShownRecipient) -> str:
    """Formats the state of a recipient that is not due with its message: held since ...: reason."""
    since = f" since {shown(recipient.since)}" if recipient.since else ""
    why = f": {plain(recipient.why)}" if recipient.why else ""
    match recipient.state:
        case "held":
            return f"held{since}{why}"
        case "delayed":
            return f"delayed until {shown(recipient.until)}{why}"
        case "deleted":
            return f"deleted{since}{why}; can be undeleted until {shown(recipient.until)}"
        case "deferred" if recipient.until:
            return f"next attempt {shown(recipient.until)}"
    return "" if recipient.done else recipient.state


def _explain(arguments: argparse.Namespace) -> int:
    with control_client(arguments) as control:
        answer = control.ask("explain", Reasons, {"queue_id": arguments.queue_id})
    if arguments.json:
        print_json(answer.reasons)
    else:
        others = _apart(answer.states)
        say(f"{answer.state}; {others}" if others else answer.state)
        _say_why(answer.reasons)
    return DONE


def _say_why(reasons: list[Reason]) -> None:
    for reason in reasons:
        recipients = f"{reason.recipients} recipients" if reason.recipients != 1 else "1 recipient"
        destination = plain(reason.destination or "")
        say(f"  {recipients}{' for ' + destination if destination else ''}: {plain(in_local_time(reason.sentence))}")


def _next_try(item: Item) -> str:
    if item.state == "deleted":
        return f"none; can be undeleted until {shown(item.due_at)}"
    if words := next_attempt(item.state):
        return words
    return shown(item.due_at) if item.due_at else "immediately"


def _size(arguments: argparse.Namespace) -> int:
    if arguments.at is not None:
        return past.size_at(arguments)
    with control_client(arguments) as control:
        size = control.ask("size", Size)
    status = NOT_DONE if size.unanswered else DONE
    if arguments.json:
        print_json(size)
        return status
    if size.unanswered:
        complain(f"incomplete: {plain(size.unanswered)}")
    say(f"{counted(size.messages, 'message')}, {counted(size.recipients, 'recipient')}")
    if size.unheard and not size.unanswered:
        say(
            f"newest messages in {', '.join(size.unheard)} are not counted: its receiver has not reported its position yet"
        )
    lanes = [(lane, there.messages, there.recipients) for lane, there in sorted(size.lanes.items())]
    destinations = sorted(size.destinations.items(), key=lambda pair: (-pair[1], pair[0]))
    columns = width(sys.stdout)
    if lanes:
        say()
        for line in table(("LANE", "MESSAGES", "RECIPIENTS"), lanes, columns, frozenset({1, 2})):
            say(line)
    if destinations:
        say()
        rows = [(name or "(not routed yet, or name not known)", count) for name, count in destinations]
        for line in table(("DESTINATION", "RECIPIENTS"), rows[:DESTINATIONS_SHOWN], columns, frozenset({1})):
            say(line)
        if len(rows) > DESTINATIONS_SHOWN:
            say(f"and {len(rows) - DESTINATIONS_SHOWN} more; use --json to see all")
    return status
