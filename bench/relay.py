"""How fast a relay relays, beside Postfix in the same run: ``python -m bench.relay [--short]``.

source -> relay -> sink, the two relays in turn, in reverse order every second round (A B B A ...), medians. The clock runs
from the start of the source until the **last message is at the sink**; CPU counts all processes of the relay until
``SETTLE_S`` after that, so that work put off is counted too. Syncs come from a shorter run of their own under strace,
which would disturb the clock.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.load import SENDER_DOMAIN, Sink, Source
from bench.mta import Mta, Postfix, Waypost, WaypostThatSigns, WaypostWithMilter
from bench.processes import SYNC_CALLS, Trace, machine_cpu_s, own_cpu_s, wait_until

__all__ = ["Measured", "main"]

SETTLE_S = 1.5  # longer than Waypost's checkpoint_interval_s and Postfix's qmgr takes to remove what it delivered
MODES = {"reconnecting": False, "persistent": True}
TARGETS = {"reconnecting": 2.0, "persistent": 3.5}  # wanted
SYNCS_TARGET = 0.5
FEATURES = {"milter": "a milter", "dkim": "a DKIM signature"}  # by the name of the relay
BESIDE_TARGET = 0.95  # wanted: the relay loses less than 5 %
FOREIGN_MAX = 0.1  # of all cores; kernel threads that write our own data count as others


@dataclass(frozen=True, slots=True)
class Measured:
    """One run."""

    relay: str
    mode: str
    messages: int
    seconds: float  # until the last message was at the sink
    accepted_s: float  # until the last message was acknowledged
    cpu_ms: float  # of the relay, per message
    manager_ms: float  # the part of it that is the manager's (Postfix: qmgr's)
    foreign: float  # share of the machine that went to neither relay nor source nor sink

    @property
    def rate(self) -> float:
        return self.messages / self.seconds


def measure(relay: Mta, sink: Sink, source: Source, mode: str, messages: int) -> Measured:
    """Raises TimeoutError when messages do not come out within a minute and 50 ms for each."""
    timeout_s = 60 + messages * 0.05
    before, cpu_before, manager_before = sink.messages(), relay.cpu_s(), relay.manager_cpu_s()
    busy_before, known_before = machine_cpu_s(), cpu_before + sink.cpu_s() + own_cpu_s()
    begun = time.monotonic()
    accepted_s = source.run(relay.port, messages, keep=MODES[mode], timeout_s=timeout_s)
    wait_until(
        lambda: sink.messages() >= before + messages, f"{messages} messages from {relay.name}", timeout_s, poll_s=0.002
    )
    seconds = time.monotonic() - begun
    time.sleep(SETTLE_S)
    cpu_after = relay.cpu_s()
    cpu_ms = (cpu_after - cpu_before) * 1000 / messages
    manager_ms = (relay.manager_cpu_s() - manager_before) * 1000 / messages
    busy = machine_cpu_s() - busy_before - (cpu_after + sink.cpu_s() + own_cpu_s() - known_before)
    foreign = max(0.0, busy / ((time.monotonic() - begun) * (os.cpu_count() or 1)))
    surplus = sink.messages() - before - messages
    if surplus:
        raise RuntimeError(f"{relay.name} delivered {surplus} messages more than it was given")
    return Measured(relay.name, mode, messages, seconds, accepted_s, cpu_ms, manager_ms, foreign)


def count_syncs(relay: Mta, sink: Sink, source: Source, mode: str, *, messages: int, trace: Trace) -> float:
    """Syncs per message of a relay that runs under ``trace``."""
    time.sleep(SETTLE_S)
    before, syncs_before = sink.messages(), trace.total()
    source.run(relay.port, messages, keep=MODES[mode], timeout_s=300)
    wait_until(lambda: sink.messages() >= before + messages, f"{messages} messages from {relay.name}", 300)
    time.sleep(SETTLE_S)
    return (trace.total() - syncs_before) / messages


def _of(runs: list[Measured], relay: str, mode: str) -> list[Measured]:
    return [run for run in runs if (run.relay, run.mode) == (relay, mode)]


def report(runs: list[Measured], syncs: dict[tuple[str, str], float], modes: Sequence[str]) -> list[str]:
    """The table, and what the ratios are against what they should be."""
    names = list(dict.fromkeys(run.relay for run in runs))
    lines = [f"{'':14}{'':10}{'msg/s':>8}{'(min-max)':>16}{'CPU ms/msg':>12}{'manager':>9}{'syncs/msg':>11}"]
    middle: dict[tuple[str, str], tuple[float, float]] = {}
    for mode in modes:
        for name in names:
            mine = _of(runs, name, mode)
            rates = sorted(run.rate for run in mine)
            rate, cpu = statistics.median(rates), statistics.median(run.cpu_ms for run in mine)
            middle[name, mode] = (rate, cpu)
            manager = statistics.median(run.manager_ms for run in mine)
            per = f"{syncs[name, mode]:.2f}" if (name, mode) in syncs else "-"
            span = f"({rates[0]:.0f}-{rates[-1]:.0f})"
            lines.append(f"{mode:14}{name:10}{rate:8.0f}{span:>16}{cpu:12.2f}{manager:9.2f}{per:>11}")
    if {"postfix", "waypost"} <= set(names):
        for mode in modes:
            (rate_p, cpu_p), (rate_w, cpu_w) = middle["postfix", mode], middle["waypost", mode]
            line = f"{mode}: {rate_w / rate_p:.2f} x Postfix's rate (wanted {TARGETS[mode]}), "
            line += f"{cpu_w / cpu_p:.2f} x its CPU"
            if ("waypost", mode) in syncs and ("postfix", mode) in syncs:
                own, its = syncs["waypost", mode], syncs["postfix", mode]
                line += f", {own / its:.2f} x its syncs ({own:.2f} a message, wanted {SYNCS_TARGET})"
            lines.append(line)
    if {"checkout", "waypost"} <= set(names):
        for mode in modes:
            (rate_c, cpu_c), (rate_w, cpu_w) = middle["checkout", mode], middle["waypost", mode]
            pairs = [
                new.rate / old.rate
                for new, old in zip(_of(runs, "waypost", mode), _of(runs, "checkout", mode), strict=True)
            ]
            line = f"{mode}: {rate_w / rate_c:.3f} x the checkout's rate (wanted {BESIDE_TARGET}), median of the pairs "
            lines.append(line + f"{statistics.median(pairs):.3f}, {cpu_w / cpu_c:.2f} x its CPU")
    for name, what in FEATURES.items():
        if not {name, "waypost"} <= set(names):
            continue
        for mode in modes:
            (rate_f, cpu_f), (rate_w, cpu_w) = middle[name, mode], middle["waypost", mode]
            line = f"{mode}: with {what} {rate_f / rate_w:.2f} x the rate without, {cpu_f / cpu_w:.2f} x its CPU"
            lines.append(f"{line} ({cpu_f - cpu_w:+.2f} ms a message)")
    disturbed = sum(run.foreign > FOREIGN_MAX for run in runs)
    if disturbed:
        lines.append(
            f"No result: in {disturbed} of {len(runs)} runs others took more than {FOREIGN_MAX:.0%} of the machine."
        )
    return lines


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.relay", description=__doc__.partition("\n")[0])
    parser.add_argument("--short", action="store_true", help="one round of 1 000 messages: a quick check, no result")
    parser.add_argument("--only", choices=("postfix", "waypost"), help="leave the other out")
    parser.add_argument("--beside", type=Path, metavar="CHECKOUT", help="another state of Waypost as well, in turn")
    parser.add_argument("--milter", action="store_true", help="Waypost with one milter that accepts all, in turn")
    parser.add_argument("--dkim", action="store_true", help="Waypost that signs each message (RSA-2048), in turn")
    parser.add_argument("--mode", choices=tuple(MODES), help="leave the other out")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--messages", type=int, default=10_000, help="of one run")
    parser.add_argument("--size", type=int, default=4096, help="bytes of a message")
    parser.add_argument("--sessions", type=int, default=20)
    parser.add_argument("--no-syncs", action="store_true", help="leave the strace runs out")
    parser.add_argument("--directory", type=Path, default=Path("/var/tmp"), help="both queues lie below; no tmpfs")
    parser.add_argument("--json", type=Path, metavar="FILE", help="all runs, for a closer look")
    arguments = parser.parse_args(argv)
    if arguments.short:
        arguments.rounds, arguments.messages = 1, 1_000
    return arguments


def _file_system(path: Path) -> str:
    done = subprocess.run(["stat", "-f", "-c", "%T", str(path)], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _arguments(argv)
    modes = [arguments.mode] if arguments.mode else list(MODES)
    kinds = [kind for kind in (Postfix, Waypost) if arguments.only in (None, kind.name)]
    for missing in (Sink.missing(), *(kind.missing() for kind in kinds)):
        if missing:
            print(f"bench.relay: {missing}", file=sys.stderr)
            return 1
    kind_of_disk = _file_system(arguments.directory)
    if kind_of_disk in ("tmpfs", "ramfs"):
        print(f"bench.relay: {arguments.directory} is {kind_of_disk}, where a sync costs nothing", file=sys.stderr)
        return 1
    source = Source(sessions=arguments.sessions, size_bytes=arguments.size)
    runs: list[Measured] = []
    syncs: dict[tuple[str, str], float] = {}
    with tempfile.TemporaryDirectory(prefix="bench-relay-", dir=arguments.directory) as name:
        directory = Path(name)
        directory.chmod(0o755)  # Postfix's daemons give up root and must get in
        sink = Sink(directory)
        sink.start()
        relays: list[Mta] = [kind(directory, sink.port) for kind in kinds]
        if arguments.beside is not None:
            relays.append(Waypost(directory, sink.port, checkout=arguments.beside.resolve()))
        if arguments.milter:
            relays.append(WaypostWithMilter(directory, sink.port))
        if arguments.dkim:
            relays.append(WaypostThatSigns(directory, sink.port, SENDER_DOMAIN))
        try:
            for relay in relays:
                relay.start()
                for mode in modes:  # a first run fills caches and starts Postfix's processes
                    measure(relay, sink, source, mode, 200)
            for mode in modes:
                for number in range(arguments.rounds):
                    # Waypost's exporter works every 10 s, about as long as a pair takes: in one order it would burden the
                    # same relay every time.
                    for relay in relays if number % 2 == 0 else relays[::-1]:
                        run = measure(relay, sink, source, mode, arguments.messages)
                        runs.append(run)
                        print(
                            f"{mode} {number + 1}/{arguments.rounds} {relay.name}: {run.rate:.0f} msg/s, "
                            f"{run.cpu_ms:.2f} ms CPU ({run.manager_ms:.2f} the manager), "
                            f"accepted after {run.accepted_s:.1f} of {run.seconds:.1f} s, others took {run.foreign:.0%}",
                            file=sys.stderr,
                            flush=True,
                        )
            for relay in relays:
                relay.stop()
                if arguments.no_syncs:
                    continue
                trace = Trace(directory / f"{relay.name}.strace", SYNC_CALLS)
                relay.start(trace)
                for mode in modes:
                    count = min(2_000, arguments.messages)
                    syncs[relay.name, mode] = count_syncs(relay, sink, source, mode, messages=count, trace=trace)
                relay.stop()
        finally:
            for relay in relays:
                relay.stop()
            sink.stop()
    print(
        f"{os.cpu_count()} cores, {kind_of_disk}, {arguments.sessions} sessions, {arguments.size} bytes, "
        f"{arguments.rounds} runs of {arguments.messages} messages each, medians, to the last message at the sink"
    )
    print("\n".join(report(runs, syncs, modes)))
    if arguments.json is not None:
        per_message = {f"{name} {mode}": value for (name, mode), value in syncs.items()}
        arguments.json.write_text(json.dumps({"runs": [asdict(run) for run in runs], "syncs": per_message}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
