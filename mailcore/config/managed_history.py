"""The history of the managed settings: a file in the home with a line for each state, the newest last.

A line has the whole text, so that each state can be returned to. Of nodes that share their settings, the database has the
history, and the file is a copy of it, behind what this node had before.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import msgspec

from mailcore.config.managed import HISTORY
from mailcore.faults import Code, Fault
from mailcore.log.disk import Disk

__all__ = ["ManagedHistory", "State"]

BYTES_MAX = 64 << 20  # then the oldest half goes


class State(msgspec.Struct):
    """A state of the settings. ``version`` and ``node``: of settings that all nodes share, and where the change was made."""

    revision: str
    at: float
    who: str
    why: str
    changed: list[dict[str, Any]]  # key, before and after
    text: str
    version: int = 0
    node: str = ""


class ManagedHistory:
    """Reads and extends the history of a home."""

    def __init__(self, home: Path, disk: Disk) -> None:
        self.path = home / HISTORY
        self._disk = disk

    def read(self) -> tuple[list[State], list[Fault]]:
        """Returns the states, and a fault for each line that can't be read. Raises OSError."""
        found, faults = list[State](), list[Fault]()
        with contextlib.suppress(FileNotFoundError):
            for number, line in enumerate(self.path.read_bytes().splitlines(), 1):
                try:
                    found.append(msgspec.json.decode(line, type=State))
                except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                    faults.append(Fault(Code.INTERNAL, f"{self.path}:{number}: {error}"))
        return found, faults

    def append(self, state: State) -> None:
        """Writes and syncs a state. Raises OSError."""
        line = msgspec.json.encode(state) + b"\n"
        with contextlib.suppress(FileNotFoundError):
            if self.path.stat().st_size > BYTES_MAX:
                lines = self.path.read_bytes().splitlines(keepends=True)
                self._disk.write_whole(str(self.path), b"".join(lines[len(lines) // 2 :]))
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o640)
        with open(descriptor, "ab") as file:
            size = os.fstat(descriptor).st_size
            if (
                size and os.pread(descriptor, 1, size - 1) != b"\n"
            ):  # a kill or a full disk cut the line of another state
                line = b"\n" + line
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
