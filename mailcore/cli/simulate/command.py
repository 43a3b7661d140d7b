"""``waypost simulate``: predicts deliveries with the real scheduler and modelled next hops, for the mail of a scenario or of
the live queue. The status is 0 even if mail is left at the end of the simulated time."""

from __future__ import annotations

import argparse
import dataclasses
import os
import random
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mailcore.bounds import number_from_text
from mailcore.cli.simulate.report import ESTIMATE, Run, report
from mailcore.config.load import ConfigError, load
from mailcore.config.scheduler_parameters import parameters_of
from mailcore.config.settings import Settings
from mailcore.config.tuned import read as read_tuned
from mailcore.extras import missing
from mailcore.manager_answers import Size
from mailcore.scheduler.parameters import SUSPENDED_UNTIL, Parameters, TransportParameters, check
from mailcore.simulator.distribution import Chance
from mailcore.simulator.names import Names
from mailcore.simulator.queued import QueuedMail
from mailcore.simulator.scenario import Change, Scenario
from mailcore.simulator.scenario_file import GLOBAL, ScenarioFile, read_scenario
from mailcore.simulator.simulate import simulate
from mailcore.simulator.site import Client
from mailcore.terminal.command import DONE, NOT_DONE, UsageError, add_common, config_path, control_client, duration
from mailcore.terminal.output import complain, plain, print_json, say, width

__all__ = ["configure"]

SETS_MAX = 100
SMTP_PORT = 25  # RFC 5321 4.5.4.2; where no configuration says another


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    parser.add_argument(
        "scenario",
        nargs="?",
        type=Path,
        metavar="SCENARIO.toml",
        help="scenario file: next hops and mail; docs/scenario.md has its keys",
    )
    parser.add_argument("--live", action="store_true", help="also simulate the mail of the live queue")
    parser.add_argument("--seed", type=int, metavar="N", help="random seed (same seed, same result)")
    parser.add_argument(
        "--until", type=duration, metavar="DURATION", help="end the simulated time after 90s, 15m, 2h, 1d12h or 2w"
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="SCOPE:PARAMETER=VALUE",
        help="set a parameter, such as smtp:example.org:destination_concurrency_limit=5; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--compare", action="store_true", help="simulate without and with --set, and show both results side by side"
    )
    parser.add_argument(
        "--chart", "--picture", dest="chart", type=Path, metavar="FILE.png", help="write a chart of the result"
    )
    add_common(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    if arguments.scenario is None and not arguments.live:
        raise UsageError("simulate: there is nothing to simulate; give a SCENARIO.toml, --live, or both")
    if arguments.compare and not arguments.set:
        raise UsageError("simulate: --compare needs a changed parameter; give --set SCOPE:PARAMETER=VALUE")
    if arguments.chart is not None:
        _check_chart_file(arguments.chart)
    if arguments.seed is not None and arguments.seed < 0:
        raise UsageError(f"simulate: --seed must be 0 or greater (got {arguments.seed})")
    changes = tuple(_set(text) for text in arguments.set[:SETS_MAX])
    file = read_scenario(arguments.scenario) if arguments.scenario is not None else ScenarioFile()
    settings = _settings(arguments, file)
    names = Names(SMTP_PORT) if settings is None else Names(settings.deliverer.port, settings.transports)
    try:
        changes = names.changes(changes)
    except ValueError as error:
        raise UsageError(f"simulate: --set: {error}") from None
    try:
        file = dataclasses.replace(
            file,
            changes=names.changes(file.changes),
            next_hops=names.next_hops(file.next_hops.items()),
            backlog=names.backlog(file.backlog),
        )
    except ValueError as error:
        raise UsageError(f"simulate: {arguments.scenario}: {error}") from None
    seed = file.options.seed if arguments.seed is None else arguments.seed
    size = _live_size(arguments) if arguments.live else None
    unanswered = "" if size is None else size.unanswered
    scenario = _scenario(arguments, file, settings, size)
    wanted: list[tuple[str, tuple[Change, ...]]] = [("as it is", ())] if arguments.compare or not changes else []
    wanted += [(f"with {', '.join(arguments.set)}", changes)] if changes else []
    runs = [(label, _simulated(scenario, more, seed)) for label, more in wanted]
    if arguments.json:
        made = [{"name": label, "outcome": outcome} for label, outcome in runs]
        print_json({"note": ESTIMATE, "unanswered": unanswered, "seed": seed, "runs": made})
    else:
        for line in report(_short(runs), seed, width(sys.stdout)):
            say(line)
    if arguments.chart is not None:  # last, so that the tables are printed even if it fails
        sys.stdout.flush()
        _draw(arguments.chart, _short(runs), f"Seed {seed}")
        if not arguments.json:
            say(f"\nChart written to {arguments.chart}")
    return NOT_DONE if unanswered else DONE


def _draw(chart_file: Path, runs: list[Run], note: str) -> None:
    """Draws the runs. Importing matplotlib takes half a second, so it is imported only for --chart."""
    from mailcore.cli.simulate import chart

    chart.draw(chart_file, runs, note)


def _check_chart_file(chart_file: Path) -> None:
    """Checks, before a simulation of hours, that the chart file can be written. Raises UsageError."""
    if sentence := missing("charts"):
        raise UsageError(f"simulate: --chart: {sentence}")
    if chart_file.suffix.lower() != ".png":
        raise UsageError(f"simulate: --chart must be a file name ending in .png (got {str(chart_file)!r})")
    if not chart_file.parent.is_dir():
        raise UsageError(f"simulate: --chart {str(chart_file)!r}: there is no directory {str(chart_file.parent)!r}")
    if chart_file.is_dir() or not os.access(chart_file if chart_file.exists() else chart_file.parent, os.W_OK):
        raise UsageError(f"simulate: --chart {str(chart_file)!r} cannot be written")


def _short(runs: list[Run]) -> list[Run]:
    """Replaces the names of two runs by names that fit above a column."""
    if len(runs) == 1:
        return runs
    return [(label, outcome) for label, (_, outcome) in zip(("before", "after"), runs, strict=True)]


def _set(text: str) -> Change:
    left, equals, given = text.rpartition("=")
    scope, _, parameter = left.rpartition(":")
    scope = "" if scope == GLOBAL else scope
    if not equals or not parameter:
        raise UsageError(f"simulate: --set must be SCOPE:PARAMETER=VALUE or {GLOBAL}:PARAMETER=VALUE (got {text!r})")
    typed = number_from_text(given)
    value = given if typed is None else typed
    try:
        check(scope, parameter, value)
    except ValueError as error:
        raise UsageError(f"simulate: --set: {error}") from None
    return Change(scope=scope, parameter=parameter, value=value)


def _simulated(scenario: Scenario, changes: tuple[Change, ...], seed: int) -> Any:
    def chances(name: str) -> Chance:
        return random.Random(f"{seed} {name}")  # noqa: S311 - chance that can be repeated is what is wanted

    # A value of --set holds from the start, and overrides the values of the scenario.
    changed = dataclasses.replace(scenario, changes=(*scenario.changes, *changes))
    try:
        return simulate(changed, chances)
    except ValueError as error:
        raise UsageError(f"simulate: {error}") from None


# -- from files and from the live queue


def _live_size(arguments: argparse.Namespace) -> Size:
    """Asks for the size of the queue; names the shards whose mail is not in it."""
    with control_client(arguments) as control:
        size = control.ask("size", Size)
    if size.unanswered:
        complain(f"incomplete: only mail of the shards that answer is simulated: {plain(size.unanswered)}")
    return size


def _scenario(
    arguments: argparse.Namespace, file: ScenarioFile, settings: Settings | None, size: Size | None
) -> Scenario:
    """``size``: of the live queue, whose mail is queued at the start."""
    backlog = file.backlog
    if size is not None:
        backlog = dataclasses.replace(backlog, queued=QueuedMail.of(size))
    limits = file.limits
    if arguments.until is not None:
        if arguments.until <= 0:
            raise UsageError("simulate: --until must be greater than 0")
        limits = dataclasses.replace(limits, until_s=arguments.until)
    if settings is None:
        return Scenario(
            parameters=_defaults(file, backlog.weights(limits.until_s)),
            changes=file.changes,
            next_hops=file.next_hops,
            backlog=backlog,
            client=Client(**file.client),
            limits=limits,
        )
    deliverer = settings.deliverer
    client = {
        "concurrency": deliverer.concurrency * deliverer.processes,
        "connect_timeout_s": deliverer.connect_timeout_s,
        "greeting_timeout_s": deliverer.greeting_timeout_s,
        "connection_idle_s": deliverer.connection_idle_s,
        "connection_uses_max": deliverer.connection_uses_max,
    }
    return Scenario(
        parameters=parameters_of(settings),
        changes=(*_tuned(settings, time.time()), *file.changes),
        next_hops=file.next_hops,
        backlog=backlog,
        client=Client(**client | dict(file.client)),
        limits=limits,
        retry_ladder_s=settings.queue.retry_ladder_s,
    )


def _settings(arguments: argparse.Namespace, file: ScenarioFile) -> Settings | None:
    """Loads the settings; None means the defaults. A scenario does not need a configuration, a live queue does."""
    if arguments.live:
        return load(config_path(arguments))
    if file.options.parameters == "defaults":
        return None
    try:
        path = config_path(arguments)
    except ConfigError:
        return None
    return load(path)


def _defaults(file: ScenarioFile, destinations: Iterable[str]) -> Parameters:
    names = [*destinations, *(change.scope for change in file.changes if change.scope)]
    return Parameters(transports={name.partition(":")[0]: TransportParameters() for name in names})


def _tuned(settings: Settings, wall: float) -> Iterable[Change]:
    """Yields the values set live, which override the configuration; times are on the simulation's clock."""
    try:
        values, timed = read_tuned(settings.home / "tuned.toml")
    except ValueError as error:
        raise ConfigError(f"{settings.home / 'tuned.toml'}: {error}") from None
    for scope, parameters in values.items():
        for parameter, value in parameters.items():
            if parameter == SUSPENDED_UNTIL:
                until = float(value) - wall
                if until > 0:
                    yield Change(scope=scope, parameter=parameter, value=until)
            else:
                yield Change(scope=scope, parameter=parameter, value=value)
    for scope, ending in timed.items():
        for parameter, (value, until_wall) in ending.items():
            if until_wall > wall:
                yield Change(scope=scope, parameter=parameter, value=value, until_s=until_wall - wall)
