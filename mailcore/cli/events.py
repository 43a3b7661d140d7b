"""``waypost events``: prints what happened to messages, in order, from a cursor on; with --follow also what happens next."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from mailcore.control.protocol.events import EVENTS_MAX, KINDS, NOW, OLDEST, WAIT_S_MAX, Event, EventBatch
from mailcore.terminal.command import DONE, NOT_DONE, add_common, control_client, not_empty
from mailcore.terminal.output import JsonLines, complain, plain, say
from mailcore.terminal.times import shown

__all__ = ["configure"]

ANSWER_S = 60.0  # longer than the operation waits for events
CONDITIONS = {
    "tag": ("TAG", "of messages with this tag ([receiver] tag_header)"),
    "sender-domain": ("DOMAIN", "of messages whose sender is in this domain"),
    "recipient-domain": ("DOMAIN", "of recipients in this domain"),
    "login": ("USER", "of messages that this user handed in"),
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this command to ``parser``."""
    parser.epilog = (
        "The last line of the output, or of the errors, has the cursor to continue from. See docs/webhooks.md."
    )
    parser.add_argument(
        "--after",
        metavar="CURSOR",
        type=not_empty,
        help=f"begin behind this cursor; {OLDEST}: with the first event that is kept; {NOW}: with those from now on "
        f"(default: {OLDEST}, with --follow {NOW})",
    )
    parser.add_argument("--follow", action="store_true", help="continue with events as they happen, until Ctrl-C")
    parser.add_argument(
        "-n", "--limit", type=_limit, default=0, metavar="N", help="end after N events (default: all there are)"
    )
    parser.add_argument(
        "--kind", action="append", choices=KINDS, default=[], help="of this kind; may be given repeatedly"
    )
    for name, (metavar, words) in CONDITIONS.items():
        parser.add_argument(f"--{name}", metavar=metavar, type=not_empty, help=words)
    parser.add_argument(
        "--past-lost",
        action="store_true",
        help="continue behind events that are not kept any more, and name them",
    )
    add_common(parser, document=False)
    parser.set_defaults(run=_run)


def _limit(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"must be a number of events, 1 or more (got {text!r})")
    return int(text)


def _run(arguments: argparse.Namespace) -> int:
    conditions: dict[str, Any] = {
        name.replace("-", "_"): getattr(arguments, name.replace("-", "_")) for name in CONDITIONS
    }
    given = {name: value for name, value in conditions.items() if value}
    given |= {"kinds": arguments.kind, "past_lost": arguments.past_lost}
    after = arguments.after or (NOW if arguments.follow else OLDEST)
    lines, left, lost = JsonLines(), arguments.limit, 0
    with control_client(arguments) as control:
        while True:
            limit = min(left, EVENTS_MAX) if arguments.limit else EVENTS_MAX
            wait = WAIT_S_MAX if arguments.follow else 0.0
            asked = given | {"after": after, "limit": limit, "wait_s": wait}
            batch = control.ask("events", EventBatch, asked, timeout_s=ANSWER_S)
            for words in batch.lost:
                lost += 1
                complain(f"lost: {words}")
            for event in batch.events:
                if arguments.json:
                    lines.item(event)
                else:
                    say(_text(event))
            sys.stdout.flush()
            after = batch.cursor
            left -= len(batch.events)
            if (arguments.limit and left <= 0) or not (arguments.follow or batch.more):
                break
    # Up to a limit, nothing is missing: there is no order between the events of shards.
    unanswered = "" if arguments.limit and left <= 0 else batch.unanswered
    if arguments.json:
        lines.end(complete=not (lost or unanswered), more=batch.more, cursor=after, lost=lost, unanswered=unanswered)
    else:
        if unanswered:
            complain(f"incomplete: {plain(unanswered)}")
        complain(f"to continue: --after {after}")
    return NOT_DONE if lost or unanswered else DONE


def _text(event: Event) -> str:
    words = f"{shown(event.at)} {event.kind:<9} {event.queue_id} from=<{event.sender}> to=<{event.recipient}>"
    if event.relay:
        words += f" relay={event.relay} dsn={event.dsn} ({event.reply})"
    return plain(words)
