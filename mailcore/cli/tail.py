"""``waypost tail``: prints the mail log as it is written, the lines that match.

It reads ``mail.jsonl``. A sender is named only when a message is accepted, so the queue IDs of such messages are remembered,
and all their later lines match, too.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import sys
import time
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

from mailcore.lookup.filter import sender_matcher
from mailcore.lookup.pattern import PatternError, address_matcher, text_matcher
from mailcore.maillog.follow import Followed, last_lines
from mailcore.terminal.command import DONE, UsageError, add_common, not_empty, queue_id, settings_of
from mailcore.terminal.nearest import did_you_mean
from mailcore.terminal.output import complain, plain, say
from mailcore.terminal.times import shown

__all__ = ["LEVELS", "Selection", "configure", "level_of"]

LOOK_S = 0.2
REMEMBERED_MAX = 100_000  # queue IDs of a sender: 20 MB
LEVELS = ("info", "warning", "error")
ERRORS = frozenset({"failed", "start_refused"})
# Events that the log writes as warnings; tests/cli/test_tail.py compares them with mailcore/maillog.
WARNINGS = frozenset(
    {
        "accepting_paused", "certificate_refused", "child_ended", "collector_failed", "data_damaged",
        "disk_full", "dns_list_failed", "dns_listed", "greylist_full", "lane_lags", "login_failed", "maildrop_damaged",
        "maps_refused", "milter_failed", "positions_damaged", "probes_exceeded", "proxy_refused", "rate_exceeded",
        "recipient_store_damaged", "recipient_store_failed",
        "recipients_refused", "record_set_aside", "refusals_not_recorded", "reload_refused", "rewriting_failed",
        "routes_refused", "session_failed",
        "spans_rejected", "stopped_accepting", "sync_failed", "tls_counts_left_out", "tls_failed", "tls_report_failed",
        "tls_report_given_up", "tls_reports_stopped", "traces_failed", "traces_lost", "tuned_ignored",
        "users_refused",
    }
)  # fmt: skip
INFOS = frozenset(
    {
        "accepted", "accepting_again", "active", "administered", "adopted", "bounced", "certificate_read",
        "collector_answers",
        "delay_warned", "delivery", "expired", "header_checked", "lines_lost", "maps_read",
        "milter_acted", "not_passed_on", "recipient_verified", "recipients_read", "recovered", "refused", "reload_began",
        "reload_ended", "removed",
        "routes_read", "started",
        "stress", "stress_ended", "success_reported", "swept", "tls_report_sent",
        "tuned", "tuned_ended", "users_read", "window_changed",
    }
)  # fmt: skip
EVENTS = ERRORS | WARNINGS | INFOS


def level_of(event: str) -> str:
    """Returns the level of an event: info, warning or error."""
    return "error" if event in ERRORS else "warning" if event in WARNINGS else "info"


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


class Selection:
    """Decides which lines match; all given conditions must."""

    def __init__(
        self, *, queue_id: str = "", sender: str = "", recipient: str = "", destination: str = "", event: str = "",
        level: str = "info",
    ) -> None:  # fmt: skip
        """Raises PatternError."""
        self._queue_id = queue_id.upper()
        self._sender = sender_matcher(sender) if sender else None
        self._recipient = address_matcher(recipient) if recipient else None
        self._destination = text_matcher(destination) if destination else None
        self._event = event
        self._level = LEVELS.index(level)
        self._of_sender: OrderedDict[str, None] = OrderedDict()

    def matches(self, line: dict[str, Any]) -> bool:
        """Returns True if the line is to be printed."""
        queue_id = str(line.get("queue_id") or "")
        if self._sender is not None and not self._is_of_sender(line, queue_id):
            return False
        if self._queue_id and self._queue_id not in (queue_id, line.get("bounce_id")):
            return False
        if self._event and line.get("event") != self._event:
            return False
        if LEVELS.index(level_of(str(line.get("event")))) < self._level:
            return False
        recipient = str(line.get("recipient") or "")
        if self._recipient is not None and not (recipient and self._recipient(recipient)):
            return False
        return self._destination is None or self._names_destination(line, recipient)

    def _is_of_sender(self, line: dict[str, Any], queue_id: str) -> bool:
        assert self._sender is not None
        sender = line.get("sender")
        if isinstance(sender, str) and self._sender(sender):
            if queue_id:
                self._of_sender[queue_id] = None
                if len(self._of_sender) > REMEMBERED_MAX:
                    self._of_sender.popitem(last=False)
            return True
        if line.get("event") == "removed" and queue_id in self._of_sender:
            del self._of_sender[queue_id]
            return True
        return queue_id in self._of_sender

    def _names_destination(self, line: dict[str, Any], recipient: str) -> bool:
        assert self._destination is not None
        relay = str(line.get("relay") or "")
        names = [str(line.get("destination") or ""), relay, relay.partition("[")[0], recipient.rpartition("@")[2]]
        return any(name and self._destination(name) for name in names)


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
                say(_text(line))
    sys.stdout.flush()


def _text(line: dict[str, Any]) -> str:
    event = str(line.pop("event", ""))
    at = line.pop("time", None)
    queue_id = str(line.pop("queue_id", "") or "")
    line.pop("pid", None)
    when = shown(at) if isinstance(at, int | float) else ""
    level = level_of(event)
    fields = " ".join(f"{name}={_value(value)}" for name, value in line.items() if value not in ("", None))
    return plain(" ".join(each for each in (when, "" if level == "info" else level, event, queue_id, fields) if each))


def _value(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1e6 else f"{value:.0f}"
    if isinstance(value, list):
        return "/".join(_value(each) for each in value)
    text = str(value)
    return f'"{text}"' if " " in text else text
