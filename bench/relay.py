"""How fast a relay relays, beside Postfix in the same run: ``python -m bench.relay [--short]``.

source -> relay -> sink, the relays in turn, medians (bench.turns). The clock runs from the start of the source until the **last
message is at the sink**. With ``--copy``, a plain copy of the same bytes through loopback and disk takes turns with them; with
``--direct``, the source and the sink without a relay do.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.copy import copy
from bench.load import SENDER_DOMAIN, Sink, Source
from bench.mta import Apart, Direct, Mta, Postfix, Waypost, WaypostThatSigns, WaypostWithMilter
from bench.processes import wait_until
from bench.turns import (
    Meter,
    Run,
    Turns,
    file_system,
    medians,
    pairs,
    parse,
    parser,
    refusal,
    runs_of,
    work_directory,
)

__all__ = ["MODES", "SHARDS_TARGET", "Measure", "main", "measure", "warm", "with_shards"]

MODES = {"reconnecting": False, "persistent": True}
FEATURES = {"milter": "a milter", "dkim": "a DKIM signature"}  # by the name of the relay
SHARDS_TARGET = 1.05  # wanted: two queues cost at most this much of the CPU of one
BESIDE_TARGET = 0.95  # wanted: the relay loses less than 5 %
WARMING = 200  # messages; a first run fills caches and starts Postfix's processes

Measure = Callable[[Mta, str, int], Run]


def measure(relay: Mta, sink: Sink, source: Source, mode: str, messages: int) -> Run:
    """Raises TimeoutError when messages do not come out within a minute and 50 ms for each."""
    timeout_s = 60 + messages * 0.05
    before = sink.messages()
    meter = Meter(relay.name, relay, sink)
    begun = time.monotonic()
    ports = relay.ports if isinstance(relay, Apart) else [relay.port]
    accepted_s = source.run_on(ports, messages, keep=MODES[mode], timeout_s=timeout_s)
    wait_until(
        lambda: sink.messages() >= before + messages, f"{messages} messages from {relay.name}", timeout_s, poll_s=0.002
    )
    run = meter.run(mode, messages, time.monotonic() - begun, accepted_s)
    surplus = sink.messages() - before - messages
    if surplus:
        raise RuntimeError(f"{relay.name} delivered {surplus} messages more than it was given")
    return run


@contextmanager
def warm(
    source: Source, directory: Path, modes: Sequence[str], messages: int, make: Callable[[int], Mapping[str, Mta]]
) -> Iterator[tuple[Mapping[str, Mta], Measure]]:
    """Starts a sink and the relays that ``make`` makes for its port, and ends them, also after an error.

    Yields the relays, each after a first run, and what measures a run of one of them.
    """
    with ExitStack() as stack:
        sink = Sink(directory)
        stack.callback(sink.stop)
        sink.start()
        relays = make(sink.port)
        for relay in relays.values():
            stack.callback(relay.stop)
            relay.start()
            for mode in modes:
                measure(relay, sink, source, mode, min(WARMING, messages))
        yield relays, lambda relay, mode, many: measure(relay, sink, source, mode, many)


def report(turns: Turns, names: Sequence[str], modes: Sequence[str]) -> list[str]:
    """The table, and what the ratios are against what they should be."""
    runs, syncs = turns.runs, turns.syncs
    lines = [
        f"{'':14}{'':10}{'msg/s':>8}{'(min-max)':>16}{'CPU ms/msg':>12}{'manager':>9}{'written kB':>12}{'syncs/msg':>11}"
    ]
    middle: dict[tuple[str, str], tuple[float, float]] = {}
    for mode in modes:
        for name in names:
            mine = runs_of(runs, name, mode)
            rates = sorted(run.rate for run in mine)
            rate, cpu = middle[name, mode] = medians(mine)
            manager = statistics.median(run.manager_ms for run in mine)
            written = statistics.median(run.written_bytes for run in mine) / 1000
            per = f"{syncs[f'{name} {mode}']:.2f}" if f"{name} {mode}" in syncs else "-"
            span = f"({rates[0]:.0f}-{rates[-1]:.0f})"
            lines.append(f"{mode:14}{name:10}{rate:8.0f}{span:>16}{cpu:12.2f}{manager:9.2f}{written:12.1f}{per:>11}")
    if {"postfix", "waypost"} <= set(names):
        for mode in modes:
            (rate_p, cpu_p), (rate_w, cpu_w) = middle["postfix", mode], middle["waypost", mode]
            line = f"{mode}: {rate_w / rate_p:.2f} x Postfix's rate, {cpu_w / cpu_p:.2f} x its CPU"
            if f"waypost {mode}" in syncs and f"postfix {mode}" in syncs:
                line += f", {syncs[f'waypost {mode}'] / syncs[f'postfix {mode}']:.2f} x its syncs"
            lines.append(line)
    if {"checkout", "waypost"} <= set(names):
        for mode in modes:
            (rate_c, cpu_c), (rate_w, cpu_w) = middle["checkout", mode], middle["waypost", mode]
            line = f"{mode}: {rate_w / rate_c:.3f} x the checkout's rate (wanted {BESIDE_TARGET}), median of the pairs "
            paired = pairs(runs, "waypost", "checkout", mode)
            lines.append(line + f"{paired:.3f}, {cpu_w / cpu_c:.2f} x its CPU")
    for name in [each for each in names if each.endswith(" shards") and "waypost" in names]:
        for mode in modes:
            (rate_s, cpu_s), (rate_w, cpu_w) = middle[name, mode], middle["waypost", mode]
            line = f"{mode}: with {name} {rate_s / rate_w:.2f} x the rate of one, {cpu_s / cpu_w:.2f} x its CPU"
            lines.append(f"{line} (wanted {SHARDS_TARGET})")
    for name, what in FEATURES.items():
        if not {name, "waypost"} <= set(names):
            continue
        for mode in modes:
            (rate_f, cpu_f), (rate_w, cpu_w) = middle[name, mode], middle["waypost", mode]
            line = f"{mode}: with {what} {rate_f / rate_w:.2f} x the rate without, {cpu_f / cpu_w:.2f} x its CPU"
            lines.append(f"{line} ({cpu_f - cpu_w:+.2f} ms a message)")
    if Direct.name in names:
        for mode in modes:
            rate = middle[Direct.name, mode][0]
            others = [name for name in names if name != Direct.name]
            lines += [
                f"{mode}: {name} {middle[name, mode][0] / rate:.0%} of the rate without a relay" for name in others
            ]
    if copies := [run for run in runs if run.relay == "copy"]:
        rate, _ = medians(copies)
        lines.append(f"copied through loopback and disk alone: {rate:.0f} messages a second")
        for mode in modes:
            lines += [f"{mode}: {name} {middle[name, mode][0] / rate:.0%} of that" for name in names]
    return lines + turns.disturbed()


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    options = parser("relay", __doc__, rounds=5, messages=10_000)
    options.add_argument("--beside", type=Path, metavar="CHECKOUT", help="another state of Waypost as well, in turn")
    options.add_argument("--milter", action="store_true", help="Waypost with one milter that accepts all, in turn")
    options.add_argument("--dkim", action="store_true", help="Waypost that signs each message (RSA-2048), in turn")
    options.add_argument("--copy", action="store_true", help="a plain copy through loopback and disk, in turn")
    options.add_argument("--direct", action="store_true", help="the source and the sink without a relay, in turn")
    options.add_argument(
        "--inline-limit", type=int, nargs="+", metavar="BYTES", help="Waypost with each of these, in turn"
    )
    options.add_argument("--shards", type=int, nargs="+", metavar="N", help="Waypost with as many queues, in turn")
    options.add_argument("--mode", choices=tuple(MODES), help="leave the other out")
    options.add_argument("--recipients", type=int, default=1, help="of a message, all in one domain")
    options.add_argument("--sessions", type=int, default=20)
    options.add_argument("--no-syncs", action="store_true", help="leave the strace runs out")
    return parse(options, argv, short=1_000)


def with_shards(directory: Path, next_port: int, shards: int) -> Waypost:
    """Returns a Waypost with as many queues."""
    return Waypost(directory, next_port, f"[core]\nshards = {shards}", name=f"{shards} shards")


def _relays(given: argparse.Namespace, directory: Path, next_port: int) -> dict[str, Mta]:
    kinds = [kind for kind in (Postfix, Waypost) if given.only is None or kind.name in given.only]
    relays: list[Mta] = [kind(directory, next_port) for kind in kinds]
    if given.beside is not None:
        relays.append(Waypost(directory, next_port, checkout=given.beside.resolve()))
    if given.milter:
        relays.append(WaypostWithMilter(directory, next_port))
    if given.dkim:
        relays.append(WaypostThatSigns(directory, next_port, SENDER_DOMAIN))
    for limit in given.inline_limit or ():
        name = f"limit {limit >> 10}k"
        relays.append(Waypost(directory, next_port, f"[queue]\ninline_limit = {limit}", name=name))
    relays += [with_shards(directory, next_port, shards) for shards in given.shards or ()]
    if given.direct:
        relays.append(Direct(directory, next_port))
    return {relay.name: relay for relay in relays}


def _measure_all(given: argparse.Namespace, modes: Sequence[str], directory: Path, turns: Turns) -> list[str]:
    """Measures everything; returns the names of the relays."""
    source = Source(sessions=given.sessions, size_bytes=given.size, recipients=given.recipients)
    with warm(source, directory, modes, given.messages, lambda port: _relays(given, directory, port)) as (relays, run):
        for mode in modes:

            def one(name: str, mode: str = mode) -> Run:
                if name == "copy":
                    return copy(directory, given.size, given.messages)
                return run(relays[name], mode, given.messages)

            turns.take([*relays, *(["copy"] if given.copy else [])], given.rounds, one)
        if not given.no_syncs:
            turns.count_syncs(
                {name: relay for name, relay in relays.items() if name != Direct.name},
                directory,
                given.messages,
                modes,
                lambda _, relay, mode, many: run(relay, mode, many),
            )
    return list(relays)


def main(argv: Sequence[str] | None = None) -> int:
    """Measures and prints; returns the exit status."""
    given = _arguments(argv)
    modes = [given.mode] if given.mode else list(MODES)
    if missing := refusal(given.directory, given.only):
        print(f"bench.relay: {missing}", file=sys.stderr)
        return 1
    turns = Turns()
    with work_directory("relay", given.directory, own_disk=given.own_disk) as directory:
        names = _measure_all(given, modes, directory, turns)
    print(
        f"{os.cpu_count()} cores, {file_system(given.directory)}, {given.sessions} sessions, {given.size} bytes, "
        f"{given.recipients} recipients, {given.rounds} runs of {given.messages} messages each, medians"
    )
    print("\n".join(report(turns, names, modes)))
    turns.write(given.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
