"""Whom an attack shuts out: ``python -m bench.slow_clients [slow|flood] [--seconds 40] [--beside CHECKOUT]``.

*slow*: 20 addresses hold 50 connections each and send a byte every four seconds, half of them in a command and half in the data
of a message. *flood*: 20 addresses hold 2 connections each and send RCPT without waiting for the replies. A connection that is
ended is opened again. Meanwhile a client of our own network and one of another network send a message every tenth of a second,
each over a connection of its own. Measured is how long each waits for its last 250, before the attack and during it.

The exit status is 1 if a message of our own client is lost or waits longer than 100 ms during the attack.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import math
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable, Coroutine, Sequence
from multiprocessing.sharedctypes import SynchronizedArray
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from bench.load import Sink
from bench.mta import Waypost

__all__ = ["main"]

ADDRESSES = 20
SLOW_EVERY_S = 4.0
FLOOD_COMMANDS = 1_000  # in one write
PROBE_EVERY_S = 0.1
PROBE_S_MAX = 10.0
BASELINE_SHARE = 0.25  # of the time, before the attack
WANTED_MS = 100.0  # of our own client
OURS, OTHER = "127.0.0.1", "127.0.2.1"
MORE = '[relay]\nnetworks = ["127.0.0.1/32"]\ndomains = ["example.org"]'
ENVELOPE = b"HELO a\r\nMAIL FROM:<a@example.com>\r\nRCPT TO:<b@example.org>\r\n"
CONNECTED, ENDED, REFUSED, REPLIES = range(4)  # counts of an attack

Counts: TypeAlias = "SynchronizedArray[int]"


async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int, counts: Counts) -> None:
    if number % 2:
        writer.write(ENVELOPE + b"DATA\r\n")
    while not reader.at_eof():
        writer.write(b"x")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SLOW_EVERY_S):
                while await reader.read(4096):
                    pass


async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int, counts: Counts) -> None:
    async def write() -> None:
        writer.write(ENVELOPE)
        while True:
            writer.write(b"RCPT TO:<b@example.org>\r\n" * FLOOD_COMMANDS)
            await writer.drain()

    writing = asyncio.create_task(write())
    try:
        while replies := await reader.read(1 << 16):
            counts[REPLIES] += replies.count(b"\n")
    finally:
        writing.cancel()
        await asyncio.wait([writing])


Hold = Callable[[asyncio.StreamReader, asyncio.StreamWriter, int, Counts], Coroutine[Any, Any, None]]


class Mode(NamedTuple):
    """An attack: what a connection does, and how many each address holds."""

    hold: Hold
    connections: int


MODES = {"slow": Mode(slow, 50), "flood": Mode(flood, 2)}


class Attack:
    """The attacking clients, in a process of their own, so that their work does not count as a wait of the others."""

    def __init__(self, mode: Mode, port: int) -> None:
        self._mode = mode
        self._port = port
        self.counts: Counts = multiprocessing.Array("l", 4)
        self._process = multiprocessing.Process(target=self._run, daemon=True)

    def begin(self) -> None:
        self._process.start()

    def end(self) -> None:
        self._process.terminate()
        self._process.join()

    def _run(self) -> None:
        asyncio.run(self._attack())

    async def _attack(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for number in range(ADDRESSES * self._mode.connections):
                tasks.create_task(self._hold(f"127.0.1.{1 + number % ADDRESSES}", number))
                if number % 50 == 0:
                    await asyncio.sleep(0.02)

    async def _hold(self, source: str, number: int) -> None:
        while True:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                await self._connection(source, number)
            await asyncio.sleep(1.0)

    async def _connection(self, source: str, number: int) -> None:
        counts = self.counts
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port, local_addr=(source, 0))
        try:
            if not (await reader.readline()).startswith(b"220"):
                counts[REFUSED] += 1
                return
            counts[CONNECTED] += 1
            try:
                await self._mode.hold(reader, writer, number, counts)
            finally:
                counts[CONNECTED] -= 1
                counts[ENDED] += 1
        finally:
            writer.transport.abort()


async def send(port: int, source: str) -> float:
    """Returns the seconds until the message was taken; infinite if it was not."""
    begun = time.monotonic()
    writer: asyncio.StreamWriter | None = None
    try:
        async with asyncio.timeout(PROBE_S_MAX):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0))
            for command in (
                b"",
                b"HELO a\r\n",
                b"MAIL FROM:<a@example.com>\r\n",
                b"RCPT TO:<b@example.org>\r\n",
                b"DATA\r\n",
                b"x\r\n.\r\n",
            ):
                writer.write(command)
                if (await reader.readline())[:1] not in (b"2", b"3"):
                    return math.inf
        return time.monotonic() - begun
    except (OSError, TimeoutError):
        return math.inf
    finally:
        if writer is not None:
            writer.transport.abort()


async def probed(port: int, seconds: float) -> dict[str, list[float]]:
    """Sends messages for this time; returns the waits of each client."""
    until = time.monotonic() + seconds
    waits: dict[str, list[float]] = {OURS: [], OTHER: []}
    while time.monotonic() < until:
        for source, taken in waits.items():
            taken.append(await send(port, source))
        await asyncio.sleep(PROBE_EVERY_S)
    return waits


def show(name: str, when: str, waits: dict[str, list[float]]) -> None:
    for source, client in ((OURS, "our own client"), (OTHER, "another client")):
        taken = [wait for wait in waits[source] if wait < math.inf]
        figures = (
            f"median {statistics.median(taken) * 1000:.0f} ms, longest {max(taken) * 1000:.0f} ms" if taken else "none"
        )
        print(f"{name:9} {when:15} {client:15} {len(taken)} of {len(waits[source])} messages taken, {figures}")


def measured(relay: Waypost, mode: Mode, seconds: float) -> bool:
    """Runs the attack; returns whether our own client got what it should."""
    show(relay.name, "no attack", asyncio.run(probed(relay.port, BASELINE_SHARE * seconds)))
    attack = Attack(mode, relay.port)
    attack.begin()
    try:
        waits = asyncio.run(probed(relay.port, seconds))
        connected, ended, refused, replies = attack.counts[:]
    finally:
        attack.end()
    show(relay.name, "during attack", waits)
    print(f"{relay.name:9} attacking connections now {connected}, ended {ended}, refused {refused}; {replies} replies")
    kept = max(waits[OURS]) * 1000 <= WANTED_MS
    wanted = f"wanted: all messages of our own client, each within {WANTED_MS:.0f} ms"
    print(f"{relay.name:9} {wanted}: {'kept' if kept else 'not kept'}")
    return kept


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the attack on this state, and with --beside on another one, whose outcome does not count."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("mode", nargs="?", choices=sorted(MODES), default="slow", help="the attack (default: slow)")
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument("--beside", type=Path, metavar="CHECKOUT", help="another state of the project")
    options = parser.parse_args(arguments)
    kept = False
    for checkout in (None, options.beside) if options.beside else (None,):
        with tempfile.TemporaryDirectory(prefix="waypost-bench-") as name:
            sink = Sink(Path(name))
            sink.start()
            relay = Waypost(Path(name), sink.port, MORE, checkout)
            try:
                relay.start()
                was_kept = measured(relay, MODES[options.mode], options.seconds)
                if checkout is None:
                    kept = was_kept
            finally:
                relay.stop()
                sink.stop()
    return 0 if kept else 1


if __name__ == "__main__":
    raise SystemExit(main())
