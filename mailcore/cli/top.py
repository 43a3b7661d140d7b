"""``waypost top``: the queue, the rates and the busiest destinations, live in a terminal."""

from __future__ import annotations

import argparse
import contextlib
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import FrameType
from typing import Any

from mailcore.control.client import ControlClient, ControlError
from mailcore.control.protocol.state import Processes
from mailcore.control.unanswered import answering, unanswered
from mailcore.counted import counted
from mailcore.manager_answers import Destinations, Size, State
from mailcore.terminal.command import DONE, NOT_DONE, UsageError, add_common, control_client
from mailcore.terminal.output import cut, plain, print_json, say, table
from mailcore.terminal.times import shown_duration

__all__ = ["Sample", "configure", "frame", "rates_of"]

INTERVAL_S_MIN = 0.5
COLUMNS, ROWS = 80, 24
RATES = (  # of State.totals -> what a person reads
    ("accepted", "in"),
    ("recipients_delivered", "delivered"),
    ("recipients_deferred", "deferred"),
    ("recipients_bounced", "bounced"),
    ("recipients_expired", "expired"),
)
# Law: the terminal is as it was, also after an error or a signal.
ENTER, LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
HOME, REST_OF_LINE, REST_OF_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"


class _Ended(Exception):
    """A signal that ends the program."""


@dataclass(frozen=True)
class Sample:
    """The answers of one moment; None: the manager did not answer."""

    at: float  # monotonic
    processes: Processes | None = None
    state: State | None = None
    size: Size | None = None
    destinations: Destinations | None = None
    error: str = ""


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this command to ``parser``."""
    parser.epilog = (
        "Rates are of the last interval. Ends with Ctrl-C. --json prints one object a line after each interval; "
        "with --once, one."
    )
    parser.add_argument(
        "--interval", type=float, default=2.0, metavar="SECONDS", help="time between looks (default: 2)"
    )
    parser.add_argument("--once", action="store_true", help="look twice, print once and end")
    add_common(parser, json_help="print a JSON object a line instead of text")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    interval_s = arguments.interval
    if not INTERVAL_S_MIN <= interval_s <= 3600:
        raise UsageError(f"argument --interval: between {INTERVAL_S_MIN:g} and 3600 seconds (got {interval_s:g})")
    with control_client(arguments) as control:
        before = _look(control, first=True)
        if arguments.once or arguments.json or not sys.stdout.isatty():
            while True:
                time.sleep(interval_s)
                now = _look(control)
                if arguments.json:
                    print_json(_document(now, before))
                else:
                    for line in frame(now, before, COLUMNS, 1000):
                        say(line)
                sys.stdout.flush()
                if arguments.once:
                    return NOT_DONE if now.error or _missing(now) else DONE
                before = now
        with _screen(), contextlib.suppress(_Ended):
            earlier = before
            while True:
                columns, rows = shutil.get_terminal_size((COLUMNS, ROWS))
                lines = frame(before, earlier, columns, rows - 1)
                sys.stdout.write(HOME + "".join(f"{line}{REST_OF_LINE}\n" for line in lines) + REST_OF_SCREEN)
                sys.stdout.flush()
                time.sleep(interval_s)
                earlier, before = before, _look(control)
    return DONE


@contextlib.contextmanager
def _screen() -> Iterator[None]:
    """Uses a screen of its own and hides the cursor, until the end."""
    numbers = (signal.SIGTERM, signal.SIGHUP)
    kept = {number: signal.signal(number, _end) for number in numbers}
    sys.stdout.write(ENTER)
    try:
        yield
    finally:
        sys.stdout.write(LEAVE)
        sys.stdout.flush()
        for number, handler in kept.items():
            signal.signal(number, handler)


def _end(number: int, stack: FrameType | None) -> None:
    raise _Ended


def _look(control: ControlClient, *, first: bool = False) -> Sample:
    """Asks. Raises ControlError only the first time: later the screen says that there is no answer."""
    processes: Processes | None = None
    try:
        processes = control.ask("processes", Processes)
        return Sample(
            time.monotonic(),
            processes,
            control.ask("state", State),
            control.ask("size", Size),
            control.ask("destinations", Destinations),
        )
    except ControlError as error:
        if first and processes is None:
            raise
        return Sample(time.monotonic(), processes, error=str(error))


def _missing(now: Sample) -> str:
    """Returns which shards are not in a sample, and why; "" if none is missing, or the manager did not answer at all."""
    return "" if now.state is None else unanswered(now.state, now.size, now.destinations)


def rates_of(now: Sample, before: Sample) -> dict[str, float | None]:
    """Returns what was counted per second between two samples; None where it is not known.

    A rate over a restart is known, since the totals continue; one over totals that began again, or of other shards, is not.
    """
    if now.state is None or before.state is None or now.at <= before.at:
        return {name: None for name, _ in RATES}
    if now.state.counted_since != before.state.counted_since or answering(now.state) != answering(before.state):
        return {name: None for name, _ in RATES}
    seconds = now.at - before.at
    return {
        name: max(now.state.totals.get(name, 0) - before.state.totals.get(name, 0), 0) / seconds for name, _ in RATES
    }


def frame(now: Sample, before: Sample, columns: int, rows: int) -> list[str]:
    """Returns the lines of a screen of this size."""
    lines = [f"waypost top  {time.strftime('%H:%M:%S')}  {_health(now)}"]
    if now.error:
        lines += ["", f"no answer: {plain(now.error)}"]
    if now.state is None or now.size is None or now.destinations is None:
        return [cut(line, columns) for line in lines[:rows]]
    state, size = now.state, now.size
    states = _states(size)
    missing = unanswered(state, size, now.destinations)
    lines += [
        f"queue: {'at least ' if missing else ''}{counted(size.messages, 'message')}, {counted(size.recipients, 'recipient')}"
        + "".join(f", {count} {name}" for name, count in states.items() if count),
        f"active: {state.active_messages} of {state.scheduler.parameters.get('message_active_limit', '?')}; deliveries: "
        f"{sum(link.in_flight for link in state.deliverers)} of {sum(link.capacity for link in state.deliverers)}",
        "per second: " + ", ".join(f"{_rate(rates_of(now, before)[name])} {text}" for name, text in RATES),
    ]
    lines += [plain(text) for text in (missing, state.stalled, state.active_full, state.restored) if text]
    half = max((rows - len(lines) - 4) // 2, 1)
    for title, chosen in (("BUSIEST", _busiest(now.destinations)), ("WORST", _worst(now.destinations))):
        if chosen:
            heads = (title, "QUEUED", "BUSY", "WINDOW", "DELIVERED", "DEFERRED", "STATE")
            cells = [_row(name, each, now.destinations) for name, each in chosen[:half]]
            lines += ["", *table(heads, cells, columns, frozenset({1, 2, 3, 4, 5}))]
    return [cut(line, columns) for line in lines[:rows]]


def _health(now: Sample) -> str:
    if now.processes is None:
        return "Waypost does not answer"
    away = [name for name, child in now.processes.children.items() if child.pid is None]
    restarts = sum(child.restarts for child in now.processes.children.values())
    running = f"{len(now.processes.children) - len(away)} of {len(now.processes.children)} processes run"
    running += f", not {', '.join(away)}" if away else ""
    uptime = f", manager up {shown_duration(now.state.uptime_s)}" if now.state is not None else ""
    return f"{running}, {restarts} restart{'' if restarts == 1 else 's'}{uptime}"


def _states(size: Size) -> dict[str, int]:
    """Returns messages by the kind of their lane."""
    counts = {"new": 0, "deferred": 0, "held": 0}
    for lane, amount in size.lanes.items():
        kind = "held" if lane == "hold" else "deferred" if lane.startswith("retry.") else "new"
        if lane != "deleted":
            counts[kind] += amount.messages
    return counts


def _busiest(destinations: Destinations) -> list[tuple[str, Any]]:
    return sorted(destinations.destinations.items(), key=lambda each: (-each[1].busy, -each[1].queued, each[0]))


def _worst(destinations: Destinations) -> list[tuple[str, Any]]:
    """Returns the destinations that are dead or suspended, or have failures, the worst first."""
    bad = [
        (name, each)
        for name, each in destinations.destinations.items()
        if each.dead_until is not None
        or each.suspended
        or (each.success_share is not None and each.success_share < 0.9)
    ]
    return sorted(
        bad, key=lambda each: (each[1].dead_until is None, each[1].success_share or 0.0, -each[1].queued, each[0])
    )


def _row(name: str, each: Any, destinations: Destinations) -> tuple[object, ...]:
    states = destinations.states.get(name)
    return name, each.queued, each.busy, each.window, each.delivered, each.deferred, states[0].state if states else ""


def _rate(value: float | None) -> str:
    return "?" if value is None else f"{value:.0f}" if value >= 10 else f"{value:.1f}"


def _document(now: Sample, before: Sample) -> Mapping[str, Any]:
    return {
        "rates": rates_of(now, before),
        "interval_s": now.at - before.at,
        "processes": now.processes,
        "size": now.size,
        "state": now.state,
        "destinations": now.destinations,
        "unanswered": _missing(now),
        "error": now.error,
    }
