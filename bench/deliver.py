"""The deliverer alone, against smtp-sink, beside aiosmtplib's own client in the same run: messages/s and CPU of the sender.

The manager is a socket that keeps ``--concurrency`` entries out. The peer sends the same message over as many connections,
one command after the other, as aiosmtplib does. Usage: python -m bench.deliver [--messages N] [--size BYTES].
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import pwd
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Sequence
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any

import aiosmtplib
import uvloop

from bench.processes import free_port, listening, wait_until
from mailcore.config.settings import Deliverer as Limits
from mailcore.config.settings import Settings
from mailcore.deliverer.deliverer import MANAGER_SOCKET, Deliverer
from mailcore.frames import Deliver, Delivered, FrameDecoder, FrameWriter, Hello, NextHop

SINK = "/usr/sbin/smtp-sink"  # Debian's postfix


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--size", type=int, default=4_096)
    parser.add_argument("--concurrency", type=int, default=20)
    arguments = parser.parse_args(argv)
    if not Path(SINK).exists():
        print(f"bench.deliver: {SINK} is missing: apt-get install postfix", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="deliver-") as name:
        segment = Path(name) / "segment"
        segment.write_bytes(b"Subject: bench\r\n\r\n" + (b"x" * 78 + b"\r\n") * (arguments.size // 80))
        print(f"{arguments.messages} messages of {segment.stat().st_size} bytes, {arguments.concurrency} at once")
        for label, sender, uses in (
            ("deliverer, kept connections", _deliverer, 1000),
            ("deliverer, a connection each", _deliverer, 1),
            ("aiosmtplib, kept connections", _peer, 1000),
            ("aiosmtplib, a connection each", _peer, 1),
        ):
            seconds, cpu_s = _measure(sender, segment, arguments.messages, arguments.concurrency, uses)
            rate, cost = arguments.messages / seconds, cpu_s * 1000 / arguments.messages
            print(f"{label:32}{rate:8.0f} msg/s{cost:9.3f} ms CPU/msg")
    return 0


Sender = Callable[[Pipe, Path, int, int, int, int], None]


def _measure(sender: Sender, segment: Path, messages: int, concurrency: int, uses: int) -> tuple[float, float]:
    port = free_port()
    user = ["-u", "nobody"] if os.getuid() == 0 and pwd.getpwnam("nobody") else []  # lang: quoted
    with subprocess.Popen([SINK, *user, f"127.0.0.1:{port}", "1000"]) as sink:
        try:
            wait_until(lambda: listening(port), "smtp-sink")
            ours, theirs = multiprocessing.Pipe()
            process = multiprocessing.Process(target=sender, args=(theirs, segment, messages, concurrency, uses, port))
            process.start()
            seconds, cpu_s = ours.recv()
            process.join()
        finally:
            sink.terminate()
    return seconds, cpu_s


class _Manager(asyncio.Protocol):
    """Keeps ``concurrency`` entries at the deliverer until all are delivered."""

    def __init__(self, segment: Path, messages: int, concurrency: int, port: int) -> None:
        self._place = (str(segment), 0, segment.stat().st_size)
        self._messages = messages
        self._concurrency = concurrency
        self._next_hop = NextHop("127.0.0.1", port, False)
        self._decoder = FrameDecoder()
        self._sent = 0
        self._delivered = 0
        self.begun_at = 0.0
        self.done = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._writer = FrameWriter(transport, asyncio.get_running_loop())  # type: ignore[arg-type]

    def data_received(self, data: bytes) -> None:
        for frame in self._decoder.feed(data):
            if isinstance(frame, Hello):
                self.begun_at = time.monotonic()
                for _ in range(self._concurrency):
                    self._send()
            elif isinstance(frame, Delivered):
                assert frame.verdicts[0].dsn == "2.0.0", frame
                self._delivered += 1
                self._send()
                if self._delivered == self._messages:
                    self.done.set_result(time.monotonic() - self.begun_at)

    def _send(self) -> None:
        if self._sent < self._messages:
            self._sent += 1
            recipients = ((0, "recipient@example.com"),)
            self._writer.send(
                Deliver(self._sent, f"Q{self._sent}", "smtp", self._next_hop, "sender@example.org", recipients,
                        *self._place, eight_bit=False, smtputf8=False)
            )  # fmt: skip


def _deliverer(pipe: Pipe, segment: Path, messages: int, concurrency: int, uses: int, port: int) -> None:
    """The manager runs in the same process: its part, two frames a message, is counted with it."""

    async def run() -> float:
        home = segment.parent
        (home / MANAGER_SOCKET).unlink(missing_ok=True)
        manager = _Manager(segment, messages, concurrency, port)
        loop = asyncio.get_running_loop()
        await loop.create_unix_server(lambda: manager, str(home / MANAGER_SOCKET))
        limits = Limits(connection_uses_max=uses, concurrency=concurrency)
        settings = Settings(
            home=home, queue_directory=home, spool_directory=home, run_directory=home, log_directory=home,
            deliverer=limits,
        )  # fmt: skip
        deliverer = Deliverer(settings, 0, loop)
        running = loop.create_task(deliverer.run())
        seconds: float = await manager.done
        running.cancel()
        deliverer.close()
        return seconds

    _report(pipe, run)


def _peer(pipe: Pipe, segment: Path, messages: int, concurrency: int, uses: int, port: int) -> None:
    async def run() -> float:
        content = segment.read_bytes()  # noqa: ASYNC240  before anything runs
        left = messages

        async def send() -> None:
            nonlocal left
            client = aiosmtplib.SMTP(hostname="127.0.0.1", port=port, start_tls=False)
            used = 0
            while left > 0:
                left -= 1
                if not client.is_connected:
                    await client.connect()
                await client.sendmail("sender@example.org", ["recipient@example.com"], content)
                used += 1
                if used % uses == 0:
                    await client.quit()
            if client.is_connected:
                await client.quit()

        begun_at = time.monotonic()
        await asyncio.gather(*(send() for _ in range(concurrency)))
        return time.monotonic() - begun_at

    _report(pipe, run)


def _report(pipe: Pipe, run: Callable[[], Coroutine[Any, Any, float]]) -> None:
    cpu_before_s = time.process_time()
    seconds = uvloop.run(run())
    pipe.send((seconds, time.process_time() - cpu_before_s))


if __name__ == "__main__":
    sys.exit(main())
