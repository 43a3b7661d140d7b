"""A log file that several processes append to: whole lines, one write per flush, reopened after a rotation.

Laws
- A flush is one ``write`` to a file opened with O_APPEND, so that lines of several processes never mix.
- Nothing here raises for what goes wrong outside. Lines that cannot be written are lost and counted; one line
  on standard error reports it when it begins, and one in the file when it is over.
- Memory is bounded: the buffer is written when it is full, flush or no flush.

Keeps law: log-never-blocks-mail (docs/laws.md).
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path

__all__ = ["Logfile"]

LINES_MAX = 1_000  # in the buffer; at 2 700 messages a second and a flush each 100 ms there are fewer
LOOK_INTERVAL_S = 1.0  # how often to look whether the file was rotated
MODE = 0o660  # less the umask; mail addresses are private


class Logfile:
    """Buffers lines and writes them. ``lost_line`` makes the line that says how many were lost, and why."""

    def __init__(self, path: Path, lost_line: Callable[[int, str], str]) -> None:
        self.path = path
        self.lost = 0  # lines, since the start
        self._lost_line = lost_line
        self._unsaid = 0  # lost lines that the file does not report yet
        self._why = ""
        self._lines: list[str] = []
        self._file = -1
        self._identity = (0, 0)
        self._looked_at = float("-inf")
        self._torn = False  # the last write ended within a line

    def append(self, line: str) -> None:
        """Adds a line, which ends with a newline and has no other."""
        self._lines.append(line)
        if len(self._lines) >= LINES_MAX:
            self._write()

    def flush(self, now: float) -> None:
        """Writes the buffered lines. ``now`` is monotonic seconds."""
        if self._lines:
            if not 0.0 <= now - self._looked_at < LOOK_INTERVAL_S:
                self._looked_at = now
                self._look()
            self._write()

    def close(self) -> None:
        """Writes what there is and closes the file."""
        self._write()
        self._close()

    def _look(self) -> None:
        """Was the file renamed or removed? Then the next write goes to a new one."""
        if self._file >= 0:
            try:
                status = os.stat(self.path)
                moved = (status.st_dev, status.st_ino) != self._identity
            except OSError:
                moved = True
            if moved:
                self._close()

    def _close(self) -> None:
        if self._file >= 0:
            with contextlib.suppress(OSError):
                os.close(self._file)
            self._file = -1
            self._torn = False

    def _open(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, MODE)
        status = os.fstat(self._file)
        self._identity = (status.st_dev, status.st_ino)

    def _write(self) -> None:
        lines = self._lines
        if not lines:
            return
        self._lines = []
        count = len(lines)
        if self._unsaid:
            lines.insert(0, self._lost_line(self._unsaid, self._why))
        if self._torn:
            lines.insert(0, "\n")
        # Text from outside is ASCII by now; a file name of ours may still hold undecodable bytes.
        data = "".join(lines).encode("utf-8", "backslashreplace")
        written = 0
        try:
            if self._file < 0:
                self._open()
            written = os.write(self._file, data)
            if written < len(data):  # a disk that fills up writes short first, and says why the next time
                written += os.write(self._file, data[written:])
            if written < len(data):
                raise OSError(0, "short write")
        except OSError as error:
            self._failed(count - min(count, data.count(b"\n", 0, written)), error)
            self._torn = (data[written - 1] != ord("\n")) if written else self._torn
            return
        self._torn = False
        self._unsaid = 0

    def _failed(self, count: int, error: OSError) -> None:
        self.lost += count
        self._why = error.strerror or type(error).__name__
        if not self._unsaid:
            with contextlib.suppress(OSError, ValueError):
                print(
                    f"waypost: {self.path}: {self._why}; log lines are being lost; mail is still processed",
                    file=sys.stderr,
                    flush=True,
                )
        self._unsaid += count
        self._looked_at = float("-inf")  # the file may be the wrong one by now
