"""Source and sink of the relay benchmark: Postfix's smtp-source and smtp-sink, the same for both sides.

The sink writes its running count to a file; only the last bytes of this file are read, so that counting is cheap.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench.processes import cpu_s, end_group, free_port, listening, wait_until

__all__ = ["SENDER_DOMAIN", "Sink", "Source"]

BACKLOG = 1000
SENDER_DOMAIN = "sender.example"  # also of the From field
TAIL_BYTES = 200


class Sink:
    """smtp-sink on a free port, or on ``port``; ``messages`` is how many it has got. ``options``: more of its own."""

    def __init__(self, directory: Path, *options: str, port: int = 0) -> None:
        self.port = port or free_port()
        self._options = options
        self._count = directory / "sink.count"
        self._process: subprocess.Popen[bytes] | None = None

    @staticmethod
    def missing() -> str:
        return "" if shutil.which("smtp-sink") else "smtp-sink is not installed: apt-get install postfix"

    def start(self) -> None:
        user = ["-u", "nobody"] if os.geteuid() == 0 else []  # lang: quoted
        with self._count.open("wb") as out:
            self._process = subprocess.Popen(
                ["smtp-sink", "-c", *self._options, *user, f"127.0.0.1:{self.port}", str(BACKLOG)],
                stdout=out,
                start_new_session=True,
            )
        wait_until(lambda: listening(self.port), f"smtp-sink's greeting on {self.port}")

    def stop(self) -> None:
        if self._process is not None:
            end_group(self._process)
            self._process = None

    def cpu_s(self) -> float:
        assert self._process is not None
        return cpu_s(self._process.pid)

    def messages(self) -> int:
        with self._count.open("rb") as count:
            count.seek(0, os.SEEK_END)
            count.seek(max(0, count.tell() - TAIL_BYTES))
            found = re.findall(rb"mesg=(\d+)\r", count.read())
        return int(found[-1]) if found else 0


class Source:
    """smtp-source: N sessions, messages of one size; ``keep`` sends them over the same connections."""

    def __init__(self, *, sessions: int = 20, size_bytes: int = 4096, recipients: int = 1) -> None:
        self._sessions = sessions
        self._size = size_bytes
        self._recipients = recipients  # of each message, all in one domain

    def run_on(self, ports: Sequence[int], messages: int, *, keep: bool, timeout_s: float) -> float:
        """Divides the messages and the sessions among some ports; the rest as ``run``."""
        share = Source(sessions=self._sessions // len(ports), size_bytes=self._size, recipients=self._recipients)
        counts = [messages // len(ports) + (number < messages % len(ports)) for number in range(len(ports))]

        def run(port: int, count: int) -> float:
            return share.run(port, count, keep=keep, timeout_s=timeout_s)

        with ThreadPoolExecutor(len(ports)) as pool:
            return max(pool.map(run, ports, counts))

    def run(self, port: int, messages: int, *, keep: bool, timeout_s: float, quiet: bool = False) -> float:
        """Returns the seconds until the last message was acknowledged. Raises CalledProcessError if the server fails."""
        command = [
            *("smtp-source", "-s", str(self._sessions), "-l", str(self._size), "-m", str(messages)),
            *("-r", str(self._recipients)),
            *(["-d"] if keep else []),
            *("-f", f"load@{SENDER_DOMAIN}", "-t", "sink@example.org", f"127.0.0.1:{port}"),
        ]
        begun = time.monotonic()
        subprocess.run(command, check=True, timeout=timeout_s, stderr=subprocess.DEVNULL if quiet else None)
        return time.monotonic() - begun
