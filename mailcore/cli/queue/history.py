"""``waypost queue history`` and ``search``: events of messages, including finished ones."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from typing import Any

from mailcore.change_rules import command_of
from mailcore.cli.pages import Pages, print_pages, say_pages
from mailcore.cli.queue.filter import PATTERN_HELP, condition
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
    Settled,
)
from mailcore.counted import counted
from mailcore.terminal.command import DONE, NOT_DONE, UsageError, add_common, control_client, not_empty, queue_id
from mailcore.terminal.output import complain, plain, print_json, say, size_shown
from mailcore.terminal.times import in_local_time, shown

__all__ = ["configure"]

ADDED_SHOWN = 3  # addresses on one line; --json has more


_REPORTS = {
    "": "bounce to the sender",
    "delay": "delay warning to the sender",
    "success": "notice of success to the sender",
    "postmaster": "report to the postmaster",
}


def configure(commands: Any) -> None:
    """Adds ``history`` and ``search`` to the subcommands of ``waypost queue``."""
    history = commands.add_parser("history", help="show all events of a message, finished or not")
    history.add_argument("queue_id", type=queue_id, metavar="QUEUE_ID")
    add_common(history)
    history.set_defaults(run=_history)
    searching = commands.add_parser("search", help="search messages, including finished ones whose records still exist")
    group = searching.add_argument_group("conditions (a message must fulfil all; patterns are allowed)", PATTERN_HELP)
    for name, metavar, summary in (
        ("message_id", "TEXT", "value of the header field Message-ID, with or without < and >"),
        ("sender", "ADDRESS", 'envelope sender; "<>" is the empty sender'),
        ("recipient", "ADDRESS", "one of the recipients"),
    ):
        group.add_argument(f"--{name.replace('_', '-')}", type=condition(name), metavar=metavar, help=summary)
    searching.add_argument(
        "--limit", type=int, default=50, metavar="N", help="maximum number of messages (default: 50)"
    )
    searching.add_argument(
        "--cursor", type=not_empty, metavar="CURSOR", help="continue after the last page; printed below it"
    )
    add_common(searching, document=False)
    searching.set_defaults(run=_search)


def _history(arguments: argparse.Namespace) -> int:
    with control_client(arguments) as control:
        history = control.ask("history", HistoryPart, {"queue_id": arguments.queue_id})
    known = bool(history.events)
    if arguments.json:
        print_json({name: getattr(history, name) for name in History.__struct_fields__})
        return DONE if known else NOT_DONE
    for event in history.events:
        for line in _event_lines(event):
            say(line)
    if history.events_left_out or history.verdicts_left_out:
        complain(
            f"{counted(history.events_left_out, 'event')} and {counted(history.verdicts_left_out, 'verdict')} left out"
        )
    if history.note:
        complain(in_local_time(history.note))
    return DONE if known else NOT_DONE


def _event_lines(event: HistoryEvent) -> Iterator[str]:
    """Formats an event, and below it the reply for each recipient."""
    yield f"{shown(event.at)}  {_summary(event)}"
    if isinstance(event, Attempt):
        delays = "/".join(f"{delay:.2g}" for delay in event.delays)
        yield f"    relay {plain(event.relay)}, delays {delays} s{', ' + plain(event.tls) if event.tls else ''}"
        if event.tls_level:
            yield f"    TLS level {plain(event.tls_level)}"
    if isinstance(event, Attempt | Settled):
        for verdict in event.verdicts:
            recipient = plain(verdict.address) or f"recipient {verdict.number}"
            yield f"    {verdict.status}  {recipient}: {plain(verdict.reply)}"
        if event.verdicts_left_out:
            yield f"    and {counted(event.verdicts_left_out, 'more recipient')}"


def _summary(event: HistoryEvent) -> str:
    match event:
        case Accepted():
            client = f" from {plain(event.client_address)} ({plain(event.helo)})" if event.client_address else ""
            recipients = "1 recipient" if event.recipients == 1 else f"{event.recipients} recipients"
            sender = plain(event.sender) or "<>"
            return f"accepted{client}: {sender} to {recipients}, {size_shown(event.size_bytes)}"
        case Attempt():
            return f"attempt{' for ' + plain(event.destination) if event.destination else ''}"
        case Settled():
            return f"ended without a delivery attempt{' for ' + plain(event.destination) if event.destination else ''}"
        case Deferred() if event.of_lane:
            return f"moved to {plain(event.lane)}, where it waits until {shown(event.due_at)}"
        case Deferred():
            return f"deferred until {shown(event.due_at)}"
        case Moved():
            return f"moved to {plain(event.lane)}"
        case BounceQueued():
            return f"{_REPORTS.get(event.report, 'report to the sender')}: {plain(event.queue_id)}"
        case Administered():
            why = f": {plain(event.why)}" if event.why else ""
            return f"{_order(event)} by {plain(event.who)}{why}"
        case Finished():
            return f"finished{' (' + plain(event.how) + ')' if event.how else ''}"


def _order(event: Administered) -> str:
    """Formats a change as its command is called, with what its record says of it."""
    operation, arguments, count = event.operation, event.arguments, event.recipients
    text = plain(command_of(operation))
    if operation == "add_recipients":
        return text + _added(arguments.get("recipients"), count)
    if count is not None:
        text += " of 1 recipient" if count == 1 else f" of {count} recipients"
    if operation == "reroute" and "route" in arguments:
        text += f" to {plain(str(arguments['route']))}"
    until = arguments.get("until")
    if operation == "delay" and isinstance(until, int | float):
        text += f" until {shown(until)}"
    return text


def _added(recipients: object, count: int | None) -> str:
    """Formats the first of the addresses that were added."""
    if not isinstance(recipients, list) or not recipients:
        return ""
    addresses = recipients[:ADDED_SHOWN]
    more = (count or len(recipients)) - len(addresses)
    return f" of {', '.join(plain(str(each)) for each in addresses)}{f' and {more} more' if more > 0 else ''}"


class _Notes:
    """Collects from the pages of a search what could not be searched."""

    def __init__(self) -> None:
        self._texts: dict[str, None] = {}  # each once
        self._manager_away = False
        self._unread_files = 0  # of events
        self._unanswered = ""

    def add(self, page: SearchPart) -> None:
        """Adds the notes of a part."""
        if page.note:
            self._texts[page.note] = None
        self._manager_away = self._manager_away or page.manager_away
        self._unread_files = max(self._unread_files, page.unread_files)
        self._unanswered = page.unanswered or self._unanswered

    def missing(self) -> bool:
        """Returns True if messages may be missing: files of events could not be read, or a shard did not answer."""
        return bool(self._unread_files or self._unanswered)

    def texts(self) -> Iterable[str]:
        """Returns what could not be searched."""
        return map(in_local_time, self._texts)

    def keys(self) -> dict[str, Any]:
        """Returns the same for programs."""
        return {
            "manager_away": self._manager_away,
            "unread_files": self._unread_files,
            "note": "; ".join(self._texts),
            "unanswered": self._unanswered,
        }


def _search(arguments: argparse.Namespace) -> int:
    if arguments.limit < 1:
        raise UsageError(f"queue search: --limit {arguments.limit}; allowed: 1 or more", argument="--limit")
    names = ("message_id", "sender", "recipient")
    query = {name: value for name in names if (value := getattr(arguments, name)) is not None}
    if not query:
        raise UsageError("queue search: give --message-id, --sender or --recipient")
    with control_client(arguments) as control:
        pages = Pages(
            control,
            "search",
            SearchPart,
            query,
            _Notes(),
            cursor=arguments.cursor or "",
            limit=arguments.limit,
            page_max=SEARCH_MAX,
        )
        return print_pages(pages) if arguments.json else say_pages(pages, _item_lines)


def _item_lines(item: Hit) -> Iterator[str]:
    yield f"{item.queue_id:<13}  {item.state:<9}  {size_shown(item.size_bytes):>6}  {shown(item.at)}  " + (
        plain(item.sender) or "<>"
    )
    more = item.recipient_count - len(item.recipients[:2])
    to = ", ".join(plain(address) for address in item.recipients[:2])
    yield f"  to {to}{f' and {more} more' if more > 0 else ''}"
    if item.finished_at:
        yield f"  finished {shown(item.finished_at)}"
