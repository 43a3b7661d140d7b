"""Defines what looking into the queue gives: items of a list, hits of a search, a history, ages.

They stand apart from the code that reads, so that a client that only knows these types imports none of it.

Law: values only, no I/O.
"""

from __future__ import annotations

import enum
from typing import Any, NamedTuple

from msgspec import Struct

from mailcore.mail_state import other_states

__all__ = [
    "DAMAGES_SHOWN",
    "DESTINATIONS_SHOWN",
    "RECIPIENTS_SHOWN",
    "Accepted",
    "Administered",
    "AgesRow",
    "AgesTable",
    "Attempt",
    "AttemptVerdict",
    "BounceQueued",
    "Deferred",
    "DestinationTimes",
    "Finished",
    "History",
    "HistoryEvent",
    "Hit",
    "HostInTheClear",
    "Item",
    "Keeper",
    "LaneSegments",
    "MailOutcomes",
    "Moved",
    "Oldest",
    "Page",
    "PastItem",
    "Placed",
    "Segment",
    "Selected",
    "SenderOutcome",
    "ServiceTimes",
    "TimedReply",
]

RECIPIENTS_SHOWN = 10  # of an item; a page of 1 000 items stays far below a frame
DESTINATIONS_SHOWN = 5
DAMAGES_SHOWN = 10


class Item(Struct, kw_only=True):
    """A message as a list shows it."""

    queue_id: str
    lane: str
    offset: int
    generation: int
    state: str  # the one to show, mailcore.mail_state: of those below
    states: dict[str, int]  # state -> recipients
    active: bool  # it is in the active set
    sender: str
    recipients: list[str]  # the first RECIPIENTS_SHOWN; the one that was asked for is in front
    recipient_count: int
    size_bytes: int
    arrived_at: float
    due_at: float  # next attempt, wall clock; 0.0 is at once
    attempts: int
    reason: str  # the last reply, or why it is held
    destinations: list[str]  # the first DESTINATIONS_SHOWN known ones

    @property
    def apart(self) -> dict[str, int]:
        """Returns the recipients in another state than the one to show, by their state."""
        return other_states(self.states)


class PastItem(Struct, kw_only=True):
    """A message as a list of a moment in the past shows it, without the fields that events lack."""

    queue_id: str
    lane: str  # where it lay, or was taken from
    generation: int
    state: str  # the one to show, of those below
    states: dict[str, int]  # queued, deferred, delayed, held or deleted -> recipients
    sender: str
    recipients: list[str]  # the first RECIPIENTS_SHOWN that were left; the one that was asked for is in front
    recipient_count: int  # those that were left
    size_bytes: int
    arrived_at: float
    due_at: float  # next attempt, wall clock, as its lane has it; 0.0: at once, or not known
    attempts: int
    reason: str  # the last reply until then, or why it was held
    destinations: list[str]  # the first DESTINATIONS_SHOWN of the attempts until then

    @property
    def apart(self) -> dict[str, int]:
        """Returns the recipients in another state than the one to show, by their state."""
        return other_states(self.states)


class Selected(NamedTuple):
    """The recipients of one message that a change selects: how many, and their numbers as ranges; None: all that it fits."""

    recipients: int
    ranges: list[list[int]] | None = None


class Page(Struct, kw_only=True):
    """One page. ``cursor`` is where the next page begins, also if ``items`` is not full; None at the end of the queue."""

    items: list[Item]
    cursor: str | None
    examined: int  # records read
    damage: list[str] = []  # the first DAMAGES_SHOWN places that could not be read, for a person
    selected: dict[str, Selected] = {}  # queue id -> the recipients that a change selects


class Hit(Struct, kw_only=True):
    """A message as a search shows it.

    ``state`` is as in ``Item``, or how the message ended: delivered, bounced, expired or deleted (then
    ``finished_at`` is set), or unknown.
    """

    queue_id: str
    at: float  # arrival, wall clock
    sender: str
    recipients: list[str]  # the first RECIPIENTS_SHOWN; the one that was asked for is in front
    recipient_count: int
    message_id: str
    size_bytes: int
    state: str
    finished_at: float | None


class Placed(Struct, kw_only=True):
    """The place of an envelope."""

    lane: str
    offset: int


class _Event(Struct, kw_only=True, tag_field="event"):
    at: float  # wall clock, seconds

    @property
    def event(self) -> str:
        """Returns the kind of the event, as it is sent."""
        return str(self.__struct_config__.tag)


class Accepted(_Event, tag="accepted"):
    """The message arrived."""

    sender: str
    size_bytes: int
    recipients: int  # how many
    client_address: str  # "" when it did not come by SMTP
    helo: str
    tls: str  # "" without TLS
    login: str  # "" without authentication
    message_id: str  # "" when the message lacks one
    origin: str  # smtp, local or bounce
    authentication: str = ""  # our own results: "spf=pass dkim=pass arc=none dmarc=pass"; "" if it was not checked


class AttemptVerdict(Struct, kw_only=True):
    """The verdict for one recipient, of an attempt or without one."""

    number: int
    address: str  # "" when it is not known: the envelope is deleted
    status: str  # delivered, deferred, bounced, expired or deleted
    dsn: str  # the enhanced status code, RFC 3463
    reply: str  # shortened to timeline.REPLY_CHARACTERS


class Attempt(_Event, tag="attempt"):
    """An attempt at delivery."""

    destination: str
    relay: str
    tls: str  # "" without TLS
    delays: list[float]  # seconds: before the manager, in the queue, connecting, transmitting
    verdicts: list[AttemptVerdict]
    verdicts_left_out: int
    tls_level: str = (
        ""  # the level and its reason; "" if no connection was made for another reason, and for a Unix socket
    )


class Settled(_Event, tag="settled"):
    """Recipients ended without an attempt: they were deleted, returned by an operator or expired, or have no route."""

    destination: str  # "" if the mail lacks one
    verdicts: list[AttemptVerdict]
    verdicts_left_out: int


class _Replacement(_Event):
    lane: str  # the new one
    due_at: float  # wall clock, seconds; 0.0: at once
    generation: int  # of the new envelope


class Deferred(_Replacement, tag="deferred_until"):
    """The message was put into a retry lane."""

    of_lane: bool = False  # its envelope is deleted: ``due_at`` is the lane's time, and the message's own may be later


class Moved(_Replacement, tag="replaced"):
    """The message was put into any other lane."""


class BounceQueued(_Event, tag="bounce"):
    """A report about the message was made for its sender."""

    queue_id: str  # of the report
    lane: str
    offset: int
    report: str = ""  # "delay", "success" or "postmaster" (failures, for the postmaster); "": it tells of failures


class Administered(_Event, tag="administrative"):
    """An operator ordered a change."""

    operation: str
    who: str
    why: str
    arguments: dict[str, Any]  # of the operation; of a list, the first timeline.LISTED_MAX
    recipients: int | None = None  # how many it names; None: all that it fits, or the record does not say


class Finished(_Event, tag="finished"):
    """The message left the queue."""

    how: str  # "" or "deleted"
    bounce: Placed | None  # None: without a bounce


HistoryEvent = Accepted | Attempt | Settled | Deferred | Moved | BounceQueued | Administered | Finished


class History(Struct, kw_only=True):
    """A history. ``complete`` means that its arrival and all its passes were found; before ``since`` no records exist."""

    queue_id: str
    events: list[HistoryEvent]  # oldest first
    complete: bool
    since: float | None  # wall clock, seconds
    note: str
    examined: int  # bytes of the journal
    events_left_out: int = 0
    verdicts_left_out: int = 0


class AgesRow(Struct, kw_only=True):
    """The messages for one destination."""

    destination: str  # "others": the sum of those without a row
    counts: list[int]  # by age, one for each of ``AgesTable.buckets_s``
    total: int


class Oldest(Struct, kw_only=True):
    """The message that has been queued for the longest time."""

    queue_id: str
    arrived_at: float  # wall clock, seconds
    sender: str
    destination: str  # one of its destinations; "" when it is not known
    state: str  # as in ``Item``


class AgesTable(Struct, kw_only=True):
    """The age of the queued messages, by destination."""

    buckets_s: list[int | None]  # the highest age of each column; None: without an end
    rows: list[AgesRow]  # those with the most messages first
    total: int  # messages, each once
    counts: list[int] = []  # the same by age, one for each of ``buckets_s``
    by_state: dict[str, int]  # state as in ``Item`` -> messages; those whose state is not known are active
    oldest: Oldest | None  # None: the queue is empty
    as_of: float  # wall clock, seconds: the ages are those at this time
    took_s: float
    examined: int  # records read


class Keeper(enum.StrEnum):
    """Why a segment is not deleted yet."""

    DAMAGE = "damage"
    NEWEST = "newest"
    EXPORT = "export"
    NOTHING = "nothing"
    POSITIONS = "restart positions"
    SUFFIX = "working suffix"
    HELD = "held"
    DELETED = "deleted"
    UNREAD = "unread"
    ACTIVE = "active"
    OLDER = "older segment"
    UNKNOWN = "active or older segment"  # without the manager it is not known which


class Segment(Struct, kw_only=True):
    """A segment on disk."""

    base: int  # offset of its first byte in the lane
    bytes: int
    sealed: bool  # another one follows
    messages: int | None  # envelopes written to it; None: not known, as in the journal
    live: int | None  # of them, messages being worked on; None: not known
    kept_by: Keeper  # why it is not deleted
    sentence: str  # the same in words


class LaneSegments(Struct, kw_only=True):
    """The segments of a lane."""

    segments: list[Segment]  # at most SEGMENTS_SHOWN
    segments_left_out: int
    garbage_prefix_bytes: int  # from the first segment to the first envelope that may be alive
    bytes_on_disk: int  # of all segments


class Retired(Struct, kw_only=True):
    """The retired segments of a lane: no part of it any more, they are kept for data of mail that waits elsewhere."""

    segments: int
    bytes: int
    needed_bytes: int | None  # of records whose data is needed; None: not all of them were read yet
    unneeded_since: (
        float  # when the last mark was written to one of which nothing is needed, wall clock; 0.0: there is none
    )
    oldest_at: float  # when the first of them was begun, wall clock; 0.0: there is none


class TimedReply(Struct, kw_only=True):
    """A reply other than success."""

    at: float  # the last time, wall clock
    reply: str
    status: str  # deferred, bounced or expired
    dsn: str  # enhanced status code; "" if there was none
    times: int


class DestinationTimes(Struct, kw_only=True):
    """The measurement of one destination; samples are in seconds, in ascending order."""

    deliveries: int
    recipients: int  # of deliveries that reached a transaction
    connect_s: list[float]
    transmit_s: list[float]
    new_connections: int
    site_failures: int
    deferred: int  # of the recipients
    bounced: int
    replies: list[TimedReply]  # the newest first


class ServiceTimes(Struct, kw_only=True):
    """Holds the measurement."""

    destinations: dict[str, DestinationTimes]
    since: float  # wall clock: deliveries that ended before were not read
    examined: int  # records
    destinations_left_out: int = 0
    note: str = ""  # files that could not be read
    unanswered: str = ""  # the shards that did not answer, and why; it is in the note, too
    unread_files: int = 0  # of the archive: their deliveries are missing here


class SenderOutcome(Struct, kw_only=True):
    """The recipients of mail from one domain that ended."""

    domain: str
    ended: int  # delivered, bounced or expired
    bounced: int  # of them, bounced or expired


class HostInTheClear(Struct, kw_only=True):
    """A host that got mail in the clear although it has TLS."""

    host: str  # name[address]:port
    over_tls: int  # transactions
    failed: int  # in the clear because TLS failed
    not_offered: int  # in the clear because TLS was not offered then
    reason: str  # of the newest failure; "" without one


class MailOutcomes(Struct, kw_only=True):
    """Holds the outcomes of a time."""

    since: float  # wall clock: outcomes before were not read
    senders: list[SenderOutcome]  # those with the most bounced first
    senders_left_out: int
    others_ended: int  # recipients of sender domains that are not counted by name
    others_bounced: int
    hosts: list[HostInTheClear]
    hosts_left_out: int
    examined: int  # records
    note: str  # files that could not be read
    unanswered: str = ""  # the shards that did not answer, and why; it is in the note, too
