"""Measures deferrals, beside Postfix: ``python -m bench.storm [--messages N] [--size BYTES]``.

The next hop answers 450 to each RCPT. Postfix, Waypost with deferred data in spool files (``carry_limit = 0``) and Waypost with
its defaults take turns (bench.turns); with ``--only``, so does Waypost that refers to no data (``refer_deferred = false``).
The clock runs from the start of the source until the **last message is logged as deferred**.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bench.deferrals import Deferrals
from bench.load import Sink, Source
from bench.mta import Postfix, Waypost
from bench.processes import wait_until
from bench.turns import Meter, Run, Turns, parse, parser, refusal, table, work_directory

__all__ = ["main"]

SETTINGS = {"spool": "carry_limit = 0", "carried": "refer_deferred = false", "waypost": ""}  # of Waypost, in [queue]
KINDS = ("postfix", "spool", "waypost")


class Storm:
    """The relays and the next hop that defers everything."""

    def __init__(self, directory: Path, names: Sequence[str], source: Source, mode: str, more: str) -> None:
        self._source, self._mode = source, mode
        self.sink = Sink(directory, "-r", "RCPT")
        self.relays: dict[str, Postfix | Waypost] = {}
        for name in names:
            below = directory / name
            below.mkdir()
            below.chmod(0o755)
            port = self.sink.port
            if name == "postfix":
                self.relays[name] = Postfix(below, port)
            else:
                self.relays[name] = Waypost(below, port, f"[queue]\n{SETTINGS[name]}\n{more}")
        self._seen = {name: Deferrals(relay) for name, relay in self.relays.items()}

    def measure(self, name: str, messages: int) -> Run:
        """Makes one run. Raises TimeoutError."""
        relay, seen = self.relays[name], self._seen[name]
        before, timeout_s = seen.look(), 60 + messages * 0.05
        meter = Meter(name, relay, self.sink)
        begun = time.monotonic()
        self._source.run(relay.port, messages, keep=self._mode == "persistent", timeout_s=timeout_s)
        wait_until(lambda: seen.look() >= before + messages, f"{messages} deferrals of {name}", timeout_s, poll_s=0.01)
        return meter.run(self._mode, messages, time.monotonic() - begun)


def main(argv: Sequence[str] | None = None) -> int:
    """Measures and prints; returns the exit status."""
    options = parser("storm", __doc__, rounds=4, messages=3_000)
    options.add_argument("--reconnecting", action="store_true", help="a connection for each message")
    options.add_argument("--no-syncs", action="store_true", help="leave the strace runs out")
    options.add_argument("--inline-limit", type=int, metavar="BYTES", help="of Waypost, instead of its default")
    given = parse(options, argv, short=500)
    names = list(KINDS) if given.only is None else [name for name in (KINDS[0], *SETTINGS) if name in given.only]
    more = f"inline_limit = {given.inline_limit}" if given.inline_limit else ""
    if missing := refusal(given.directory, names):
        print(f"bench.storm: {missing}", file=sys.stderr)
        return 1
    turns, mode = Turns(), "reconnecting" if given.reconnecting else "persistent"
    with work_directory("storm", given.directory, own_disk=given.own_disk) as directory:
        storm = Storm(directory, names, Source(size_bytes=given.size), mode, more)
        storm.sink.start()
        try:
            for name, relay in storm.relays.items():
                relay.start()
                storm.measure(name, 200)
            turns.take(names, given.rounds, lambda name: storm.measure(name, given.messages))
            if not given.no_syncs:
                turns.count_syncs(
                    storm.relays, directory, given.messages, [mode], lambda name, _, __, many: storm.measure(name, many)
                )
        finally:
            for relay in storm.relays.values():
                relay.stop()
            storm.sink.stop()
    print(f"{given.size} bytes, {given.rounds} runs of {given.messages}, medians, to the last deferral logged")
    print("\n".join(table(turns, names)))
    turns.write(given.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
