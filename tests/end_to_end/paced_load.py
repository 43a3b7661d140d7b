"""Sends messages at a rate, and takes them: a process of its own, so that a test's own work does not slow the load down.

    python -m tests.end_to_end.paced_load RATE CONNECTIONS

prints the port of its next hop; then each line of standard input is a command: ``go PORT`` begins to send to that port,
``stop`` ends that when all that has begun is answered, ``tell`` prints a JSON object of what was sent and arrived, and ends.

Three of four connections are kept; the others are new for each message. A client that gets 421 between two messages
connects again and sends that message then.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter

SENDER = "load@client.example"
ANEW = 4  # one of so many clients opens a new connection for each message
PATIENCE_S = 60.0
RETRY_S = 0.02


class ComeBack(Exception):
    """The server closes the connection between two messages."""


class Load:
    """Sends, and counts."""

    def __init__(self, rate: float, connections: int) -> None:
        self.rate = rate
        self.connections = connections
        self.acknowledged: list[int] = []
        self.arrived: Counter[int] = Counter()
        self.came_back = 0
        self.wrong: list[str] = []
        self.began = self.ended = 0.0
        self._next = 0
        self._stops = False
        self._tasks: list[asyncio.Task[None]] = []

    def go(self, port: int) -> None:
        self.began = time.monotonic()
        self._tasks = [asyncio.create_task(self._client(port, each % ANEW != 0)) for each in range(self.connections)]

    async def stop(self) -> None:
        self._stops = True
        await asyncio.gather(*self._tasks)
        self.ended = time.monotonic()

    async def _client(self, port: int, keep: bool) -> None:
        connection: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        while not self._stops:
            number = self._next
            self._next += 1
            if (early := self.began + number / self.rate - time.monotonic()) > 0:
                await asyncio.sleep(early)
            for _ in range(1_000):
                try:
                    if connection is None:
                        connection = await _connected(port)
                    await _sent(*connection, number)
                    self.acknowledged.append(number)
                except ComeBack:
                    self.came_back += 1
                    _close(connection)
                    connection = None
                    await asyncio.sleep(RETRY_S)
                    continue
                except (OSError, EOFError, TimeoutError, ValueError) as error:
                    self.wrong.append(f"{number}: {error!r}")
                    _close(connection)
                    connection = None
                break
            if not keep:
                _close(connection)
                connection = None
        _close(connection)

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Takes mail, as a next hop."""
        try:
            writer.write(b"220 sink.example\r\n")
            while line := await reader.readline():
                verb = line[:4].upper()
                if verb == b"EHLO":
                    writer.write(b"250-sink.example\r\n250 PIPELINING\r\n")
                elif verb == b"DATA":
                    writer.write(b"354 go on\r\n")
                    data = await reader.readuntil(b"\r\n.\r\n")
                    self.arrived[int(data.partition(b"X-Number: ")[2].partition(b"\r\n")[0])] += 1
                    writer.write(b"250 taken\r\n")
                elif verb == b"QUIT":
                    writer.write(b"221 bye\r\n")
                    break
                else:
                    writer.write(b"250 ok\r\n")
        except (OSError, EOFError, asyncio.CancelledError):
            pass  # cancelled with the loop's end
        finally:
            writer.close()

    def told(self) -> dict[str, object]:
        done = set(self.acknowledged)
        return {
            "acknowledged": len(done),
            "rate": len(done) / (self.ended - self.began),
            "lost": sorted(done - set(self.arrived))[:20],
            "twice": [number for number, times in self.arrived.items() if times > 1][:20],
            "came_back": self.came_back,
            "wrong": self.wrong[:20],
        }


def _close(connection: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None) -> None:
    if connection is not None:
        connection[1].close()


async def _connected(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        await _reply(reader, b"220")
        writer.write(b"EHLO client.example\r\n")
        await _reply(reader, b"250")
    except BaseException:
        writer.close()
        raise
    return reader, writer


async def _sent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
    """Sends a message, its commands at once (RFC 2920). Raises ComeBack if the server took no command of it."""
    writer.write(f"MAIL FROM:<{SENDER}>\r\nRCPT TO:<r{number}@any.example>\r\nDATA\r\n".encode())
    try:
        await _reply(reader, b"250")
    except (OSError, EOFError):  # the reset of a connection that was closed may overtake its 421
        raise ComeBack from None
    await _reply(reader, b"250")
    await _reply(reader, b"354")
    writer.write(f"X-Number: {number}\r\nSubject: {number}\r\n\r\n{'x' * 70}\r\n.\r\n".encode())
    await _reply(reader, b"250")


async def _reply(reader: asyncio.StreamReader, wanted: bytes) -> None:
    """Reads one reply. Raises ComeBack for 421, ValueError for another one than is wanted, EOFError."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            line = await reader.readline()
            if not line.endswith(b"\n"):
                raise EOFError("the connection was closed")
            if line[3:4] != b"-":
                break
    if line.startswith(b"421"):
        raise ComeBack
    if not line.startswith(wanted):
        raise ValueError(line.decode("utf-8", "replace").strip())


async def main() -> None:
    load = Load(float(sys.argv[1]), int(sys.argv[2]))
    sink = await asyncio.start_server(load.take, "127.0.0.1", 0, backlog=1_000)
    print(sink.sockets[0].getsockname()[1], flush=True)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        command, _, port = line.strip().partition(" ")
        if command == "go":
            load.go(int(port))
        elif command == "stop":
            await load.stop()
            print("stopped", flush=True)
        elif command == "tell":
            print(json.dumps(load.told()), flush=True)
            return


if __name__ == "__main__":
    asyncio.run(main())
