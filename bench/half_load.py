"""Measures how long a message takes at half load, beside Postfix: ``python -m bench.half_load [--short]``.

The highest rate of each relay is measured first, to the last message at the sink. Then mail arrives at a steady rate, and each
message is timed from the moment its MAIL command was due to its final dot at the next hop: once with both at half of the rate
that Postfix relays, once with each at half of its own. Clients keep their connections. A client that waits for a server which
has fallen behind counts as waiting. The relays take turns; of each run p50, p99 and the worst are shown.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import cast

import uvloop

from bench.load import Source
from bench.mta import Mta, Postfix, Waypost
from bench.processes import cpu_s, free_port, listening, machine_cpu_s, own_cpu_s, wait_until
from bench.turns import FOREIGN_MAX, SETTLE_S, refusal, work_directory

__all__ = ["main"]

LOADS = ("of Postfix", "its own")  # half of whose highest rate
WARM_S = 2.0  # of each run, not counted: Postfix starts processes
LATE_S = 60.0  # patience for the last message of a run
KEEP_MAX = 1 << 20  # arrivals the next hop remembers


@dataclass(frozen=True, slots=True)
class Timed:
    """One run."""

    relay: str
    load: str  # of LOADS
    rate: float  # messages a second that were asked for
    messages: int
    lost: int  # that did not arrive in time
    p50_ms: float
    p99_ms: float
    worst_ms: float
    foreign: float  # share of the machine that went to none of ours


# -- the next hop, in a process of its own


class _Hop(asyncio.Protocol):
    """Answers as little as it can, and remembers when the final dot of each message came, with its recipient's number."""

    def __init__(self, arrived: list[tuple[int, float]]) -> None:
        self._arrived = arrived
        self._buffer = b""
        self._number = -1
        self._in_data = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's own class is none
        self._transport.write(b"220 hop.example\r\n")

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while True:
            end = b"\r\n.\r\n" if self._in_data else b"\r\n"
            part, found, rest = self._buffer.partition(end)
            if not found:
                return
            self._buffer = rest
            if self._in_data:
                self._in_data = False
                if len(self._arrived) < KEEP_MAX:
                    self._arrived.append((self._number, time.monotonic()))
                self._transport.write(b"250 ok\r\n")
            else:
                self._command(part)

    def _command(self, line: bytes) -> None:
        verb = line[:4].upper()
        if verb == b"EHLO":
            return self._transport.write(b"250-hop.example\r\n250 PIPELINING\r\n")
        if verb == b"RCPT":
            self._number = int(line.partition(b"<p")[2].partition(b"@")[0] or -1)
        if verb == b"DATA":
            self._in_data = True
            return self._transport.write(b"354 go\r\n")
        self._transport.write(b"221 bye\r\n" if verb == b"QUIT" else b"250 ok\r\n")
        return self._transport.close() if verb == b"QUIT" else None


def _serve(port: int, pipe: Connection) -> None:
    """Serves until the pipe ends. To "count" it answers how many messages arrived, to "tell" all of them, which it forgets."""
    arrived: list[tuple[int, float]] = []

    async def serve() -> None:
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        await loop.create_server(lambda: _Hop(arrived), "127.0.0.1", port, backlog=1000)

        def asked() -> None:
            try:
                question = pipe.recv()
            except EOFError:
                return ended.set()
            os.set_blocking(
                pipe.fileno(), True
            )  # the loop has changed that: a long list does not fit into the pipe at once
            pipe.send(len(arrived) if question == "count" else arrived)
            return arrived.clear() if question == "tell" else None

        loop.add_reader(pipe.fileno(), asked)
        await ended.wait()

    uvloop.run(serve())


# -- the clients, in another


async def _session(port: int, due: asyncio.Queue[tuple[int, float] | None], message: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    await reader.readline()
    writer.write(b"EHLO client.example\r\n")
    while (await reader.readline())[3:4] == b"-":
        pass
    while (item := await due.get()) is not None:
        for line in (b"MAIL FROM:<load@sender.example>\r\n", b"RCPT TO:<p%d@example.org>\r\n" % item[0], b"DATA\r\n"):
            writer.write(line)
            await reader.readline()
        writer.write(message)
        if not (reply := await reader.readline()).startswith(b"250"):
            raise RuntimeError(f"not accepted: {reply!r}")
    writer.close()


async def _send(port: int, rate: float, seconds: float, sessions: int, size: int) -> list[float]:
    """Sends at a steady rate; returns when each MAIL was due, on the monotonic clock."""
    due: asyncio.Queue[tuple[int, float] | None] = asyncio.Queue()
    message = b"Subject: load\r\n\r\n" + (b"x" * 70 + b"\r\n") * (size // 72) + b".\r\n"
    times: list[float] = []
    async with asyncio.TaskGroup() as group:
        for _ in range(sessions):
            group.create_task(_session(port, due, message))
        await asyncio.sleep(0.5)
        begun = time.monotonic()
        for number in range(int(rate * seconds)):
            at = begun + number / rate
            if (early := at - time.monotonic()) > 0:
                await asyncio.sleep(early)
            times.append(at)
            due.put_nowait((number, at))
        for _ in range(sessions):
            due.put_nowait(None)
    return times


def _send_all(port: int, rate: float, given: argparse.Namespace, answer: Connection) -> None:
    answer.send(uvloop.run(_send(port, rate, WARM_S + given.seconds, given.sessions, given.size)))


# -- the measurement


def measure(relay: Mta, load: str, rate: float, hop: Hop, given: argparse.Namespace) -> Timed:
    """Makes one run. Raises RuntimeError if mail was not accepted."""
    context = multiprocessing.get_context("fork")
    got, give = context.Pipe(duplex=False)
    known, busy, begun = relay.cpu_s() + hop.cpu_s() + own_cpu_s(), machine_cpu_s(), time.monotonic()
    sender = context.Process(target=_send_all, args=(relay.port, rate, given, give), daemon=True)
    sender.start()
    give.close()
    try:
        due = got.recv()
    except EOFError:
        raise RuntimeError(f"{relay.name} did not accept all of {rate:.0f} messages a second") from None
    sender.join()
    end = time.monotonic() + LATE_S
    while hop.count() < len(due) and time.monotonic() < end:
        time.sleep(0.05)
    arrived = hop.take()
    now = time.monotonic()
    used = relay.cpu_s() + hop.cpu_s() + own_cpu_s() - known
    foreign = max(0.0, (machine_cpu_s() - busy - used) / ((now - begun) * (os.cpu_count() or 1)))
    counted = range(int(rate * WARM_S), len(due))
    waits = sorted((arrived.get(number, now) - due[number]) * 1000 for number in counted)
    lost = sum(number not in arrived for number in counted)
    p50, p99 = (waits[int(len(waits) * share)] for share in (0.5, 0.99))
    return Timed(relay.name, load, rate, len(waits), lost, p50, p99, waits[-1], foreign)


class Hop:
    """The next hop's process."""

    def __init__(self) -> None:
        self.port = free_port()
        context = multiprocessing.get_context("fork")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(self.port, theirs), daemon=True)
        self._process.start()
        theirs.close()
        wait_until(lambda: listening(self.port), "the next hop's greeting")

    def cpu_s(self) -> float:
        """Returns the CPU time of its process."""
        assert self._process.pid is not None
        return cpu_s(self._process.pid)

    def count(self) -> int:
        """Returns how many messages arrived since the last ``take``."""
        self._pipe.send("count")
        return int(self._pipe.recv())

    def take(self) -> dict[int, float]:
        """Returns when each message first arrived, by its number, and forgets them."""
        self._pipe.send("tell")
        return dict(reversed(self._pipe.recv()))

    def stop(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.join()


def highest(relay: Mta, hop: Hop, messages: int, source: Source) -> float:
    """Returns the messages a second that a relay relays over kept connections; the median of three runs."""
    rates = []
    for _ in range(3):
        begun = time.monotonic()
        source.run(relay.port, messages, keep=True, timeout_s=300)
        wait_until(lambda: hop.count() >= messages, f"{messages} messages from {relay.name}", 300, poll_s=0.01)
        rates.append(messages / (time.monotonic() - begun))
        hop.take()
        time.sleep(SETTLE_S)
    return statistics.median(rates)


def _rates(given: argparse.Namespace, relays: Sequence[Mta], hop: Hop) -> dict[tuple[str, str], float]:
    """Returns the rate for each relay and load."""
    source = Source(sessions=given.sessions, size_bytes=given.size)
    most = {relay.name: highest(relay, hop, given.messages, source) for relay in relays}
    print(", ".join(f"{name} relays {rate:.0f} messages a second" for name, rate in most.items()), file=sys.stderr)
    of_postfix, its_own = LOADS
    return {
        **{(name, of_postfix): most["postfix"] / 2 for name in most},
        **{(name, its_own): rate / 2 for name, rate in most.items()},
    }


def report(runs: Sequence[Timed]) -> list[str]:
    """Returns a line for each relay and load, medians."""
    lines = [f"{'half of':12}{'':10}{'msg/s':>8}{'p50 ms':>9}{'p99 ms':>9}{'(min-max)':>18}{'worst ms':>10}"]
    for load in LOADS:
        for name in dict.fromkeys(run.relay for run in runs):
            mine = [run for run in runs if (run.relay, run.load) == (name, load)]
            p99s = sorted(run.p99_ms for run in mine)
            p50, worst = (statistics.median(getattr(run, what) for run in mine) for what in ("p50_ms", "worst_ms"))
            span = f"({p99s[0]:.1f}-{p99s[-1]:.1f})"
            lines.append(
                f"{load:12}{name:10}{mine[0].rate:8.0f}{p50:9.1f}{statistics.median(p99s):9.1f}{span:>18}{worst:10.1f}"
            )
    if lost := sum(run.lost for run in runs):
        lines.append(f"{lost} messages did not arrive within {LATE_S:g} s and count as having taken that long")
    if disturbed := sum(run.foreign > FOREIGN_MAX for run in runs):
        lines.append(f"No result: in {disturbed} of {len(runs)} runs others took more than {FOREIGN_MAX:.0%}.")
    return lines


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.half_load", description=__doc__.partition("\n")[0])
    parser.add_argument("--short", action="store_true", help="one round of 3 seconds: a quick check, no result")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=20.0, help="of one run")
    parser.add_argument("--messages", type=int, default=6_000, help="of a run that measures the highest rate")
    parser.add_argument("--size", type=int, default=4096, help="bytes of a message")
    parser.add_argument("--sessions", type=int, default=20)
    parser.add_argument("--directory", type=Path, default=Path("/var/tmp"), help="the queues lie below; no tmpfs")
    parser.add_argument("--json", type=Path, metavar="FILE", help="all runs, for a closer look")
    given = parser.parse_args(argv)
    if given.short:
        given.rounds, given.seconds, given.messages = 1, 3.0, 300
    return given


def main(argv: Sequence[str] | None = None) -> int:
    """Measures and prints; returns the exit status."""
    given = _arguments(argv)
    if missing := refusal(given.directory):
        print(f"bench.half_load: {missing}", file=sys.stderr)
        return 1
    runs: list[Timed] = []
    hop = Hop()
    with work_directory("half-load", given.directory) as directory:
        relays: list[Mta] = [Postfix(directory, hop.port), Waypost(directory, hop.port)]
        try:
            for relay in relays:
                relay.start()
            rates = _rates(given, relays, hop)
            for number in range(given.rounds):
                for load in LOADS:
                    for relay in relays if number % 2 == 0 else relays[::-1]:
                        run = measure(relay, load, rates[relay.name, load], hop, given)
                        runs.append(run)
                        print(
                            f"{number + 1}/{given.rounds} half {load}, {run.relay}: {run.rate:.0f} msg/s, "
                            f"p50 {run.p50_ms:.1f} ms, p99 {run.p99_ms:.1f} ms, others took {run.foreign:.0%}",
                            file=sys.stderr,
                            flush=True,
                        )
                        time.sleep(SETTLE_S)
        finally:
            for relay in relays:
                relay.stop()
            hop.stop()
    print(
        f"{os.cpu_count()} cores, {given.size} bytes, {given.sessions} sessions, {given.rounds} runs of {given.seconds:g} s"
    )
    print("\n".join(report(runs)))
    if given.json is not None:
        given.json.write_text(json.dumps({"runs": [asdict(run) for run in runs]}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
