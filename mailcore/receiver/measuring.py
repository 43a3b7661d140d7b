"""Counts of a receiver for the metrics: its refusals by reply, and the times of its syncs. The manager gets the differences.

Laws
- They exist only if the metrics can be read ([metrics] listen).
- Memory is bounded: REASONS_MAX reasons (milters and maps may invent some); the others are one.
- The receiver never waits for the manager. Counts that it has not reported when it ends are lost.
"""

from __future__ import annotations

import asyncio
import re

from mailcore.frames import Measured
from mailcore.histogram import SYNC_BOUNDS_S, Histogram
from mailcore.receiver.manager_link import ManagerLink

__all__ = ["OTHER", "REASONS_MAX", "Measuring", "reason_of"]

REPORT_S = 1.0  # the counts that a kill loses; the page of the metrics is as old
REASONS_MAX = 64
OTHER = "other"
_REPLY = re.compile(r"([45])([0-9]{2})[ -]?(?:\1(\.[0-9]{1,3}\.[0-9]{1,3})(?![0-9.]))?")


def reason_of(reply: str) -> str:
    """Returns the class of a reply and its reason: the enhanced status code (RFC 3463), or else the code."""
    match = _REPLY.match(reply)
    if match is None:
        return f"5xx {OTHER}"
    return f"{match[1]}xx {match[1]}{match[3] or match[2]}"


class Measuring:
    """Counts, and reports every REPORT_S what is new."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.syncs = Histogram(SYNC_BOUNDS_S)
        self._refusals: dict[str, int] = {}
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None

    def start(self, link: ManagerLink) -> None:
        """Begins to report over ``link``."""
        self._timer = self._loop.call_later(REPORT_S, self.start, link)
        self.report(link)

    def refused(self, reply: str) -> None:
        """Counts a refusal."""
        refusals = self._refusals
        reason = reason_of(reply)
        if reason not in refusals and len(refusals) >= REASONS_MAX:
            reason = f"{reason[:3]} {OTHER}"
        refusals[reason] = refusals.get(reason, 0) + 1

    def report(self, link: ManagerLink) -> None:
        """Reports what is new, if the manager reads."""
        if link.is_open and (self._refusals or any(self.syncs.counts)):
            refusals, self._refusals = self._refusals, {}
            counts, total = self.syncs.take()
            link.measured(Measured(refusals, counts, total))

    def close(self) -> None:
        """Stops the timer, for tests."""
        if self._timer is not None:
            self._timer.cancel()
