"""``waypost destination``: those with the most mail; suspending and resuming them."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from mailcore.cli.command import DONE, add_common, control_client, moment
from mailcore.cli.output import plain, print_json, say, table, width
from mailcore.cli.times import TIME_FORMS, shown

__all__ = ["configure"]


def configure(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    listing = commands.add_parser("list", help="queued recipients, deliveries under way, suspensions")
    listing.add_argument("--limit", type=int, default=100, metavar="N", help="those with the most mail (100)")
    add_common(listing)
    listing.set_defaults(run=_list)
    suspending = commands.add_parser("suspend", help="no deliveries to it until a time, or until it is resumed")
    suspending.add_argument("destination", help="transport:next hop, as destination list shows it")
    suspending.add_argument("--until", type=moment, metavar="TIME", help=f"{TIME_FORMS}; default: until it is resumed")
    resuming = commands.add_parser("resume", help="ends a suspension")
    resuming.add_argument("destination", help="transport:next hop")
    for each in (suspending, resuming):
        each.add_argument("--why", default="", metavar="TEXT", help="goes into the journal")
        add_common(each)
    suspending.set_defaults(run=_suspend)
    resuming.set_defaults(run=_resume)


def _list(arguments: argparse.Namespace) -> int:
    with control_client(arguments) as control:
        answer: dict[str, Any] = control.call("destinations", {"limit": arguments.limit})
    if arguments.json:
        print_json(answer)
        return DONE
    active = answer.get("destinations") or {}
    queued = answer.get("queued") or {}
    suspended = answer.get("suspended") or {}
    rows = []
    for name in dict.fromkeys((*queued, *suspended, *active)):
        known = active.get(name) or {}
        window = known.get("window")
        rows.append(
            (
                name or "(not routed yet)",
                queued.get(name, 0),
                known.get("busy", 0),
                "-" if window is None else f"{window:g}",
                "" if name not in suspended else shown(suspended[name]) if suspended[name] else "until resumed",
            )
        )
    heads = ("DESTINATION", "RECIPIENTS", "BUSY", "WINDOW", "SUSPENDED")
    for line in table(heads, rows, width(sys.stdout), frozenset({1, 2, 3})):
        say(line)
    return DONE


def _suspend(arguments: argparse.Namespace) -> int:
    given = {"destination": arguments.destination, "until": arguments.until}
    with control_client(arguments) as control:
        answer = control.call("suspend", given, why=arguments.why)
    if arguments.json:
        print_json(answer)
    else:
        until = f"until {shown(arguments.until)}" if arguments.until is not None else "until it is resumed"
        say(f"{plain(arguments.destination)} is suspended {until}")
    return DONE


def _resume(arguments: argparse.Namespace) -> int:
    with control_client(arguments) as control:
        answer = control.call("resume", {"destination": arguments.destination}, why=arguments.why)
    if arguments.json:
        print_json(answer)
    else:
        say(f"{plain(arguments.destination)} is resumed")
    return DONE
