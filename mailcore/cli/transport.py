"""``waypost transport``: shows parameters and their origin, and sets or checks them while Waypost runs."""

from __future__ import annotations

import argparse
import sys

from mailcore.cli import what_if
from mailcore.cli.parameter import VALUE_HELP, add_end, described, end_of, origin_of, value_of, value_shown
from mailcore.cli.what_if import GLOBAL, SCOPE_HELP, changes_of
from mailcore.control.protocol.tuning import ChangesChecked
from mailcore.manager_answers import Transports, ValueSet
from mailcore.terminal.command import DONE, NOT_DONE, UsageError, add_common, control_client
from mailcore.terminal.output import plain, print_json, say, whole_table, width

__all__ = ["configure"]

SET_HELP = "set a value; takes effect immediately and survives restarts"


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this command to ``parser``."""
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    listing = commands.add_parser("list", help="list parameters, their values and origins")
    listing.add_argument(
        "transport",
        metavar="TRANSPORT",
        nargs="?",
        help=f"show only this transport; {GLOBAL}: values for all transports",
    )
    add_common(listing)
    listing.set_defaults(run=_list)
    setting = commands.add_parser("set", help=SET_HELP, description=f"{SET_HELP.capitalize()}.")
    setting.add_argument("transport", metavar="TRANSPORT", help=SCOPE_HELP)
    setting.add_argument("parameter", metavar="PARAMETER", help="name, as transport list shows it")
    setting.add_argument("value", metavar="VALUE", help=VALUE_HELP)
    add_end(setting)
    setting.add_argument("--why", default="", metavar="TEXT", help="reason, recorded with your user name")
    add_common(setting)
    setting.set_defaults(run=_set)
    checking = commands.add_parser("check", help="check values without setting them")
    checking.add_argument("transport", metavar="TRANSPORT", help=SCOPE_HELP)
    checking.add_argument("changes", nargs="+", metavar="PARAMETER=VALUE", help="checked in the order given")
    add_common(checking)
    checking.set_defaults(run=_check)
    what_if.configure(commands)


def _list(arguments: argparse.Namespace) -> int:
    with control_client(arguments) as control:
        scopes = control.ask("transports", Transports).scopes
    if arguments.transport is not None:
        scope = "" if arguments.transport == GLOBAL else arguments.transport
        if scope not in scopes:
            raise UsageError(f"unknown transport {scope!r}; configured: {', '.join(name or GLOBAL for name in scopes)}")
        scopes = {scope: scopes[scope]}
    if arguments.json:
        print_json({"transports": scopes})
        return DONE
    rows = [
        (scope or GLOBAL, parameter, value_shown(known.value), origin_of(known))
        for scope, parameters in scopes.items()
        for parameter, known in parameters.items()
    ]
    for line in whole_table(("TRANSPORT", "PARAMETER", "VALUE", "FROM"), rows, width(sys.stdout)):
        say(line)
    return DONE


def _check(arguments: argparse.Namespace) -> int:
    """Ends with NOT_DONE when a value could not be set."""
    changes = changes_of("check", arguments.transport, arguments.changes)
    with control_client(arguments) as control:
        answer = control.ask("check_changes", ChangesChecked, {"changes": changes})
    faults = answer.faults
    if arguments.json:
        print_json(answer)
    else:
        for text, fault in zip(arguments.changes, faults, strict=True):
            say(f"{plain(text)}: {plain(fault.message) if fault else 'allowed'}")
    return NOT_DONE if any(faults) else DONE


def _set(arguments: argparse.Namespace) -> int:
    given = {"parameter": arguments.parameter, "value": value_of(arguments.value), **end_of(arguments)}
    scope = "" if arguments.transport == GLOBAL else arguments.transport
    with control_client(arguments) as control:
        if scope and ":" not in scope:
            answer = control.ask("transport_set", ValueSet, {"transport": scope, **given}, why=arguments.why)
        else:
            answer = control.ask("set", ValueSet, {"scope": scope, **given}, why=arguments.why)
    if arguments.json:
        print_json(answer)
    else:
        say(described(arguments.transport, arguments.parameter, answer, arguments.value))
    return DONE
