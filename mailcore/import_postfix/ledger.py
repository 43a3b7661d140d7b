"""The ledger of an import: which recipients of Postfix's messages are in our queue, so that none is handed in twice.

A text file, a line each, synced before anything rests on it:

    begun KEY FIRST-LAST QUEUE_ID SECONDS   about to be handed in; whether it was is to be asked
    done KEY FIRST-LAST QUEUE_ID            it was
    void KEY FIRST-LAST QUEUE_ID            it was not

KEY is the old queue id with its time of arrival; FIRST and LAST are places of recipients in the old file, which stay the same
whatever is delivered in between. A line that is cut off (power went) is passed over: what it was to say had no effect yet.

Keeps law: import-hands-in-once (docs/laws.md).
"""

from __future__ import annotations

import fcntl
import os
import re
import threading
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Begun", "Ledger", "LedgerInUse"]

_LINE = re.compile(r"(begun|done|void) (\S+) (\d+)-(\d+) ([0-9A-Z]{13,20})(?: (\d+))?")


class LedgerInUse(Exception):
    """Another import is under way."""


@dataclass(frozen=True, slots=True)
class Begun:
    key: str
    first: int
    last: int
    queue_id: str
    at: int  # wall clock


class Ledger:
    """Of one import at a time; several threads may write. To be closed."""

    def __init__(self, path: Path) -> None:
        """Raises LedgerInUse, OSError."""
        self.path = path
        self._lock = threading.Lock()
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._descriptor)
            raise LedgerInUse(f"{path}: another import is under way") from None
        self._begun: dict[str, Begun] = {}  # by our queue id
        self._done: dict[str, list[tuple[int, int]]] = {}
        self._read()
        _sync_directory(path.parent)

    def close(self) -> None:
        os.close(self._descriptor)

    def open_ends(self) -> list[Begun]:
        """Of which nobody wrote down how they ended."""
        return list(self._begun.values())

    def is_done(self, key: str, place: int) -> bool:
        return any(first <= place <= last for first, last in self._done.get(key, ()))

    def begun(self, entry: Begun) -> None:
        """Synced when this returns."""
        self._write(f"begun {entry.key} {entry.first}-{entry.last} {entry.queue_id} {entry.at}\n")
        self._begun[entry.queue_id] = entry

    def done(self, entry: Begun) -> None:
        """Not synced for itself: should the line be lost, the queue is asked."""
        self._write(f"done {entry.key} {entry.first}-{entry.last} {entry.queue_id}\n", sync=False)
        self._finish(entry)

    def void(self, entry: Begun) -> None:
        self._write(f"void {entry.key} {entry.first}-{entry.last} {entry.queue_id}\n")
        self._begun.pop(entry.queue_id, None)

    def _finish(self, entry: Begun) -> None:
        self._begun.pop(entry.queue_id, None)
        self._done.setdefault(entry.key, []).append((entry.first, entry.last))

    def _write(self, line: str, sync: bool = True) -> None:
        data = line.encode()
        with self._lock:
            if os.write(self._descriptor, data) != len(data):
                raise OSError(f"{self.path}: the disk is full")
        if sync:
            os.fdatasync(self._descriptor)

    def _read(self) -> None:
        with open(self._descriptor, "rb", closefd=False) as file:
            file.seek(0)
            whole = True
            for raw in file:
                whole = raw.endswith(b"\n")
                match = _LINE.fullmatch(raw.decode("utf-8", "replace").rstrip("\n"))
                if match is None or not whole:
                    continue
                entry = Begun(match[2], int(match[3]), int(match[4]), match[5], int(match[6] or 0))
                if match[1] == "begun":
                    self._begun[entry.queue_id] = entry
                elif match[1] == "done":
                    self._finish(entry)
                else:
                    self._begun.pop(entry.queue_id, None)
        if not whole:
            self._write("\n")  # so that the next line does not begin in the middle of this one


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
