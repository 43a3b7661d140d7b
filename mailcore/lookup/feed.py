"""The feed: what happened to messages, in order, from a position in the log on. Its words, and who gives it.

An event is about one recipient: it was accepted, or an attempt for it had a result. Each recipient enters by one ``accepted``
and leaves by exactly one event that is not ``deferred``. The events of a message come in their order, its acceptance first.

A cursor is a position in the log: of the journal, and of each lane in which mail arrives. It is opaque to those who keep it,
and good as long as the events behind it are kept. ``mailcore.events.feed`` implements the feed.

Keeps law: feed-misses-nothing (docs/laws.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from mailcore.faults import Code, FaultError

__all__ = ["KINDS", "NOW", "OLDEST", "Batch", "Chosen", "Event", "EventsComeLater", "EventsGone", "Feed"]

KINDS = ("accepted", "delivered", "deferred", "bounced", "expired", "deleted")
OLDEST = "oldest"  # instead of a cursor: the first event that is kept
NOW = "now"  # instead of a cursor: behind all that has happened


class EventsGone(FaultError):
    """Events behind a cursor are not kept any more, or cannot be read: nothing is left out without saying so."""

    default = Code.NOT_FOUND


class EventsComeLater(FaultError):
    """Events behind a cursor are in the database, and not here yet."""

    default = Code.UNAVAILABLE

    def __init__(self) -> None:
        super().__init__("event files of this shard are still being fetched from the database; ask again")


class Event(msgspec.Struct, kw_only=True, frozen=True):
    """Says what became of one recipient. Times are wall clock, in seconds since 1970; a text that is unknown is ""."""

    id: str  # lane, offset and part: the same whenever it is read
    kind: str
    at: float
    queue_id: str
    number: int  # of the recipient in its message; -1 of one that an operator added
    recipient: str
    recipient_domain: str  # in lower case
    sender: str  # "" of a bounce
    sender_domain: str  # in lower case
    tag: str
    login: str
    size_bytes: int  # 0 of a verdict of our own
    message_id: str = ""  # of accepted
    origin: str = ""  # of accepted: smtp, local, bounce
    client_address: str = ""  # of accepted
    destination: str = ""  # of the others: "transport:next hop"
    relay: str = ""  # the host that answered, "host[address]:port"; "none" of a verdict of our own
    tls: str = ""  # of the connection, "" in the clear
    dsn: str = ""  # enhanced status code
    reply: str = ""
    delay_s: float = 0.0  # since the arrival; 0 of a verdict of our own


class Chosen(msgspec.Struct, kw_only=True, frozen=True):
    """Which events are wanted; all conditions must match, and an empty one matches all. Domains are in lower case."""

    kinds: tuple[str, ...] = ()
    tag: str = ""
    sender_domain: str = ""
    recipient_domain: str = ""
    login: str = ""

    def matches(self, event: Event) -> bool:
        """Returns whether the event is wanted, by the values that it shows."""
        return (
            (not self.kinds or event.kind in self.kinds)
            and (not self.tag or event.tag == self.tag)
            and (not self.sender_domain or event.sender_domain == self.sender_domain)
            and (not self.recipient_domain or event.recipient_domain == self.recipient_domain)
            and (not self.login or event.login == self.login)
        )


class Batch(msgspec.Struct, kw_only=True):
    """Some events, and where to continue.

    ``start`` is the position at which reading began; from it the same limit gives the same events again, also later.
    """

    events: list[Event]
    start: str
    cursor: str
    more: bool  # there may be more events now
    lost: list[str]  # words about events that were left out, for a person


class Feed(Protocol):
    """Gives events. May be used by several threads."""

    def read(self, after: str, chosen: Chosen, limit: int, *, past_lost: bool = False) -> Batch:
        """Returns events behind a cursor, or behind OLDEST or NOW. It stops after a while, perhaps without any.

        ``past_lost``: passes over what is not kept, and says so. Raises EventsGone, EventsComeLater, CursorError,
        OSError.
        """

    def own_of(self, cursors: Sequence[str]) -> str:
        """Returns the cursor of this log; the first, which ``read`` refuses, if none is. ``cursors``: those of several logs."""

    def stamp(self) -> object:
        """Returns what changes when there may be more events; it costs a look at one file."""
