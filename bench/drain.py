"""Measures how fast deferred mail leaves after a flush, beside Postfix: ``python -m bench.drain [--messages N]``.

The next hop answers 450 to each RCPT until all messages are deferred, and takes everything from then on. The clock runs from
the command that makes all mail due (``postqueue -f``, ``waypost queue retry --all-matching``) until the **last message is at
the sink**. Postfix and Waypost take turns (bench.turns).
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bench.deferrals import Deferrals
from bench.load import Sink, Source
from bench.mta import Postfix, Waypost, waypost_command
from bench.processes import wait_until
from bench.turns import SETTLE_S, Meter, Run, Turns, parse, parser, refusal, table, work_directory

__all__ = ["main"]

KINDS = {"postfix": Postfix, "waypost": Waypost}


def flush(relay: Postfix | Waypost) -> None:
    """Makes all deferred mail due."""
    if isinstance(relay, Postfix):
        command = ["postqueue", "-c", str(relay.settings), "-f"]
    else:
        command = [*waypost_command(), "queue", "retry", "--all-matching", "--yes", "--config", str(relay.config)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


class Drain:
    """The relays, and the port of a next hop that defers everything first and then takes it."""

    def __init__(self, directory: Path, names: Sequence[str], source: Source) -> None:
        self._directory, self._source = directory, source
        self._port = Sink(directory).port
        self.relays = {name: KINDS[name](directory, self._port) for name in names}
        self._seen = {name: Deferrals(relay) for name, relay in self.relays.items()}

    def _defer(self, name: str, messages: int, timeout_s: float) -> None:
        relay, seen = self.relays[name], self._seen[name]
        before = seen.look()
        refusing = Sink(self._directory, "-r", "RCPT", port=self._port)
        refusing.start()
        try:
            self._source.run(relay.port, messages, keep=True, timeout_s=timeout_s)
            wait_until(lambda: seen.look() >= before + messages, f"{messages} deferrals of {name}", timeout_s)
        finally:
            refusing.stop()
        time.sleep(SETTLE_S)

    def measure(self, name: str, messages: int) -> Run:
        """Makes one run. Raises TimeoutError."""
        timeout_s = 60 + messages * 0.05
        self._defer(name, messages, timeout_s)
        taking = Sink(self._directory, port=self._port)
        taking.start()
        try:
            meter = Meter(name, self.relays[name], taking)
            begun = time.monotonic()
            flush(self.relays[name])
            wait_until(
                lambda: taking.messages() >= messages, f"{messages} messages from {name}", timeout_s, poll_s=0.01
            )
            return meter.run("", messages, time.monotonic() - begun)
        finally:
            taking.stop()


def main(argv: Sequence[str] | None = None) -> int:
    """Measures and prints; returns the exit status."""
    given = parse(parser("drain", __doc__, rounds=4, messages=3_000), argv, short=500)
    names = [name for name in KINDS if given.only is None or name in given.only]
    if missing := refusal(given.directory, names):
        print(f"bench.drain: {missing}", file=sys.stderr)
        return 1
    turns = Turns()
    with work_directory("drain", given.directory, own_disk=given.own_disk) as directory:
        drain = Drain(directory, names, Source(size_bytes=given.size))
        try:
            for name, relay in drain.relays.items():
                relay.start()
                drain.measure(name, 100)
            turns.take(names, given.rounds, lambda name: drain.measure(name, given.messages))
        finally:
            for relay in drain.relays.values():
                relay.stop()
    print(f"{given.size} bytes, {given.rounds} runs of {given.messages}, medians, from the flush to the sink")
    print("\n".join(table(turns, names)))
    turns.write(given.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
