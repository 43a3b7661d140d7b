"""The outcomes of reports: a file that has them, which a process reads when it starts.

A line is added after a report was handed over, and synced. A process that is killed in between sends that report again, with
the same Report-ID. One process has the file: the control process, which its lock makes the only one. It is in ``home``,
where no deliverer may write, and not beside the counts.

Keeps law: tls-report-once (docs/laws.md).
"""

from __future__ import annotations

import contextlib
import os
import threading
from datetime import date
from pathlib import Path

import msgspec

__all__ = ["DONE", "Sent", "SentReports", "outcomes_in"]

FILE_BYTES_MAX = 256 << 20
DONE = ""  # in the place of an address: nothing more is to do for the domain's day
_NAME = "tlsrpt-sent.jsonl"


class Sent(msgspec.Struct, frozen=True):
    """One report to one address."""

    day: str
    domain: str
    address: str  # mailto: or https:, as in the TXT record; DONE
    outcome: str  # queue ID, "posted", or why it was given up


def outcomes_in(home: Path) -> dict[tuple[str, str, str], str]:
    """Returns the outcomes by day, domain and address. A line that can't be read is left out. Raises OSError."""
    outcomes: dict[tuple[str, str, str], str] = {}
    try:
        with open(os.open(home / _NAME, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
            content = file.read(FILE_BYTES_MAX)
    except FileNotFoundError:
        return outcomes
    for line in content.splitlines():
        with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError):
            each = msgspec.json.decode(line, type=Sent)
            outcomes[each.day, each.domain, each.address] = each.outcome
    return outcomes


class SentReports:
    """The file, for several threads of one process. Raises OSError when it is opened."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._lock = threading.Lock()
        self.outcomes = outcomes_in(home)
        self._unwritten = b"\n"  # before the next line; at first for a write that was cut off

    def add(self, day: date, domain: str, address: str, outcome: str) -> None:
        """Notes what became of a report. Raises OSError; it is then written with the next."""
        line = msgspec.json.encode(Sent(str(day), domain, address, outcome)) + b"\n"
        with self._lock:
            self.outcomes[str(day), domain, address] = outcome
            self._unwritten += line
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            with open(os.open(self._home / _NAME, flags, 0o640), "wb") as file:
                file.write(self._unwritten)
                file.flush()
                os.fsync(file.fileno())
            self._unwritten = b""

    def forget_before(self, day: date) -> None:
        """Leaves out the lines of days before ``day``. Raises OSError, and then the old file is there."""
        with self._lock:
            kept = {key: outcome for key, outcome in self.outcomes.items() if key[0] >= day.isoformat()}
            if len(kept) == len(self.outcomes):
                return
            new = self._home / f".{_NAME}"
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
            with open(os.open(new, flags, 0o640), "wb") as file:
                file.writelines(msgspec.json.encode(Sent(*key, outcome)) + b"\n" for key, outcome in kept.items())
                file.flush()
                os.fsync(file.fileno())
            os.replace(new, self._home / _NAME)
            self.outcomes, self._unwritten = kept, b""
