"""The page that the suite writes: the machine, the wanted figures beside those that were got, and a table for each part."""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.suite import Goal, Part, Results, Scale, Wanted
from bench.suite_rows import Row
from bench.turns import FOREIGN_MAX, file_system

__all__ = ["Done", "loop_s", "machine", "page"]

ROOT = Path(__file__).resolve().parent.parent
SCALES = {
    Scale.SHORT: "**A quick check that everything runs: no figure here is a result.**",
    Scale.BRIEF: "The suite of a quarter of an hour: few and short runs. The whole suite takes more than an hour.",
    Scale.FULL: "The whole suite.",
}

UNKNOWN = "unknown"
LOOPED = 1_000_000  # additions in Python


@dataclass(frozen=True, slots=True)
class Done:
    """The result of a part. ``error`` is "" if it has rows."""

    part: Part
    scale: Scale
    command: str
    began_at: float  # wall clock
    seconds: float
    rows: tuple[Row, ...]
    error: str = ""
    loops_s: tuple[float, ...] = ()  # of a fixed loop, before and after it


def loop_s() -> float:
    """Times a fixed loop, the median of five: on a shared machine the processor is not always equally fast.

    What waits for the disk, as Postfix does, loses less by a slow processor than what uses it, so ratios depend on it.
    """
    times = []
    for _ in range(5):
        begun, number = time.perf_counter(), 0
        for each in range(LOOPED):
            number += each & 7
        times.append(time.perf_counter() - begun)
    return statistics.median(times)


def _said(*command: str) -> str:
    """Returns the first line that a command prints; UNKNOWN if it fails."""
    try:
        done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return UNKNOWN
    return done.stdout.strip().partition("\n")[0]


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def machine(directory: Path) -> list[tuple[str, str]]:
    """Describes the machine and the programs that are compared; ``directory`` is where the queues lie."""
    memory_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    changed = (
        " with changes" if _said("git", "status", "--porcelain", "--untracked-files=no") not in ("", UNKNOWN) else ""
    )
    return [
        ("cores", f"{os.cpu_count()}, {_processor()}"),
        ("memory", f"{memory_bytes / 1e9:.1f} GB"),
        ("file system of the queues", file_system(directory)),
        ("kernel", platform.release()),
        ("Python", platform.python_version()),
        ("Postfix", _said("postconf", "-h", "mail_version")),
        ("Waypost", f"commit {_said('git', 'rev-parse', '--short=12', 'HEAD')}{changed}"),
        ("load average at the end", ", ".join(f"{load:.1f}" for load in os.getloadavg())),
    ]


def _number(value: float | None) -> str:
    if value is None:
        return ""
    if value >= 100:
        return f"{value:,.0f}".replace(",", " ")
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return [f"| {' | '.join(cells)} |" for cells in lines]


def _verdict(wanted: Wanted, results: Results) -> list[str]:
    """Returns the cells of a wanted figure: what, wanted, got, missed by."""
    values = [(goal, goal.value(results)) for goal in wanted.goals]
    known: list[tuple[Goal, float]] = [(goal, value) for goal, value in values if value is not None]
    bounds = " or ".join(f"{'≥' if goal.at_least else '≤'} {goal.bound:g} {goal.unit}" for goal in wanted.goals)
    if not known:
        return [wanted.what, bounds, "not measured", ""]
    got = ", ".join(f"{_number(value)} {goal.unit}" for goal, value in known)
    missed = min(goal.missed_by(value) for goal, value in known)
    return [wanted.what, bounds, got, f"**{missed:.0%}**" if missed else "reached"]


def _section(done: Done) -> list[str]:
    """Returns the section of a part."""
    lines = [f"## {done.part.title}", ""]
    if done.error:
        return [*lines, f"**This part has no result**: {done.error}", "", f"`{done.command}`", ""]
    peer = done.part.peer or "peer"
    rows = []
    for row in done.rows:
        syncs = " and ".join(_number(each) for each in (row.syncs, row.peer_syncs) if each is not None)
        others = "" if row.foreign is None else f"{row.foreign:.0%}"
        ratio = "" if row.ratio is None else _number(row.ratio)
        cells = [f"{row.what} ({row.unit})", _number(row.ours), _number(row.peer), ratio, _number(row.cpu_ratio), syncs]
        rows.append([*cells, f"**{others}**" if row.foreign is not None and row.foreign > FOREIGN_MAX else others])
    head = ["", "Waypost", peer, "times better", "CPU, times the peer's", "syncs a message, both", "others took"]
    used = [number for number in range(len(head)) if number < 2 or any(cells[number] for cells in rows)]
    lines += _table([head[number] for number in used], [[cells[number] for number in used] for cells in rows])
    began = time.strftime("%H:%M", time.gmtime(done.began_at))
    return [*lines, "", f"`{done.command}`, {began} UTC, {done.seconds:.0f} s. How: {done.part.how}.", ""]


def _processor_speed(done: Sequence[Done]) -> list[tuple[str, str]]:
    """Says how long the fixed loop took over the run."""
    if not (loops := [each for part in done for each in part.loops_s]):
        return []
    low, middle, high = (f"{each * 1000:.0f}" for each in (min(loops), statistics.median(loops), max(loops)))
    return [("a fixed loop of the processor", f"{middle} ms ({low} to {high}) before and after the parts")]


def page(done: Sequence[Done], wanted: Sequence[Wanted], about: Sequence[tuple[str, str]]) -> str:
    """Returns the page, in Markdown."""
    results = {each.part.name: each.rows for each in done}
    scales = list(dict.fromkeys(each.scale for each in done))
    began_at = min((each.began_at for each in done), default=time.time())
    lines = [
        "# The suite",
        "",
        f"Made by `python -m bench` on {time.strftime('%Y-%m-%d', time.gmtime(began_at))}, and not edited. "
        "[benchmarks.md](benchmarks.md) says how each benchmark measures.",
        *(SCALES[scale] for scale in scales),
        "Figures are medians. Where others took more than a tenth of the machine, which is in bold, the row does not count.",
        "",
        *_table(["machine", ""], [*about, *_processor_speed(done)]),
        "",
        "## Wanted",
        "",
        *_table(["what", "wanted", "got", "missed by"], [_verdict(each, results) for each in wanted]),
        "",
    ]
    for each in done:
        lines += _section(each)
    return "\n".join(lines).rstrip() + "\n"
