"""``waypost queue list --at`` and ``queue size --at``: the queue as it was at a moment, from events."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from mailcore.cli.pages import Pages, print_pages, say_pages
from mailcore.cli.queue.filter import filter_of
from mailcore.control.protocol.messages import PAGE_MAX
from mailcore.control.protocol.past import AsOf, ListAtPart, SizeAtPart
from mailcore.counted import counted
from mailcore.terminal.command import DONE, NOT_DONE, control_client, moment
from mailcore.terminal.output import complain, plain, print_json, say, table, width
from mailcore.terminal.times import TimeError, duration_of, in_local_time, shown, shown_duration

__all__ = ["add_at", "list_at", "size_at"]

DESTINATIONS_SHOWN = 30


def add_at(parser: argparse.ArgumentParser) -> None:
    """Adds the option --at."""
    parser.add_argument(
        "--at",
        type=_past,
        metavar="TIME",
        help="the queue as it was then, from events: 2026-11-21T10:00, or 2h for two hours ago (docs/events.md)",
    )


def _past(text: str) -> float:
    """Parses a time, or how long ago it was, to seconds since 1970; an argparse type."""
    try:
        return time.time() - duration_of(text)
    except TimeError:
        return moment(text)


class _Notes:
    """Collects from the pages how well the moment is known."""

    def __init__(self) -> None:
        self._last: AsOf | None = None

    def add(self, page: ListAtPart) -> None:
        """Adds the notes of a page."""
        if page.done:
            self._last = page

    def missing(self) -> bool:
        """Returns True if messages may be missing, or too many."""
        return self._last is not None and not self._last.complete

    def texts(self) -> Iterator[str]:
        """Yields how well it is known, and of which moment it is."""
        if self._last is not None:
            yield from _notes(self._last)
            yield f"as it was at {shown(self._last.time)}, from events"

    def keys(self) -> dict[str, Any]:
        """Returns the same for programs."""
        last = self._last
        return {} if last is None else {name: getattr(last, name) for name in ("time", "counted_at", "missing", "note")}


def _notes(answer: AsOf) -> Iterator[str]:
    if not answer.complete:
        yield f"incomplete: {plain(in_local_time(answer.note))}"
    elif answer.note:
        yield plain(in_local_time(answer.note))


def list_at(arguments: argparse.Namespace, lines_of: Callable[[Any, float], list[str]]) -> int:
    """Lists the messages that were queued at --at; ``lines_of`` formats an item, given the time."""
    with control_client(arguments) as control:
        pages = Pages(
            control,
            "list_at",
            ListAtPart,
            {"filter": filter_of(arguments), "time": arguments.at},
            _Notes(),
            cursor=arguments.cursor or "",
            limit=sys.maxsize if arguments.all else arguments.limit,
            page_max=PAGE_MAX,
        )
        if arguments.json:
            return print_pages(pages)
        return say_pages(pages, lambda item: lines_of(item, arguments.at))


def size_at(arguments: argparse.Namespace) -> int:
    """Prints the size of the queue at --at."""
    with control_client(arguments) as control:
        size = control.ask("size_at", SizeAtPart, {"time": arguments.at})
    if arguments.json:
        print_json(size)
        return DONE if size.complete else NOT_DONE
    for note in _notes(size):
        complain(note)
    states = ", ".join(f"{count} {state}" for state, count in size.by_state.items())
    total = f"{counted(size.messages, 'message')}, {counted(size.recipients, 'recipient')}"
    say(f"{total}{f' ({states})' if states else ''} at {shown(size.time)}, from events")
    if size.deleted:
        say(f"{counted(size.deleted, 'recipient')} deleted, and not yet for good")
    if size.oldest is not None:
        age = shown_duration(size.time - size.oldest.arrived_at)
        sender = plain(size.oldest.sender) or "<>"
        say(f"oldest: {size.oldest.queue_id}, {size.oldest.state}, {age} old, from {sender}")
    columns = width(sys.stdout)
    if size.lanes:
        say()
        lanes = [(lane, there.messages, there.recipients) for lane, there in size.lanes.items()]
        for line in table(("LANE", "MESSAGES", "RECIPIENTS"), lanes, columns, frozenset({1, 2})):
            say(line)
    rows = [(plain(name), count) for name, count in size.destinations.items()]
    more = sum(count for _, count in rows[DESTINATIONS_SHOWN:]) + size.others
    rows = rows[:DESTINATIONS_SHOWN]
    rows += [("(others)", more)] if more else []
    rows += [("(not tried until then)", size.untried)] if size.untried else []
    if rows:
        say()
        for line in table(("DESTINATION", "RECIPIENTS"), rows, columns, frozenset({1})):
            say(line)
    return DONE if size.complete else NOT_DONE
