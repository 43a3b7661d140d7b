"""The parts of the suite as data: how each is run, how its results become rows, and the figures that are wanted.

A part is a benchmark of this directory with arguments for each scale. It writes its runs as JSON, and a function of
bench.suite_rows makes rows of them: ours beside the peer's. ``WANTED`` names rows, and the bounds that the project has set
itself for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from bench.suite_rows import Row, browse_rows, half_load_rows, relay_rows, report_rows, restart_rows, storm_rows

__all__ = ["PARTS", "WANTED", "Goal", "Part", "Results", "Scale", "Wanted"]


class Scale(StrEnum):
    """How much is measured."""

    SHORT = "short"  # a few minutes: does everything run?
    BRIEF = "brief"  # a quarter of an hour: figures, of few runs
    FULL = "full"  # more than an hour


Results = Mapping[str, Sequence[Row]]  # by part


@dataclass(frozen=True, slots=True)
class Part:
    """One benchmark with its arguments. ``limits_s``: it is ended when it takes longer."""

    name: str
    title: str
    module: str
    how: str
    arguments: dict[Scale, str]
    limits_s: dict[Scale, float]
    rows: Callable[[Any], list[Row]]
    peer: str = "Postfix"


def _limits(brief: float, full: float, short: float = 240.0) -> dict[Scale, float]:
    return {Scale.SHORT: short, Scale.BRIEF: brief, Scale.FULL: full}


# -- the parts, in the order in which they run


def _relay(size: int, short: int, brief: int, full: int, more: str = "", *, syncs: bool = False) -> dict[Scale, str]:
    """Returns the arguments for messages of a size; the numbers are messages of a run."""
    no_syncs = "" if syncs else " --no-syncs"
    return {
        Scale.SHORT: f"--size {size} --rounds 1 --messages {short} --no-syncs{more}",
        Scale.BRIEF: f"--size {size} --rounds {3 if syncs else 2} --messages {brief}{no_syncs}{more}",
        Scale.FULL: f"--size {size} --rounds 5 --messages {full}{more}",
    }


_RELAYED = "source, relay and sink on the same cores, 20 sessions; from the start of the source to the last message at the sink"

PARTS: tuple[Part, ...] = (
    Part(
        "relay-1k", "Relaying 1 kB", "relay", _RELAYED, _relay(1024, 50, 3000, 10_000), _limits(240, 1200), relay_rows
    ),
    Part(
        "relay-4k",
        "Relaying 4 kB",
        "relay",
        f"{_RELAYED}; syncs in a run of their own under strace",
        _relay(4096, 50, 3000, 10_000, syncs=True),
        _limits(360, 1200),
        relay_rows,
    ),
    Part(
        "relay-50k", "Relaying 50 kB", "relay", _RELAYED, _relay(51_200, 50, 1500, 5000), _limits(240, 900), relay_rows
    ),
    Part(
        "relay-100k",
        "Relaying 100 kB",
        "relay",
        _RELAYED,
        _relay(102_400, 30, 1000, 3000),
        _limits(240, 900),
        relay_rows,
    ),
    Part(
        "relay-1m",
        "Relaying 1 MB",
        "relay",
        f"{_RELAYED}; in turn with source and sink without a relay, and with a copy of the same bytes through loopback and one "
        "synced file, without any protocol",
        _relay(1_000_000, 20, 240, 400, " --copy --direct"),
        _limits(300, 900),
        relay_rows,
    ),
    Part(
        "recipients-50",
        "50 recipients a message, 4 kB",
        "relay",
        f"{_RELAYED}; all recipients in one domain, delivered in one transaction",
        _relay(4096, 20, 300, 1000, " --recipients 50"),
        _limits(240, 900),
        relay_rows,
    ),
    Part(
        "storm",
        "All mail is deferred, 4 kB",
        "storm",
        "the next hop answers 450 to each RCPT; from the start of the source to the last deferral in the log",
        {
            Scale.SHORT: "--only postfix waypost --rounds 1 --messages 50 --no-syncs",
            Scale.BRIEF: "--only postfix waypost --rounds 3 --messages 1500",
            Scale.FULL: "--only postfix waypost --rounds 5 --messages 5000",
        },
        _limits(240, 900),
        storm_rows,
    ),
    Part(
        "drain",
        "Deferred mail leaves after a flush, 4 kB",
        "drain",
        "from the start of the command that makes all mail due to the last message at the sink",
        {
            Scale.SHORT: "--rounds 1 --messages 50",
            Scale.BRIEF: "--rounds 2 --messages 6000",
            Scale.FULL: "--rounds 5 --messages 20000",
        },
        _limits(240, 1800),
        relay_rows,
    ),
    Part(
        "half-load",
        "From MAIL to the next hop at half load, 4 kB",
        "half_load",
        "mail arrives at a steady rate over 20 kept connections; from the moment MAIL was due to the final dot at the next "
        "hop; both at half of Postfix's highest rate, then each at half of its own",
        {
            Scale.SHORT: "--short",
            Scale.BRIEF: "--rounds 2 --seconds 5 --messages 3000",
            Scale.FULL: "--rounds 5 --seconds 20",
        },
        _limits(300, 1200),
        half_load_rows,
    ),
    Part(
        "restart",
        "A restart, and memory",
        "restart",
        "kill -9 of all processes, and the time from the next start; the data of the queued messages lies in the log; memory "
        "is the PSS of all processes of the core",
        {
            Scale.SHORT: "--carried --counts 10000 20000 --rounds 1 --traced 1",
            Scale.BRIEF: "--carried --counts 10000 1000000 --rounds 2 --traced 1",
            Scale.FULL: "--carried --counts 10000 1000000 --rounds 5",
        },
        _limits(400, 1800),
        restart_rows,
        peer="",
    ),
    Part(
        "browse",
        "Lists and filters of a big queue",
        "browse",
        "commands of both with their start: postqueue -j, cut or searched, and waypost queue list; until the answer ends",
        {
            Scale.SHORT: "--short",
            Scale.BRIEF: "--count 1000000 --peer-count 50000 --rounds 1",
            Scale.FULL: "--count 1000000 --rounds 3",
        },
        _limits(400, 3600),
        browse_rows,
    ),
    Part(
        "reports",
        "A day's report",
        "reports",
        "the command that makes all tables of a day, Java's start included, and pflogsumm over the log of the same deliveries",
        {
            Scale.SHORT: "--attempts 5000 --rounds 1",
            Scale.BRIEF: "--attempts 100000 --rounds 1",
            Scale.FULL: "--attempts 1000000 --rounds 3",
        },
        _limits(600, 2400, short=600),
        report_rows,
        peer="pflogsumm",
    ),
)


# -- the figures that are wanted


@dataclass(frozen=True, slots=True)
class Goal:
    """A bound for a figure: at least, or at most."""

    bound: float
    at_least: bool
    unit: str  # behind the number
    value: Callable[[Results], float | None]

    def missed_by(self, value: float) -> float:
        """Returns by which share of the bound the value misses it; 0 if it does not."""
        short = self.bound - value if self.at_least else value - self.bound
        return max(0.0, short / self.bound)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A figure that is wanted; one goal of several is enough."""

    what: str
    goals: tuple[Goal, ...]


def _row(part: str, begins: str, field: str = "ratio") -> Callable[[Results], float | None]:
    """Returns a function that finds a field of the first row of a part that begins with a text."""

    def find(results: Results) -> float | None:
        for row in results.get(part, ()):
            if row.what.startswith(begins):
                value: float | None = getattr(row, field)
                return value
        return None

    return find


def _at_least(bound: float, unit: str, value: Callable[[Results], float | None]) -> Goal:
    return Goal(bound, True, unit, value)


def _at_most(bound: float, unit: str, value: Callable[[Results], float | None]) -> Goal:
    return Goal(bound, False, unit, value)


MODES = ("reconnecting", "persistent")
_TIMES = "x Postfix's rate"

WANTED: tuple[Wanted, ...] = (
    *(
        Wanted(f"{size[6:-1]} kB, {mode}", (_at_least(bound, _TIMES, _row(size, mode)),))
        for size, bounds in (
            ("relay-1k", (5.0, 7.0)),
            ("relay-4k", (5.0, 7.0)),
            ("relay-50k", (3.5, 3.5)),
            ("relay-100k", (3.5, 3.5)),
        )
        for mode, bound in zip(MODES, bounds, strict=True)
    ),
    *(
        Wanted(
            f"1 MB, {mode}",
            (
                _at_least(2.0, _TIMES, _row("relay-1m", mode)),
                _at_least(
                    0.6, "of a plain copy's rate", _row("relay-1m", f"{mode}, as a share of a plain copy", "ours")
                ),
            ),
        )
        for mode in MODES
    ),
    Wanted("all mail deferred", (_at_least(5.0, _TIMES, _row("storm", "persistent")),)),
    Wanted("drain after a flush", (_at_least(3.5, _TIMES, _row("drain", "deferred mail")),)),
    *(
        Wanted(
            f"CPU a message, {size[6:-1]} kB, {mode}", (_at_most(bound, "x Postfix's", _row(size, mode, "cpu_ratio")),)
        )
        for size, bound in (("relay-4k", 0.2), ("relay-100k", 0.35))
        for mode in MODES
    ),
    *(
        Wanted(f"syncs, 4 kB, {mode}", (_at_most(0.25, "a message", _row("relay-4k", mode, "syncs")),))
        for mode in MODES
    ),
    Wanted("syncs, all mail deferred", (_at_most(0.3, "a message", _row("storm", "persistent", "syncs")),)),
    Wanted("restart, first 250", (_at_most(1.0, "s", _row("restart", "first 250, 1,000,000", "ours")),)),
    Wanted(
        "restart, first delivery", (_at_most(1.0, "s", _row("restart", "first deferred delivery, 1,000,000", "ours")),)
    ),
    Wanted(
        "restart, a million over 10 000",
        (_at_most(1.2, "x the time", _row("restart", "first deferred delivery, the second", "ours")),),
    ),
    Wanted(
        "restart, bytes read", (_at_most(1.2, "x between 10 000 and a million", _row("restart", "bytes read", "ours")),)
    ),
    Wanted("memory with a million queued", (_at_most(150.0, "MB", _row("restart", "memory", "ours")),)),
    Wanted(
        "p99 from MAIL to the next hop, each at half of its own rate",
        (_at_least(1.0, "x as short as Postfix's", _row("half-load", "p99, half its own")),),
    ),
    Wanted(
        "p99 from MAIL to the next hop, both at half of Postfix's rate",
        (_at_least(1.0, "x as short as Postfix's", _row("half-load", "p99, half of Postfix")),),
    ),
)
