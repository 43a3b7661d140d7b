"""Whom slow clients shut out: ``python -m bench.slow_clients [--seconds 40] [--beside CHECKOUT]``.

20 addresses hold 50 connections each and send a byte every four seconds, half of them in a command and half in the data of a
message; a connection that is ended is opened again. Meanwhile a client of our own network and one of another network send a
message every tenth of a second, each over a connection of its own. Measured is how long each waits for its last 250.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.load import Sink
from bench.mta import Waypost

__all__ = ["main"]

ADDRESSES, CONNECTIONS = 20, 50
EVERY_S = 4.0
PROBE_EVERY_S = 0.1
PROBE_S_MAX = 10.0
WANTED_MS = 100.0  # of our own client
OURS, OTHER = "127.0.0.1", "127.0.2.1"
MORE = '[relay]\nnetworks = ["127.0.0.1/32"]\ndomains = ["example.org"]'


class Attack:
    """The slow clients. ``connected`` and ``refused`` count connections."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.connected = 0
        self.refused = 0
        self.ended = 0
        self._tasks: list[asyncio.Task[None]] = []

    async def begin(self) -> None:
        for number in range(ADDRESSES * CONNECTIONS):
            source = f"127.0.1.{1 + number % ADDRESSES}"
            self._tasks.append(asyncio.create_task(self._hold(source, in_data=number % 2 == 1)))
            if number % 50 == 0:
                await asyncio.sleep(0.02)

    async def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _hold(self, source: str, *, in_data: bool) -> None:
        while True:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                await self._connection(source, in_data=in_data)
            await asyncio.sleep(1.0)

    async def _connection(self, source: str, *, in_data: bool) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port, local_addr=(source, 0))
        try:
            if not (await reader.readline()).startswith(b"220"):
                self.refused += 1
                return
            self.connected += 1
            if in_data:
                writer.write(b"HELO a\r\nMAIL FROM:<a@example.com>\r\nRCPT TO:<b@example.org>\r\nDATA\r\n")
            try:
                while not reader.at_eof():
                    writer.write(b"x")
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(EVERY_S):
                            while await reader.read(4096):
                                pass
            finally:
                self.connected -= 1
                self.ended += 1
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
                    return float("inf")
        return time.monotonic() - begun
    except (OSError, TimeoutError):
        return float("inf")
    finally:
        if writer is not None:
            writer.transport.abort()


async def measured(relay: Waypost, seconds: float) -> None:
    attack = Attack(relay.port)
    await attack.begin()
    until = time.monotonic() + seconds
    waits: dict[str, list[float]] = {OURS: [], OTHER: []}
    while time.monotonic() < until:
        for source, taken in waits.items():
            taken.append(await send(relay.port, source))
        await asyncio.sleep(PROBE_EVERY_S)
    for source, name in ((OURS, "our own client"), (OTHER, "another client")):
        taken = [wait for wait in waits[source] if wait < float("inf")]
        figures = (
            f"median {statistics.median(taken) * 1000:.0f} ms, longest {max(taken) * 1000:.0f} ms" if taken else "none"
        )
        wanted = f" (wanted: all, at most {WANTED_MS:.0f} ms)" if source == OURS else ""
        print(f"{relay.name:9} {name:15} {len(taken)} of {len(waits[source])} messages taken, {figures}{wanted}")
    print(f"{relay.name:9} slow connections now {attack.connected}, ended {attack.ended}, refused {attack.refused}")
    await attack.end()


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the attack on this state, and with --beside on another one."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument("--beside", type=Path, metavar="CHECKOUT", help="another state of the project")
    options = parser.parse_args(arguments)
    for checkout in (None, options.beside) if options.beside else (None,):
        with tempfile.TemporaryDirectory(prefix="waypost-bench-") as name:
            sink = Sink(Path(name))
            sink.start()
            relay = Waypost(Path(name), sink.port, MORE, checkout)
            try:
                relay.start()
                asyncio.run(measured(relay, options.seconds))
            finally:
                relay.stop()
                sink.stop()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
