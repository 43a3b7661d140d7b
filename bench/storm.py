"""Measures deferrals, beside Postfix: ``python -m bench.storm [--messages N] [--size BYTES]``.

The next hop answers 450 to each RCPT. Postfix, Waypost with deferred data in spool files (``carry_limit = 0``) and Waypost with
its defaults take turns, in reverse order every second round. The clock runs from the start of the source until the **last
message is logged as deferred**; CPU counts all processes until SETTLE_S after that. Syncs come from a shorter run of their own
under strace.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.load import Sink, Source
from bench.mta import Mta, Postfix, Waypost
from bench.processes import SYNC_CALLS, Trace, wait_until
from bench.relay import SETTLE_S

__all__ = ["main"]

SPOOL = "[queue]\ncarry_limit = 0"
BLOCK_BYTES = 1 << 20


class Deferrals:
    """Counts the lines of a log file that tell of a deferral."""

    def __init__(self, path: Path, text: bytes) -> None:
        self._path, self._text = path, text
        self._at = 0
        self.count = 0

    def look(self) -> int:
        """Reads what was added; returns the count."""
        if not self._path.exists():
            return 0
        with self._path.open("rb") as file:
            file.seek(self._at)
            while block := file.read(BLOCK_BYTES):
                whole = block[: block.rfind(b"\n") + 1]
                if not whole:
                    break
                self.count += whole.count(self._text)
                self._at += len(whole)
                file.seek(self._at)
        return self.count


def measure(relay: Mta, seen: Deferrals, source: Source, messages: int, *, keep: bool) -> tuple[float, float]:
    """Returns messages a second and ms of CPU for each. Raises TimeoutError."""
    before, cpu_before = seen.look(), relay.cpu_s()
    timeout_s = 60 + messages * 0.05
    begun = time.monotonic()
    source.run(relay.port, messages, keep=keep, timeout_s=timeout_s)
    wait_until(
        lambda: seen.look() >= before + messages, f"{messages} deferrals of {relay.name}", timeout_s, poll_s=0.01
    )
    seconds = time.monotonic() - begun
    time.sleep(SETTLE_S)
    return messages / seconds, (relay.cpu_s() - cpu_before) * 1000 / messages


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.storm", description=__doc__.partition("\n")[0])
    parser.add_argument("--short", action="store_true", help="one round of 500 messages: a quick check, no result")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--messages", type=int, default=3_000, help="of one run")
    parser.add_argument("--size", type=int, default=4096, help="bytes of a message")
    parser.add_argument("--reconnecting", action="store_true", help="a connection for each message")
    parser.add_argument("--no-syncs", action="store_true", help="leave the strace runs out")
    parser.add_argument("--directory", type=Path, default=Path("/var/tmp"), help="the queues lie below; no tmpfs")
    arguments = parser.parse_args(argv)
    if arguments.short:
        arguments.rounds, arguments.messages = 1, 500
    return arguments


def main(argv: Sequence[str] | None = None) -> int:
    """Measures and prints; returns the exit status."""
    arguments = _arguments(argv)
    for missing in (Sink.missing(), Postfix.missing(), Waypost.missing()):
        if missing:
            print(f"bench.storm: {missing}", file=sys.stderr)
            return 1
    source = Source(size_bytes=arguments.size)
    runs: dict[str, list[tuple[float, float]]] = {}
    syncs: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="bench-storm-", dir=arguments.directory) as name:
        directory = Path(name)
        directory.chmod(0o755)  # Postfix's daemons give up root and must get in
        for each in ("spool", "carried"):
            (directory / each).mkdir()
        sink = Sink(directory, "-r", "RCPT")
        sink.start()
        relays: dict[str, Mta] = {
            "postfix": Postfix(directory, sink.port),
            "spool": Waypost(directory / "spool", sink.port, SPOOL),
            "carried": Waypost(directory / "carried", sink.port),
        }
        seen = {
            "postfix": Deferrals(directory / "postfix/log/mail.log", b"status=deferred"),
            "spool": Deferrals(directory / "spool/waypost/log/mail.jsonl", b'"status":"deferred"'),
            "carried": Deferrals(directory / "carried/waypost/log/mail.jsonl", b'"status":"deferred"'),
        }
        try:
            for kind, relay in relays.items():
                relay.start()
                measure(relay, seen[kind], source, 200, keep=True)
            for number in range(arguments.rounds):
                for kind, relay in list(relays.items())[:: 1 if number % 2 == 0 else -1]:
                    run = measure(relay, seen[kind], source, arguments.messages, keep=not arguments.reconnecting)
                    runs.setdefault(kind, []).append(run)
                    print(f"{number + 1} {kind}: {run[0]:.0f} msg/s, {run[1]:.2f} ms CPU", file=sys.stderr, flush=True)
            for kind, relay in relays.items():
                relay.stop()
                if arguments.no_syncs:
                    continue
                trace = Trace(directory / f"{kind}.strace", SYNC_CALLS)
                relay.start(trace)
                time.sleep(SETTLE_S)
                before, many = trace.total(), min(1_000, arguments.messages)
                measure(relay, seen[kind], source, many, keep=True)
                syncs[kind] = (trace.total() - before) / many
                relay.stop()
        finally:
            for relay in relays.values():
                relay.stop()
            sink.stop()
    rates = {kind: statistics.median(rate for rate, _ in those) for kind, those in runs.items()}
    costs = {kind: statistics.median(cpu for _, cpu in those) for kind, those in runs.items()}
    print(
        f"{arguments.size} bytes, {arguments.rounds} runs of {arguments.messages}, medians, to the last deferral logged"
    )
    for kind in relays:
        beside = f"{rates[kind] / rates['postfix']:.2f} x Postfix, {costs[kind] / costs['postfix']:.2f} x its CPU"
        a_message = f"{syncs[kind]:.2f}" if kind in syncs else "-"
        print(f"{kind:8} {rates[kind]:7.0f} msg/s {costs[kind]:6.2f} ms CPU {a_message:>6} syncs a message   {beside}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
