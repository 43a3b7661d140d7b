"""``waypost transport``: the parameters in force and where each comes from; setting them live."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from mailcore.cli.command import DONE, UsageError, add_common, control_client
from mailcore.cli.output import plain, print_json, say, table, width

__all__ = ["configure"]

GLOBAL = "global"  # how the command line writes the scope of all transports
DEFAULT = "default"  # as a value: back to the configured one


def configure(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    listing = commands.add_parser("list", help="parameters, values, and where they come from")
    listing.add_argument("transport", nargs="?", help=f"only this one; {GLOBAL}: what holds for all")
    add_common(listing)
    listing.set_defaults(run=_list)
    setting = commands.add_parser("set", help="a value, in force at once and after every start")
    setting.add_argument("transport", help=f"a transport; transport:next hop; or {GLOBAL}")
    setting.add_argument("parameter")
    setting.add_argument("value", help=f"a number, or {DEFAULT}: as configured")
    setting.add_argument("--why", default="", metavar="TEXT", help="goes into the journal")
    add_common(setting)
    setting.set_defaults(run=_set)


def _list(arguments: argparse.Namespace) -> int:
    with control_client(arguments) as control:
        answer: dict[str, Any] = control.call("transports")
    if arguments.transport is not None:
        scope = "" if arguments.transport == GLOBAL else arguments.transport
        if scope not in answer:
            raise UsageError(
                f"there is no transport {scope!r}; there are {', '.join(name or GLOBAL for name in answer)}"
            )
        answer = {scope: answer[scope]}
    if arguments.json:
        print_json({"transports": answer})
        return DONE
    rows = [
        (scope or GLOBAL, parameter, _value(known.get("value")), known.get("origin", ""))
        for scope, parameters in answer.items()
        for parameter, known in parameters.items()
    ]
    for line in table(("TRANSPORT", "PARAMETER", "VALUE", "FROM"), rows, width(sys.stdout), frozenset({2})):
        say(line)
    return DONE


def _set(arguments: argparse.Namespace) -> int:
    value: float | int | None = None
    if arguments.value != DEFAULT:
        try:
            value = float(arguments.value)
        except ValueError:
            raise UsageError(
                f"transport set: {arguments.value!r} is no number; allowed: a number, or {DEFAULT}"
            ) from None
        value = int(value) if value.is_integer() else value
    scope = "" if arguments.transport == GLOBAL else arguments.transport
    with control_client(arguments) as control:
        if scope and ":" not in scope:
            given = {"transport": scope, "parameter": arguments.parameter, "value": value}
            answer = control.call("transport_set", given, why=arguments.why)
        else:
            given = {"scope": scope, "parameter": arguments.parameter, "value": value}
            answer = control.call("set", given, why=arguments.why)
    if arguments.json:
        print_json(answer)
    else:
        say(f"{plain(arguments.transport)}: {plain(arguments.parameter)} = {plain(arguments.value)}")
    return DONE


def _value(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
