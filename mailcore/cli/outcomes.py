"""``waypost destination outcomes``: bounces by sender domain, and hosts that got mail in the clear although they have TLS."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from mailcore.cli.incomplete import say_note, status_of
from mailcore.control.protocol.tuning import OutcomesPart
from mailcore.terminal.command import add_common, control_client, duration
from mailcore.terminal.output import plain, print_json, say, table, width
from mailcore.terminal.times import shown

__all__ = ["configure"]

ROWS_SHOWN = 30


def configure(commands: Any) -> None:
    """Adds the command to the subcommands of ``waypost destination``."""
    outcomes = commands.add_parser(
        "outcomes", help="show bounces by sender domain, and hosts with TLS that got mail in the clear"
    )
    outcomes.add_argument(
        "--since", type=duration, default=3600.0, metavar="DURATION", help="of the last 15m, 1h, 1d (default: 1h)"
    )
    add_common(outcomes)
    outcomes.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    with control_client(arguments) as control:
        found = control.ask("outcomes", OutcomesPart, {"since_s": arguments.since}).outcomes
    assert found is not None, "the last part has the outcomes"
    if arguments.json:
        print_json(found)
        return status_of(found)
    say_note(found)
    say(f"outcomes since {shown(found.since)}")
    columns = width(sys.stdout)
    if found.senders:
        say()
        rows = [
            (plain(each.domain), each.ended, each.bounced, f"{each.bounced / each.ended:.1%}")
            for each in found.senders[:ROWS_SHOWN]
        ]
        for line in table(("SENDER DOMAIN", "RECIPIENTS", "BOUNCED", "SHARE"), rows, columns, frozenset({1, 2, 3})):
            say(line)
    if found.hosts:
        say()
        hosts = [
            (plain(each.host), each.over_tls, each.failed, each.not_offered, plain(each.reason))
            for each in found.hosts[:ROWS_SHOWN]
        ]
        for line in table(
            ("HOST IN THE CLEAR", "OVER TLS", "TLS FAILED", "NOT OFFERED", "REASON"),
            hosts,
            columns,
            frozenset({1, 2, 3}),
        ):
            say(line)
    left = max(len(found.senders) - ROWS_SHOWN, 0) + found.senders_left_out
    if left or len(found.hosts) > ROWS_SHOWN or found.hosts_left_out:
        say("and more; use --json to see more")
    return status_of(found)
