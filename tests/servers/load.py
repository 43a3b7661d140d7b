"""Mail into a server while something is done to it: every message that was answered with 250 is written down."""

from __future__ import annotations

import smtplib
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

__all__ = ["Load", "sending"]

PAUSE_S = 0.05


@dataclass
class Load:
    """What became of the clients. ``refused``: connections that nobody took, which is what a socket of systemd is against."""

    accepted: set[str] = field(default_factory=set)  # subjects, which are the local parts of their recipients, too
    refused: int = 0  # tries in which all addresses refused the connection
    broken: int = 0  # tries whose last conversation was cut short, or that were answered with 4xx; a client tries again
    detours: int = 0  # messages that the first address did not take, and another one did
    longest_s: float = 0.0  # from a client's first try to its 250


def _hand_over(addresses: Sequence[str], port: int, recipient: str, text: str) -> int:
    """Tries the addresses in turn, as a client does with several MX; returns the number of the one that took it.

    Raises OSError or SMTPException of the last one; ConnectionRefusedError only if all of them refused the connection.
    """
    cut: OSError | smtplib.SMTPException | None = None
    for number, address in enumerate(addresses):
        try:
            with smtplib.SMTP(address, port, timeout=60) as client:
                client.sendmail("author@sender.example", [recipient], text)
            return number
        except ConnectionRefusedError:
            pass
        except (OSError, smtplib.SMTPException) as error:
            cut = error
    raise cut or ConnectionRefusedError


def _client(name: str, addresses: Sequence[str], port: int, load: Load, stop: threading.Event) -> None:
    number = 0
    while not stop.is_set():
        subject = f"{name}-{number}"
        began, tries = time.monotonic(), 0
        while True:
            tries += 1
            # A try has a name of its own: a client that was cut off does not know whether it was heard, and says it again.
            text = f"X-Ledger-Id: {subject}.{tries}\r\nSubject: {subject}\r\n\r\n{'x' * 2000}\r\n"
            try:
                load.detours += _hand_over(addresses, port, f"{subject}@example.org", text) > 0
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
def sending(*addresses: str, clients: int = 4, port: int = 25) -> Iterator[Load]:
    """Sends from ``clients`` at once, each to the first of the addresses that takes its message."""
    load, stop = Load(), threading.Event()
    threads = [
        threading.Thread(target=_client, args=(f"c{number}x{time.time_ns()}", addresses, port, load, stop), daemon=True)
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
