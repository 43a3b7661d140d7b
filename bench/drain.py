"""Measures how fast deferred mail leaves after a flush, beside Postfix: ``python -m bench.drain [--messages N]``.

The next hop answers 450 to each RCPT until all messages are deferred, and takes everything from then on. The clock runs from
the command that makes all mail due (``postqueue -f``, ``waypost queue retry --all-matching``) until the **last message is at
the sink**; CPU counts all processes of the relay until SETTLE_S after that. Postfix and Waypost take turns, in reverse order
every second round.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.load import Sink, Source
from bench.mta import Mta, Postfix, Waypost, waypost_command
from bench.processes import wait_until
from bench.relay import SETTLE_S
from bench.storm import Deferrals

__all__ = ["main"]


def flush(relay: Mta) -> None:
    """Makes all deferred mail due."""
    if isinstance(relay, Postfix):
        command = ["postqueue", "-c", str(relay.settings), "-f"]
    else:
        assert isinstance(relay, Waypost)
        command = [*waypost_command(), "queue", "retry", "--all-matching", "--yes", "--config", str(relay.config)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def measure(
    relay: Mta, directory: Path, port: int, seen: Deferrals, source: Source, messages: int
) -> tuple[float, float]:
    """Returns messages a second and ms of CPU for each. Raises TimeoutError."""
    timeout_s = 60 + messages * 0.05
    before = seen.look()
    refusing = Sink(directory, "-r", "RCPT", port=port)
    refusing.start()
    try:
        source.run(relay.port, messages, keep=True, timeout_s=timeout_s)
        wait_until(lambda: seen.look() >= before + messages, f"{messages} deferrals of {relay.name}", timeout_s)
    finally:
        refusing.stop()
    time.sleep(SETTLE_S)
    taking = Sink(directory, port=port)
    taking.start()
    try:
        cpu_before = relay.cpu_s()
        begun = time.monotonic()
        flush(relay)
        wait_until(
            lambda: taking.messages() >= messages, f"{messages} messages from {relay.name}", timeout_s, poll_s=0.01
        )
        seconds = time.monotonic() - begun
        time.sleep(SETTLE_S)
        return messages / seconds, (relay.cpu_s() - cpu_before) * 1000 / messages
    finally:
        taking.stop()


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.drain", description=__doc__.partition("\n")[0])
    parser.add_argument("--short", action="store_true", help="one round of 500 messages: a quick check, no result")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--messages", type=int, default=3_000, help="of one run")
    parser.add_argument("--size", type=int, default=4096, help="bytes of a message")
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
            print(f"bench.drain: {missing}", file=sys.stderr)
            return 1
    source = Source(size_bytes=arguments.size)
    runs: dict[str, list[tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory(prefix="bench-drain-", dir=arguments.directory) as name:
        directory = Path(name)
        directory.chmod(0o755)  # Postfix's daemons give up root and must get in
        port = Sink(directory).port
        relays: dict[str, tuple[Mta, Deferrals]] = {
            "postfix": (
                Postfix(directory, port),
                Deferrals(directory / "postfix/log/mail.log", b"status=deferred"),
            ),
            "waypost": (
                Waypost(directory, port),
                Deferrals(directory / "waypost/log/mail.jsonl", b'"status":"deferred"'),
            ),
        }
        try:
            for relay, seen in relays.values():
                relay.start()
                measure(relay, directory, port, seen, source, 100)
            for number in range(arguments.rounds):
                for kind, (relay, seen) in list(relays.items())[:: 1 if number % 2 == 0 else -1]:
                    run = measure(relay, directory, port, seen, source, arguments.messages)
                    runs.setdefault(kind, []).append(run)
                    print(f"{number + 1} {kind}: {run[0]:.0f} msg/s, {run[1]:.2f} ms CPU", file=sys.stderr, flush=True)
        finally:
            for relay, _ in relays.values():
                relay.stop()
    rates = {kind: statistics.median(rate for rate, _ in those) for kind, those in runs.items()}
    costs = {kind: statistics.median(cpu for _, cpu in those) for kind, those in runs.items()}
    print(
        f"{arguments.size} bytes, {arguments.rounds} runs of {arguments.messages}, medians, from the flush to the sink"
    )
    for kind in relays:
        beside = f"{rates[kind] / rates['postfix']:.2f} x Postfix, {costs[kind] / costs['postfix']:.2f} x its CPU"
        print(f"{kind:8} {rates[kind]:7.0f} msg/s {costs[kind]:6.2f} ms CPU   {beside}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
