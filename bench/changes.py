"""Measures changes of many messages, beside Postfix: ``python -m bench.changes [--count N] [--size BYTES]``.

Waypost's queue is filled by its own writers (bench.fill), with deferred data in the log; Postfix's with copies of one deferred
message (bench.browse). Nothing is due meanwhile. One command changes all messages; its time ends when it does, which for
Waypost is when all changes are synced and a new list shows them. CPU is of all processes, the command included; bytes are
those that the device wrote until two seconds later, with ``--own-disk`` no others than these.
"""

from __future__ import annotations

import argparse
import os
import resource
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.browse import LATER_S, filled_postfix
from bench.fill import DATA, fill
from bench.loop_mount import written_bytes
from bench.mta import Mta, Postfix, Waypost, waypost_command
from bench.processes import free_port
from bench.turns import refusal, work_directory

__all__ = ["main"]

SETTLE_S = 2.0  # marks follow the checkpoint behind a change


@dataclass(frozen=True, slots=True)
class Change:
    """One change of all messages. CPU in seconds; bytes that the device wrote."""

    relay: str
    operation: str
    count: int
    seconds: float
    cpu_s: float
    manager_cpu_s: float
    written: int


def filled_waypost(directory: Path, count: int, size: int, more: str) -> Waypost:
    """Returns a running Waypost with ``count`` deferred messages of ``size`` bytes."""
    port = free_port()
    waypost = Waypost(directory, port, f"[queue]\n{more}")
    data = (DATA * (size // len(DATA) + 1))[: size - 2] + b"\r\n"
    fill(waypost.home, count, f"smtp:[127.0.0.1]:{port}", due_in=lambda _: LATER_S, carried=True, data=data)
    waypost.start()
    return waypost


def commands(relay: Mta) -> dict[str, list[str]]:
    """Returns the command of each operation, in the order in which they are made: a deletion ends what it deletes."""
    if isinstance(relay, Postfix):
        program = ["postsuper", "-c", str(relay.settings)]
        return {
            "retry": [*program, "-r", "ALL", "deferred"],
            "hold": [*program, "-h", "ALL"],
            "release": [*program, "-H", "ALL"],
            "delete": [*program, "-d", "ALL"],
        }
    assert isinstance(relay, Waypost)
    program = [*waypost_command(), "queue"]
    rest = ["--all-matching", "--yes", "--sender", "*", "--config", str(relay.config)]
    return {name: [*program, name, *rest] for name in ("delete", "undelete", "hold", "release")}


def measure(relay: Mta, operation: str, count: int, directory: Path) -> Change:
    """Makes one change of all messages. Raises CalledProcessError."""
    time.sleep(SETTLE_S)
    os.sync()
    written, cpu, manager = written_bytes(directory), relay.cpu_s(), relay.manager_cpu_s()
    own = resource.getrusage(resource.RUSAGE_CHILDREN)
    begun = time.monotonic()
    subprocess.run(commands(relay)[operation], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    seconds = time.monotonic() - begun
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    time.sleep(SETTLE_S)
    os.sync()
    command = used.ru_utime + used.ru_stime - own.ru_utime - own.ru_stime
    return Change(
        relay.name,
        operation,
        count,
        seconds,
        relay.cpu_s() - cpu + command,
        relay.manager_cpu_s() - manager,
        written_bytes(directory) - written,
    )


def line(changes: Sequence[Change]) -> str:
    """Returns the medians of one operation of one relay."""
    first = changes[0]
    seconds, cpu, manager, written = (
        statistics.median(values)
        for values in zip(*((c.seconds, c.cpu_s, c.manager_cpu_s, c.written) for c in changes), strict=True)
    )
    each = 1e6 / first.count
    return (
        f"{first.relay:10} {first.operation:9} {first.count:8,} in {seconds:6.2f} s; of each {cpu * each:6.0f} us CPU,"
        f" manager {manager * each:4.0f} us, {written / first.count:7.0f} bytes written"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Measures and prints; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.changes", description=__doc__.partition("\n")[0])
    parser.add_argument("--short", action="store_true", help="500 messages, one round: a quick check, no result")
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--size", type=int, default=4096, metavar="BYTES", help="of Waypost's messages")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=["postfix", "waypost"], default=["postfix", "waypost"])
    parser.add_argument(
        "--queue", default="", metavar="TOML", help="settings of Waypost's [queue], such as carry_limit=0"
    )
    parser.add_argument("--operations", type=shlex.split, default=[], help="only these; each needs those before it")
    parser.add_argument("--directory", type=Path, default=Path("/var/tmp"))
    parser.add_argument("--own-disk", action="store_true", help="on a file system of its own, in a file: root only")
    given = parser.parse_args(argv)
    if given.short:
        given.count, given.rounds = 500, 1
    if missing := refusal(given.directory, given.only):
        print(f"bench.changes: {missing}", file=sys.stderr)
        return 1
    found: dict[tuple[str, str], list[Change]] = {}
    for number in range(given.rounds):
        for name in given.only:
            with work_directory("changes", given.directory, own_disk=given.own_disk) as directory:
                if name == "postfix":
                    relay: Mta = filled_postfix(directory, given.count)
                else:
                    relay = filled_waypost(directory, given.count, given.size, given.queue)
                try:
                    for operation in given.operations or commands(relay):
                        change = measure(relay, operation, given.count, directory)
                        found.setdefault((name, operation), []).append(change)
                        print(f"{number + 1}/{given.rounds} {line([change])}", file=sys.stderr, flush=True)
                finally:
                    relay.stop()
    print(f"medians of {given.rounds}; messages of {given.size} bytes in Waypost, of 4 096 in Postfix")
    print("\n".join(map(line, found.values())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
