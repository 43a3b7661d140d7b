"""A message in the active set, and its peers: the part of it that waits for one destination.

Laws: ``in_core`` counts the recipients that are waiting or in flight; a peer is in ``Message.peers`` and in its
destination's queue exactly while it has recipients that wait.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Deferral", "Entry", "Message", "Peer", "WindowChange"]


@dataclass(slots=True)
class Entry:
    """A batch of recipients given to a delivery; ``report`` ends it."""

    number: int  # unique while the scheduler lives
    queue_id: str
    transport: str
    destination: str  # "transport:next hop"
    recipients: tuple[int, ...]  # Recipient.number


@dataclass(slots=True)
class Deferral:
    """An entry to be deferred without being tried, and why."""

    entry: Entry
    reason: str
    of_transport: bool  # the transport is dead, not the destination


@dataclass(slots=True)
class WindowChange:
    """What destination_concurrency_feedback_debug asks to be told."""

    destination: str


class Peer:
    """The waiting recipients of one message for one destination."""

    __slots__ = ("message", "recipients", "turn")

    def __init__(self, message: Message, turn: int, recipients: list[int]) -> None:
        self.message = message
        self.turn = turn  # place in its destination's FIFO; kept by what is given back
        self.recipients = recipients


class Message:
    """What the scheduler knows of one message."""

    __slots__ = ("in_core", "peers", "queue_id", "unread")

    def __init__(self, queue_id: str) -> None:
        self.queue_id = queue_id
        self.unread = 0  # recipients still in the log
        self.in_core = 0
        self.peers: dict[str, Peer] = {}  # by destination name
