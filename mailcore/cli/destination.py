"""``waypost destination``: lists destinations, suspends and resumes them, and sets their parameters."""

from __future__ import annotations

import argparse
import re
import sys
from typing import Any

from mailcore.cli import outcomes, service_times
from mailcore.cli.parameter import DEFAULT, VALUE_HELP, add_end, described, end_of, origin_of, value_of, value_shown
from mailcore.destination_state import DestinationState
from mailcore.manager_answers import Destinations, Transports, ValueSet
from mailcore.scheduler.parameters import SUSPENDED_UNTIL
from mailcore.terminal.command import DONE, NOT_DONE, UsageError, add_common, control_client, moment
from mailcore.terminal.output import JsonLines, complain, plain, print_json, say, table, whole_table, width
from mailcore.terminal.times import TIME_FORMS, shown

__all__ = ["configure"]

DESTINATION_HELP = "TRANSPORT:NEXTHOP, or TRANSPORT:.example.org for a domain and its subdomains"
SPEED = "destination_concurrency_limit"  # the parameter that ``slow`` changes
_PERCENT = re.compile(r"[1-9]\d?%")


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this command to ``parser``."""
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    service_times.configure(commands)
    outcomes.configure(commands)
    listing = commands.add_parser("list", help="list destinations: queued recipients, deliveries in progress, state")
    listing.add_argument(
        "--limit",
        type=int,
        default=100,
        metavar="N",
        help="maximum number, those with the most mail first (default: 100)",
    )
    add_common(listing, document=False)
    listing.set_defaults(run=_list)
    suspending = commands.add_parser("suspend", help="stop deliveries to a destination")
    suspending.add_argument(
        "destination", metavar="DESTINATION", help="TRANSPORT:NEXTHOP, as destination list shows it"
    )
    suspending.add_argument("--until", type=moment, metavar="TIME", help=f"{TIME_FORMS}; default: until resumed")
    resuming = commands.add_parser("resume", help="end a suspension")
    resuming.add_argument("destination", metavar="DESTINATION", help="TRANSPORT:NEXTHOP")
    showing = commands.add_parser("show", help="show its parameters, their values and origins")
    showing.add_argument("destination", metavar="DESTINATION", help=DESTINATION_HELP)
    add_common(showing)
    setting = commands.add_parser("set", help="override a parameter; takes effect immediately and survives restarts")
    setting.add_argument("destination", metavar="DESTINATION", help=DESTINATION_HELP)
    setting.add_argument("parameter", metavar="PARAMETER", help="name, as destination show shows it")
    setting.add_argument("value", metavar="VALUE", help=VALUE_HELP)
    add_end(setting)
    unsetting = commands.add_parser("unset", help="remove an override")
    unsetting.add_argument("destination", metavar="DESTINATION", help=DESTINATION_HELP)
    unsetting.add_argument("parameter", metavar="PARAMETER", help="name, as destination show shows it")
    slowing = commands.add_parser("slow", help="limit concurrent deliveries for a time")
    slowing.add_argument("destination", metavar="DESTINATION", help=DESTINATION_HELP)
    slowing.add_argument(
        "--to", default="50%", metavar="PERCENT", help=f"percentage of the current {SPEED} (default: 50%%)"
    )
    add_end(slowing)
    for each in (suspending, resuming, setting, unsetting, slowing):
        each.add_argument("--why", default="", metavar="TEXT", help="reason, recorded with your user name")
        add_common(each)
    showing.set_defaults(run=_show)
    setting.set_defaults(run=_set)
    unsetting.set_defaults(run=_unset)
    slowing.set_defaults(run=_slow)
    suspending.set_defaults(run=_suspend)
    resuming.set_defaults(run=_resume)


def _list(arguments: argparse.Namespace) -> int:
    with control_client(arguments) as control:
        answer = control.ask("destinations", Destinations, {"limit": arguments.limit})
    names = dict.fromkeys((*answer.queued, *answer.suspended, *answer.destinations, *answer.without_mail))
    if arguments.json:
        lines = JsonLines()
        for name in names:
            lines.item(_item(name, answer))
        # Each part of the answer has at most as many destinations as were asked for.
        most = max(len(answer.queued), len(answer.suspended), len(answer.destinations), len(answer.without_mail))
        lines.end(complete=not answer.unanswered, more=most >= arguments.limit, unanswered=answer.unanswered)
        return NOT_DONE if answer.unanswered else DONE
    if answer.unanswered:
        complain(f"incomplete: {plain(answer.unanswered)}")
    rows = []
    for name in names:
        known = answer.destinations.get(name)
        rows.append(
            (
                name or "(not routed yet)",
                _queued(name, answer),
                known.busy if known else 0,
                f"{known.window:g}" if known else "-",
                _state(name, answer),
            )
        )
    heads = ("DESTINATION", "RECIPIENTS", "BUSY", "WINDOW", "STATE")
    for line in table(heads, rows, width(sys.stdout), frozenset({1, 2, 3})):
        say(line)
    return NOT_DONE if answer.unanswered else DONE


def _queued(name: str, answer: Destinations) -> int:
    # The queue counts by next hop. If each recipient is a destination, only the scheduler counts them.
    known = answer.destinations.get(name)
    return answer.queued.get(name, known.queued if known else 0)


def _item(name: str, answer: Destinations) -> dict[str, Any]:
    """Returns the line of a destination: ``active`` holds what the scheduler knows of one with mail in the active set."""
    return {
        "destination": name,
        "recipients": _queued(name, answer),
        "states": answer.states.get(name, []),
        "suspended": name in answer.suspended,
        "suspended_until": answer.suspended.get(name),
        "active": answer.destinations.get(name),
        "outcomes": answer.without_mail.get(name),
    }


def _state(name: str, answer: Destinations) -> str:
    """Returns the states of a destination, with the end of those that have one: dead until 12:00:00, window full."""
    words = []
    for each in answer.states.get(name, ()):
        until = f" until {shown(each.until)}" if each.until else ""
        if not until and each.state == DestinationState.SUSPENDED:
            until = " until it is resumed"
        words.append(each.state + until)
    return ", ".join(words)


def _suspend(arguments: argparse.Namespace) -> int:
    given = {"destination": arguments.destination, "until": arguments.until}
    with control_client(arguments) as control:
        answer = control.ask("suspend", ValueSet, given, why=arguments.why)
    if arguments.json:
        print_json(answer)
    else:
        say(f"{plain(arguments.destination)} is suspended {_suspended_until(arguments.until)}")
    return DONE


def _resume(arguments: argparse.Namespace) -> int:
    with control_client(arguments) as control:
        answer = control.ask("resume", ValueSet, {"destination": arguments.destination}, why=arguments.why)
    still = answer.suspended
    if arguments.json:
        print_json(answer)
    elif still:
        scope, name = plain(still.scope or arguments.destination), plain(arguments.destination)
        until = still.value if isinstance(still.value, int | float) else None
        say(f"{name} is still suspended, by {scope}, {_suspended_until(until)}")
    else:
        say(f"{plain(arguments.destination)} is resumed")
    if answer.unanswered and not arguments.json:
        complain(f"if it was dead, it may not be tried now everywhere: {plain(answer.unanswered)}")
    return NOT_DONE if still or answer.unanswered else DONE


def _suspended_until(until: float | None) -> str:
    return "until it is resumed" if until is None else f"until {shown(until)}"


def _show(arguments: argparse.Namespace) -> int:
    with control_client(arguments) as control:
        scopes = control.ask("transports", Transports, {"destination": arguments.destination}).scopes
    if arguments.json:
        print_json(scopes)
        return DONE
    rows = [
        (parameter, _value_shown(parameter, known.value), origin_of(known))
        for parameters in scopes.values()
        for parameter, known in parameters.items()
    ]
    for line in whole_table(("PARAMETER", "VALUE", "FROM"), rows, width(sys.stdout)):
        say(line)
    return DONE


def _value_shown(parameter: str, value: Any) -> str:
    if parameter == SUSPENDED_UNTIL:
        return "resumed" if value is None else shown(value)
    return value_shown(value)


def _set(arguments: argparse.Namespace) -> int:
    return _change(arguments, arguments.parameter, arguments.value, end_of(arguments))


def _unset(arguments: argparse.Namespace) -> int:
    return _change(arguments, arguments.parameter, DEFAULT, {})


def _slow(arguments: argparse.Namespace) -> int:
    if not _PERCENT.fullmatch(arguments.to):
        raise UsageError(f"destination slow: invalid percentage --to {arguments.to!r}; allowed: 1% to 99%")
    end = end_of(arguments)
    if not end:
        raise UsageError("destination slow: give a time limit with --for DURATION or --until TIME")
    return _change(arguments, SPEED, arguments.to, end)


def _change(arguments: argparse.Namespace, parameter: str, text: str, end: dict[str, float]) -> int:
    if ":" not in arguments.destination:
        raise UsageError(f"destination: {arguments.destination!r} has no transport; expected {DESTINATION_HELP}")
    given = {"scope": arguments.destination, "parameter": parameter, "value": value_of(text), **end}
    with control_client(arguments) as control:
        answer = control.ask("set", ValueSet, given, why=arguments.why)
    if arguments.json:
        print_json(answer)
    else:
        say(described(arguments.destination, parameter, answer, text))
    return DONE
