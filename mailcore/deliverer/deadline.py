"""The deadline of all deliveries of a shard: its owner's lease. Another node may own the shard behind it, and deliver its mail.

- law: no-dot-after-lease. When the lease is over, no delivery begins and no final dot is sent: a transaction without its dot is
  dropped with its connection. So what is delivered twice after a takeover had its dot before the end, and no verdict that was
  committed.

The manager says until when, before the first entry and with each renewal (``frames.Lease``). Both processes are on one host,
and count the seconds of CLOCK_BOOTTIME, which also run while it sleeps. A manager that says nothing has no lease to lose.
"""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["OVER", "Deadline", "boot_time"]

OVER = "the lease of this shard is over: another node may deliver its mail"


def boot_time() -> float:
    """Returns the seconds since this host started, those of its sleep included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Deadline:
    """Says whether the lease is over. ``until`` is None as long as the manager has not named an end."""

    __slots__ = ("_clock", "until")

    def __init__(self, clock: Callable[[], float] = boot_time) -> None:
        self._clock = clock
        self.until: float | None = None

    @property
    def is_set(self) -> bool:
        """Returns whether there is an end at all."""
        return self.until is not None

    @property
    def is_over(self) -> bool:
        """Returns whether nothing may be delivered any more, unless the lease is renewed."""
        return self.until is not None and self._clock() >= self.until
