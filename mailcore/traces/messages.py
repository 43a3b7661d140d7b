"""The facts that spans need of messages whose earlier records were read: a bounded memory, in which the oldest are forgotten.

A span whose message was forgotten is still right, but says less: docs/traces.md.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

__all__ = ["Known", "Messages"]


@dataclass(slots=True)
class Known:
    """The facts that were read of one message. Times are wall clock, in seconds; 0.0: not known."""

    tag: str | None = None  # None: not known
    arrived_at: float = 0.0
    waits_since: float = 0.0  # arrival, or the end of the pass before
    failed: bool = False  # a recipient was returned


class Messages:
    """Holds at most ``most`` messages."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: OrderedDict[str, Known] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def of(self, queue_id: str) -> Known:
        """Returns what is known of a message, to be changed."""
        known = self._known.get(queue_id)
        if known is None:
            known = self._known[queue_id] = Known()
            if len(self._known) > self._most:
                self._known.popitem(last=False)
        else:
            self._known.move_to_end(queue_id)
        return known

    def known(self, queue_id: str) -> Known:
        """Returns what is known of a message, without keeping it."""
        return self._known.get(queue_id) or Known()

    def ended(self, queue_id: str) -> Known:
        """Returns what is known of a message, and forgets it."""
        return self._known.pop(queue_id, None) or Known()
