"""A Postfix that is killed while it takes mail and delivers it, and what it had done until then, by its own word.

The next hop does with a recipient what the address begins with: ``done`` is taken, ``later`` put off, ``no`` refused, and at
``hang`` nothing is said any more. Each recipient has a transaction of its own.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import socketserver
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bench.mta import Postfix
from bench.processes import tree
from tests.import_postfix.old_queue import postcat

__all__ = ["Interrupted", "Told", "begun", "delivering", "kill", "told_by_postfix"]

MORE = """
default_destination_recipient_limit = 1
default_destination_concurrency_limit = 40
initial_destination_concurrency = 40
default_process_limit = 60
smtp_connection_cache_on_demand = no
smtp_data_done_timeout = 60s
"""


@dataclass
class Hop:
    """``taken``: what was answered with 250 behind the data."""

    port: int = 0
    pause_s: float = 0.0
    taken: list[str] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)


@dataclass
class Interrupted:
    postfix: Postfix
    hop: Hop
    etc: Path
    queue: Path

    def files(self, queue: str) -> dict[str, Path]:
        """By queue id; without those that go while one looks."""
        return {path.name: path for path in (self.queue / queue).rglob("*") if path.is_file()}


@contextlib.contextmanager
def delivering(directory: Path, more: str = "", pause_s: float = 0.0) -> Iterator[Interrupted]:
    """It runs; nothing of it is left at the end."""
    hop = Hop(pause_s=pause_s)
    with _Server(("127.0.0.1", 0), _handler(hop)) as server:
        hop.port = server.server_address[1]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        postfix = Postfix(directory, hop.port)
        etc, queue = directory / "postfix" / "etc", directory / "postfix" / "queue"
        with (etc / "main.cf").open("a") as main_cf:
            main_cf.write(MORE + more)
        postfix.start()
        try:
            yield Interrupted(postfix, hop, etc, queue)
        finally:
            postfix.stop()
            hop.ended.set()
            server.shutdown()


def kill(postfix: Postfix) -> None:
    """SIGKILL of all its processes, as if the machine's power went; only the files stay as they are."""
    master, stopped = postfix.pid, set[int]()
    # All stand still before the first dies: a cleanup whose client has gone would take its file along.
    while running := set(tree(master)) - stopped:
        for pid in running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        stopped |= running
    for pid in stopped:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    while any(map(_is_alive, stopped)):
        time.sleep(0.01)


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def begun(port: int, recipient: str, size: int) -> socket.socket:
    """A client in the middle of its data; to be closed."""
    client = socket.create_connection(("127.0.0.1", port), 30)
    commands = [
        b"",
        b"EHLO client.example",
        b"MAIL FROM:<half@example.org>",
        f"RCPT TO:<{recipient}>".encode(),
        b"DATA",
    ]
    for command in commands:
        if command:
            client.sendall(command + b"\r\n")
        answer = client.recv(4096)
        assert answer[:1] in b"23", answer
    client.sendall(b"Subject: half\r\n\r\n" + (b"x" * 70 + b"\r\n") * (size // 72))
    return client


@dataclass
class Told:
    """What Postfix says of one file: who is still to get it, and who is not any more."""

    waiting: list[str]
    done: list[str]


def told_by_postfix(etc: Path, path: Path) -> Told:
    envelope = postcat(etc, path, "-e")
    return Told(
        re.findall(r"^recipient: (.*)$", envelope, re.MULTILINE),
        re.findall(r"^done_recipient: (.*)$", envelope, re.MULTILINE),
    )


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128


def _handler(hop: Hop) -> type[socketserver.StreamRequestHandler]:
    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            with contextlib.suppress(OSError):
                self._talk()

        def _talk(self) -> None:
            self.wfile.write(b"220 hop.example\r\n")
            recipients: list[str] = []
            while line := self.rfile.readline():
                answer = b"250 ok"
                if line.upper().startswith(b"MAIL"):
                    recipients.clear()
                elif line.upper().startswith(b"RCPT"):
                    recipient = line.partition(b"<")[2].partition(b">")[0].decode()
                    if recipient.startswith("hang"):
                        hop.ended.wait(120)
                        return
                    answer = {"l": b"450 4.2.0 later", "n": b"550 5.1.1 nobody"}.get(recipient[:1], answer)
                    if answer.startswith(b"250"):
                        recipients.append(recipient)
                elif line.upper().startswith(b"DATA"):
                    if not recipients:
                        answer = b"554 5.5.1 nobody to send it to"
                    else:
                        self.wfile.write(b"354 go on\r\n")
                        while (data := self.rfile.readline()) != b".\r\n":
                            if not data:
                                return
                        hop.ended.wait(hop.pause_s)
                        hop.taken += recipients
                elif line.upper().startswith(b"QUIT"):
                    self.wfile.write(b"221 bye\r\n")
                    return
                self.wfile.write(answer + b"\r\n")

    return Handler
