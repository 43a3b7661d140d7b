"""The cost of live pages for mail delivery: ``python -m bench.live [--short]``.

Waypost gets mail at half of the rate that it can relay, with 200 signed-in readers of the portal's stream and without, in turn
(A B A B ...). Prints the rate of accepted mail, and how long a message waited for its 250, from the moment it was due to be
sent: so the delay of a server that falls behind counts. Readers are sockets that read everything; prints how many snapshots
each reader got, and the age of the oldest one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from bench.load import Sink, Source
from bench.mta import Waypost
from bench.processes import end_group, free_port, wait_until

__all__ = ["main"]

ROOT = Path(__file__).resolve().parent.parent
P99_WANTED = 1.05  # wanted
RATE_WANTED = 0.99  # "the same"
SETTLE_S = 2.0
MAKE_SESSIONS = """
from django.contrib.auth.models import Group, User
from django.test import Client
for number in range({count}):
    user = User.objects.create_user(f"reader{{number}}")
    user.groups.add(Group.objects.get(name="viewer"))
    client = Client()
    client.force_login(user)
    print(*(f"{{name}}={{cookie.value}}" for name, cookie in client.cookies.items()), sep="; ")
"""


@dataclass(frozen=True, slots=True)
class Run:
    readers: int
    rate: float
    p50_ms: float
    p99_ms: float
    snapshots: list[int]  # that each reader got
    oldest_s: float  # of all snapshots, when it was read


# -- mail, in a process of its own


def send(port: int, rate: float, seconds: float, sessions: int, size: int, answer: Connection) -> None:
    answer.send(asyncio.run(_send(port, rate, seconds, sessions, size)))


async def _send(port: int, rate: float, seconds: float, sessions: int, size: int) -> tuple[float, list[float]]:
    """Messages accepted a second, and how long each waited."""
    loop = asyncio.get_running_loop()
    due: asyncio.Queue[float | None] = asyncio.Queue()
    waits: list[float] = []
    message = b"Subject: load\r\n\r\n" + (b"x" * 70 + b"\r\n") * (size // 72) + b".\r\n"

    async def session() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        await reader.readline()
        writer.write(b"EHLO client.example\r\n")
        while (await reader.readline())[3:4] == b"-":
            pass
        while (at := await due.get()) is not None:
            writer.write(b"MAIL FROM:<load@sender.example>\r\n")
            await reader.readline()
            writer.write(b"RCPT TO:<sink@example.org>\r\n")
            await reader.readline()
            writer.write(b"DATA\r\n")
            await reader.readline()
            writer.write(message)
            reply = await reader.readline()
            if not reply.startswith(b"250"):
                raise RuntimeError(f"not accepted: {reply!r}")
            waits.append(loop.time() - at)
        writer.close()

    async with asyncio.TaskGroup() as group:
        for _ in range(sessions):
            group.create_task(session())
        await asyncio.sleep(0.5)
        begun = loop.time()
        for number in range(int(rate * seconds)):
            at = begun + number / rate
            if (early := at - loop.time()) > 0:
                await asyncio.sleep(early)
            due.put_nowait(at)
        for _ in range(sessions):
            due.put_nowait(None)
    return len(waits) / (loop.time() - begun), waits


# -- readers, in another


def read(port: int, keys: list[str], answer: Connection) -> None:
    asyncio.run(_read(port, keys, answer))


async def _read(port: int, keys: list[str], answer: Connection) -> None:
    """Says True when all get snapshots; at the first word back begins to count, at the next tells and ends."""
    snapshots = dict.fromkeys(keys, 0)
    waiting, everybody = set(keys), asyncio.Event()
    oldest = [0.0]

    async def listen(key: str) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 22)
        writer.write(f"GET /live/stream HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nCookie: {key}\r\n\r\n".encode())
        status = await reader.readline()
        if b" 200 " not in status:
            raise RuntimeError(f"a reader was answered {status!r}")
        while line := await reader.readline():
            if line.startswith(b'data: {"'):
                snapshots[key] += 1
                waiting.discard(key)
                if not waiting:
                    everybody.set()
                oldest[0] = max(oldest[0], time.time() - json.loads(line[6:])["at"])
        raise RuntimeError("a stream ended")

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(listen(key)) for key in keys]
        await everybody.wait()
        answer.send(True)
        await asyncio.to_thread(answer.recv)
        snapshots.update(dict.fromkeys(keys, 0))
        oldest[0] = 0.0
        await asyncio.to_thread(answer.recv)
        answer.send((list(snapshots.values()), oldest[0]))
        for task in tasks:
            task.cancel()


# -- the portal


class Portal:
    def __init__(self, waypost: Waypost, port: int) -> None:
        self.port = port
        self._environment = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
        self._environment |= {"WAYPOST_CONFIG": str(waypost.config)}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "manage.py", "serve"],
            cwd=ROOT,
            env=self._environment,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        wait_until(self._answers, "the portal", 120, poll_s=0.2)

    def sessions(self, count: int) -> list[str]:
        """Returns the cookies of ``count`` signed-in viewers."""
        command = [sys.executable, "manage.py", "shell", "--no-imports", "--command", MAKE_SESSIONS.format(count=count)]
        done = subprocess.run(command, cwd=ROOT, env=self._environment, check=True, capture_output=True, text=True)
        return done.stdout.splitlines()

    def stop(self) -> None:
        if self._process is not None:
            end_group(self._process)

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/accounts/login/", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


def measure(waypost: Waypost, portal: Portal, keys: list[str], rate: float, arguments: argparse.Namespace) -> Run:
    """Makes one run, with a reader for each of ``keys``."""
    snapshots: list[int] = []
    oldest_s = 0.0
    ours, theirs = multiprocessing.Pipe()
    readers = multiprocessing.Process(target=read, args=(portal.port, keys, theirs), daemon=True)
    if keys:
        readers.start()
        if not ours.poll(60) or not ours.recv():
            raise RuntimeError("the readers did not all get a snapshot")
    time.sleep(SETTLE_S)
    got, give = multiprocessing.Pipe(duplex=False)
    load = (waypost.port, rate, arguments.seconds, arguments.sessions, arguments.size, give)
    sender = multiprocessing.Process(target=send, args=load, daemon=True)
    if keys:
        ours.send("count")
    sender.start()
    if not got.poll(arguments.seconds * 3 + 60):
        raise RuntimeError("the mail was not all accepted")
    accepted, waits = got.recv()
    sender.join()
    if keys:
        ours.send("tell")
        snapshots, oldest_s = ours.recv()
        readers.kill()
        readers.join()
    waits.sort()
    p50, p99 = (waits[int(len(waits) * share)] * 1000 for share in (0.5, 0.99))
    return Run(len(keys), accepted, p50, p99, snapshots, oldest_s)


def report(runs: list[Run], half: float, seconds: float) -> list[str]:
    without, with_ = ([run for run in runs if bool(run.readers) is there] for there in (False, True))
    lines = [f"{'':14}{'accepted/s':>12}{'p50 ms':>9}{'p99 ms':>9}{'(min-max)':>16}"]
    for name, these in (("no readers", without), (f"{with_[0].readers} readers", with_)):
        p99s = sorted(run.p99_ms for run in these)
        lines.append(
            f"{name:14}{statistics.median(run.rate for run in these):12.0f}"
            f"{statistics.median(run.p50_ms for run in these):9.1f}{statistics.median(p99s):9.1f}"
            f"{f'({p99s[0]:.1f}-{p99s[-1]:.1f})':>16}"
        )
    rate = statistics.median(b.rate / a.rate for a, b in zip(without, with_, strict=True))
    p99 = statistics.median(b.p99_ms / a.p99_ms for a, b in zip(without, with_, strict=True))
    lines.append(
        f"asked for {half:.0f} messages a second; medians of the pairs: {rate:.3f} x the rate (wanted {RATE_WANTED}),"
    )
    lines.append(f"{p99:.3f} x the p99 of acceptance (wanted at most {P99_WANTED})")
    fewest = min(min(run.snapshots) for run in with_)
    oldest_s = max(run.oldest_s for run in with_)
    lines.append(
        f"each reader got {fewest / seconds:.2f} snapshots a second at least; the oldest was {oldest_s:.1f} s old"
    )
    return lines


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.live", description=__doc__.partition("\n")[0])
    parser.add_argument("--short", action="store_true", help="one round of 5 seconds: a quick check, no result")
    parser.add_argument("--readers", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=7, help="pairs of runs, without readers and with")
    parser.add_argument("--seconds", type=float, default=20.0, help="of one run")
    parser.add_argument("--size", type=int, default=4096, help="bytes of a message")
    parser.add_argument("--sessions", type=int, default=20)
    parser.add_argument("--rate", type=float, default=0.0, help="messages a second, instead of half the maximum")
    parser.add_argument(
        "--directory", type=Path, default=Path("/var/tmp"), help="the directory of the queue; not a tmpfs"
    )
    arguments = parser.parse_args(argv)
    if arguments.short:
        arguments.rounds, arguments.seconds = 1, 5.0
    return arguments


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _arguments(argv)
    if missing := Sink.missing() or Waypost.missing():
        print(f"bench.live: {missing}", file=sys.stderr)
        return 1
    runs: list[Run] = []
    with tempfile.TemporaryDirectory(prefix="bench-live-", dir=arguments.directory) as name:
        directory = Path(name)
        directory.chmod(0o755)  # smtp-sink gives up root and must get in
        sink = Sink(directory)
        sink.start()
        port = free_port()
        waypost = Waypost(directory, sink.port, f'[portal]\nlisten = "127.0.0.1:{port}"\n')
        portal = Portal(waypost, port)
        try:
            waypost.start()
            portal.start()
            keys = portal.sessions(arguments.readers)
            half = arguments.rate or _maximum(waypost, sink, arguments) / 2
            for number in range(arguments.rounds):
                for these in ([], keys):
                    run = measure(waypost, portal, these, half, arguments)
                    runs.append(run)
                    print(
                        f"{number + 1}/{arguments.rounds} {run.readers} readers: {run.rate:.0f} accepted/s, "
                        f"p50 {run.p50_ms:.1f} ms, p99 {run.p99_ms:.1f} ms",
                        file=sys.stderr,
                        flush=True,
                    )
        finally:
            portal.stop()
            waypost.stop()
            sink.stop()
    print(
        f"{os.cpu_count()} cores, {arguments.sessions} sessions, {arguments.size} bytes, {arguments.seconds:g} s a run"
    )
    print("\n".join(report(runs, half, arguments.seconds)))
    return 0


def _maximum(waypost: Waypost, sink: Sink, arguments: argparse.Namespace) -> float:
    """Messages a second that it relays over kept connections, to the last one at the sink; the median of three."""
    source = Source(sessions=arguments.sessions, size_bytes=arguments.size)
    messages = 1_000 if arguments.short else 10_000
    rates = []
    for _ in range(3):
        before = sink.messages()
        begun = time.monotonic()
        source.run(waypost.port, messages, keep=True, timeout_s=300)
        wait_until(lambda there=before + messages: sink.messages() >= there, "all at the sink", 300)  # type: ignore[misc]
        rates.append(messages / (time.monotonic() - begun))
        time.sleep(SETTLE_S)
    print(f"it relays {statistics.median(rates):.0f} messages a second at most", file=sys.stderr, flush=True)
    return statistics.median(rates)


if __name__ == "__main__":
    sys.exit(main())
