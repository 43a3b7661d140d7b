"""Counts what a lane for each interval costs, and one log with several runners: ``python -m bench.one_log [--messages N]``.

Tony Finch left the question open (log-structured queue, 2006). Both queues are built of the log's own writers, readers, marks
and group commits on a disk that counts, and get the same messages, verdicts and times from a simulated clock:

- *lanes*: incoming, a lane for each retry interval, and a journal, as Waypost has them. Runners look at the head of their lane.
- *one log*: arrivals, START, DELIVERY, REPLACED, FINISH and replacements in one sequence. A runner for each interval reads all
  of it at its own place, and takes the live envelopes that rest for its interval.

A sync covers everything that waits when it starts, and takes ``SYNC_S``. Deferred data is carried up to ``carry_limit``, above
it twice, and then lies in a spool file. Not counted, because it is the same for both: the deliverer's reads, spool files and
bounces. Directories and inodes are not counted either. Nothing waits in real time; CPU is that of writing, reading and
simulating.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path

from bench.one_log_model import KINDS, Queue
from bench.one_log_runners import Counted

__all__ = ["count", "main"]


def count(kind: str, messages: int, rate: float, seed: int = 15, below: str | None = None) -> Counted:
    """Counts one kind of queue, with files in memory or below a directory."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="bench-one-log-", dir=below or memory) as name:
        return Queue(kind, Path(name), messages, rate, seed).run()


def report(found: Sequence[Counted]) -> list[str]:
    """Returns a line for each figure, a column for each kind and rate."""
    lines = [f"{'':44}" + "".join(f"{f'{each.kind}, {each.rate:g}/s':>18}" for each in found)]
    rows: list[tuple[str, Callable[[Counted], float], str]] = [
        ("passes", lambda one: one.passes, ",.0f"),
        ("expired", lambda one: one.expired, ",.0f"),
        ("syncs a message", lambda one: one.syncs / one.messages, ".2f"),
        ("of them before a 250 or a verdict", lambda one: one.synced_for_mail / one.messages, ".2f"),
        ("MB appended and marked", lambda one: one.appended_bytes / 1e6, ",.0f"),
        ("MB of pages synced", lambda one: one.page_bytes / 1e6, ",.0f"),
        ("MB read by runners", lambda one: one.read_bytes / 1e6, ",.0f"),
        ("MB if they read heads of records only", lambda one: one.read_pages_bytes / 1e6, ",.0f"),
        ("MB an exporter reads", lambda one: one.export_bytes / 1e6, ",.0f"),
        ("MB of segments alive, at most", lambda one: one.alive_bytes_max / 1e6, ",.0f"),
        ("segments alive, at most", lambda one: one.segments_max, ",.0f"),
        ("kB a restart scans, median while mail arrives", lambda one: one.restart_bytes[0] / 1e3, ",.0f"),
        ("kB a restart scans, at most", lambda one: one.restart_bytes_max / 1e3, ",.0f"),
        ("MB of memory (RSS), at most", lambda one: one.rss_bytes / 1e6, ",.0f"),
        ("s of CPU, simulation included", lambda one: one.cpu_s, ",.0f"),
    ]
    return lines + [f"{what:44}" + "".join(f"{value(each):>18{form}}" for each in found) for what, value, form in rows]


def main(argv: Sequence[str] | None = None) -> int:
    """Counts and prints; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.one_log", description=__doc__.partition("\n")[0])
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--rates", type=float, nargs="+", default=[5.0, 200.0], help="arrivals a second")
    parser.add_argument("--directory", help="of the files (default: in memory)")
    parser.add_argument("--json", type=Path, metavar="FILE")
    given = parser.parse_args(argv)
    found: list[Counted] = []
    for rate in given.rates:
        for kind in KINDS:  # a process each, so that memory is its own
            with ProcessPoolExecutor(1, get_context("spawn")) as pool:
                found.append(pool.submit(count, kind, given.messages, rate, below=given.directory).result())
            print(f"{kind}, {rate:g} a second: {found[-1].cpu_s:.0f} s of CPU", file=sys.stderr, flush=True)
    print("\n".join(report(found)))
    if given.json is not None:
        given.json.write_text(json.dumps([asdict(each) for each in found], indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
