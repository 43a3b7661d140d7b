"""The election of the giver of shares on one host: a lock, which each manager tries to get once a second.

The kernel frees it when its holder ends. The lock's file has the number of the election, and until when its holder answers,
which it writes before it answers at all. So the next one knows how long shares may still hold of which it has not heard: after
a start of the host, or an hour without a giver, it need not wait.

- A giver whose file was removed or replaced answers no more: there may be another.

Keeps law: shares-within-limit (docs/laws.md).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable
from pathlib import Path

from mailcore.boot import boot_id
from mailcore.shares.election import Elected
from mailcore.shares.giver import COUNTED_S

__all__ = ["LockElection"]

_LOCK = "shares.lock"
_RECORD_BYTES = 128  # written at once
ANSWERS_S = 3.0  # a giver says again within this that it still answers


class LockElection:
    """Elects the process that has a lock. ``heard`` returns the last election known."""

    def __init__(self, directory: Path, heard: Callable[[], int], clock: Callable[[], float]) -> None:
        self._path = directory / _LOCK
        self._heard = heard
        self._clock = clock
        self._boot = boot_id()
        self._lock = -1
        self._until = 0.0  # it answers until then
        self.elected: Elected | None = None

    def look(self) -> None:
        """Tries to get the lock; its holder writes that it continues. Raises OSError."""
        if self.elected is not None:
            self._is_still()
            return
        lock = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o660)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return
        self._lock = lock
        if not self._is_ours():  # it was replaced a moment ago
            self.end()
            return
        now, heard = self._clock(), self._heard()
        epoch, until = self._read(now, heard)
        self._begin(Elected(max(epoch, heard) + 1, min(now, until)))

    def holds(self) -> bool:
        """Returns whether this process may answer. One that was kept from writing so writes it now: it has the lock."""
        return self.elected is not None and (self._clock() < self._until or self._is_still())

    def again(self, epoch: int) -> None:
        """Writes a higher number; what was given under another one is counted from now on. Raises OSError."""
        self._begin(Elected(epoch + 1, self._clock()))

    def end(self) -> None:
        """Frees the lock."""
        self.elected = None
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def leave(self) -> None:
        """Does nothing: the kernel frees the lock when the process ends."""

    def _begin(self, elected: Elected) -> None:
        self.elected = elected
        try:
            self._go_on()
        except OSError:
            self.end()
            raise

    def _go_on(self) -> None:
        assert self.elected is not None
        until = self._clock() + ANSWERS_S
        record = f"{self.elected.epoch} {until:.3f} {self._boot}".encode().ljust(_RECORD_BYTES)
        os.pwrite(self._lock, record, 0)
        self._until = until

    def _read(self, now: float, heard: int) -> tuple[int, float]:
        """Returns the number of the last election, and until when shares were given then; 0 before the first one."""
        words = os.pread(self._lock, _RECORD_BYTES, 0).decode("ascii", "replace").split()
        if not words:  # no giver was there before; or its file was removed
            return 0, now if heard else now - COUNTED_S
        try:
            epoch, until, boot = int(words[0]), float(words[1]), words[2]
        except (ValueError, IndexError):
            return 0, now
        return epoch, until if boot == self._boot else now - COUNTED_S  # no shard of before is there any more

    def _is_still(self) -> bool:
        """Says again that it answers; False if it cannot, and has ended."""
        with contextlib.suppress(OSError):
            if self._is_ours():
                self._go_on()
                return True
        self.end()
        return False

    def _is_ours(self) -> bool:
        """Returns whether the lock that this process has is that of the file."""
        with contextlib.suppress(FileNotFoundError):
            mine, there = os.fstat(self._lock), os.stat(self._path)
            return (mine.st_dev, mine.st_ino) == (there.st_dev, there.st_ino)
        return False
