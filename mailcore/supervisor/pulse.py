"""How a child tells the supervisor that its work has begun and goes on: bytes in a pipe, from the loop that does it.

The first byte says that the child does what it is for: a receiver accepts. From then on comes one a second. A child that hangs
writes none, is killed and started again; so it is nobody's guess from outside. One that has not begun is left alone: a
recovery takes what it takes. The exporter has no loop, and says nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import time
from collections.abc import Iterable

__all__ = ["PULSE", "Pulse", "beat", "until_begun"]

PULSE = "WAYPOST_PULSE"  # to a child: the descriptor it writes to
BEAT_S = 1.0
_READ = 4096  # far more than a supervisor that was held up finds


class Pulse:
    """The supervisor's side, of one child. Raises OSError when there are no descriptors left."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe()
        os.set_blocking(self.reader, False)
        self._heard = 0.0  # monotonic; never, so far

    def started(self) -> None:
        """The child has its end; ours goes, so that its death is heard."""
        os.close(self.writer)
        self.writer = -1

    def silent_s(self) -> float:
        """Since when nothing was heard, in seconds; 0 before its work has begun. What waits in the pipe is heard first, so a
        supervisor that was itself held up blames nobody."""
        now = time.monotonic()
        with contextlib.suppress(BlockingIOError):
            if os.read(self.reader, _READ):
                self._heard = now
        return now - self._heard if self._heard else 0.0

    def close(self) -> None:
        for descriptor in (self.reader, self.writer):
            if descriptor >= 0:
                os.close(descriptor)


def until_begun(pulses: Iterable[Pulse], timeout_s: float) -> None:
    """Until the work of all has begun, or they ended, or the time is over."""
    waiting, end = {pulse.reader for pulse in pulses}, time.monotonic() + timeout_s
    while waiting and (left := end - time.monotonic()) > 0:
        waiting -= set(select.select(list(waiting), [], [], left)[0])


def beat(loop: asyncio.AbstractEventLoop) -> None:
    """In a child, when its work begins; from then on by itself. Nothing where no supervisor listens."""
    descriptor = os.environ.pop(PULSE, "")
    if not descriptor:
        return
    writer = int(descriptor)
    os.set_inheritable(writer, False)
    os.set_blocking(writer, False)

    def once() -> None:
        with contextlib.suppress(OSError):  # full: the supervisor is held up; broken: it is dead, and so are we
            os.write(writer, b".")
        loop.call_later(BEAT_S, once)

    once()
