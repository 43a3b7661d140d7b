"""Whom an attack shuts out: ``python -m bench.slow_clients [slow|flood|submission] [--seconds 40] [--beside CHECKOUT]``.

*slow*: 20 addresses hold 50 connections each and send a byte every four seconds, half of them in a command and half in the data
of a message. *flood*: 20 addresses hold 2 connections each and send RCPT without waiting for the replies. A connection that is
ended is opened again. Meanwhile a client of our own network and one of another network send a message every tenth of a second,
each over a connection of its own. Measured is how long each waits for its last 250, before the attack and during it.

*submission*: the attack is *slow* on a submission listener, all of it in commands. A user logs in there under TLS for each
message: in the network where this user always is, and in one where no user was before the attack.

The exit status is 1 if a message of our own client (or of the user in the known network) is lost or waits longer than 100 ms
during the attack.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import math
import multiprocessing
import ssl
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Coroutine, Sequence
from multiprocessing.sharedctypes import SynchronizedArray
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from bench.load import Sink
from bench.mta import Waypost
from bench.processes import free_port
from mailcore.users.scram import ScramVerifier
from mailcore.users.user import User
from mailcore.users.user_file import changing

__all__ = ["main"]

ADDRESSES = 20
SLOW_EVERY_S = 4.0
FLOOD_COMMANDS = 1_000  # in one write
PROBE_EVERY_S = 0.1
PROBE_S_MAX = 10.0
ATTACK_BEGINS_S = 3.0  # until it has all its connections
BASELINE_SHARE = 0.25  # of the time, before the attack
WANTED_MS = 100.0  # of our own client
OURS, OTHER = "127.0.0.1", "127.0.2.1"
MORE = '[relay]\nnetworks = ["127.0.0.1/32"]\ndomains = ["example.org"]'
USER, NEW_USER = "127.0.2.1", "127.0.3.1"  # networks are /24
PASSWORD = "secret"
LOGIN = (
    b"HELO a\r\n",
    b"STARTTLS\r\n",
    b"TLS",
    b"EHLO a\r\n",
    b"AUTH PLAIN " + base64.b64encode(b"\0alice\0" + PASSWORD.encode()) + b"\r\n",
)
MESSAGE = (b"MAIL FROM:<a@example.com>\r\n", b"RCPT TO:<b@example.org>\r\n", b"DATA\r\n", b"x\r\n.\r\n")
ENVELOPE = b"HELO a\r\nMAIL FROM:<a@example.com>\r\nRCPT TO:<b@example.org>\r\n"
CONNECTED, ENDED, REFUSED, REPLIES = range(4)  # counts of an attack

Counts: TypeAlias = "SynchronizedArray[int]"


async def slow_commands(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int, counts: Counts
) -> None:
    while not reader.at_eof():
        writer.write(b"x")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SLOW_EVERY_S):
                while await reader.read(4096):
                    pass


async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int, counts: Counts) -> None:
    if number % 2:
        writer.write(ENVELOPE + b"DATA\r\n")
    await slow_commands(reader, writer, number, counts)


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
    """An attack: what a connection does, how many each address holds, and whether it is one on users who log in."""

    hold: Hold
    connections: int
    submission: bool = False


MODES = {"slow": Mode(slow, 50), "flood": Mode(flood, 2), "submission": Mode(slow_commands, 50, submission=True)}


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


class Clients:
    """The clients that send mail: ``ours`` must get in, ``other`` need not."""

    def __init__(self, port: int, *, submission: bool) -> None:
        self.port = port
        self.submission = submission
        self.ours, self.other = (USER, NEW_USER) if submission else (OURS, OTHER)
        self.names = {self.ours: "known network", self.other: "new network"}
        if not submission:
            self.names = {self.ours: "our own client", self.other: "another client"}
        self._tls = ssl.create_default_context()
        self._tls.check_hostname = False
        self._tls.verify_mode = ssl.CERT_NONE

    async def send(self, source: str) -> float:
        """Returns the seconds until the message was taken; infinite if it was not."""
        begun = time.monotonic()
        writer: asyncio.StreamWriter | None = None
        try:
            async with asyncio.timeout(PROBE_S_MAX):
                reader, writer = await asyncio.open_connection("127.0.0.1", self.port, local_addr=(source, 0))
                for command in (b"", *(LOGIN if self.submission else LOGIN[:1]), *MESSAGE):
                    if command == b"TLS":
                        await writer.start_tls(self._tls)
                        continue
                    writer.write(command)
                    while (line := await reader.readline())[3:4] == b"-":
                        pass
                    if line[:1] not in (b"2", b"3"):
                        return math.inf
            return time.monotonic() - begun
        except (OSError, TimeoutError):
            return math.inf
        finally:
            if writer is not None:
                writer.transport.abort()


async def probed(clients: Clients, seconds: float, sources: Sequence[str]) -> dict[str, list[float]]:
    """Sends messages for this time; returns the waits of each client."""
    until = time.monotonic() + seconds
    waits: dict[str, list[float]] = {source: [] for source in sources}
    while time.monotonic() < until:
        for source, taken in waits.items():
            taken.append(await clients.send(source))
        await asyncio.sleep(PROBE_EVERY_S)
    return waits


def show(name: str, when: str, clients: Clients, waits: dict[str, list[float]]) -> None:
    for source, all_of_it in waits.items():
        taken = [wait for wait in all_of_it if wait < math.inf]
        figures = (
            f"median {statistics.median(taken) * 1000:.0f} ms, longest {max(taken) * 1000:.0f} ms" if taken else "none"
        )
        print(
            f"{name:9} {when:14} {clients.names[source]:15} {len(taken)} of {len(all_of_it)} messages taken, {figures}"
        )


def measured(relay: Waypost, port: int, mode: Mode, seconds: float) -> bool:
    """Runs the attack; returns whether our own client got what it should."""
    clients = Clients(port, submission=mode.submission)
    before = [clients.ours] if mode.submission else [clients.ours, clients.other]  # the new network stays unknown
    show(relay.name, "no attack", clients, asyncio.run(probed(clients, BASELINE_SHARE * seconds, before)))
    attack = Attack(mode, port)
    attack.begin()
    try:
        time.sleep(ATTACK_BEGINS_S)
        waits = asyncio.run(probed(clients, seconds, [clients.ours, clients.other]))
        connected, ended, refused, replies = attack.counts[:]
    finally:
        attack.end()
    show(relay.name, "during attack", clients, waits)
    print(f"{relay.name:9} attacking connections now {connected}, ended {ended}, refused {refused}; {replies} replies")
    kept = max(waits[clients.ours]) * 1000 <= WANTED_MS
    wanted = f"wanted: all messages of {clients.names[clients.ours]}, each within {WANTED_MS:.0f} ms"
    print(f"{relay.name:9} {wanted}: {'kept' if kept else 'not kept'}")
    return kept


def relay_of(mode: Mode, directory: Path, next_port: int, checkout: Path | None) -> tuple[Waypost, int]:
    """Returns a relay, and the port that is attacked."""
    if not mode.submission:
        relay = Waypost(directory, next_port, MORE, checkout)
        return relay, relay.port
    port = free_port()
    certificate = directory / "tls.pem"
    command = f"openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -keyout {certificate} -out -"
    made = subprocess.run(command.split(), check=True, capture_output=True)
    certificate.write_bytes(certificate.read_bytes() + made.stdout)
    relay = Waypost(
        directory,
        next_port,
        f'{MORE}\n[[listener]]\naddress = "127.0.0.1:{port}"\npurpose = "submission"',
        checkout,
        f'tls_certificate = "{certificate}"\ntls_key = "{certificate}"',
    )
    verifier = str(
        ScramVerifier.of_password(PASSWORD, b"0123456789abcdef", 4096)
    )  # a fast one: it is not what is measured
    with changing(relay.home / "users.jsonl", relay.home) as users:
        users["alice"] = User(name="alice", verifier=verifier, senders=("*",))
    return relay, port


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
            relay, port = relay_of(MODES[options.mode], Path(name), sink.port, checkout)
            try:
                relay.start()
                was_kept = measured(relay, port, MODES[options.mode], options.seconds)
                if checkout is None:
                    kept = was_kept
            finally:
                relay.stop()
                sink.stop()
    return 0 if kept else 1


if __name__ == "__main__":
    raise SystemExit(main())
