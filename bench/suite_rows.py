"""Makes rows of the JSON that the benchmarks of the suite write: ours beside the peer's, medians of the runs."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Row", "browse_rows", "half_load_rows", "relay_rows", "report_rows", "restart_rows", "storm_rows"]


@dataclass(frozen=True, slots=True)
class Row:
    """One figure of ours beside the peer's. None: not measured, or the peer has no such thing."""

    what: str
    unit: str
    ours: float
    peer: float | None = None
    more_is_better: bool = True
    cpu_ratio: float | None = None
    syncs: float | None = None  # of ours, a message
    peer_syncs: float | None = None
    foreign: float | None = None  # the largest share of the machine that others took in a run of it

    @property
    def ratio(self) -> float | None:
        """Returns how many times better ours is than the peer's."""
        if not self.peer or not self.ours:
            return None
        return self.ours / self.peer if self.more_is_better else self.peer / self.ours


def _median(runs: Sequence[dict[str, Any]], what: str) -> float:
    return statistics.median(float(run[what]) for run in runs)


def _rate(runs: Sequence[dict[str, Any]]) -> float:
    return statistics.median(float(run["messages"]) / float(run["seconds"]) for run in runs)


def _of(runs: Sequence[dict[str, Any]], **fields: str) -> list[dict[str, Any]]:
    return [run for run in runs if all(run[name] == value for name, value in fields.items())]


def relay_rows(results: Any, ours: str = "waypost") -> list[Row]:
    """Makes a row for each mode, and one of each against the source and the sink alone, and a plain copy, if they were run."""
    runs, syncs = results["runs"], results["syncs"]
    rows = []
    for mode in dict.fromkeys(run["mode"] for run in runs if run["relay"] == ours):
        mine, its = _of(runs, relay=ours, mode=mode), _of(runs, relay="postfix", mode=mode)
        rows.append(
            Row(
                mode or "deferred mail",
                "messages a second",
                _rate(mine),
                _rate(its),
                cpu_ratio=_median(mine, "cpu_ms") / _median(its, "cpu_ms") if _median(its, "cpu_ms") else None,
                syncs=syncs.get(f"{ours} {mode}"),
                peer_syncs=syncs.get(f"postfix {mode}"),
                foreign=max(run["foreign"] for run in mine + its),
            )
        )
        if alone := _of(runs, relay="direct", mode=mode):
            most = _rate(alone)
            name = f"{mode}, as a share of source and sink without a relay"
            rows.append(Row(name, "of their rate", _rate(mine) / most, _rate(its) / most))
        if copies := _of(runs, relay="copy"):
            rows.append(Row(f"{mode}, as a share of a plain copy", "of its rate", _rate(mine) / _rate(copies)))
    return rows


def storm_rows(results: Any) -> list[Row]:
    """Makes rows of the appliance with its defaults."""
    return relay_rows(results, "waypost")


def half_load_rows(results: Any) -> list[Row]:
    """Makes two rows for each load: p50 and p99."""
    runs = results["runs"]
    rows = []
    for load in dict.fromkeys(run["load"] for run in runs):
        mine, its = _of(runs, relay="waypost", load=load), _of(runs, relay="postfix", load=load)
        foreign = max(run["foreign"] for run in mine + its)
        for what in ("p50", "p99"):
            at = f"at {mine[0]['rate']:.0f} and {its[0]['rate']:.0f} a second"
            ours, peer = _median(mine, f"{what}_ms"), _median(its, f"{what}_ms")
            rows.append(Row(f"{what}, half {load}, {at}", "ms", ours, peer, more_is_better=False, foreign=foreign))
    return rows


def restart_rows(results: Any) -> list[Row]:
    """Makes rows of the smallest and the biggest queue, and of one over the other."""
    least, most = results[0], results[-1]
    rows = []
    for what, name in (("first_250_s", "first 250"), ("first_deferred_s", "first deferred delivery")):
        values = [_median([run for run in queue["runs"] if not run["bytes_read"]], what) for queue in (least, most)]
        for queue, value in zip((least, most), values, strict=True):
            rows.append(Row(f"{name}, {queue['queued']:,} queued", "s", value, more_is_better=False))
        rows.append(Row(f"{name}, the second over the first", "times", values[1] / values[0], more_is_better=False))
    read = [_median([run for run in queue["runs"] if run["bytes_read"]], "bytes_read") for queue in (least, most)]
    rows.append(
        Row("bytes read until then, the second over the first", "times", read[1] / read[0], more_is_better=False)
    )
    memory = most["memory"]["pss"] / 1e6
    rows.append(Row(f"memory of the core (PSS), {most['queued']:,} queued", "MB", memory, more_is_better=False))
    return rows


def browse_rows(results: Any) -> list[Row]:
    """Makes a row for each question; of fewer messages in Postfix's queue, by the time for each."""
    runs, rows = results["runs"], []
    for question in dict.fromkeys(run["question"] for run in runs):
        mine, its = _of(runs, relay="waypost", question=question), _of(runs, relay="postfix", question=question)
        ours, peer = _median(mine, "seconds"), _median(its, "seconds")
        count, its_count = mine[0]["queued"], its[0]["queued"]
        if count == its_count or question == "first page":
            rows.append(Row(f"{question}, {count:,} queued", "s", ours, peer, more_is_better=False))
        else:
            words = f"{question}, {count:,} and {its_count:,} queued, for each of them"
            rows.append(Row(words, "µs", ours / count * 1e6, peer / its_count * 1e6, more_is_better=False))
    return rows


def report_rows(results: Any) -> list[Row]:
    """Makes a row of the times, with the ratio of CPU."""
    mine, its = results["ours"], results["pflogsumm"]
    cpu = _median(mine, "cpu_s") / _median(its, "cpu_s")
    ours, peer = _median(mine, "seconds"), _median(its, "seconds")
    memory = max(run["memory_bytes"] for run in mine) / 1e6
    return [
        Row("a day's report", "s", ours, peer, more_is_better=False, cpu_ratio=cpu),
        Row("memory at the most (PSS)", "MB", memory, more_is_better=False),
    ]
