"""``waypost tlsrpt show``: prints the reports about TLS of a day, from the counts that are there; sends nothing."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any

from mailcore.config.settings import Settings
from mailcore.config.tlsrpt import DIRECTORY
from mailcore.terminal.command import DONE as SUCCESS
from mailcore.terminal.command import UsageError, add_common, settings_of
from mailcore.terminal.output import complain, plain, print_json, say
from mailcore.tls_sessions import day_at, read_day
from mailcore.tlsrpt.report import Report, made
from mailcore.tlsrpt.sending import due_at
from mailcore.tlsrpt.sent import DONE, outcomes_in

__all__ = ["configure"]


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this command to ``parser``."""
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    showing = commands.add_parser(
        "show",
        help="print the reports of a UTC day, and what became of them",
        description="Print the reports of a UTC day, and what became of them. Nothing is sent; domains that do not ask for "
        "reports are shown, too.",
    )
    showing.add_argument("day", metavar="DAY", nargs="?", type=_day, help="YYYY-MM-DD; default: yesterday, in UTC")
    add_common(showing)
    showing.set_defaults(run=_show)


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{plain(text)} is not a day; write YYYY-MM-DD") from None


def _show(arguments: argparse.Namespace) -> int:
    settings = settings_of(arguments)
    if not settings.tlsrpt.is_on:
        raise UsageError("tlsrpt: reports are off; set [tlsrpt] sender")
    day = arguments.day or day_at(time.time()) - timedelta(days=1)
    reports = list(_reports(settings, day))
    if arguments.json:
        print_json(
            {
                "day": str(day),
                "reports": [
                    {"domain": report.domain, "due": due_at(settings.tlsrpt, day, report.domain)}
                    | {"outcomes": outcomes, "content": report.content}
                    for report, outcomes in reports
                ],
            }
        )
        return SUCCESS
    if not reports:
        say(f"no sessions are counted on {day}")
    for report, outcomes in reports:
        due = datetime.fromtimestamp(due_at(settings.tlsrpt, day, report.domain), UTC)
        say(f"{plain(report.domain)}: {_state(outcomes, due)}")
        for line in _lines(report.content):
            say(f"  {plain(line)}")
        for address, outcome in outcomes.items():
            if address != DONE:
                say(f"  to {plain(address)}: {plain(outcome)}")
    return SUCCESS


def _reports(settings: Settings, day: date) -> Iterator[tuple[Report, dict[str, str]]]:
    directory, mine = settings.home / DIRECTORY, settings.tlsrpt
    found = outcomes_in(settings.home)
    for domain, sessions in sorted(read_day(directory, day, complain=complain).items()):
        outcomes = {key[2]: outcome for key, outcome in found.items() if key[:2] == (str(day), domain)}
        yield made(domain, day, sessions, mine.sender, mine.organization), outcomes


def _state(outcomes: dict[str, str], due: datetime) -> str:
    return outcomes.get(DONE) or f"due at {due:%Y-%m-%d %H:%M} UTC"


def _lines(content: dict[str, Any]) -> Iterator[str]:
    for policy in content["policies"]:
        summary = policy["summary"]
        succeeded, failed = summary["total-successful-session-count"], summary["total-failure-session-count"]
        yield f"{policy['policy']['policy-type']} {policy['policy']['policy-domain']}: {succeeded} good, {failed} failed"
        for failure in policy.get("failure-details", ()):
            where = failure.get("receiving-mx-hostname", "")
            reason = failure.get("failure-reason-code", "")
            yield f"  {failure['failed-session-count']} {failure['result-type']} {where}{reason and f' ({reason})'}"
