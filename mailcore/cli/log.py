"""``waypost log dump``: prints the internal records of the queue, of given paths or of the configured queue directory.

It needs no daemon and changes nothing.
"""

from __future__ import annotations

import argparse
import sys

from mailcore.faults import Code, Fault
from mailcore.log.disk import Disk
from mailcore.log.segment import SegmentTooNew
from mailcore.lookup.dump import add_options, items, line_of
from mailcore.terminal.command import DONE, EMPTY, NOT_DONE, UsageError, add_common, fault_of, file_name, settings_of
from mailcore.terminal.output import JsonLines, complain_fault, say

__all__ = ["configure"]

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
