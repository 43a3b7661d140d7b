"""Remembers milters that did not answer a connection in time, so that not every session waits for them.

After such a failure, sessions leave the milter out for AWAY_S. Then one session tries it; the others leave it out until that
one has an answer. A milter that fails at once, because nothing listens there, is tried by every session: that costs no time.

Pure: the clock is an argument.
"""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["Away"]

AWAY_S = 10.0  # after its milter is back, mail passes without it for at most this time and that of one connection
SLOW_S = 1.0  # a failure that took this long kept its client waiting, or
SLOW_SHARE = 0.5  # this share of connect_timeout_s, if that is less


class Away:
    """The milters of one process, by address. ``clock`` is monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self._failed_at: dict[str, float] = {}
        self._tried: set[str] = set()  # by a session, now

    def why_not(self, address: str) -> str:
        """Returns why a session does not try a milter; "" if it does: then ``ended`` must follow."""
        failed_at = self._failed_at.get(address)
        if failed_at is None:
            return ""
        ago_s = self.clock() - failed_at
        if ago_s < AWAY_S or address in self._tried:
            return f"did not answer {ago_s:.0f} s ago"
        self._tried.add(address)
        return ""

    def ended(self, address: str, began: float, timeout_s: float, *, failed: bool | None) -> None:
        """Notes what came of a try that began then; None: nothing, the client is gone."""
        self._tried.discard(address)
        now = self.clock()
        if failed and now - began >= min(SLOW_S, SLOW_SHARE * timeout_s):
            self._failed_at[address] = now
        elif failed is not None:
            self._failed_at.pop(address, None)
