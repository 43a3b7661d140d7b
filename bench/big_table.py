"""A table of 20 GB with a day of churn: ``python -m bench.big_table [--gb 20] [--churn 20] [--short]``.

Two clusters, each a primary with a synchronous standby, have Waypost's tables: one with a queue of 20 GB, the other with one of
less than 100 MB. The same commits go to both in turn (A B B A ...): before a day of churn passes through the big table, in its
breaks, and after it, with PostgreSQL's own cleaning beside them. Prints what a commit, a deletion and the table's size become.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

from bench.big_table_report import (
    AFTER,
    BEFORE,
    BETWEEN,
    BIG,
    GB,
    SMALL,
    STATISTICS,
    Found,
    Part,
    Size,
    bloat,
    mb,
    percentile,
    report,
)  # fmt: skip
from bench.filled_table import Table, filled, say
from bench.replicated import SEGMENT_MB, SERVER, Replicated
from bench.stored_queue import DROPS, Turn
from bench.turns import file_system, work_directory
from tests.replication.cluster import made_template

__all__ = ["main"]

SEGMENT_BYTES = 32 << 20  # the default of ``segment_bytes``
SMALL_BYTES = 32 << 20  # that wait; with what passes through, it is less than 100 MB
ROOM = 1.4  # bytes of disk for a byte of the queue, for each server: the table up to its bound, and the log of writes
ROOM_MORE = 4 * GB
ROOM_LEFT = 3 * GB  # of the disk: with less, the churn ends early


class Run:
    """One measurement of both tables."""

    def __init__(self, big: Table, small: Table, directory: Path, churn_bytes: int) -> None:
        self._tables = (big, small)
        self._big = big
        self._directory = directory
        self.found = Found(packed=big.size(), churn_bytes=churn_bytes)
        self._cpu_s = {table.name: table.cpu_s() for table in self._tables}

    def measure(self, phase: str, rounds: int) -> None:
        """Lets turns pass in both tables, every second round in reverse order."""
        for number in range(rounds):
            for table in self._tables if number % 2 == 0 else self._tables[::-1]:
                one = table.measure(phase)
                self.found.slices.append(one)
                middle = statistics.median(commit.seconds for commit in one.commits) * 1000
                say(
                    f"{phase} {number + 1}/{rounds} {table.name}: {len(one.commits)} commits in {one.seconds:.2f} s, "
                    f"median {middle:.2f} ms, CPU {one.cpu_s:.2f} s, others took {one.foreign:.0%}"
                )

    def churn(self, parts: int, rounds: int, limit_s: float) -> None:
        """Lets the day pass through the big table, and measures in the breaks. No part begins after ``limit_s``."""
        part_bytes = self.found.churn_bytes / parts
        end = time.monotonic() + limit_s
        for number in range(parts):
            if time.monotonic() > end:
                self.found.ended_early = "the time was over"
                return
            before, begun = self._big.cpu_s(), time.monotonic()
            turns: list[Turn] = []
            while sum(turn.arrived_bytes for turn in turns) < part_bytes:
                if shutil.disk_usage(self._directory).free < ROOM_LEFT:
                    self.found.ended_early = "NO RESULT, because the disk had no room"
                    return
                turns.append(self._big.turn())
            seconds, cpu = time.monotonic() - begun, self._big.cpu_s() - before
            self.found.parts.append(_part(turns, seconds, cpu, self._big.size()))
            say(
                f"part {number + 1}/{parts}: {len(turns)} turns in {seconds:.0f} s, "
                f"{bloat(self.found, self.found.parts[-1].size):.3f} x packed"
            )
            self.measure(BETWEEN, rounds)

    def drain(self, wait_s: float) -> None:
        """Waits for the cleaning that is due."""
        begun = time.monotonic()
        time.sleep(wait_s)
        self.found.sizes = {table.name: table.size() for table in self._tables}
        self.found.drained_s = time.monotonic() - begun

    def end(self) -> Found:
        """Counts the CPU of the whole run, and returns everything."""
        churned = sum(part.commits for part in self.found.parts)
        for table in self._tables:
            commits = sum(len(one.commits) for one in self.found.slices if one.table == table.name)
            commits += churned if table is self._big else 0
            self.found.cpu_ms[table.name] = (table.cpu_s() - self._cpu_s[table.name]) * 1000 / commits
        return self.found


def _part(turns: Sequence[Turn], seconds: float, cpu: float, size: Size) -> Part:
    commits = [commit for turn in turns for commit in turn.commits]
    times = [commit.seconds * 1000 for commit in commits if commit.kind not in DROPS]
    return Part(
        len(turns),
        len(commits),
        seconds,
        sum(turn.arrived_bytes for turn in turns),
        sum(turn.left_bytes for turn in turns),
        cpu,
        [*(percentile(times, share) for _, share in STATISTICS), max(times)],
        size,
    )


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.big_table", description=__doc__.partition("\n")[0])
    parser.add_argument("--short", action="store_true", help="20 MB, two rounds: a quick check, no result")
    parser.add_argument("--gb", type=float, default=20.0, help="of mail that waits in the big table")
    parser.add_argument("--churn", type=float, help="GB of mail that arrive, and as much leaves (default: as --gb)")
    parser.add_argument("--minutes", type=float, default=60.0, help="no part of the churn begins after them")
    parser.add_argument("--parts", type=int, default=10, help="of the churn")
    parser.add_argument(
        "--rounds", type=int, default=10, help="before and after the churn; a fifth of it in each break"
    )
    parser.add_argument("--drain", type=float, default=70.0, metavar="S", help="for the cleaning at the end")
    parser.add_argument("--log-only", action="store_true", help="the standbys keep the log of writes, and no table")
    parser.add_argument("--directory", type=Path, default=Path("/var/tmp"), help="no tmpfs; 20 GB need 60 GB of disk")
    parser.add_argument("--json", type=Path, metavar="FILE", help="all of it, for a closer look")
    given = parser.parse_args(argv)
    if given.short:
        given.gb, given.parts, given.rounds, given.drain = 20 / 1024, 2, 2, 0.1
    if given.churn is None:
        given.churn = given.gb
    return given


def _refusal(given: argparse.Namespace) -> str:
    """Says why this benchmark cannot run here; "" if it can."""
    if missing := Replicated.missing():
        return missing
    kind = file_system(given.directory)
    if kind in ("tmpfs", "ramfs") and not given.short:
        return f"{given.directory} is {kind}, where a sync costs nothing"
    servers = 1 if given.log_only else 2
    wanted, free = given.gb * GB * ROOM * servers + ROOM_MORE, shutil.disk_usage(given.directory).free
    if free < wanted:
        return f"{given.directory} has {free / GB:.0f} GB, needed are {wanted / GB:.0f}; choose fewer by --gb"
    return ""


def main(argv: Sequence[str] | None = None) -> int:
    """Measures and prints; returns the exit status."""
    given = _arguments(argv)
    if missing := _refusal(given):
        print(f"bench.big_table: {missing}", file=sys.stderr)
        return 1
    segment_bytes, small_bytes = (1 << 20, 1 << 20) if given.short else (SEGMENT_BYTES, SMALL_BYTES)
    with ExitStack() as stack:
        handler = signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the servers end with this program
        stack.callback(signal.signal, signal.SIGTERM, handler)
        directory = stack.enter_context(work_directory("big-table", given.directory))
        template = stack.enter_context(made_template(directory, more=SERVER, segment_mb=SEGMENT_MB))
        small, big = (
            stack.enter_context(filled(template, name, wanted_bytes, segment_bytes, log_only=given.log_only))
            for name, wanted_bytes in ((SMALL, small_bytes), (BIG, int(given.gb * GB)))
        )
        run = Run(big, small, directory, int(given.churn * GB))
        run.measure(BEFORE, given.rounds)
        run.churn(given.parts, max(1, given.rounds // 5), given.minutes * 60)
        run.drain(given.drain)
        run.measure(AFTER, given.rounds)
        found = run.end()
    small_size = found.sizes[SMALL]
    print(
        f"{os.cpu_count()} cores, {file_system(given.directory)}; {given.gb:.2f} GB beside {mb(small_size.live_bytes)} MB "
        f"({mb(small_size.total)} MB on the disk), segments of {mb(segment_bytes)} MB, {given.rounds} rounds; "
        f"standbys keep {'the log of writes' if given.log_only else 'tables'}"
    )
    print("\n".join(report(found)))
    if given.short:
        print("A quick check, no result.")
    if given.json is not None:
        given.json.write_text(json.dumps(asdict(found)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
