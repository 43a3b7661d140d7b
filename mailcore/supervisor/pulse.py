"""A pipe from each child to the supervisor: one byte a second shows that the child's event loop is running.

The child writes the first byte when its work begins: a receiver accepts mail. A child whose loop hangs writes no more bytes;
the supervisor kills and restarts it. A child that has not begun is left alone, because a recovery may take long. The exporter
has no event loop: each of its calls to the disk is progress and sends one. So is each step of the process that watches the
shards of other nodes.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import time
from collections.abc import Iterable

__all__ = ["BEAT_S", "PULSE", "Beats", "Pulse", "beat", "until_begun"]

PULSE = "WAYPOST_PULSE"  # environment variable: the descriptor that the child writes to
BEAT_S = 1.0
_READ = 4096  # more bytes than can pile up while the supervisor is delayed


class Pulse:
    """The supervisor's end of one child's pipe. Raises OSError if no descriptors are left."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe()
        os.set_blocking(self.reader, False)
        self._heard = 0.0  # monotonic time of the last byte; 0.0 before the first

    def started(self) -> None:
        """Closes our copy of the child's end after the child was started, so that its death closes the pipe."""
        os.close(self.writer)
        self.writer = -1

    def silent_s(self) -> float:
        """Returns the seconds since the last byte; 0.0 before the child's work has begun.

        Bytes in the pipe are read first, so a delay of the supervisor itself does not count against the child.
        """
        now = time.monotonic()
        with contextlib.suppress(BlockingIOError):
            if os.read(self.reader, _READ):
                self._heard = now
        return now - self._heard if self._heard else 0.0

    @property
    def has_begun(self) -> bool:
        """Returns True if ``silent_s`` has seen that the child's work has begun."""
        return self._heard > 0.0

    def close(self) -> None:
        """Closes both ends, as far as they are open."""
        for descriptor in (self.reader, self.writer):
            if descriptor >= 0:
                os.close(descriptor)


def until_begun(pulses: Iterable[Pulse], timeout_s: float) -> None:
    """Waits until each child has begun its work or has ended; at most ``timeout_s``."""
    waiting, end = {pulse.reader for pulse in pulses}, time.monotonic() + timeout_s
    poll = select.poll()
    for descriptor in waiting:
        poll.register(descriptor, select.POLLIN)  # the end of a child is an event, too
    while waiting and (left := end - time.monotonic()) > 0:
        for descriptor, _ in poll.poll(left * 1000):
            poll.unregister(descriptor)
            waiting.discard(descriptor)


def beat(loop: asyncio.AbstractEventLoop) -> None:
    """Starts a child's pulse on its loop; called when its work begins. Does nothing without a supervisor."""
    writer = _writer()
    if writer < 0:
        return

    def once() -> None:
        _send(writer)
        loop.call_later(BEAT_S, once)

    once()


class Beats:
    """The pulse of a child without an event loop, which calls ``now`` whenever it makes progress."""

    def __init__(self) -> None:
        self._writer = _writer()
        self._sent_at = float("-inf")  # monotonic

    def now(self) -> None:
        """Sends a byte if the last one is BEAT_S old. Does nothing without a supervisor."""
        at = time.monotonic()
        if self._writer >= 0 and at - self._sent_at >= BEAT_S:
            self._sent_at = at
            _send(self._writer)


def _writer() -> int:
    """Returns the descriptor to write to; -1 without a supervisor."""
    descriptor = os.environ.pop(PULSE, "")
    if not descriptor:
        return -1
    writer = int(descriptor)
    os.set_inheritable(writer, False)
    os.set_blocking(writer, False)
    return writer


def _send(writer: int) -> None:
    with contextlib.suppress(OSError):  # full: the supervisor is delayed; broken: it has ended, and this child ends too
        os.write(writer, b".")
