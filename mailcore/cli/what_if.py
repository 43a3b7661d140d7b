"""``waypost transport parameters`` and ``what-if``: the parameters that can be tuned, and what changed values would do."""

from __future__ import annotations

import argparse
import sys
import textwrap
from typing import Any

from mailcore.cli.parameter import value_of, value_shown
from mailcore.control.protocol.tuning import ParameterKnown, ParametersKnown, SimulatePart, SimulationResult
from mailcore.terminal.command import DONE, UsageError, add_common, control_client, duration
from mailcore.terminal.nearest import did_you_mean
from mailcore.terminal.output import plain, print_json, rows_to_lines, say, table, whole_table, width
from mailcore.terminal.times import shown_duration

__all__ = ["GLOBAL", "SCOPE_HELP", "changes_of", "configure", "drained"]

GLOBAL = "global"  # name of the scope of all transports on the command line
SCOPE_HELP = f"TRANSPORT, TRANSPORT:NEXTHOP, TRANSPORT:.DOMAIN, or {GLOBAL}"
TIMEOUT_S = 900.0  # between two parts of the answer; [control] simulation_timeout_s ends it before


def configure(commands: Any) -> None:
    """Adds these commands to the subcommands of ``waypost transport``."""
    parameters = commands.add_parser("parameters", help="list the parameters that can be tuned; explain one of them")
    parameters.add_argument("parameter", metavar="PARAMETER", nargs="?", help="explain only this one")
    add_common(parameters)
    parameters.set_defaults(run=_parameters)
    what_if = commands.add_parser(
        "what-if",
        help="simulate the queued mail with other values; nothing is changed",
        description="Simulate the queued mail with the values in force and with other values, and compare. Nothing is "
        "changed. Next hops behave as they were measured.",
    )
    what_if.add_argument("transport", metavar="TRANSPORT", help=SCOPE_HELP)
    what_if.add_argument("changes", nargs="+", metavar="PARAMETER=VALUE", help="values, as transport set takes them")
    what_if.add_argument(
        "--duration", type=duration, default=86_400.0, metavar="DURATION", help="simulated time (default: 1d)"
    )
    what_if.add_argument(
        "--arrivals",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="whether new mail arrives during the simulation (default: it does)",
    )
    what_if.add_argument("--no-backlog", action="store_true", help="without the queued mail, only with what arrives")
    what_if.add_argument(
        "--since", type=duration, default=3600.0, metavar="DURATION", help="next hops as measured in this time (1h)"
    )
    what_if.add_argument("--seed", type=int, default=1, metavar="N", help="random seed (same seed, same result)")
    add_common(what_if)
    what_if.set_defaults(run=_what_if)


def changes_of(command: str, transport: str, texts: list[str]) -> list[dict[str, Any]]:
    """Parses PARAMETER=VALUE to the changes of a request. Raises UsageError."""
    scope = "" if transport == GLOBAL else transport
    changes = []
    for text in texts:
        parameter, equals, value = text.partition("=")
        if not equals or not parameter:
            raise UsageError(f"transport {command}: {text!r} is not PARAMETER=VALUE", argument="PARAMETER=VALUE")
        changes.append({"scope": scope, "parameter": parameter, "value": value_of(value)})
    return changes


def _parameters(arguments: argparse.Namespace) -> int:
    with control_client(arguments) as control:
        answer = control.ask("parameters", ParametersKnown)
    known = {(scope, each.name): each for scope, parameters in answer.scopes.items() for each in parameters}
    if arguments.parameter is not None:
        known = {place: each for place, each in known.items() if each.name == arguments.parameter}
        if not known:
            names = {each.name for parameters in answer.scopes.values() for each in parameters}
            near = did_you_mean(arguments.parameter, names)
            message = f"transport parameters: unknown parameter {arguments.parameter!r}{near}"
            raise UsageError(message, argument="PARAMETER")
    if arguments.json:
        if arguments.parameter is not None:
            answer.scopes = {scope: [each] for (scope, _), each in known.items()}
        print_json(answer)
        return DONE
    columns = width(sys.stdout)
    if arguments.parameter is not None:
        _explain(dict(known), columns)
        return DONE
    rows = [(each.name, scope, _default(each), each.doc) for (scope, _), each in known.items()]
    for line in whole_table(("PARAMETER", "SCOPE", "DEFAULT", "MEANING"), rows, columns):
        say(line)
    return DONE


def _explain(known: dict[tuple[str, str], ParameterKnown], columns: int) -> None:
    first = next(iter(known.values()))
    pairs: list[tuple[str, object]] = [
        ("parameter", first.name),
        ("scopes", ", ".join(scope for scope, _ in known)),
        ("allowed", first.allowed),
        ("default", _default(first)),
    ]
    for line in rows_to_lines(pairs):
        say(line)
    for paragraph in (first.doc, *first.explanation.split("\n\n")):
        say()
        for line in textwrap.wrap(plain(" ".join(paragraph.split())), columns):
            say(line)


def _default(each: ParameterKnown) -> str:
    return "-" if each.default is None else value_shown(each.default)


def _what_if(arguments: argparse.Namespace) -> int:
    if arguments.no_backlog and not arguments.arrivals:
        raise UsageError(
            "transport what-if: --no-backlog and --no-arrivals leave no mail to simulate", argument="--no-backlog"
        )
    given = {
        "changes": changes_of("what-if", arguments.transport, arguments.changes),
        "duration_s": arguments.duration,
        "backlog": "none" if arguments.no_backlog else "live",
        "arrivals": arguments.arrivals,
        "since_s": arguments.since,
        "seed": arguments.seed,
    }
    last: SimulatePart | None = None
    with control_client(arguments) as control:
        for part in control.ask_parts("simulate", SimulatePart, given, timeout_s=TIMEOUT_S):
            last = part
            if not part.done and sys.stderr.isatty():
                print(f"\r{part.stage} {part.progress:4.0%}  ", end="", file=sys.stderr, flush=True)
    assert last is not None, "every answer has a last part"
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr, flush=True)
    if arguments.json:
        names = ("before", "after", "unknown", "assumptions", "unread_files")
        print_json({name: getattr(last, name) for name in names})
        return DONE
    say("An estimate: the scheduler is the real one; next hops and mail are models.")
    for unknown in last.unknown:
        say(f"  Not known: {plain(unknown.message)}")
    for each in last.assumptions:
        say(f"  {plain(each)}")
    say()
    before, after = (_pairs(result) for result in (last.before, last.after))
    rows = [(name, value, after.get(name, "-")) for name, value in before.items()]
    for line in table(("", "IN FORCE", "CHANGED"), rows, width(sys.stdout), frozenset({1, 2})):
        say(line)
    return DONE


def drained(result: SimulationResult) -> str:
    """Returns after which time the queue was empty; if it was not, that it takes longer than was simulated."""
    if result.drain_s is not None:
        return shown_duration(result.drain_s)
    return f"more than {shown_duration(result.series.t[-1])}" if result.series.t else "-"


def _pairs(result: SimulationResult | None) -> dict[str, object]:
    if result is None:
        return {}
    small, big = result.delay.small, result.delay.big
    return {
        "queue empty after": drained(result),
        "recipients delivered": result.delivered,
        "deferred": result.deferred,
        "bounced": result.bounced,
        "waiting at the end": result.waiting,
        **{
            f"{'1 recipient' if delay.recipients == '1' else f'{delay.recipients} recipients'}, {name} of delay": "-"
            if value is None
            else shown_duration(value)
            for delay in (small, big)
            if delay.recipients
            for name, value in (("median", delay.p50), ("p90", delay.p90), ("p99", delay.p99))
        },
        "ended": "early" if result.truncated else "as asked",
    }
