"""The cost of keeping the queue on two database servers: ``python -m bench.replicated [--short]``.

source -> relay -> sink as in bench.relay: Waypost alone, Waypost whose queue PostgreSQL and a synchronous standby keep,
Waypost with two queues, and two Wayposts that share nothing but the machine, in turn, medians. Both servers run on the same
cores, and are idle during the turns of the others.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from bench.load import Source
from bench.mta import Apart, Mta, Waypost
from bench.processes import cpu_s
from bench.relay import MODES, SHARDS_TARGET, warm, with_shards
from bench.turns import Run, Turns, file_system, medians, pairs, parse, parser, refusal, runs_of, work_directory
from tests.nodes.node import conninfo_of
from tests.replication.cluster import Cluster, made_template, programs
from tests.replication.writing import SHARD

__all__ = ["main", "report"]

ALONE, REPLICATED, SHARDS, CHECKOUT = "waypost", "replicated", "2 shards", "checkout"
NAMES = (ALONE, REPLICATED, SHARDS, Apart.name)
RATE_TARGET = 0.5  # wanted: replicated, at least half of the rate alone
CPU_TARGET = 1.25  # wanted: replicated, at most this much of the CPU of Waypost alone
DATABASE_TARGET = 0.15  # wanted: at most as many ms of CPU of both servers for a message of 4 kB
BESIDE_TARGET = 0.99  # wanted: without a database, at least this much of the rate of another state
# As PostgreSQL has them by default; the tests' servers are smaller and leave the cleaning out.
SERVER = "shared_buffers = 128MB\nmax_wal_size = 1GB\nautovacuum = on\nwal_receiver_status_interval = 10s\n"
SEGMENT_MB = 16  # the same
BACKEND_S = 0.2  # until the server has reaped the process that answered a question


class Replicated(Waypost):
    """Waypost whose queue a primary with a synchronous standby keeps."""

    name = REPLICATED

    def __init__(self, directory: Path, next_port: int, cluster: Cluster) -> None:
        self._cluster = cluster
        node = f'node = "bench"\nshard = "{SHARD}"'
        super().__init__(directory, next_port, f"[nodes]\ndatabase = {json.dumps(conninfo_of(cluster))}\n{node}")

    @staticmethod
    def missing() -> str:
        """Says why it cannot run here; "" when it can."""
        try:
            programs()
        except AssertionError as error:
            return str(error)
        return ""

    def database_cpu_s(self) -> float:
        processes = [server.process for server in self._cluster.servers]
        return sum(cpu_s(process.pid) for process in processes if process is not None)

    def commits(self) -> int:
        """Returns how many batches its processes have committed; each commit has one."""
        count = int(self._cluster.primary.sql("select coalesce(sum(n), 0) from waypost.writer")[0][0])
        time.sleep(BACKEND_S)
        return count


def _middle(runs: Sequence[Run], name: str, what: str) -> str:
    """A median of a database's figures; "-" for a relay that has no database."""
    return f"{statistics.median(getattr(run, what) for run in runs):.3f}" if name == REPLICATED else "-"


def report(turns: Turns, names: Sequence[str], modes: Sequence[str]) -> list[str]:
    """Returns the table, and what the ratios are beside those that are wanted."""
    runs = turns.runs
    lines = [
        f"{'':14}{'':12}{'msg/s':>8}{'(min-max)':>16}{'CPU ms/msg':>12}{'manager':>9}{'database':>10}{'commits/msg':>13}"
    ]
    for mode in modes:
        for name in names:
            mine = runs_of(runs, name, mode)
            rates = sorted(run.rate for run in mine)
            rate, cpu = medians(mine)
            manager = statistics.median(run.manager_ms for run in mine)
            span = f"({rates[0]:.0f}-{rates[-1]:.0f})"
            database, commits = _middle(mine, name, "database_ms"), _middle(mine, name, "commits")
            lines.append(f"{mode:14}{name:12}{rate:8.0f}{span:>16}{cpu:12.3f}{manager:9.3f}{database:>10}{commits:>13}")
    for name, peer, rate_wanted, cpu_wanted in (
        (REPLICATED, ALONE, RATE_TARGET, CPU_TARGET),
        (SHARDS, ALONE, None, SHARDS_TARGET),
        (SHARDS, Apart.name, None, None),
        (ALONE, CHECKOUT, BESIDE_TARGET, None),
    ):
        if not {name, peer} <= set(names):
            continue
        for mode in modes:
            (rate, cpu), (its_rate, its_cpu) = (medians(runs_of(runs, each, mode)) for each in (name, peer))
            paired = pairs(runs, name, peer, mode)
            at_least = f", wanted at least {rate_wanted}" if rate_wanted is not None else ""
            at_most = f" (wanted at most {cpu_wanted})" if cpu_wanted is not None else ""
            lines.append(
                f"{mode}: {name} {rate / its_rate:.3f} x the rate of {peer} (median of the pairs {paired:.3f}{at_least}), "
                f"{cpu / its_cpu:.3f} x its CPU{at_most}"
            )
    if REPLICATED in names:
        for mode in modes:
            database = _middle(runs_of(runs, REPLICATED, mode), REPLICATED, "database_ms")
            lines.append(
                f"{mode}: both database servers {database} ms of CPU a message (4 kB: at most {DATABASE_TARGET})"
            )
    return lines + turns.disturbed()


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    options = parser("replicated", __doc__, rounds=5, messages=10_000)
    options.add_argument("--beside", type=Path, metavar="CHECKOUT", help="another state of Waypost as well, in turn")
    options.add_argument("--mode", choices=tuple(MODES), help="leave the other out")
    options.add_argument("--sessions", type=int, default=20)
    given = parse(options, argv, short=1_000)
    if unknown := set(given.only or ()) - set(NAMES):
        options.error(f"--only: {', '.join(sorted(unknown))}: not among {', '.join(NAMES)}")
    return given


def _measure_all(
    given: argparse.Namespace, wanted: Sequence[str], modes: Sequence[str], directory: Path, turns: Turns
) -> list[str]:
    """Measures everything; returns the names of the relays."""
    with ExitStack() as stack:
        cluster: Cluster | None = None
        if REPLICATED in wanted:
            template = stack.enter_context(made_template(directory, more=SERVER, segment_mb=SEGMENT_MB))
            cluster = stack.enter_context(template.copy("servers"))

        def make(next_port: int) -> dict[str, Mta]:
            relays: list[Mta] = [Waypost(directory, next_port)] if ALONE in wanted else []
            if cluster is not None:
                relays.append(Replicated(directory, next_port, cluster))
            if SHARDS in wanted:
                relays.append(with_shards(directory, next_port, 2))
            if Apart.name in wanted:
                relays.append(Apart(directory, next_port))
            if given.beside is not None:
                relays.append(Waypost(directory, next_port, checkout=given.beside.resolve()))
            return {relay.name: relay for relay in relays}

        source = Source(sessions=given.sessions, size_bytes=given.size)
        relays, run = stack.enter_context(warm(source, directory, modes, given.messages, make))
        for mode in modes:

            def one(name: str, mode: str = mode) -> Run:
                relay = relays[name]
                if not isinstance(relay, Replicated):
                    return run(relay, mode, given.messages)
                before = relay.commits()
                measured = run(relay, mode, given.messages)
                return replace(measured, commits=(relay.commits() - before) / given.messages)

            turns.take(list(relays), given.rounds, one)
    return list(relays)


def main(argv: Sequence[str] | None = None) -> int:
    """Measures and prints; returns the exit status."""
    given = _arguments(argv)
    modes = [given.mode] if given.mode else list(MODES)
    wanted = [name for name in NAMES if given.only is None or name in given.only]
    if missing := refusal(given.directory, wanted) or (Replicated.missing() if REPLICATED in wanted else ""):
        print(f"bench.replicated: {missing}", file=sys.stderr)
        return 1
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the servers and relays end with this program
    turns = Turns()
    with work_directory("replicated", given.directory, own_disk=given.own_disk) as directory:
        names = _measure_all(given, wanted, modes, directory, turns)
    print(
        f"{os.cpu_count()} cores, {file_system(given.directory)}, {given.sessions} sessions, {given.size} bytes, "
        f"{given.rounds} runs of {given.messages} messages each, medians"
    )
    print("\n".join(report(turns, names, modes)))
    turns.write(given.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
