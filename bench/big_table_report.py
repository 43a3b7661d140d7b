"""The figures of bench.big_table, and the tables and sentences that they become."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from bench.stored_queue import DROPS, KINDS, MESSAGE_BYTES, Commit
from bench.turns import FOREIGN_MAX

__all__ = [
    "AFTER", "BEFORE", "BETWEEN", "BIG", "COMMITS", "GB", "SMALL", "STATISTICS", "Found", "Part", "Size", "Slice", "bloat",
    "mb", "percentile", "report",
]  # fmt: skip

BIG, SMALL = "big", "small"
BEFORE, BETWEEN, AFTER = "before", "between", "after"
PHASES = (BEFORE, BETWEEN, AFTER)
COMMITS = tuple(kind for kind in KINDS if kind not in DROPS)
STATISTICS = (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))
TARGET = 1.2  # wanted: a commit on the big table, at most this much of one on the small table
BLOAT_TARGET = 1.25  # wanted: the table, at most this much of a packed one with as much mail
GROWTH_TARGET = 1.05  # wanted: the table at the end of the churn, at most this much of it in the middle
GB = 1 << 30


@dataclass(frozen=True, slots=True)
class Slice:
    """One turn that was measured."""

    table: str
    phase: str
    commits: list[Commit]
    seconds: float
    cpu_s: float  # of both servers
    foreign: float  # share of the machine that went to neither the servers nor this program


@dataclass(frozen=True, slots=True)
class Size:
    """The table of chunks as it lies on the disk, and what of it lives."""

    live_bytes: int  # of the files of the queue
    heap: int
    toast: int
    indexes: int  # that of TOAST, too
    dead: int  # rows, of heap and TOAST
    vacuums: int  # so far, of heap and TOAST

    @property
    def total(self) -> int:
        """Returns the bytes of all of it."""
        return self.heap + self.toast + self.indexes


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the day of churn."""

    turns: int
    commits: int
    seconds: float
    arrived_bytes: int
    left_bytes: int
    cpu_s: float  # of both servers, cleaning included
    times_ms: list[float]  # of its commits that drop nothing: at the shares of STATISTICS, and the longest
    size: Size


@dataclass
class Found:
    """Everything that was measured."""

    packed: Size | None = None  # the big table before anything passed through it
    churn_bytes: int = 0  # that were to arrive
    slices: list[Slice] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)
    sizes: dict[str, Size] = field(default_factory=dict)  # of both tables, at the end
    ended_early: str = ""  # why not all of it arrived
    cpu_ms: dict[str, float] = field(
        default_factory=dict
    )  # for a commit of the whole run, all cleaning of both servers included
    drained_s: float = 0.0  # from the end of the churn until the cleaning had no more to do; 0: it was not waited for


def percentile(values: Sequence[float], share: float) -> float:
    """Returns the value below which this share of them lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def _times(slices: Sequence[Slice], table: str, phase: str, kinds: Sequence[str]) -> list[float]:
    """Milliseconds of the commits of these kinds."""
    mine = [one for one in slices if (one.table, one.phase) == (table, phase)]
    return [commit.seconds * 1000 for one in mine for commit in one.commits if commit.kind in kinds]


def _paired(slices: Sequence[Slice], phase: str, share: float) -> float:
    """Returns the median of the ratios of the rounds, for commits that drop nothing."""
    of_table: list[list[float]] = []
    for table in (BIG, SMALL):
        mine = [one for one in slices if (one.table, one.phase) == (table, phase)]
        of_table.append([percentile(_times([one], table, phase, COMMITS), share) for one in mine])
    ratios: list[float] = [big / small for big, small in zip(*of_table, strict=True)]
    return statistics.median(ratios)


def _cpu_ms(slices: Sequence[Slice], table: str, phase: str) -> float:
    mine = [one for one in slices if (one.table, one.phase) == (table, phase)]
    return sum(one.cpu_s for one in mine) * 1000 / sum(len(one.commits) for one in mine)


class Judge:
    """Collects the lines about what is wanted, and counts those that are missed."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.missed = 0

    def at_most(self, words: str, value: float, wanted: float, paired: float | None = None) -> None:
        """Says whether a ratio is what is wanted. ``paired``: the median of the ratios of the rounds, which does not decide."""
        missed = value > wanted
        self.missed += missed
        pairs = "" if paired is None else f"median of the pairs {paired:.3f}, "
        self.lines.append(
            f"{words}: {value:.3f} x ({pairs}wanted at most {wanted}): {'MISSED' if missed else 'reached'}"
        )


def _latencies(found: Found, judge: Judge) -> list[str]:
    """Returns a table for each phase."""
    lines = []
    for phase in [each for each in PHASES if any(one.phase == each for one in found.slices)]:
        columns = "".join(f"{name + ' ms':>9}" for name, _ in STATISTICS)
        ratios = "".join(f"{'x ' + name:>8}" for name, _ in STATISTICS)
        lines += ["", f"{phase + ' the churn':20}{'small:':>8}{columns}{'big:':>8}{columns}{ratios}"]
        for words, kinds in [*((kind, (kind,)) for kind in KINDS), ("all but drops", COMMITS)]:
            small, big = (_times(found.slices, table, phase, kinds) for table in (SMALL, BIG))
            if not small or not big:
                continue
            values = [[percentile(times, share) for _, share in STATISTICS] for times in (small, big)]
            shown = ["".join(f"{value:9.2f}" for value in each) for each in values]
            ratio = [mine / its for its, mine in zip(*values, strict=True)]
            lines.append(
                f"{words:20}{len(small):8}{shown[0]}{len(big):8}{shown[1]}" + "".join(f"{each:8.3f}" for each in ratio)
            )
            if words == "all but drops":
                for (name, share), value in zip(STATISTICS, ratio, strict=True):
                    paired = _paired(found.slices, phase, share)
                    judge.at_most(f"{phase}: commits, {name} on the big table", value, TARGET, paired)
            elif words in DROPS:
                judge.at_most(f"{phase}: {words}, p50 on the big table", ratio[0], TARGET)
        costs = [_cpu_ms(found.slices, table, phase) for table in (SMALL, BIG)]
        lines.append(f"CPU of both servers for a commit: small {costs[0]:.3f} ms, big {costs[1]:.3f} ms")
        judge.at_most(f"{phase}: CPU of a commit on the big table", costs[1] / max(costs[0], 1e-9), TARGET)
    return lines


def mb(count: int) -> str:
    """Returns bytes as whole MB."""
    return f"{count / (1 << 20):.0f}"


def bloat(found: Found, size: Size) -> float:
    """Returns the size of the table beside that of a packed one with as much mail."""
    assert found.packed is not None
    return size.total / (found.packed.total * size.live_bytes / found.packed.live_bytes)


def _growth(found: Found, judge: Judge) -> list[str]:
    """Returns the table of sizes."""
    heads = ("MB arrived", "left", "live MB", "heap", "TOAST", "indexes", "all", "x packed", "dead rows", "vacuums")
    columns = [*heads, *(f"{name} ms" for name, _ in STATISTICS)]
    lines = ["", f"{'churn of the big table':24}" + "".join(f"{column:>11}" for column in columns)]

    def line(words: str, arrived: int, left: int, size: Size, times: Sequence[float] = ()) -> None:
        values = (arrived, left, size.live_bytes, size.heap, size.toast, size.indexes, size.total)
        lines.append(
            f"{words:24}{''.join(f'{mb(value):>11}' for value in values)}{bloat(found, size):11.3f}"
            f"{size.dead:11}{size.vacuums:11}{''.join(f'{value:11.2f}' for value in times)}"
        )

    assert found.packed is not None
    line("packed, before it", 0, 0, found.packed)
    arrived = left = 0
    for number, part in enumerate(found.parts, 1):
        arrived, left = arrived + part.arrived_bytes, left + part.left_bytes
        line(f"part {number}, {part.seconds:.0f} s", arrived, left, part.size, part.times_ms[: len(STATISTICS)])
    if found.drained_s:
        line(f"{found.drained_s:.0f} s later", arrived, left, found.sizes[BIG])
    if found.parts:
        highest = max(bloat(found, part.size) for part in found.parts)
        judge.at_most("churn: size of the table beside a packed one, at its highest", highest, BLOAT_TARGET)
    quiet = _times(found.slices, SMALL, BEFORE, COMMITS)
    for place, (name, share) in enumerate(STATISTICS if found.parts and quiet else ()):
        middle_ms = statistics.median(part.times_ms[place] for part in found.parts)
        words = f"churn: its own commits, {name} beside the small table before it"
        judge.at_most(words, middle_ms / percentile(quiet, share), TARGET)
    if len(found.parts) > 1:
        middle, last = found.parts[(len(found.parts) - 1) // 2], found.parts[-1]
        grown = bloat(found, last.size) / bloat(found, middle.size)
        judge.at_most("churn: size of the table at its end beside the middle of it", grown, GROWTH_TARGET)
    return lines


def _day(found: Found) -> list[str]:
    """Returns what the churn was."""
    seconds = sum(part.seconds for part in found.parts)
    arrived, left = (sum(getattr(part, name) for part in found.parts) for name in ("arrived_bytes", "left_bytes"))
    commits, cpu = sum(part.commits for part in found.parts), sum(part.cpu_s for part in found.parts)
    messages = arrived / MESSAGE_BYTES
    lines = [
        f"{arrived / GB:.1f} GB of mail arrived and {left / GB:.1f} GB were deleted, as {messages / 1e6:.2f} million "
        f"messages of {MESSAGE_BYTES} bytes: in a day {messages / 86_400:.0f} a second, here in {seconds:.0f} s "
        f"({arrived / GB * 1024 / max(seconds, 1e-9):.1f} MB/s each way).",
        f"{commits} commits; CPU of both servers {cpu * 1000 / max(1, commits):.3f} ms for each, cleaning included; "
        f"the longest one that drops nothing {max(part.times_ms[-1] for part in found.parts):.0f} ms.",
    ]
    if found.ended_early:
        lines.append(f"{found.churn_bytes / GB:.1f} GB were to arrive: {found.ended_early}.")
    return lines


def report(found: Found) -> list[str]:
    """Returns tables, the churn in words, and what is wanted beside what was got."""
    judge = Judge()
    lines = _latencies(found, judge) + _growth(found, judge)
    if found.parts:
        lines += ["", *_day(found)]
    if found.cpu_ms:
        small, big = (found.cpu_ms[table] for table in (SMALL, BIG))
        lines.append(f"CPU of both servers for a commit of the whole run: small {small:.3f} ms, big {big:.3f} ms.")
        judge.at_most(
            "whole run: CPU of a commit on the big table, all cleaning included", big / max(small, 1e-9), TARGET
        )
    lines += ["", *judge.lines, f"{judge.missed} of {len(judge.lines)} are missed."]
    others = statistics.median(one.foreign for one in found.slices)
    many = sum(one.foreign > FOREIGN_MAX for one in found.slices)
    lines.append(
        f"Others took {others:.0%} of the machine (median), and more than {FOREIGN_MAX:.0%} in {many} of "
        f"{len(found.slices)} turns; kernel threads that write our own data count as others."
    )
    return lines
