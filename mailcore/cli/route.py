"""``waypost route``: prints the routes table, and where mail for an address would go."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from mailcore.config.route_files import FAULT_MEANS
from mailcore.control.protocol.routing import Fallback, Resolved, Route, Routes
from mailcore.counted import counted
from mailcore.terminal.command import DONE, NOT_DONE, add_common, control_client
from mailcore.terminal.output import complain, print_json, rows_to_lines, say, whole_table, width

__all__ = ["configure"]


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this command to ``parser``."""
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    listing = commands.add_parser(
        "list",
        help="list the routes, the most specific first, and fallback next hops",
        description="List the routes, the most specific first, and fallback next hops. Exit status 1 if no routes are in "
        "force, because the files of [route_maps] cannot be used.",
    )
    add_common(listing)
    listing.set_defaults(run=_list)
    resolving = commands.add_parser(
        "resolve",
        help="show where mail for an address would go: route, destination, fallback, hosts",
        description="Show where mail for an address would go: route, destination, fallback next hops and hosts. Nothing is "
        "sent. Exit status 1 if the address would be refused, or no host was found.",
    )
    resolving.add_argument("address", metavar="ADDRESS")
    resolving.add_argument("--sender", metavar="ADDRESS", help="of mail from this sender; <> for a bounce")
    resolving.add_argument("--login", metavar="USER", default="", help="of mail that this user has sent after login")
    add_common(resolving)
    resolving.set_defaults(run=_resolve)


def _list(arguments: argparse.Namespace) -> int:
    with control_client(arguments) as control:
        answer = control.ask("routes", Routes)
    if arguments.json:
        print_json(answer)
        return DONE if answer.default is not None else NOT_DONE
    if answer.default is None:
        complain(
            "the files of [route_maps] cannot be used, so no routes are in force; mail waits until it is corrected"
        )
        for fault in answer.faults:
            complain(f"[route_maps] {fault}")
        return NOT_DONE
    _print(answer, (*answer.routes, answer.default))
    for fault in answer.faults:
        complain(f"[route_maps] {fault}; {FAULT_MEANS}")
    return DONE


def _print(answer: Routes, routes: Sequence[Route]) -> None:
    names: tuple[str, ...] = ("PATTERN", "TRANSPORT", "NEXT HOP")
    rows: list[tuple[str, ...]] = [(route.pattern, route.transport, _next_hop(route)) for route in routes]
    if any(route.file for route in routes):
        names = (*names, "WRITTEN IN")
        rows = [
            (*row, f"{route.file}:{route.line}" if route.file else "") for row, route in zip(rows, routes, strict=True)
        ]
    for line in whole_table(names, rows, width(sys.stdout)):
        say(line)
    if answer.more:
        complain(f"{counted(answer.more, 'more route')} not shown; waypost route resolve ADDRESS looks at all of them")
    if answer.fallbacks:
        say("")
        for line in whole_table(
            ("FALLBACK OF", "NEXT HOPS", "WRITTEN IN"), map(_fallback, answer.fallbacks), width(sys.stdout)
        ):
            say(line)
    if answer.more_fallbacks:
        complain(f"{counted(answer.more_fallbacks, 'more fallback')} not shown")


def _fallback(found: Fallback) -> tuple[str, str, str]:
    written = f"{found.file}:{found.line}" if found.file else f"[transports.{found.scope}]"
    return found.scope, ", ".join(found.next_hops) or "none", written


def _next_hop(route: Route) -> str:
    if route.becomes:
        return f"({route.becomes}) {route.next_hop}".rstrip()
    return route.next_hop or "(domain of the recipient)"


def _resolve(arguments: argparse.Namespace) -> int:
    with control_client(arguments) as control:
        question = {"address": arguments.address}
        if arguments.sender is not None:
            question["sender"] = "" if arguments.sender == "<>" else arguments.sender
        if arguments.login:
            question["login"] = arguments.login
        answer = control.ask("resolve", Resolved, question)
    if arguments.json:
        print_json(answer)
    else:
        pairs: list[tuple[str, object]] = [("address", answer.address), ("route", answer.matched)]
        if answer.written:
            pairs.append(("written in", answer.written))
        if answer.refused:
            pairs.append(("refused", answer.refused))
        elif answer.becomes:
            pairs.append(("mail is", answer.becomes))
        else:
            pairs += [("transport", answer.transport), ("destination", answer.destination)]
        if answer.fallback_scope:
            pairs.append(("fallback", ", ".join(answer.fallbacks) or "none"))
            pairs.append(("written in", f"{answer.fallback_written} ({answer.fallback_scope})"))
        for host in answer.hosts:
            preference = "" if host.preference is None else f"{host.preference} "
            pairs.append(("host", f"{preference}{host.name} ({', '.join(host.addresses)})"))
        if answer.dns_error:
            pairs.append(("no host", answer.dns_error))
        for line in rows_to_lines(pairs):
            say(line)
    return NOT_DONE if answer.refused or answer.dns_error else DONE
