"""An entry: a batch of recipients of one message for one destination, given to a delivery; and one that is to be put off."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Deferral", "Entry"]


@dataclass(slots=True)
class Entry:
    """``report`` ends it."""

    number: int  # unique while the scheduler lives
    queue_id: str
    transport: str
    destination: str  # "transport:next hop"
    recipients: tuple[int, ...]  # Recipient.number


@dataclass(slots=True)
class Deferral:
    """An entry that is to be deferred without being tried: its destination, or its transport, is dead.

    ``report`` ends it as any other; it has no place in a window.
    """

    entry: Entry
    reason: str  # the words of the failure that killed it
    of_transport: bool  # the transport is dead, not the destination
