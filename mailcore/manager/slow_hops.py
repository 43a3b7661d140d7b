"""Remembers for which destinations cut-through was too slow: their clients would wait in vain, each of them.

After a message that the next hop did not have in time, mail for the destination is stored at once for ``REST`` times as long as
its client waited, and then one message tries again. Each further one that is late doubles the rest.

Pure: no clock.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["SlowHops"]

REST = 10.0  # times the client's wait: so clients wait at most a tenth of the time, and later a sixtieth
REST_MAX_S = 600.0
KEPT_MAX = 10_000  # destinations; beyond, the one that was late first is forgotten


@dataclass(slots=True)
class _Slow:
    """A destination that was too slow."""

    until: float  # monotonic: its rest is over
    rest_s: float
    is_tried: bool = False  # a message is on its way


class SlowHops:
    """Holds the destinations that were too slow when they were last tried."""

    def __init__(self) -> None:
        self._slow: dict[str, _Slow] = {}

    def rests(self, destination: str, now: float) -> bool:
        """Returns True if mail for the destination is to be stored at once."""
        slow = self._slow.get(destination)
        return slow is not None and (slow.is_tried or now < slow.until)

    def try_again(self, destination: str) -> None:
        """Notes that a message is on its way; until its end, others are stored if the destination was too slow."""
        if (slow := self._slow.get(destination)) is not None:
            slow.is_tried = True

    def late(self, destination: str, waited_s: float, now: float) -> None:
        """Begins a rest: a client has waited for ``waited_s``. One of several that were on their way together counts."""
        slow = self._slow.pop(destination, None)
        if slow is None:
            rest_s = min(REST * waited_s, REST_MAX_S)
            slow = _Slow(now + rest_s, rest_s)
            if len(self._slow) >= KEPT_MAX:
                del self._slow[next(iter(self._slow))]
        elif slow.is_tried:
            slow = _Slow(now + min(2 * slow.rest_s, REST_MAX_S), min(2 * slow.rest_s, REST_MAX_S))
        self._slow[destination] = slow

    def in_time(self, destination: str) -> None:
        """Ends the rest: the next hop answered in time."""
        self._slow.pop(destination, None)

    def broken_off(self, destination: str) -> None:
        """Notes that nothing was learned from the message that was on its way."""
        if (slow := self._slow.get(destination)) is not None:
            slow.is_tried = False
