"""How long a restart takes with N messages queued: ``python -m bench.restart [--short] [--counts 10000 1000000]``.

For each N a queue is filled by the engine's own writers (bench.fill). Then they are started in turn, several times: each
start follows a SIGKILL of all processes at once. Measured from the start: seconds until a client has its first 250 for a
message, and until the first of the waiting (deferred) messages is at the next hop; then the memory of all processes. The
bytes read from the queue until that delivery come from restarts of their own, under strace. With ``--load`` mail comes in at
each kill, so that recovery has more to bring in order: that part depends on the load and not on N.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec

from bench.fill import SENDER, fill
from bench.load import Source
from bench.mta import Waypost
from bench.processes import READ_CALLS, Memory, Trace, end_group, free_port, listening, memory, wait_until
from bench.submit import submit
from mailcore.lab.arrival import Arrival

__all__ = ["Restarted", "main"]

WANTED = 1.2  # wanted: a million over ten thousand
LOAD_MESSAGES = 2_000
LOAD_BEFORE_KILL_S = 0.7
SETTLE_S = 3.0  # from the first delivery until memory is read; a few checkpoints
PATIENCE_S = 120.0


@dataclass(frozen=True, slots=True)
class Restarted:
    """One restart."""

    queued: int
    first_250_s: float
    first_deferred_s: float
    bytes_read: int = 0  # from the queue and the spool, until the first deferred delivery; 0 when not traced


class NextHop:
    """The lab in a process of its own; what arrives is read from its event file."""

    def __init__(self, directory: Path) -> None:
        self.port = free_port()
        self._events = directory / "arrivals.jsonl"
        self._events.touch()
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", "mailcore.lab.main", "--hop", f"accept:127.0.0.1:{self.port}"),
                *("--events", str(self._events), "--no-ledger"),
            ],
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._decode = msgspec.json.Decoder(Arrival).decode
        wait_until(lambda: listening(self.port), "the lab's greeting")

    def stop(self) -> None:
        end_group(self._process)

    def here(self) -> int:
        """A place in the events: what comes later is behind it."""
        return self._events.stat().st_size

    def first_deferred(self, place: int, timeout_s: float) -> float:
        """Wall-clock time of the first filled message that arrived behind ``place``. Raises TimeoutError."""
        found: list[float] = []

        def look() -> bool:
            with self._events.open("rb") as events:
                events.seek(place)
                for line in events:
                    if line.endswith(b"\n") and (arrival := self._decode(line)).sender == SENDER:
                        found.append(arrival.at)
                        return True
            return False

        wait_until(look, "a deferred delivery", timeout_s, poll_s=0.01)
        return found[0]


class Queue:
    """One filled queue and the appliance on it, dead or alive."""

    def __init__(self, directory: Path, queued: int, *, carried: bool) -> None:
        directory.mkdir()
        self.queued = queued
        self._hop = NextHop(directory)
        self._trace = directory / "reads.strace"
        try:
            self._waypost = Waypost(directory, self._hop.port)
            begun = time.monotonic()
            fill(self._waypost.home, queued, f"smtp:[127.0.0.1]:{self._hop.port}", carried=carried)
            say(f"{queued}: filled in {time.monotonic() - begun:.0f} s")
        except BaseException:
            self._hop.stop()
            raise

    def restart(self, *, traced: bool = False) -> Restarted:
        """Starts what was killed. Raises TimeoutError."""
        trace = Trace(self._trace, READ_CALLS) if traced else None
        place = self._hop.here()
        begun = time.time()
        self._waypost.launch(trace)
        first_250 = submit(self._waypost.port, PATIENCE_S)
        deferred_at = self._hop.first_deferred(place, PATIENCE_S)
        time.sleep(SETTLE_S)
        read = trace.bytes_read(self._waypost.home, deferred_at) if trace is not None else 0
        return Restarted(self.queued, first_250 - begun, deferred_at - begun, read)

    def memory(self) -> Memory:
        return memory(self._waypost.pid)

    def kill(self, *, load: bool = False) -> None:
        """SIGKILL of everything at once, ``load``: in the middle of incoming mail."""
        source = threading.Thread(target=self._load) if load else None
        if source is not None:
            source.start()
            time.sleep(LOAD_BEFORE_KILL_S)
        self._waypost.kill()
        if source is not None:
            source.join()

    def close(self) -> None:
        self._waypost.kill()
        self._hop.stop()

    def _load(self) -> None:
        # Its connections are cut, which is the point.
        with contextlib.suppress(subprocess.CalledProcessError, subprocess.TimeoutExpired):
            Source(sessions=20).run(self._waypost.port, LOAD_MESSAGES, keep=True, timeout_s=60, quiet=True)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def measure(
    queues: list[Queue], rounds: int, under_strace: int, *, load: bool
) -> tuple[dict[int, list[Restarted]], dict[int, Memory]]:
    """All restarts by N, the traced ones last, and memory after the last timed one."""
    runs: dict[int, list[Restarted]] = {queue.queued: [] for queue in queues}
    used: dict[int, Memory] = {}
    for number in range(-1, rounds + under_strace):  # the first start follows no kill and counts for nothing
        for queue in queues:
            traced = number >= rounds
            run = queue.restart(traced=traced)
            if not traced:
                used[queue.queued] = queue.memory()
            queue.kill(load=load)
            if number < 0:
                continue
            runs[queue.queued].append(run)
            say(
                f"{queue.queued} {number + 1}/{rounds + under_strace}: first 250 after {run.first_250_s:.2f} s, first deferred "
                f"delivery after {run.first_deferred_s:.2f} s" + (f", {run.bytes_read:,} bytes read" if traced else "")
            )
    return runs, used


def _line(name: str, values: list[float], form: str) -> str:
    """Values side by side, and the last over the first."""
    ratio = f"{values[-1] / values[0]:8.2f}" if values[0] else "       -"
    return f"{name:34}" + "".join(f"{value:>14{form}}" for value in values) + ratio


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.restart", description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--short", action="store_true", help="10 000 and 20 000 messages, one round: a quick check, no result"
    )
    parser.add_argument("--counts", type=int, nargs="+", default=[10_000, 1_000_000])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--traced", type=int, default=3, metavar="N", help="restarts under strace, at least one")
    parser.add_argument("--carried", action="store_true", help="the data in the log, as of deferred mail up to 16 kB")
    parser.add_argument("--load", action="store_true", help="kill in the middle of incoming mail")
    parser.add_argument("--directory", type=Path, default=Path("/var/tmp"), help="a million need about 5 GB")
    parser.add_argument("--json", type=Path, metavar="FILE")
    arguments = parser.parse_args(argv)
    if arguments.short:
        arguments.counts, arguments.rounds = [10_000, 20_000], 1
    return arguments


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _arguments(argv)
    if missing := Waypost.missing():
        print(f"bench.restart: {missing}", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="bench-restart-", dir=arguments.directory) as name, ExitStack() as stack:
        queues: list[Queue] = []
        for queued in sorted(arguments.counts, reverse=True):  # the big one first: what is due begins when it is filled
            queues.insert(0, Queue(Path(name) / str(queued), queued, carried=arguments.carried))
            stack.callback(queues[0].close)
        runs, used = measure(queues, arguments.rounds, arguments.traced, load=arguments.load)
    counts = sorted(arguments.counts)
    how = "in the middle of incoming mail" if arguments.load else "without incoming mail"
    print(f"kill -9 {how} and start again, medians of {arguments.rounds}; the last over the first, wanted <= {WANTED}")
    print(f"{'messages queued':34}" + "".join(f"{queued:>14,}" for queued in counts) + "   ratio")
    timed = [[run for run in runs[queued] if not run.bytes_read] for queued in counts]
    traced = [[run.bytes_read for run in runs[queued] if run.bytes_read] for queued in counts]
    print(_line("first 250, s", [statistics.median(run.first_250_s for run in some) for some in timed], ".2f"))
    deferred = [statistics.median(run.first_deferred_s for run in some) for some in timed]
    print(_line("first deferred delivery, s", deferred, ".2f"))
    print(_line("bytes read until then", [float(statistics.median(some)) for some in traced], ",.0f"))
    print(_line("memory of all processes, PSS, MB", [used[queued].pss / 1e6 for queued in counts], ".1f"))
    print(_line("the same, RSS, MB", [used[queued].rss / 1e6 for queued in counts], ".1f"))
    if arguments.json is not None:
        lines = [
            {"queued": queued, "runs": [asdict(run) for run in runs[queued]], "memory": asdict(used[queued])}
            for queued in counts
        ]
        arguments.json.write_text(json.dumps(lines, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
