"""Relays that take turns, and the cost of each run: shared by the benchmarks that have Postfix beside Waypost.

Every second round goes in reverse order (A B B A ...): Waypost's exporter works every 10 s, about as long as a pair of runs
takes, so in one order it would burden the same relay every time. CPU counts all processes of a relay until ``SETTLE_S`` after
the last message, so that work put off is counted. Syncs come from a shorter run of their own under strace, which would disturb
the clock.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.load import Sink
from bench.loop_mount import loop_mount, written_bytes
from bench.mta import Mta, Postfix, Waypost
from bench.processes import SYNC_CALLS, Trace, machine_cpu_s, own_cpu_s

__all__ = [
    "FOREIGN_MAX",
    "SETTLE_S",
    "Meter",
    "Run",
    "Turns",
    "file_system",
    "medians",
    "pairs",
    "parse",
    "parser",
    "refusal",
    "runs_of",
    "table",
    "work_directory",
]

SETTLE_S = 1.5  # longer than Waypost's checkpoint_interval_s and Postfix's qmgr takes to remove what it delivered
FOREIGN_MAX = 0.1  # of all cores; kernel threads that write our own data count as others
OWN_DISK_BYTES = 8 << 30  # enough for what Waypost's reserve_bytes asks for beside some runs
STRACED = 2_000  # messages of a run under strace, at most


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a relay."""

    relay: str
    mode: str
    messages: int
    seconds: float  # until the last message was where it was to come
    cpu_ms: float  # of the relay, per message
    manager_ms: float  # the part of it that is the manager's (Postfix: qmgr's)
    foreign: float  # share of the machine that went to neither relay nor its database nor source nor sink
    accepted_s: float = 0.0  # until the last message was acknowledged; 0: not measured
    written_bytes: float = 0.0  # by the device of the relay's queue, per message; with --own-disk, for this relay alone
    database_ms: float = 0.0  # of CPU, per message: of the database servers that work for this relay
    commits: float = 0.0  # of that database, per message

    @property
    def rate(self) -> float:
        """Returns messages a second."""
        return self.messages / self.seconds


class Meter:
    """Counts the CPU of a relay from here on, and of all others; ``sink`` is none of them."""

    def __init__(self, name: str, relay: Mta, sink: Sink) -> None:
        self._name, self._relay, self._sink = name, relay, sink
        self._cpu, self._manager, self._written = relay.cpu_s(), relay.manager_cpu_s(), written_bytes(relay.home)
        self._database = relay.database_cpu_s()
        self._known, self._busy = self._cpu + self._database + sink.cpu_s() + own_cpu_s(), machine_cpu_s()
        self._begun = time.monotonic()

    def run(self, mode: str, messages: int, seconds: float, accepted_s: float = 0.0) -> Run:
        """Waits until the relay has settled; returns the run, whose clock the caller has read."""
        time.sleep(SETTLE_S)
        cpu, database = self._relay.cpu_s(), self._relay.database_cpu_s()
        used = cpu + database + self._sink.cpu_s() + own_cpu_s() - self._known
        busy = machine_cpu_s() - self._busy - used
        return Run(
            self._name,
            mode,
            messages,
            seconds,
            (cpu - self._cpu) * 1000 / messages,
            (self._relay.manager_cpu_s() - self._manager) * 1000 / messages,
            max(0.0, busy / ((time.monotonic() - self._begun) * (os.cpu_count() or 1))),
            accepted_s,
            (written_bytes(self._relay.home) - self._written) / messages,
            (database - self._database) * 1000 / messages,
        )


def parser(name: str, description: str, *, rounds: int, messages: int) -> argparse.ArgumentParser:
    """Returns a parser with the options that all these benchmarks have, for ``parse``."""
    made = argparse.ArgumentParser(prog=f"python -m bench.{name}", description=description.partition("\n")[0])
    made.add_argument("--short", action="store_true", help="one round of few messages: a quick check, no result")
    made.add_argument("--only", nargs="+", metavar="RELAY", help="leave the others out")
    made.add_argument("--rounds", type=int, default=rounds)
    made.add_argument("--messages", type=int, default=messages, help="of one run")
    made.add_argument("--size", type=int, default=4096, help="bytes of a message")
    made.add_argument("--directory", type=Path, default=Path("/var/tmp"), help="the queues lie below; no tmpfs")
    made.add_argument("--own-disk", action="store_true", help="an ext4 of their own below, so that written bytes count")
    made.add_argument("--json", type=Path, metavar="FILE", help="all runs, for a closer look")
    return made


def parse(made: argparse.ArgumentParser, argv: Sequence[str] | None, *, short: int) -> argparse.Namespace:
    """Parses the arguments; ``short``: the messages of a quick check."""
    given = made.parse_args(argv)
    if given.short:
        given.rounds, given.messages = 1, short
    return given


def file_system(path: Path) -> str:
    """Returns the type of the file system that a path lies on."""
    done = subprocess.run(["df", "--output=fstype", str(path)], check=True, capture_output=True, text=True)
    return done.stdout.split()[-1]


def refusal(directory: Path, only: Sequence[str] | None = None) -> str:
    """Says why this benchmark cannot run here; "" if it can."""
    peers = [Postfix.missing()] if only is None or "postfix" in only else []
    for missing in (Sink.missing(), *peers, Waypost.missing()):
        if missing:
            return missing
    kind = file_system(directory)
    return f"{directory} is {kind}, where a sync costs nothing" if kind in ("tmpfs", "ramfs") else ""


class Turns:
    """All runs of a benchmark; each is printed as it ends."""

    def __init__(self) -> None:
        self.runs: list[Run] = []
        self.syncs: dict[str, float] = {}  # "relay mode" -> syncs a message

    def take(self, names: Sequence[str], rounds: int, measure: Callable[[str], Run]) -> None:
        """Measures all of them ``rounds`` times, in turn."""
        for number in range(rounds):
            for name in names if number % 2 == 0 else names[::-1]:
                run = measure(name)
                self.runs.append(run)
                database = f" and {run.database_ms:.3f} the database" if run.database_ms else ""
                accepted = f", accepted after {run.accepted_s:.1f} of {run.seconds:.1f} s" if run.accepted_s else ""
                print(
                    f"{run.mode} {number + 1}/{rounds} {run.relay}: {run.rate:.0f} msg/s, {run.cpu_ms:.2f} ms CPU "
                    f"({run.manager_ms:.2f} the manager){database}{accepted}, others took {run.foreign:.0%}".strip(),
                    file=sys.stderr,
                    flush=True,
                )

    def count_syncs(
        self,
        relays: Mapping[str, Mta],
        directory: Path,
        messages: int,
        modes: Sequence[str],
        send: Callable[[str, Mta, str, int], object],
    ) -> None:
        """Stops each relay, starts it under strace, and lets ``send`` send messages through it in each mode."""
        many = min(STRACED, messages)
        for name, relay in relays.items():
            relay.stop()
            trace = Trace(directory / f"{name}.strace", SYNC_CALLS)
            relay.start(trace)
            for mode in modes:
                time.sleep(SETTLE_S)
                before = trace.total()
                send(name, relay, mode, many)
                time.sleep(SETTLE_S)
                self.syncs[f"{name} {mode}"] = (trace.total() - before) / many
            relay.stop()

    def write(self, path: Path | None) -> None:
        """Writes all runs as JSON, if there is a path."""
        if path is not None:
            path.write_text(json.dumps({"runs": [asdict(run) for run in self.runs], "syncs": self.syncs}, indent=1))

    def disturbed(self) -> list[str]:
        """Returns a line if other programs used more of the machine than a result allows."""
        many = sum(run.foreign > FOREIGN_MAX for run in self.runs)
        words = f"No result: in {many} of {len(self.runs)} runs others took more than {FOREIGN_MAX:.0%} of the machine."
        return [words] if many else []


def runs_of(runs: Sequence[Run], relay: str, mode: str) -> list[Run]:
    """Returns the runs of one relay in one mode, in their order."""
    return [run for run in runs if (run.relay, run.mode) == (relay, mode)]


def pairs(runs: Sequence[Run], relay: str, peer: str, mode: str) -> float:
    """Returns the median of a relay's rates over those of a peer in the same round."""
    rounds = zip(runs_of(runs, relay, mode), runs_of(runs, peer, mode), strict=True)
    return statistics.median(mine.rate / its.rate for mine, its in rounds)


def medians(runs: Sequence[Run]) -> tuple[float, float]:
    """Returns messages a second and ms of CPU for each."""
    return statistics.median(run.rate for run in runs), statistics.median(run.cpu_ms for run in runs)


def table(turns: Turns, names: Sequence[str]) -> list[str]:
    """Returns a line for each relay, beside Postfix if that ran."""
    middle = {name: medians([run for run in turns.runs if run.relay == name]) for name in names}
    lines = []
    for name, (rate, cpu) in middle.items():
        counted = [value for key, value in turns.syncs.items() if key.startswith(f"{name} ")]
        a_message = f"{statistics.median(counted):.2f}" if counted else "-"
        written = statistics.median(run.written_bytes for run in turns.runs if run.relay == name) / 1000
        line = f"{name:12} {rate:7.0f} msg/s {cpu:6.2f} ms CPU {written:7.1f} kB written {a_message:>6} syncs a message"
        if "postfix" in middle:
            rate_p, cpu_p = middle["postfix"]
            line += f"   {rate / rate_p:.2f} x Postfix, {cpu / cpu_p:.2f} x its CPU"
        lines.append(line)
    return lines + turns.disturbed()


@contextmanager
def work_directory(name: str, below: Path, *, own_disk: bool = False) -> Iterator[Path]:
    """Makes a directory for one benchmark and removes it at the end. ``own_disk``: on a file system of its own; root only."""
    if own_disk:
        with loop_mount("ext4", below, OWN_DISK_BYTES) as mounted, work_directory(name, mounted) as directory:
            for each in (mounted.parent, mounted):
                each.chmod(0o755)
            yield directory
        return
    with TemporaryDirectory(prefix=f"bench-{name}-", dir=below, ignore_cleanup_errors=True) as made:
        directory = Path(made)
        directory.chmod(0o755)  # Postfix's daemons give up root and must get in
        yield directory
