"""The lease of a shard, without I/O or clock: the owner's view, and the view of a node that may take over.

- law: lease-by-own-clock. A lease holds from before its renewal was sent for ``LEASE_S`` of the owner's own clock. A node
  takes over only when it has read the same beat for 1.5 times as long by its own clock, at least every second. No clock is
  compared with another.

The clock counts while the machine sleeps (CLOCK_BOOTTIME).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["LEASE_S", "RENEW_EVERY_S", "BeatWatch", "Lease"]

LEASE_S = 6.0  # a takeover begins 9 s after the last beat, and mail is at the next hop within 15
RENEW_EVERY_S = 1.0
WATCH_S = 1.5 * LEASE_S
READ_GAP_S_MAX = 1.0


@dataclass
class Lease:
    """The owner's view. ``beat`` is the last one that was confirmed."""

    beat: int
    lease_s: float = LEASE_S
    until: float = -math.inf
    lost: bool = False

    def __post_init__(self) -> None:
        self._following = self.beat
        self._sent_at = -math.inf

    def send(self, now: float) -> tuple[int, int]:
        """Begins a renewal. Returns the confirmed beat, and the one to set: higher than that of any renewal before it.

        An earlier renewal that arrives late finds a beat that is not below its own.
        """
        self._following += 1
        self._sent_at = now
        return self.beat, self._following

    def is_renewed(self, beat: int) -> None:
        """Notes that the renewal that was begun last has returned."""
        self.beat = beat
        self.until = self._sent_at + self.lease_s

    def is_lost(self) -> None:
        """Notes that the row is not ours any more. It never is again in this epoch."""
        self.lost = True

    def holds(self, now: float) -> bool:
        """Returns True if deliveries may begin now."""
        return not self.lost and now < self.until


@dataclass
class BeatWatch:
    """The view of a node that may take over."""

    watch_s: float = WATCH_S
    gap_s: float = READ_GAP_S_MAX

    def __post_init__(self) -> None:
        self._seen: tuple[int, int] | None = None
        self._since = self._asked_at = self._answered_at = 0.0

    def reads(self, epoch: int, beat: int, asked_at: float, answered_at: float) -> None:
        """Notes a beat that was read between two moments of one's own clock."""
        if (epoch, beat) != self._seen or answered_at - self._answered_at > self.gap_s:
            self._seen, self._since = (epoch, beat), answered_at
        self._asked_at, self._answered_at = asked_at, answered_at

    def fails(self) -> None:
        """Notes that the row could not be read: an owner that could not renew is not silent."""
        self._seen = None

    @property
    def since(self) -> float:
        """Returns when the last beat was read first: its renewal was sent before."""
        return self._since

    def is_silent(self) -> bool:
        """Returns True if the last beat that was read may be named in a takeover."""
        return self._seen is not None and self._asked_at - self._since >= self.watch_s
