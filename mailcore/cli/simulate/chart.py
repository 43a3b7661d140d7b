"""Draws the outcome of a simulation as a chart (PNG) with four panels; two outcomes share the panels.

With one outcome, colours distinguish destinations. With two, grey is before and colour is after.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from mailcore.cli.simulate.report import ESTIMATE, Run
from mailcore.counted import counted
from mailcore.simulator.outcome import DestinationOutcome, Outcome
from mailcore.terminal.output import cut, plain
from mailcore.terminal.times import shown_duration

__all__ = ["draw"]

INCHES = (13.0, 8.6)
DPI = 100
# Okabe and Ito's colours, which colour-blind people can distinguish.
BLUE, ORANGE, GREEN, PURPLE, RED, GREY = "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#8a8a8a"
DESTINATION_COLOURS = (BLUE, ORANGE, GREEN)
NAME_CHARACTERS = 34
BARS_S_MIN = 0.01  # the left end of the delays
TICKS_S = (0.01, 0.1, 1, 10, 60, 600, 3_600, 36_000, 86_400, 432_000)
UNITS = ((2 * 86_400, 86_400, "days"), (2 * 3_600, 3_600, "hours"), (300, 60, "minutes"), (0, 1, "seconds"))


def draw(path: Path, runs: Sequence[Run], note: str) -> None:
    """Writes the chart. Raises OSError."""
    figure = Figure(figsize=INCHES, dpi=DPI, layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    figure.suptitle(_title(runs), fontsize=13, fontweight="bold", x=0.01, ha="left")
    rates, waiting, windows, delays = figure.subplots(2, 2).flat
    longest = max(outcome.simulated_s for _, outcome in runs)
    unit_s, unit = next((size, name) for least, size, name in UNITS if longest >= least)
    _draw_rates(rates, runs, unit_s)
    _draw_waiting(waiting, runs, unit_s)
    _draw_windows(windows, runs, unit_s)
    for axes in (rates, waiting, windows):
        axes.set_xlabel(unit)
        axes.set_xlim(0, longest / unit_s or 1)
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_locator(MaxNLocator(6, integer=axes is not rates))
    _draw_delays(delays, runs)
    for axes in (rates, waiting, windows, delays):
        axes.grid(True, color="#e4e4e4", linewidth=0.7)
        axes.set_axisbelow(True)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        axes.title.set_fontsize(11)
    figure.supxlabel(f"{ESTIMATE} {note}.", fontsize=9, color="#555555", x=0.01, ha="left")
    figure.savefig(path, format="png", metadata={"Software": None})


def _title(runs: Sequence[Run]) -> str:
    parts = []
    for label, outcome in runs:
        done = f"{counted(outcome.waiting, 'recipient', ',')} left after {shown_duration(outcome.simulated_s)}"
        if outcome.end == "drained":
            done = f"all mail finished after {shown_duration(outcome.simulated_s)}"
        deferrals = counted(outcome.deferrals, "deferral", ",")
        parts.append(f"{label.capitalize()}: {done}, {deferrals}" if len(runs) > 1 else f"{done}, {deferrals}")
    return f"Simulated: {parts[0]}" if len(runs) == 1 else ". ".join(parts)


def _steps(outcome: Outcome, counts: Sequence[int], unit_s: int) -> tuple[list[float], list[float]]:
    """Edges in units, and the rate between each two."""
    edges = [0.0, *outcome.series.at_s]
    rates = [
        counted / (end - start) if end > start else 0.0
        for (start, end), counted in zip(pairwise(edges), counts, strict=True)
    ]
    return [edge / unit_s for edge in edges], rates


def _draw_rates(axes: Axes, runs: Sequence[Run], unit_s: int) -> None:
    axes.set_title("Deliveries and deferrals", loc="left")
    axes.set_ylabel("recipients per second")
    for place, (label, outcome) in enumerate(runs):
        is_before = len(runs) > 1 and place == 0
        suffix = f", {label}" if len(runs) > 1 else ""
        for name, colour, before in (
            ("delivered", BLUE, "#9db7c9"), ("deferred", RED, "#e0b39a"), ("bounced", PURPLE, "#dcc3d2"),
        ):  # fmt: skip
            counts: list[int] = getattr(outcome.series, name)
            if not any(counts) and name == "bounced":
                continue
            edges, rates = _steps(outcome, counts, unit_s)
            axes.stairs(
                rates, edges, baseline=None, color=before if is_before else colour,
                linewidth=1.2 if is_before else 1.6, label=f"{name}{suffix}",
            )  # fmt: skip
    axes.legend(fontsize=8, frameon=False, ncols=len(runs))


def _draw_waiting(axes: Axes, runs: Sequence[Run], unit_s: int) -> None:
    axes.set_title("Waiting recipients", loc="left")
    axes.set_ylabel("recipients")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    for place, (label, outcome) in enumerate(runs):
        is_before = len(runs) > 1 and place == 0
        times = [0.0, *(at / unit_s for at in outcome.series.at_s)]
        heights = [_at_start(outcome), *outcome.series.waiting]
        colour = GREY if is_before else BLUE
        axes.plot(times, heights, color=colour, linewidth=1.6, label=label)
        axes.fill_between(times, heights, color=colour, alpha=0.12, linewidth=0)
        if outcome.drained_s is not None:
            axes.axvline(outcome.drained_s / unit_s, color=colour, linewidth=1, linestyle=":")
    if len(runs) > 1:
        axes.legend(fontsize=8, frameon=False)


def _at_start(outcome: Outcome) -> int:
    """Returns the number of recipients waiting at time 0, computed from the first step."""
    series = outcome.series
    return series.waiting[0] + series.delivered[0] + series.bounced[0]


def _draw_windows(axes: Axes, runs: Sequence[Run], unit_s: int) -> None:
    compared = len(runs) > 1
    axes.set_title("Window (line), concurrent deliveries (area), dead (shaded)", loc="left")
    axes.set_ylabel("deliveries")
    for place, (label, outcome) in enumerate(runs):
        shown = outcome.destinations[: 1 if compared else len(DESTINATION_COLOURS)]
        for destination, own in zip(shown, DESTINATION_COLOURS, strict=False):
            colour = GREY if compared and place == 0 else own
            name = cut(plain(destination.name), NAME_CHARACTERS)
            _draw_destination(axes, outcome, destination, colour, f"{name}, {label}" if compared else name, unit_s)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=8, frameon=False, loc="best")


def _draw_destination(
    axes: Axes, outcome: Outcome, destination: DestinationOutcome, colour: str, label: str, unit_s: int
) -> None:
    times = [at / unit_s for at in outcome.series.at_s]
    window: list[Any] = [float("nan") if each is None else each for each in destination.window]
    axes.stairs(destination.busy, [0.0, *times], fill=True, color=colour, alpha=0.3, linewidth=0)
    # An idle destination that the scheduler removed has no window; markers show single values between such gaps.
    axes.plot(times, window, color=colour, linewidth=1.5, drawstyle="steps-pre", marker="_", markersize=4, label=label)
    for start, end in destination.dead:
        axes.axvspan(start / unit_s, end / unit_s, color=colour, alpha=0.12, linewidth=0)


def _draw_delays(axes: Axes, runs: Sequence[Run]) -> None:
    """Draws for each class of messages a bar from the median to 90 %, a line to 99 %, and a tick at the longest
    delay."""
    axes.set_title("Delay by recipients per message: 50 to 90 % (bar), 99 % (line), 100 % (tick)", loc="left")
    kinds = list(dict.fromkeys(each.recipients for _, outcome in runs for each in outcome.delays))
    kinds.sort(key=lambda kind: int(kind.strip(">").partition("-")[0]) + kind.startswith(">"))
    height = 0.7 / len(runs)
    for place, (label, outcome) in enumerate(runs):
        colour = GREY if len(runs) > 1 and place == 0 else BLUE
        first = True
        for each in outcome.delays:
            if each.p50_s is None or each.p90_s is None or each.p99_s is None or each.max_s is None:
                continue
            at = kinds.index(each.recipients) + (place - (len(runs) - 1) / 2) * height
            p50, p90, p99, longest = (
                max(value, BARS_S_MIN) for value in (each.p50_s, each.p90_s, each.p99_s, each.max_s)
            )
            if p50 == longest:  # one message, or equal delays: a bar would have no length
                axes.plot(
                    [p50],
                    [at],
                    color=colour,
                    marker="D",
                    markersize=7,
                    linestyle="none",
                    label=label if first else None,
                )
                first = False
                continue
            axes.barh(
                at,
                max(p90 - p50, p50 * 0.02),
                left=p50,
                height=height * 0.8,
                color=colour,
                label=label if first else None,
            )
            axes.plot([p90, p99], [at, at], color=colour, linewidth=2)
            axes.plot([longest], [at], color=colour, marker="|", markersize=10, markeredgewidth=2)
            first = False
    shortest = [max(each.p50_s, BARS_S_MIN) for _, run in runs for each in run.delays if each.p50_s is not None]
    axes.set_xscale("log")
    axes.set_xlim(left=min(shortest, default=1.0) / 1.6)
    axes.xaxis.set_major_locator(FixedLocator(TICKS_S))
    axes.xaxis.set_major_formatter(
        FuncFormatter(lambda value, _: shown_duration(value) if value >= 1 else f"{value:g}s")
    )
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_yticks(range(len(kinds)), [f"{kind}\n{_messages(runs, kind)}" for kind in kinds], fontsize=9)
    axes.set_ylim(len(kinds) - 0.4, -0.6)
    axes.set_ylabel("recipients per message")
    if len(runs) > 1:
        axes.legend(fontsize=8, frameon=False, loc="best")


def _messages(runs: Sequence[Run], kind: str) -> str:
    counted = max(
        each.messages + each.unfinished for _, outcome in runs for each in outcome.delays if each.recipients == kind
    )
    return f"({counted:,} messages)" if counted > 1 else "(1 message)"
