"""postqueue and mailq: the queue in Postfix's layout, and retries. Layout and exit statuses are those of Postfix 3.7."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Sequence

from mailcore.cli.postfix.exits import OK, UNAVAILABLE, Ended
from mailcore.cli.postfix.mailq import Queued, queue_of, queued
from mailcore.cli.postfix.waiting import Maildrop, OpenMaildrop
from mailcore.control.client import ControlClient
from mailcore.control.protocol.changes import ChangeResult, MatchingProgress
from mailcore.control.protocol.messages import Item, ShowPart
from mailcore.control.protocol.operation import QUEUE_ID_PATTERN
from mailcore.counted import counted
from mailcore.faults import Code
from mailcore.terminal.output import plain

__all__ = ["flush", "flush_site", "list_json", "list_queue", "postqueue", "retry_one"]

HEADING = "-Queue ID-  --Size-- ----Arrival Time---- -Sender/Recipient-------"
USAGE = "usage: postqueue -f | postqueue -i queueid | postqueue -j | postqueue -p | postqueue -s site"
STATUS = {"active": "*", "hold": "!"}
REASON_COLUMN = 76  # a reason ends there, if it is short
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def postqueue(argv: Sequence[str], client: Callable[[str], ControlClient], maildrop: OpenMaildrop) -> int:
    """Runs postqueue; ``client`` makes a control client of the configuration file given with -c. Raises Ended.

    ``maildrop`` returns that of the same file.
    """
    action, value, config = "", "", ""
    arguments = list(argv)
    while arguments:
        option = arguments.pop(0)
        letter, rest = option[1:2], option[2:]
        if not option.startswith("-") or not letter:
            raise Ended(UNAVAILABLE, USAGE)
        if letter == "v":
            continue
        if letter in "cis":
            if not rest and not arguments:
                raise Ended(UNAVAILABLE, USAGE)
            given = rest or arguments.pop(0)
            if letter == "c":
                config = given
                continue
            value = given
        elif letter not in "fjp" or rest:
            raise Ended(UNAVAILABLE, USAGE)
        if action:
            raise Ended(UNAVAILABLE, USAGE)
        action = letter
    with client(config) as control:
        if action == "p":
            return list_queue(control, maildrop(config))
        if action == "j":
            return list_json(control)
        if action == "f":
            return flush(control)
        if action == "i":
            return retry_one(control, value)
        if action == "s":
            return flush_site(control, value)
    raise Ended(UNAVAILABLE, USAGE)


def list_queue(control: ControlClient, maildrop: Maildrop) -> int:
    """Prints the queue as mailq does; returns the exit status. A part that cannot be read is named on stderr, status 69.

    Mail that waits in the maildrop is mentioned: on stderr behind a list, since scripts read its last line.
    """
    notes: list[str] = []
    count = size_bytes = 0
    for message in queued(control, notes):
        if not count:
            print(HEADING)
        count += 1
        size_bytes += message.item.size_bytes
        _print(message)
    waiting = maildrop.said()
    if count:
        print(f"-- {size_bytes // 1024} Kbytes in {count} Request{'' if count == 1 else 's'}.")
        if waiting:
            print(f"postqueue: note: {waiting}", file=sys.stderr)
    elif waiting:
        print(f"-- {waiting}.")
    elif not notes:
        print("Mail queue is empty")
    return _end(notes)


def _print(message: Queued) -> None:
    item = message.item
    name = item.queue_id + STATUS.get(message.queue, "")
    print(f"{name:<11} {item.size_bytes:7d} {_time(item.arrived_at):<20} {plain(message.sender)}")
    before = ""
    for address, reason in message.recipients:
        if reason and reason != before:
            print(f"({plain(reason)})".rjust(REASON_COLUMN + 2))
        before = reason
        print(f"{'':<11} {'':>7} {'':<20} {plain(address)}")
    print()


def _time(at: float) -> str:
    local = time.localtime(at)
    day, month = _DAYS[local.tm_wday], _MONTHS[local.tm_mon - 1]
    return f"{day} {month} {local.tm_mday:2d} {local.tm_hour:02d}:{local.tm_min:02d}:{local.tm_sec:02d} "


def list_json(control: ControlClient) -> int:
    """Prints a JSON object a line, with the keys of Postfix; returns the exit status."""
    notes: list[str] = []
    for message in queued(control, notes):
        item = message.item
        line = {
            "queue_name": message.queue,
            "queue_id": item.queue_id,
            "arrival_time": int(item.arrived_at),
            "message_size": item.size_bytes,
            "forced_expire": False,
            "sender": message.sender,
            "recipients": [
                {"address": address, **({"delay_reason": reason} if reason else {})}
                for address, reason in message.recipients
            ],
        }
        print(json.dumps(line))
    return _end(notes)


def _end(notes: list[str]) -> int:
    for note in notes:
        print(f"postqueue: warning: {plain(note)}", file=sys.stderr)
    return UNAVAILABLE if notes else OK


def flush(control: ControlClient, recipient: str = "") -> int:
    """Makes all deferred mail due, or that for one pattern of recipients; returns the exit status. Raises Ended."""
    answer = control.ask(
        "change_matching",
        MatchingProgress,
        {"change": "retry", "filter": {"recipient": recipient} if recipient else {}},
        why="postqueue",
    )
    not_reached = sum(count for code, count in answer.failures.items() if code not in (Code.CONFLICT, Code.NOT_FOUND))
    if not_reached or not answer.done:
        raise Ended(UNAVAILABLE, f"{counted(not_reached, 'message')} not reached; try again")
    return OK


def flush_site(control: ControlClient, site: str) -> int:
    """Makes mail for recipients in a domain due. Raises Ended."""
    if not site or any(character in site for character in "*?@ "):
        raise Ended(UNAVAILABLE, f"Cannot flush mail queue - invalid destination: {site!a}")
    return flush(control, f"*@{site}")


def retry_one(control: ControlClient, queue_id: str) -> int:
    """Makes one message due. Raises Ended if it cannot be: a message that is due already is not an error."""
    if not re.fullmatch(QUEUE_ID_PATTERN, queue_id.upper()):
        raise Ended(UNAVAILABLE, f"Cannot flush mail queue - invalid queue ID: {queue_id!a}")
    answer = control.ask("retry", ChangeResult, {"queue_ids": [queue_id.upper()]}, why="postqueue -i")
    for fault in answer.errors.values():
        if fault.code is not Code.CONFLICT or _is_held(control, queue_id.upper()):
            raise Ended(UNAVAILABLE, f"{queue_id}: {fault.message}")
    return OK


def _is_held(control: ControlClient, queue_id: str) -> bool:
    first = next(control.ask_parts("show", ShowPart, {"queue_id": queue_id, "recipients": False})).message
    return isinstance(first, Item) and queue_of(first) == "hold"
