"""Prints the outcome of a simulation as tables; two outcomes side by side."""

from __future__ import annotations

from collections.abc import Sequence

from mailcore.counted import counted
from mailcore.simulator.outcome import Outcome
from mailcore.terminal.output import rows_to_lines, table
from mailcore.terminal.times import shown_duration

__all__ = ["ESTIMATE", "Run", "report"]

ESTIMATE = "An estimate: the scheduler is the real one; next hops and mail are models."
DEAD_SHOWN = 3  # periods in which a destination was dead

Run = tuple[str, Outcome]  # its name and its outcome


def report(runs: Sequence[Run], seed: int, columns: int) -> list[str]:
    """Returns lines of at most ``columns`` characters."""
    lines = [ESTIMATE, f"Seed {seed}.", ""]
    lines += _totals(runs, columns)
    lines += ["", "Delay from arrival until all recipients are finished, by recipients per message:"]
    lines += table(*_delays(runs), columns, frozenset(range(1 + (len(runs) > 1), 9)))
    lines += ["", "Destinations with the most mail:"]
    lines += table(*_destinations(runs), columns, frozenset(range(1 + (len(runs) > 1), 10)))
    for label, outcome in runs:
        for each in outcome.destinations:
            if each.dead:
                times = ", ".join(f"{start:.0f} to {end:.0f} s" for start, end in each.dead[:DEAD_SHOWN])
                more = (
                    f" and {counted(len(each.dead) - DEAD_SHOWN, 'more time')}" if len(each.dead) > DEAD_SHOWN else ""
                )
                lines.append(f"{each.name} was dead{_in(label, runs)} from {times}{more}")
    return lines


def _in(label: str, runs: Sequence[Run]) -> str:
    return f" ({label})" if len(runs) > 1 else ""


def _end(outcome: Outcome) -> str:
    if outcome.end == "drained":
        return f"all mail finished after {_time(outcome.simulated_s)}"
    reasons = {
        "until_s": "end of the simulated time; mail is left",
        "events_max": "stopped after the maximum number of events",
    }
    return f"{_time(outcome.simulated_s)}: {reasons.get(outcome.end, outcome.end)}"


def _pairs(outcome: Outcome) -> list[tuple[str, object]]:
    attempts = outcome.delivered + outcome.bounced + outcome.deferrals
    return [
        ("simulated", _end(outcome)),
        ("initial mail finished", _time(outcome.drained_s)),
        ("messages", f"{outcome.messages_in} in, {outcome.messages_finished} finished"),
        ("recipients in", outcome.recipients_in),
        ("delivered", outcome.delivered),
        ("bounced", outcome.bounced),
        ("waiting", f"{outcome.waiting} ({outcome.deferred_waiting} deferred, {outcome.untried} untried)"),
        ("deferrals", f"{outcome.deferrals} ({outcome.deferrals_untried} without an attempt)"),
        ("deferred at first attempt", f"{100 * outcome.first_deferred_share:.2f} %"),
        ("deliveries", f"{outcome.entries}, {counted(outcome.site_failures, 'site failure')}"),
        ("recipients per second", f"{attempts / outcome.simulated_s:.1f} attempts" if outcome.simulated_s else "-"),
    ]


def _totals(runs: Sequence[Run], columns: int) -> list[str]:
    """Returns the totals, one column for each run, without rows for which no run has a value."""
    rows = [row for row in zip(*(_pairs(outcome) for _, outcome in runs), strict=True) if {v for _, v in row} != {"-"}]
    if len(runs) == 1:
        return rows_to_lines([row[0] for row in rows])
    cells = [[f"{row[0][0]}:", *(value for _, value in row)] for row in rows]
    return table(["", *(label for label, _ in runs)], cells, columns, frozenset())


def _delays(runs: Sequence[Run]) -> tuple[list[str], list[list[object]]]:
    rows: list[list[object]] = []
    kinds = dict.fromkeys(each.recipients for _, outcome in runs for each in outcome.delays)
    for kind in kinds:
        for label, outcome in runs:
            for each in outcome.delays:
                if each.recipients == kind:
                    row: list[object] = [kind, *([label] if len(runs) > 1 else []), each.messages]
                    row += [_time(value) for value in (each.p50_s, each.p90_s, each.p99_s, each.max_s)]
                    rows.append([*row, each.unfinished])
    heads = ["RECIPIENTS", *(["RUN"] if len(runs) > 1 else []), "MESSAGES", "P50", "P90", "P99", "MAX", "UNFINISHED"]
    return heads, rows


def _destinations(runs: Sequence[Run]) -> tuple[list[str], list[list[object]]]:
    compared = len(runs) > 1
    bounced = any(outcome.bounced for _, outcome in runs)
    rows: list[list[object]] = []
    names = dict.fromkeys(each.name for _, outcome in runs for each in outcome.destinations)
    for name in names:
        shown = name
        for label, outcome in runs:
            for each in outcome.destinations:
                if each.name == name:
                    row: list[object] = [shown, *([label] if compared else []), each.delivered, each.deferred]
                    row += [*([each.bounced] if bounced else []), each.entries, each.site_failures]
                    rows.append([*row, f"{each.concurrency_mean:.1f}", _time(each.dead_s or None)])
                    shown = ""
    heads = ["DESTINATION", *(["RUN"] if compared else []), "SENT", "DEFERRED", *(["BOUNCED"] if bounced else [])]
    return [*heads, "ATTEMPTS", "FAILED", "CONCURRENT", "DEAD"], rows


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return f"{seconds:.2g}s" if 0 < seconds < 9.95 else shown_duration(round(seconds))
