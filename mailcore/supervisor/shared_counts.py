"""Counters that all receivers share: how much each user and client network sent, and how much of it failed, in a period.

They are in memory that the supervisor makes and every receiver maps, so that a limit holds for the server and not for each
process, and a receiver that is killed loses none of them. They begin at zero when the supervisor starts.

A counter is the sum of the current period and of the part of the period before that is not over yet: a sliding window to
within what one period varies. There is no lock: two processes that add at the same moment may lose one of the two. The limits
are approximate, and never lower than set by more than that.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import struct
from collections.abc import Callable

__all__ = ["COUNTS", "Counts", "Table", "make_counts"]

COUNTS = "WAYPOST_COUNTS"  # for a receiver: the descriptor of the memory
_SLOT = struct.Struct("=QQdddd")  # key, number of the period, two counters of it, the same two of the period before
TABLES = ("rates", "failures", "known", "client_mail", "client_other")
SLOTS = 16_384  # of a table, 786 kB; memory is used only for what is counted
# Slots where a key may be. Beyond that it takes the one that was not used for longest, and of those the one with the lowest sum
# of both counters: invented names do not push out a network that fails all the time.
PROBES = 8
_TABLE_BYTES = SLOTS * _SLOT.size
_BYTES = len(TABLES) * _TABLE_BYTES


def make_counts() -> int:
    """Returns the descriptor of new memory for ``Counts``. Raises OSError."""
    fd = os.memfd_create("waypost-counts")
    os.ftruncate(fd, _BYTES)
    return fd


class Table:
    """Counts two amounts by key. ``clock`` is monotonic seconds, which are the same in all processes (clock_gettime(2))."""

    def __init__(self, memory: mmap.mmap, number: int, period_s: float, clock: Callable[[], float]) -> None:
        self._memory = memory
        self._offset = number * _TABLE_BYTES
        self._period_s = period_s
        self._clock = clock

    def add(self, key: str, first: float = 1.0, second: float = 0.0) -> None:
        """Adds to the two counters of a key; an amount below zero takes away what was added before."""
        at, number, a, b, c, d = self._find(key)
        period, _ = self._now()
        hashed = _hashed(key)
        if number != period:
            a, b, c, d = 0.0, 0.0, *((a, b) if number == period - 1 else (0.0, 0.0))
        _SLOT.pack_into(self._memory, at, hashed, period, max(0.0, a + first), max(0.0, b + second), c, d)

    def read(self, key: str) -> tuple[float, float]:
        """Returns the two counters of a key over the last period."""
        _, number, a, b, c, d = self._find(key)
        period, passed = self._now()
        if number == period:
            return a + c * (1 - passed), b + d * (1 - passed)
        return (a * (1 - passed), b * (1 - passed)) if number == period - 1 else (0.0, 0.0)

    def _now(self) -> tuple[int, float]:
        """Returns the number of the period, from 1, and which part of it has passed."""
        periods = self._clock() / self._period_s
        return int(periods) + 1, periods % 1

    def _find(self, key: str) -> tuple[int, int, float, float, float, float]:
        """Returns the slot of a key, and its content: zeros if it was another's."""
        hashed = _hashed(key)
        victim, least = 0, (1 << 64, 0.0)
        for probe in range(PROBES):
            at = self._offset + (hashed + probe) % SLOTS * _SLOT.size
            found, period, *counts = _SLOT.unpack_from(self._memory, at)
            if found == hashed:
                return at, period, counts[0], counts[1], counts[2], counts[3]
            if (period, counts[0] + counts[1]) < least:
                victim, least = at, (period, counts[0] + counts[1])
        return victim, 0, 0.0, 0.0, 0.0, 0.0


class Counts:
    """The tables of all receivers. ``descriptor`` is that of the supervisor's memory; None: memory of this process alone."""

    def __init__(
        self, descriptor: int | None, failure_time_s: float, clock: Callable[[], float], client_time_s: float = 60.0
    ) -> None:
        memory = mmap.mmap(-1 if descriptor is None else descriptor, _BYTES)
        self.rates = Table(memory, 0, 3600.0, clock)
        self.failures = Table(memory, 1, failure_time_s, clock)
        self.known = Table(memory, 2, 30 * 86_400.0, clock)  # networks where a user has logged in
        self.client_mail = Table(memory, 3, client_time_s, clock)  # of a client network: messages, recipients
        self.client_other = Table(memory, 4, client_time_s, clock)  # connections, errors


def _hashed(key: str) -> int:
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "little") or 1
