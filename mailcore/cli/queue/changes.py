"""``waypost queue delete, undelete, hold, release, retry, delay, reroute, bounce, purge``.

Messages are given by queue IDs (``-`` reads them from stdin, one per line) or by a filter with ``--all-matching``. With a
filter, messages are counted first, and changed only with ``--yes`` or after confirmation at the terminal.
"""

from __future__ import annotations

import argparse
import io
import shlex
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from mailcore.cli.queue.filter import add_filters, filter_of
from mailcore.control.client import ControlClient, ControlError
from mailcore.control.protocol.changes import ChangeResult, MatchingProgress
from mailcore.control.protocol.operation import MESSAGES_MAX, selects_all
from mailcore.faults import Code, Fault
from mailcore.terminal.command import (
    DONE,
    NOT_DONE,
    UsageError,
    add_common,
    control_client,
    moment,
    not_empty,
    queue_id,
)
from mailcore.terminal.output import complain, plain, print_json, say
from mailcore.terminal.times import TIME_FORMS

__all__ = ["configure"]

_HELP = {
    "delete": "delete messages; undelete can restore them for [queue] undo_time_s seconds",
    "undelete": "undo a delete; messages that were held are held again, others are due immediately",
    "hold": "hold messages until they are released",
    "release": "end a hold; messages are due immediately",
    "retry": "make messages due immediately",
    "delay": "do not deliver messages before a given time",
    "reroute": "send messages to another next hop",
    "bounce": "return messages to their senders now",
}
_DONE = {
    "delete": "deleted",
    "undelete": "undeleted",
    "hold": "held",
    "release": "released",
    "retry": "made due",
    "delay": "delayed",
    "reroute": "rerouted",
    "bounce": "bounced",
}
_NOT_CHANGED = {
    Code.CONFLICT: "in a state that does not allow the change",
    Code.NOT_FOUND: "no longer in the queue",
    Code.UNAVAILABLE: "not reached because the manager was away: unchanged; repeat the command",
    Code.OUTCOME_UNKNOWN: "with an unknown outcome because the manager ended meanwhile: repeat the command",
    Code.BUSY: "being moved: unchanged; repeat the command",
    Code.INTERNAL: "with records that cannot be read: unchanged; see waypost doctor",
}
ERRORS_SHOWN = 20
WAIT_S = 2.0  # for deliveries in progress to end


def configure(commands: Any) -> None:
    """Adds the changes to the subcommands of ``waypost queue``."""
    for change, summary in _HELP.items():
        parser = commands.add_parser(change, help=summary, description=f"{summary[0].upper()}{summary[1:]}.")
        parser.add_argument(
            "queue_ids",
            nargs="*",
            type=_queue_id_or_stdin,
            metavar="QUEUE_ID",
            help="queue ID; - reads them from stdin, one per line",
        )
        parser.add_argument("--all-matching", action="store_true", help="change all messages that match the filters")
        if change == "delay":
            parser.add_argument("--until", type=moment, required=True, metavar="TIME", help=TIME_FORMS)
        if change == "reroute":
            parser.add_argument(
                "--to", type=not_empty, required=True, metavar="ROUTE", help="TRANSPORT:NEXTHOP, as in [routes]"
            )
        if change == "retry":
            parser.add_argument(
                "--scheduled", action="store_true", help="with --all-matching: also recipients that are delayed"
            )
        _add_rest(parser)
        parser.set_defaults(run=_change, change=change)
    purging = commands.add_parser(
        "purge",
        help="delete all messages that match; undelete can restore them",
        description="Delete all messages that match; undelete can restore them for [queue] undo_time_s seconds.",
    )
    purging.add_argument("--all", action="store_true", help="delete the whole queue; use instead of a filter")
    _add_rest(purging)
    purging.set_defaults(run=_purge, change="delete")


def _add_rest(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--why", default="", metavar="TEXT", help="reason, recorded with your user name")
    parser.add_argument("--yes", action="store_true", help="skip the count and the confirmation prompt")
    parser.add_argument("--dry-run", action="store_true", help="only count the matching messages")
    add_filters(parser)
    add_common(parser)


def _purge(arguments: argparse.Namespace) -> int:
    filter_ = filter_of(arguments)
    if filter_ and arguments.all:
        raise UsageError("queue purge: --all deletes the whole queue and cannot be combined with filters")
    if selects_all(filter_) and not arguments.all:
        raise UsageError("queue purge: give a filter (--sender, --recipient, ...), or --all for the whole queue")
    with control_client(arguments) as control:
        return _change_matching(arguments, control)


def _change(arguments: argparse.Namespace) -> int:
    filter_ = filter_of(arguments)
    if arguments.all_matching == bool(arguments.queue_ids):
        raise UsageError(f"queue {arguments.change}: give queue IDs, or --all-matching with filters")
    if filter_ and not arguments.all_matching:
        raise UsageError(f"queue {arguments.change}: filters need --all-matching and cannot be combined with queue IDs")
    if not arguments.all_matching and arguments.dry_run:
        raise UsageError(f"queue {arguments.change}: --dry-run needs --all-matching")
    if arguments.change == "retry" and arguments.scheduled and not arguments.all_matching:
        raise UsageError("queue retry: --scheduled needs --all-matching; a named message is retried in any case")
    with control_client(arguments) as control:
        if arguments.all_matching:
            return _change_matching(arguments, control)
        return _change_named(arguments, control)


def _extra(arguments: argparse.Namespace) -> dict[str, Any]:
    if arguments.change == "delay":
        return {"until": arguments.until}
    return {"route": arguments.to} if arguments.change == "reroute" else {}


def _change_named(arguments: argparse.Namespace, control: ControlClient) -> int:
    errors: dict[str, Fault] = {}
    result = ChangeResult(changed=0, recipients=0, in_flight=0, too_late=0, undecided=0, errors=errors, dead=[])
    for batch in _batches(arguments.change, arguments.queue_ids, errors):
        try:
            given = {"queue_ids": batch, "wait_s": WAIT_S, **_extra(arguments)}
            answer = control.ask(arguments.change, ChangeResult, given, why=arguments.why)
        except ControlError:
            if result.changed:
                complain(_before(result.changed, arguments.change))
            raise
        for amount in ("changed", "recipients", "in_flight", "too_late", "undecided"):
            setattr(result, amount, getattr(result, amount) + getattr(answer, amount))
        result.dead = sorted({*result.dead, *answer.dead})
        errors |= answer.errors
    if arguments.json:
        print_json(result)
    else:
        _report(arguments, result, Counter(error.code for error in errors.values()))
    return NOT_DONE if errors else DONE


def _before(changed: int, change: str) -> str:
    """Says how many messages were changed, as far as it was answered: of those asked for last, no answer came."""
    return f"at least {changed} messages were {_DONE[change]} before this error, and perhaps others of which no answer came:"


def _queue_id_or_stdin(text: str) -> str:
    return text if text == "-" else queue_id(text)


def _batches(change: str, given: list[str], errors: dict[str, Fault]) -> Iterator[list[str]]:
    """Yields queue IDs, MESSAGES_MAX at a time. A line of stdin that is not one is put into ``errors``; the others count.

    Raises UsageError if there is no line.
    """
    batch: dict[str, None] = {}
    found = False
    for each in given:
        for text in _lines_of_stdin(errors) if each == "-" else (each,):
            found = True
            batch[text] = None
            if len(batch) >= MESSAGES_MAX:
                yield list(batch)
                batch = {}
    if batch:
        yield list(batch)
    if not found and not errors:
        raise UsageError(f"queue {change}: no queue ID on stdin; nothing was changed")


def _lines_of_stdin(errors: dict[str, Fault]) -> Iterator[str]:
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="backslashreplace")  # a line that is not UTF-8 is not a queue ID either
    for number, line in enumerate(sys.stdin, 1):
        if text := line.strip():
            try:
                yield queue_id(text)
            except argparse.ArgumentTypeError as error:
                errors[f"line {number}"] = Fault(Code.INVALID, str(error), f"line {number}")


def _change_matching(arguments: argparse.Namespace, control: ControlClient) -> int:
    request = {
        "change": arguments.change, "filter": filter_of(arguments), "wait_s": WAIT_S, **_extra(arguments)
    }  # fmt: skip
    if getattr(arguments, "scheduled", False):
        request["scheduled"] = True
    if not arguments.yes or arguments.dry_run:
        counted = control.ask("change_matching", MatchingProgress, request | {"dry_run": True})
        if arguments.dry_run:
            if arguments.json:
                matched = {"matched": counted.matched, "matched_recipients": counted.matched_recipients}
                print_json(matched | {"changed": 0, "changed_recipients": 0, "errors": {}})
            else:
                say(_matching(counted))
            return DONE
        if not counted.matched:
            _report_matching(arguments, counted)
            return DONE
        if not _asked(arguments, counted):
            return NOT_DONE
        request["cut"] = counted.cut  # messages that arrived after the count are not changed
    progress: MatchingProgress | None = None
    try:
        for part in control.ask_parts("change_matching", MatchingProgress, request, why=arguments.why):
            progress = part
            if not progress.done and sys.stderr.isatty():
                print(f"\r{progress.changed} changed", end="", file=sys.stderr, flush=True)
    except ControlError:
        if progress is not None:
            complain(_before(progress.changed, arguments.change))
        raise
    assert progress is not None  # every answer has a last part
    _report_matching(arguments, progress)
    return NOT_DONE if progress.failed else DONE


def _asked(arguments: argparse.Namespace, counted: MatchingProgress) -> bool:
    """Asks for confirmation. Raises UsageError if stdin is not a terminal."""
    if not sys.stdin.isatty() or arguments.json:
        raise UsageError(f"{_matching(counted)}; nothing was changed. Confirm with --yes, or count with --dry-run")
    answer = input(f"{arguments.change} {_amount(counted.matched, counted.matched_recipients)}? [y/N] ")
    return answer.strip().lower() in ("y", "yes")


def _report_matching(arguments: argparse.Namespace, progress: MatchingProgress) -> None:
    if arguments.json:
        amounts = (
            "matched",
            "matched_recipients",
            "changed",
            "changed_recipients",
            "in_flight",
            "too_late",
            "undecided",
        )
        kept = (*amounts, "failed", "failures", "errors", "dead", "manager_away", "note")
        print_json({name: getattr(progress, name) for name in kept})
    else:
        _report(arguments, progress, progress.failures)


def _report(
    arguments: argparse.Namespace, answer: ChangeResult | MatchingProgress, failures: Mapping[Code, int]
) -> None:
    failed = sum(failures.values())
    for named, error in list(answer.errors.items())[:ERRORS_SHOWN]:  # a queue ID, or a line of stdin
        complain(f"{plain(named)}: {error.message}")
    if failed > ERRORS_SHOWN:
        complain(f"and {failed - ERRORS_SHOWN} more")
        for code, count in failures.items():
            complain(f"{_messages(count)} {_NOT_CHANGED.get(code, 'not changed')}")
    recipients = answer.recipients if isinstance(answer, ChangeResult) else answer.changed_recipients
    say(f"{_amount(answer.changed, recipients)} {_DONE[arguments.change]}")
    if answer.in_flight:
        say(f"{_recipients(answer.in_flight)} of them being delivered when the change was made:")
        say(f"  {answer.too_late} delivered or refused before the change could apply")
        say(f"  {answer.in_flight - answer.too_late - answer.undecided} not delivered, so that the change applies")
        if answer.undecided:
            say(f"  {answer.undecided} not known yet: the change applies unless the next hop gives a final reply")
    for destination in answer.dead:
        say(f"{plain(destination)} is dead: its mail is deferred again without an attempt. To try it now:")
        say(f"  waypost destination resume {shlex.quote(plain(destination))}")


def _amount(messages: int, recipients: int) -> str:
    """Returns "2 messages (5 recipients)"; the recipients are left out if there is one for each message."""
    count = _messages(messages)
    return count if recipients == messages else f"{count} ({_recipients(recipients)})"


def _messages(count: int) -> str:
    return "1 message" if count == 1 else f"{count} messages"


def _recipients(count: int) -> str:
    return "1 recipient" if count == 1 else f"{count} recipients"


def _matching(counted: MatchingProgress) -> str:
    verb = "matches" if counted.matched == 1 else "match"
    return f"{_amount(counted.matched, counted.matched_recipients)} {verb}"
