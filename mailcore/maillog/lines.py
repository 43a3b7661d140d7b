"""How a line of the mail log is written: one in Postfix's form, and one JSON object.

Laws
- The mail path never waits for the log and never fails by it (see ``Logfile``).
- Lines are buffered; the process calls ``flush`` once per turn of its loop. **A receiver flushes before it reports a
  message to the manager**, or else a delivery may be logged before its arrival, and a summary would miss the size.
- Must not know: what the lines say.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec

from mailcore.counted import counted
from mailcore.maillog.have import Have
from mailcore.maillog.logfile import Logfile
from mailcore.maillog.text import free, word

__all__ = ["Lines", "json_line"]

PROGRAM = "waypost"
# Not strftime's %b: the names in a log are English, in any locale.
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_encode = msgspec.json.Encoder().encode


class Lines:
    """The two files of one process. ``clock`` is wall-clock seconds, ``monotonic`` paces the look for rotation."""

    def __init__(
        self,
        directory: Path,
        hostname: str = "",
        program: str = PROGRAM,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._hostname = word(hostname or socket.gethostname()) or "localhost"
        self._program = word(program)
        self._clock = clock
        self._monotonic = monotonic
        self._pid = os.getpid()
        self._second = -1
        self._stamps: dict[str, str] = {}  # service -> what a line of this second begins with
        self._date = ""
        self._have: Have | None = None
        self._syslog = Logfile(directory / "mail.log", self._lost_syslog)
        self._json = Logfile(directory / "mail.jsonl", self._lost_json)

    def begin_missing(self, lines: Iterable[bytes], objects: Iterable[bytes]) -> None:
        """Leaves out the lines that these ends of the two files have, until ``end_missing``."""
        self._have = Have(lines, objects)

    def end_missing(self) -> None:
        """Ends ``begin_missing``: everything is logged again."""
        self._have = None

    def flush(self) -> None:
        """Writes what was logged since the last flush. Never raises because of a disk."""
        now = self._monotonic()
        self._syslog.flush(now)
        self._json.flush(now)

    def close(self) -> None:
        """Writes what was logged and closes both files."""
        self._syslog.close()
        self._json.close()

    @property
    def lost(self) -> int:
        """Returns the number of lines that could not be written since the start."""
        return self._syslog.lost + self._json.lost

    def _warning(self, service: str, text: str) -> None:
        self._line(service, f"warning: {text}")

    def _line(self, service: str, text: str) -> None:
        if self._have is not None and self._have.has_line(text):
            return
        now = int(self._clock())
        if now != self._second:
            self._second = now
            self._stamps.clear()
        stamp = self._stamps.get(service)
        if stamp is None:
            stamp = self._stamps[service] = self._stamp(service, now)
        self._syslog.append(f"{stamp}{text}\n")

    def _stamp(self, service: str, now: int) -> str:
        local = time.localtime(now)
        when = (
            f"{MONTHS[local.tm_mon - 1]} {local.tm_mday:2d} {local.tm_hour:02d}:{local.tm_min:02d}:{local.tm_sec:02d}"
        )
        return f"{when} {self._hostname} {self._program}/{service}[{self._pid}]: "

    def _object(self, event: str, **fields: Any) -> None:
        line = json_line({"event": event, "time": self._clock(), "pid": self._pid, **fields})
        if self._have is None or not self._have.has_object(line):
            self._json.append(line)

    def _lost_syslog(self, count: int, why: str) -> str:
        stamp = self._stamp("master", int(self._clock()))
        return f"{stamp}warning: {counted(count, 'log line')} lost: {free(why)}\n"

    def _lost_json(self, count: int, why: str) -> str:
        return json_line({"event": "lines_lost", "time": self._clock(), "pid": self._pid, "lines": count, "why": why})


def json_line(fields: dict[str, Any]) -> str:
    """Returns a line of ASCII only, so that text from outside cannot control a terminal."""
    try:
        line = _encode(fields)
        if line.isascii():
            return line.decode("ascii").replace("\x7f", "\\u007f") + "\n"
    except UnicodeEncodeError:  # a lone surrogate, from bytes that were not UTF-8
        pass
    return json.dumps(fields, separators=(",", ":")).replace("\x7f", "\\u007f") + "\n"
