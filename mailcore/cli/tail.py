"""``waypost tail``: prints the mail log as it is written, the lines that match.

It reads ``mail.jsonl`` (``mailcore/lookup/log_selection.py`` says which lines match).
"""

from __future__ import annotations

import argparse
import json
import os
import select
import sys
import time
from collections.abc import Iterable

from mailcore.cli.log_text import text_of
from mailcore.lookup.log_selection import EVENTS, LEVELS, Selection
from mailcore.lookup.pattern import PatternError
from mailcore.maillog.follow import Followed, last_lines
from mailcore.terminal.command import DONE, UsageError, add_common, not_empty, queue_id, settings_of
from mailcore.terminal.nearest import did_you_mean
from mailcore.terminal.output import complain, say

__all__ = ["configure"]

LOOK_S = 0.2


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this command to ``parser``."""
    parser.epilog = "The log is followed over its rotation. Ends with Ctrl-C, or when the reader of its output ends."
    parser.add_argument(
        "-n", "--lines", type=_count, default=10, metavar="N", help="begin with the last N lines (default: 10)"
    )
    parser.add_argument("--queue-id", metavar="QUEUE_ID", type=queue_id, help="lines of this message")
    parser.add_argument(
        "--sender", metavar="PATTERN", type=not_empty, help="lines of messages from this sender that arrive from now on"
    )
    parser.add_argument("--recipient", metavar="PATTERN", type=not_empty, help="lines that name this recipient")
    parser.add_argument(
        "--destination",
        metavar="PATTERN",
        type=not_empty,
        help="lines that name this next hop, or a recipient's domain",
    )
    parser.add_argument(
        "--event", metavar="NAME", type=_event, help="lines of this event, such as delivery; see docs/log.md"
    )
    parser.add_argument("--level", choices=LEVELS, default="info", help="lines of this level and above (default: info)")
    add_common(parser, json_help="print the lines as they are in mail.jsonl")
    parser.set_defaults(run=_run)


def _event(text: str) -> str:
    """Returns the name of an event; an argparse type: with a mistyped one, no line would ever match."""
    name = text.strip().lower()
    if name not in EVENTS:
        allowed = did_you_mean(name, EVENTS) or f"; allowed: {', '.join(sorted(EVENTS))}"
        raise argparse.ArgumentTypeError(f"there is no event {text!r}{allowed}")
    return name


def _count(text: str) -> int:
    if not text.isascii() or not text.isdecimal():
        raise argparse.ArgumentTypeError(f"must be a number of lines, 0 or more (got {text!r})")
    return int(text)


def _run(arguments: argparse.Namespace) -> int:
    try:
        selection = Selection(
            queue_id=arguments.queue_id or "",
            sender=arguments.sender or "",
            recipient=arguments.recipient or "",
            destination=arguments.destination or "",
            event=arguments.event or "",
            level=arguments.level,
        )
    except PatternError as error:
        raise UsageError(f"tail: {error}") from None
    path = settings_of(arguments).log_directory / "mail.jsonl"
    if not path.exists():
        complain(f"{path} does not exist yet")
    followed = Followed(path)
    reader = select.poll()
    reader.register(sys.stdout.fileno(), 0)  # only its end is of interest
    try:
        _print(last_lines(path, arguments.lines, followed.begun_at), selection, as_json=arguments.json)
        while not _is_closed(reader):
            _print(followed.lines(), selection, as_json=arguments.json)
            time.sleep(LOOK_S)
    finally:
        followed.close()
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return DONE


def _is_closed(reader: select.poll) -> bool:
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in reader.poll(0))


def _print(lines: Iterable[bytes], selection: Selection, *, as_json: bool) -> None:
    for raw in lines:
        try:
            line = json.loads(raw)
        except ValueError:
            continue  # the last line before a crash may be torn
        if isinstance(line, dict) and selection.matches(line):
            if as_json:
                say(json.dumps(line))
            else:
                say(text_of(line))
    sys.stdout.flush()
