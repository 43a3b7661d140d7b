"""Files that a process reads again, in a thread, when they have changed.

Laws
- What cannot be read never replaces what is in use.
- A file is read when it has not changed for QUIET_LOOKS looks, and is not used if it changed meanwhile: it may be half written.
- Files that could not be used are read again, also without a change: a directory above them, or a group, may have changed.
- A read that takes longer than READ_S_MAX is reported, once: nothing is read again until it ends.

Keeps law: recipients-stay-good (docs/laws.md).
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

from mailcore.rewriting.map_text import MapFault

__all__ = ["WatchedFiles"]

QUIET_LOOKS = 2  # a second without a change
RETRY_LOOKS = 20  # ten seconds between two readings of files that could not be used
READ_S_MAX = 30  # a map of a million lines takes some seconds; more is a file system that does not answer

Read = TypeVar("Read")


class WatchedFiles(Generic[Read]):
    """Holds what is read from files. ``read`` raises MapFault; ``changed`` gets the faults, none if the files are in use."""

    def __init__(
        self,
        paths: Sequence[str],
        read: Callable[[], Read],
        changed: Callable[[Sequence[str]], None],
        threads: ThreadPoolExecutor,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._paths = paths
        self._read = read
        self._report = changed
        self._threads = threads
        self._clock = clock
        self._seen = self._signature()
        self._reading = False
        self._report_slow_at: float | None = None  # None: not to be reported, or it was
        self._looks_left = 0  # until files that have changed, or could not be used, are read
        self._faults: list[str] = []  # of the last reading
        self.value: Read | None = None  # None: nothing was read yet
        try:
            self.value = read()
        except MapFault as fault:
            self._failed(fault)

    @property
    def faults(self) -> Sequence[str]:
        """Returns why the files as they are now are not in use; nothing if they are."""
        return tuple(self._faults)

    def look(self) -> None:
        """Begins to read the files if they have changed. To be called twice a second, in the loop of the process."""
        if self._reading:
            self._look_at_clock()
            return
        seen = self._signature()
        if seen != self._seen:
            self._seen, self._looks_left = seen, QUIET_LOOKS
        elif self._looks_left:
            self._looks_left -= 1
            if self._looks_left:
                return
            self._reading = True
            self._report_slow_at = self._clock() + READ_S_MAX
            asyncio.get_running_loop().run_in_executor(self._threads, self._read).add_done_callback(self._done)

    def _look_at_clock(self) -> None:
        if self._report_slow_at is not None and self._clock() > self._report_slow_at:
            self._report_slow_at = None
            then = "no change of these files is noticed until it ends"
            self._report([f"{', '.join(self._paths)}: reading takes longer than {READ_S_MAX} seconds; {then}"])

    def _done(self, future: asyncio.Future[Read]) -> None:
        self._reading = False
        if future.cancelled():
            return
        error = future.exception()
        if self._signature() != self._seen:  # it is read again when it does not change
            return
        if error is None:
            self.value, self._faults = future.result(), []
            self._report(())
        elif isinstance(error, MapFault):
            self._failed(error)
        else:
            raise error

    def _failed(self, fault: MapFault) -> None:
        self._looks_left = RETRY_LOOKS
        faults = str(fault).splitlines()
        if faults != self._faults:  # else they are reported already
            self._faults = faults
            self._report(faults)

    def _signature(self) -> list[tuple[int, ...] | None]:
        return [_signature(path) for path in self._paths]


def _signature(path: str) -> tuple[int, ...] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    # The time of a change of its owner or mode is in it: a file that could not be read is read after a chmod.
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
