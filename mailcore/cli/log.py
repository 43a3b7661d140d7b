"""``waypost log``: ``dump`` prints the internal records of the queue, ``lines`` the last lines of the mail log that match.

``dump`` needs no daemon; neither changes anything.
"""

from __future__ import annotations

import argparse
import sys

from mailcore.cli.log_text import text_of
from mailcore.control.protocol.log import LINES_MAX, LogLines
from mailcore.faults import Code, Fault
from mailcore.log.disk import Disk
from mailcore.log.segment import SegmentTooNew
from mailcore.lookup.dump import add_options, items, line_of
from mailcore.lookup.log_selection import EVENTS, LEVELS, STATUSES
from mailcore.terminal.command import (
    DONE,
    EMPTY,
    NOT_DONE,
    UsageError,
    add_common,
    control_client,
    fault_of,
    file_name,
    not_empty,
    queue_id,
    settings_of,
)
from mailcore.terminal.output import JsonLines, complain, complain_fault, plain, print_json, say

__all__ = ["configure"]

CONDITIONS = {
    "sender": "lines of messages from this sender, as far as they are near the line that names it",
    "recipient": "lines that name this recipient",
    "destination": "lines that name this next hop, or a recipient's domain",
    "client": "lines that name this client, by address or name",
}
DESCRIPTION = (
    "Print the internal records of the queue (not mail.log): every record, mark and damage, as it is on the disk."
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this command to ``parser``."""
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    dumping = commands.add_parser(
        "dump", help="print every record of a segment file, a lane or a queue directory", description=DESCRIPTION
    )
    dumping.add_argument(
        "path",
        metavar="PATH",
        nargs="?",
        type=file_name,
        help="a segment (.seg or .data), a lane's directory, or a queue directory; default: the queue of the configuration",
    )
    add_options(dumping)
    add_common(dumping, document=False)
    dumping.set_defaults(run=_dump)
    lines = commands.add_parser("lines", help="print the last lines of the mail log that match, oldest first")
    lines.add_argument(
        "-n", "--limit", type=int, default=100, metavar="N", help=f"at most N lines, 1 to {LINES_MAX} (default: 100)"
    )
    lines.add_argument("--queue-id", metavar="QUEUE_ID", type=queue_id, help="lines of this message")
    for name, words in CONDITIONS.items():
        lines.add_argument(f"--{name}", metavar="PATTERN", type=not_empty, help=words)
    lines.add_argument("--status", choices=STATUSES, default="", help="deliveries with this status")
    lines.add_argument(
        "--event", metavar="NAME", choices=sorted(EVENTS), default="", help="lines of this event (docs/log.md)"
    )
    lines.add_argument("--level", choices=LEVELS, default="info", help="lines of this level and above (default: info)")
    lines.add_argument(
        "--before", metavar="PLACE", default="", help="lines in front of a place, which the last output names"
    )
    add_common(lines)
    lines.set_defaults(run=_lines)


def _lines(arguments: argparse.Namespace) -> int:
    names = ("queue_id", *CONDITIONS, "status", "event", "level", "before", "limit")
    given = {name: value for name in names if (value := getattr(arguments, name))}
    with control_client(arguments) as control:
        found = control.ask("log", LogLines, given)
    if arguments.json:
        print_json(found)
        return DONE
    for line in found.lines:
        say(text_of(line.values) + ("  [from events]" if line.source == "events" else ""))
    if found.note:
        complain(f"incomplete: {plain(found.note)}")
    if found.older:
        complain(f"older lines: --before {found.older}")
    return DONE


def _dump(arguments: argparse.Namespace) -> int:
    """Ends with NOT_DONE if anything is damaged, or cannot be read."""
    if arguments.lane == "":
        raise UsageError(f"log dump: argument --lane: {EMPTY}", argument="--lane")
    path = arguments.path if arguments.path is not None else str(settings_of(arguments).queue_directory)
    lines = JsonLines()
    damaged = 0
    fault: Fault | None = None
    try:
        for item in items(Disk(), path, arguments):
            damaged += item["kind"] == "damage"
            if arguments.json:
                lines.item(item)
            else:
                say(line_of(item))
    except BrokenPipeError:
        raise
    except SegmentTooNew as error:
        fault = Fault(Code.CONFLICT, str(error))
    except OSError as error:
        fault = fault_of(error, path)
    if arguments.json:
        lines.end(complete=not (damaged or fault), error=fault, damaged=damaged)
    if fault is not None:
        complain_fault(fault)
    sys.stdout.flush()
    return NOT_DONE if damaged or fault else DONE
