"""``waypost destination service-times``: how long deliveries took, by destination."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from mailcore.cli.incomplete import say_note, status_of
from mailcore.control.protocol.tuning import ServiceTimesPart
from mailcore.lookup.answers import DestinationTimes
from mailcore.terminal.command import add_common, control_client, duration
from mailcore.terminal.output import print_json, say, table, width
from mailcore.terminal.times import shown

__all__ = ["configure"]

DESTINATIONS_SHOWN = 30


def configure(commands: Any) -> None:
    """Adds the command to the subcommands of ``waypost destination``."""
    times = commands.add_parser(
        "service-times", help="show how long deliveries took, and how they ended, by destination"
    )
    times.add_argument(
        "--since", type=duration, default=3600.0, metavar="DURATION", help="of the last 15m, 1h, 1d (default: 1h)"
    )
    add_common(times)
    times.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    with control_client(arguments) as control:
        times = control.ask("service_times", ServiceTimesPart, {"since_s": arguments.since}).times
    assert times is not None, "the last part has the times"
    if arguments.json:
        print_json(times)
        return status_of(times)
    say_note(times)
    say(f"deliveries since {shown(times.since)}")
    most = sorted(times.destinations.items(), key=lambda pair: (-pair[1].deliveries, pair[0]))
    if most:
        say()
        rows = [_row(name, each) for name, each in most[:DESTINATIONS_SHOWN]]
        heads = ("DESTINATION", "DELIVERIES", "FAILED", "RECIPIENTS", "DEFERRED", "BOUNCED", "CONNECT", "SEND", "P95")
        for line in table(heads, rows, width(sys.stdout), frozenset(range(1, len(heads)))):
            say(line)
    left = len(most) - DESTINATIONS_SHOWN
    if left > 0 or times.destinations_left_out:
        say(f"and {max(left, 0) + times.destinations_left_out} more; use --json to see more")
    return status_of(times)


def _row(name: str, each: DestinationTimes) -> tuple[object, ...]:
    return (
        name,
        each.deliveries,
        each.site_failures,
        each.recipients,
        each.deferred,
        each.bounced,
        _quantile(each.connect_s, 0.5),
        _quantile(each.transmit_s, 0.5),
        _quantile(each.transmit_s, 0.95),
    )


def _quantile(ascending_s: Sequence[float], share: float) -> str:
    """Returns a quantile in seconds; "-" without samples."""
    if not ascending_s:
        return "-"
    return f"{ascending_s[min(int(share * len(ascending_s)), len(ascending_s) - 1)]:.2g}s"
