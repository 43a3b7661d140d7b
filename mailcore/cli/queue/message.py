"""``waypost queue headers``, ``data``, ``active`` and ``add-recipient``: one message, and what is in it.

Law: on a terminal, a message's text is printable characters only; to a pipe or a file its data goes byte for byte.

Keeps law: terminal-output-is-safe (docs/laws.md).
"""

from __future__ import annotations

import argparse
import base64
import sys
from collections.abc import Iterator
from typing import Any

from mailcore.cli.pages import Reconnection
from mailcore.control.client import ControlClient, ControlError
from mailcore.control.protocol.changes import ChangeResult
from mailcore.control.protocol.messages import DataPiece, Headers, Working
from mailcore.control.protocol.operation import CHUNK_BYTES_MAX, MESSAGES_MAX
from mailcore.terminal.command import DONE, NOT_DONE, UsageError, add_common, control_client, queue_id
from mailcore.terminal.output import JsonLines, complain, plain, print_json, say, table, width

__all__ = ["configure", "pieces_of"]


def configure(commands: Any) -> None:
    """Adds these commands to the subcommands of ``waypost queue``."""
    headers = commands.add_parser("headers", help="print the header section of a message, decoded")
    headers.add_argument("queue_id", type=queue_id, metavar="QUEUE_ID")
    headers.add_argument("--raw", action="store_true", help="as received: folded lines, encoded words")
    add_common(headers)
    headers.set_defaults(run=_headers)
    data = commands.add_parser(
        "data",
        help="print a message as received: header and body",
        description="Print a message as received: header and body. Only root, the user Waypost runs as and members of "
        "[control] group may read messages. On a terminal, control characters are escaped.",
    )
    data.add_argument("queue_id", type=queue_id, metavar="QUEUE_ID")
    add_common(data, document=False)
    data.set_defaults(run=_data)
    active = commands.add_parser(
        "active", help="show which of the messages are in the active set, and how far they are"
    )
    active.add_argument("queue_ids", nargs="+", type=queue_id, metavar="QUEUE_ID")
    add_common(active)
    active.set_defaults(run=_active)
    adding = commands.add_parser("add-recipient", help="add recipients to a message in the queue")
    adding.add_argument("queue_id", type=queue_id, metavar="QUEUE_ID")
    adding.add_argument("recipients", nargs="+", metavar="ADDRESS", help="address to add")
    adding.add_argument("--why", default="", metavar="TEXT", help="reason, recorded with your user name")
    add_common(adding)
    adding.set_defaults(run=_add)


def _headers(arguments: argparse.Namespace) -> int:
    with control_client(arguments) as control:
        answer = control.ask("headers", Headers, {"queue_id": arguments.queue_id})
    if arguments.json:
        print_json(answer)
        return NOT_DONE if answer.damage else DONE
    if arguments.raw:
        for line in answer.raw.splitlines():
            say(plain(line))
    else:
        for name, value in answer.headers:
            say(plain(f"{name}: {value}" if name else value))
    if answer.truncated:
        complain("the header section is longer; this is its beginning")
    return _told(answer.damage)


def _data(arguments: argparse.Namespace) -> int:
    lines = JsonLines()
    size_bytes = 0
    damage = ""
    try:
        with control_client(arguments) as control:
            for piece in pieces_of(control, arguments.queue_id):
                size_bytes = piece.offset + len(piece.data)
                damage = damage or piece.damage
                if arguments.json:
                    lines.item({"offset": piece.offset, "data": base64.b64encode(piece.data).decode()})
                else:
                    _write(piece.data)
    except ControlError as error:
        if arguments.json:
            lines.end(complete=False, error=error.fault, queue_id=arguments.queue_id, size_bytes=size_bytes)
        raise
    if arguments.json:
        lines.end(queue_id=arguments.queue_id, size_bytes=size_bytes, damage=damage)
        return NOT_DONE if damage else DONE
    return _told(damage)


def _told(damage: str) -> int:
    """Says that the data is damaged, if it is; returns the exit status."""
    if not damage:
        return DONE
    complain(f"the message is damaged and was printed as it is stored: {plain(damage)}")
    return NOT_DONE


def pieces_of(control: ControlClient, queue_id: str) -> Iterator[DataPiece]:
    """Yields the data in order; asks again for a piece whose answer broke off. Raises ControlError."""
    reconnection = Reconnection()
    offset: int | None = 0
    while offset is not None:
        try:
            asked = {"queue_id": queue_id, "offset": offset, "length": CHUNK_BYTES_MAX}
            piece = control.ask("data", DataPiece, asked)
        except ControlError as error:
            reconnection.wait(error)
            continue
        reconnection.answered()
        yield piece
        offset = piece.offset + len(piece.data) if piece.more else None


def _write(data: bytes) -> None:
    if not sys.stdout.isatty():
        sys.stdout.buffer.write(data)
        return
    text = data.decode("utf-8", "backslashreplace").replace("\r\n", "\n")
    lines = [plain(line) for line in text.split("\n")]
    encoding = sys.stdout.encoding or "ascii"
    sys.stdout.write("\n".join(lines).encode(encoding, "backslashreplace").decode(encoding))


def _active(arguments: argparse.Namespace) -> int:
    """Ends with NOT_DONE if a message is not in the active set."""
    queue_ids = list(dict.fromkeys(arguments.queue_ids))
    if len(queue_ids) > MESSAGES_MAX:
        raise UsageError(f"queue active: {len(queue_ids)} queue IDs; allowed: {MESSAGES_MAX}", argument="QUEUE_ID")
    with control_client(arguments) as control:
        answer = control.ask("working", Working, {"queue_ids": queue_ids})
    if arguments.json:
        print_json(answer)
    else:
        rows: list[tuple[object, ...]] = []
        for each in queue_ids:
            known = answer.messages.get(each)
            if known is None:
                rows.append((each, "not active", "", "", ""))
            else:
                place = f"{known.lane}:{known.offset}"
                rows.append((each, "active", known.remaining, known.in_flight, place))
        heads = ("QUEUE ID", "STATE", "REMAINING", "IN PROGRESS", "ENVELOPE")
        for line in table(heads, rows, width(sys.stdout), frozenset({2, 3})):
            say(line)
    return DONE if len(answer.messages) == len(queue_ids) else NOT_DONE


def _add(arguments: argparse.Namespace) -> int:
    given = {"queue_id": arguments.queue_id, "recipients": arguments.recipients}
    with control_client(arguments) as control:
        answer = control.ask("add_recipients", ChangeResult, given, why=arguments.why)
    if arguments.json:
        print_json(answer)
    else:
        for named, error in answer.errors.items():
            complain(f"{plain(named)}: {error.message}")
        if answer.changed:
            count = len(arguments.recipients)
            say(f"{count} recipient{'s' if count != 1 else ''} added to {arguments.queue_id}")
    return NOT_DONE if answer.errors else DONE
