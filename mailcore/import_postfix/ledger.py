"""The ledger of an import: records the recipients that are in our queue, so that none is imported twice.

A text file with these lines, synced before a message is completed:

    begun KEY FIRST-LAST QUEUE_ID SECONDS   about to be imported; the next run asks the queue for the result
    done KEY FIRST-LAST QUEUE_ID            imported
    void KEY FIRST-LAST QUEUE_ID            not imported

KEY is the old queue ID with its time of arrival; FIRST and LAST are positions of recipients in the old file, which deliveries
do not change. A torn line (power failure) is ignored, because its step had no effect yet.

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
    """Another import is running."""


@dataclass(frozen=True, slots=True)
class Begun:
    """A stretch of recipients about to be imported as ``queue_id``."""

    key: str
    first: int
    last: int
    queue_id: str
    at: int  # wall clock


class Ledger:
    """The open ledger file. One import holds it at a time; several threads may write. Must be closed."""

    def __init__(self, path: Path, *, only_read: bool = False) -> None:
        """Opens and locks the file, and reads it. Raises LedgerInUse, OSError.

        With ``only_read`` nothing is created or changed; a file that does not exist is an empty ledger.
        """
        self.path = path
        self._lock = threading.Lock()
        self._only_read = only_read
        self._begun: dict[str, Begun] = {}  # by our queue id
        self._done: dict[str, list[tuple[int, int]]] = {}
        flags = os.O_RDONLY if only_read else os.O_RDWR | os.O_CREAT | os.O_APPEND
        try:
            self._descriptor = os.open(path, flags | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            if not only_read:
                raise
            self._descriptor = os.open(os.devnull, flags | os.O_CLOEXEC)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._descriptor)
            raise LedgerInUse(f"{path}: another import is running") from None
        self._read()
        if not only_read:
            _sync_directory(path.parent)

    def close(self) -> None:
        """Closes the file and releases its lock."""
        os.close(self._descriptor)

    def open_ends(self) -> list[Begun]:
        """Returns the entries that were begun and have no result."""
        return list(self._begun.values())

    def is_done(self, key: str, place: int) -> bool:
        """Tells whether the recipient at this position was imported."""
        return any(first <= place <= last for first, last in self._done.get(key, ()))

    def begun(self, entry: Begun) -> None:
        """Records an entry; it is synced when this returns. Raises OSError."""
        self._write(f"begun {entry.key} {entry.first}-{entry.last} {entry.queue_id} {entry.at}\n")
        self._begun[entry.queue_id] = entry

    def done(self, entry: Begun) -> None:
        """Records that an entry was imported. Not synced: if the line is lost, the next run asks the queue."""
        self._write(f"done {entry.key} {entry.first}-{entry.last} {entry.queue_id}\n", sync=False)
        self._finish(entry)

    def void(self, entry: Begun) -> None:
        """Records that an entry was not imported. Raises OSError."""
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
        if not whole and not self._only_read:
            self._write("\n")  # so that the next line does not begin in the middle of this one


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
