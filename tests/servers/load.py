"""Mail into a server while something is done to it: every message that was answered with 250 is written down."""

from __future__ import annotations

import smtplib
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

__all__ = ["Load", "sending"]

PAUSE_S = 0.05


@dataclass
class Load:
    """What became of the clients. ``refused``: connections that nobody took, which is what a socket of systemd is against."""

    accepted: set[str] = field(default_factory=set)  # subjects, which are the local parts of their recipients, too
    refused: int = 0
    broken: int = 0  # conversations cut short; a client tries again
    longest_s: float = 0.0  # from a client's first try to its 250


def _client(name: str, address: str, port: int, load: Load, stop: threading.Event) -> None:
    number = 0
    while not stop.is_set():
        subject = f"{name}-{number}"
        began, tries = time.monotonic(), 0
        while True:
            tries += 1
            # A try has a name of its own: a client that was cut off does not know whether it was heard, and says it again.
            text = f"X-Ledger-Id: {subject}.{tries}\r\nSubject: {subject}\r\n\r\n{'x' * 2000}\r\n"
            try:
                with smtplib.SMTP(address, port, timeout=60) as client:
                    client.sendmail("author@sender.example", [f"{subject}@example.org"], text)
                break
            except ConnectionRefusedError:
                load.refused += 1
            except (OSError, smtplib.SMTPException):
                load.broken += 1
            if stop.is_set():  # it has no 250, and is nobody's loss
                return
            time.sleep(PAUSE_S)
        load.accepted.add(subject)
        load.longest_s = max(load.longest_s, time.monotonic() - began)
        number += 1
        time.sleep(PAUSE_S)


@contextmanager
def sending(address: str, clients: int = 4, port: int = 25) -> Iterator[Load]:
    load, stop = Load(), threading.Event()
    threads = [
        threading.Thread(target=_client, args=(f"c{number}x{time.time_ns()}", address, port, load, stop), daemon=True)
        for number in range(clients)
    ]
    for thread in threads:
        thread.start()
    try:
        yield load
    finally:
        stop.set()
        for thread in threads:
            thread.join(120)
