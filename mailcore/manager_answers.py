"""Defines the manager's answers: the manager constructs them, control reads them or passes them on.

This module is apart because neither process imports the other. The rows that name them are in ``mailcore.control.protocol``.
Times are wall clock in seconds, offsets are in bytes.

Law: values only.
"""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType

from mailcore.faults import Fault
from mailcore.queue.sizes import Amount, QueueSize
from mailcore.scheduler.snapshot import DestinationSnapshot, PlainValue, SchedulerSnapshot, StateUntil

__all__ = [
    "ActiveDestination",
    "BalanceTerms",
    "Cut",
    "DelivererState",
    "Destinations",
    "InForce",
    "Injected",
    "JournalPlaces",
    "LaneCut",
    "LaneState",
    "Ordered",
    "Outcomes",
    "Overtaken",
    "Places",
    "Progress",
    "Reason",
    "Reasons",
    "Reply",
    "Size",
    "State",
    "StateUntil",
    "Transports",
    "ValueSet",
    "Working",
    "WrittenPositions",
]


# -- about messages


class Injected(Struct, kw_only=True):
    """The message that was injected, or is being injected."""

    queue_id: str


class Ordered(Struct, kw_only=True):
    """The result of a change, once its records are synced."""

    changed: int  # messages
    recipients: int  # of these messages: those that the change applies to
    in_flight: dict[
        str, list[int]
    ]  # queue id -> numbers of those being delivered now; the next hop's final reply counts
    errors: dict[str, Fault]  # queue id -> why this message was not changed
    dead: list[str]  # of a retry: destinations of these recipients that are dead, so that they are deferred again
    elsewhere: list[str]  # queue ids of those errors for which the message may be in another lane


class Overtaken(Struct, kw_only=True):
    """The recipients for whom a change came too late because they were being delivered; it applied to all others."""

    too_late: int  # delivered, or refused with a final reply, before the change
    undecided: int  # not known, because their deliveries have not ended or the manager was restarted


class LaneCut(Struct, array_like=True):
    """Where to read a lane. The three are offsets in bytes."""

    browse: int  # the lowest at which a message that is not finished may lie
    runner: int  # the messages before it are active, or no longer in this lane
    end: int  # all bytes before it are durable


class Cut(Struct, kw_only=True):
    """Where browsing starts and ends."""

    lanes: dict[str, LaneCut]  # by name of the lane
    unheard: list[str] = []  # lanes whose receiver has not reported yet: their newest mail lies beyond the end


class Progress(Struct, kw_only=True):
    """How far an active message is, or one that is due before its time. ``done`` and ``replies`` are bounded, so either may
    lack some of many recipients."""

    remaining: int  # recipients without a final verdict
    in_flight: int  # deliveries
    lane: str  # where its envelope lies
    offset: int
    generation: int
    done: list[int]  # numbers of the recipients with a final verdict, ascending
    replies: dict[int, str]  # number of a recipient -> the reply that deferred it in this pass
    destinations: list[str]  # the first DESTINATIONS_SHOWN of recipients in memory
    states: dict[str, int]  # state (mailcore.mail_state) -> recipients
    recipient_states: dict[
        int, str
    ] = {}  # of those in memory, if one message was asked for: number -> state; bounded, too
    active: bool = True  # False: it rests in its lane, and is due because of a retry


class Working(Struct, kw_only=True):
    """Those of the messages that are active."""

    messages: dict[str, Progress]  # by queue id


class Reason(Struct, kw_only=True):
    """Why a group of a message's recipients waits. The numbers are those of the sentence; a reason has only some of them.

    Times are wall clock, in seconds since 1970.
    """

    state: str  # held, deferred, window full, ...: see the module that gives it
    recipients: int  # how many wait for this reason
    sentence: str  # for a person; may be reworded at any time
    destination: str | UnsetType = UNSET
    transport: str | UnsetType = UNSET
    lane: str | UnsetType = UNSET
    reply: str | UnsetType = UNSET  # the last one; "" when there is none
    reason: str | UnsetType = UNSET  # as an operator gave it; "" when none was given
    job: str | UnsetType = UNSET  # the queue id of the message in front
    since: float | UnsetType | None = UNSET  # None: it was not recorded
    until: float | UnsetType | None = UNSET  # None: without an end
    suspended_until: float | UnsetType | None = UNSET  # None: until it is resumed
    looked_at: float | UnsetType = UNSET  # when a scheduled message is read the next time
    busy: int | UnsetType = UNSET  # deliveries in progress
    window: int | UnsetType = UNSET  # deliveries to the destination
    process_limit: int | UnsetType = UNSET  # deliveries of the transport
    capacity: int | UnsetType = UNSET  # deliveries of all deliverers
    in_flight: int | UnsetType = UNSET  # deliveries of this message that are waited for
    entry: int | UnsetType = UNSET  # the manager's number of the delivery in progress
    entries_ahead: int | UnsetType = UNSET
    entries_missing: int | UnsetType = UNSET  # until it can preempt the message in front
    slots_missing: int | UnsetType = UNSET  # the same in delivery slots
    messages_ahead: int | UnsetType = UNSET
    bytes_ahead: int | UnsetType = UNSET  # of its lane
    room: int | UnsetType = UNSET  # recipients that may be read now


class Reasons(Struct, kw_only=True):
    """Why a message waits."""

    reasons: list[Reason]  # one for each group of its recipients; the manager's list is empty if it is not active
    not_read: str = (
        ""  # of a message that is not active: why none is read from its lane; "" if some is, or the manager is away
    )
    state: str = ""  # the one to show, of ``states``; "" if the manager's list is empty
    states: dict[str, int] = {}  # state (mailcore.mail_state) -> recipients


# -- about the queue


class LaneState(Struct, kw_only=True):
    """A lane as the manager reads it; offsets in bytes."""

    runner: int  # the runner's position
    end: int  # up to here it can be read
    interval_s: float | None  # between two passes of the runner; None: it only passes once


class DelivererState(Struct, kw_only=True):
    """A deliverer that is connected."""

    number: int
    pid: int
    in_flight: int  # deliveries in progress
    capacity: int


class JournalPlaces(Struct, kw_only=True):
    """Offsets in the journal."""

    suffix: int  # a start reads from here
    end: int
    durable: int  # up to here it is synced


class WrittenPositions(Struct, kw_only=True):
    """The restart positions on disk."""

    sequence: int
    written_at: float  # wall clock


class BalanceTerms(Struct, kw_only=True):
    """Both balances since ``State.counted_since``, by term (``mailcore.balance``); ``difference`` is 0 if they balance."""

    recipients: dict[str, int]
    messages: dict[str, int]


class HistogramAnswer(Struct, kw_only=True):
    """A histogram: ``counts`` has one more than ``bounds``, for the values beyond the last."""

    bounds: list[float]
    counts: list[int]
    total: float


class MeasuredAnswer(Struct, kw_only=True):
    """The counts for the metrics, since ``started_at``."""

    refusals: dict[str, int]  # class and reason of a reply, as "5xx 5.7.1"
    syncs: dict[str, HistogramAnswer]  # role -> seconds
    delays: dict[str, HistogramAnswer]  # transport -> seconds from arrival to delivery


class ShardState(Struct, kw_only=True):
    """The shard that a database keeps, as its owner sees it."""

    name: str
    lease_s: float  # seconds of the lease that are left; 0.0: it has ended, and nothing is delivered
    commit_waits_s: float  # for how long the manager's commit has waited; 0.0 if none is under way
    trouble: str = ""  # why the lease is not renewed; "" if it is
    limits_trouble: str = (
        ""  # why it has no shares of the limits of destinations, so that nothing is delivered; "" if it has
    )


class ShardRow(Struct, kw_only=True):
    """One of several shards, and the node that owns it. None: it does not answer, and what it has is not known."""

    number: int
    name: str = ""  # in the database of [nodes]
    node: str = ""  # "" if there are no other nodes
    is_here: bool = True  # at the node that was asked
    answers: bool
    why: str = ""  # it does not answer
    active_messages: int | None = None
    entries_in_flight: int | None = None


class State(Struct, kw_only=True):
    """The manager's live state."""

    pid: int
    started_at: float  # wall clock; ``counters`` and ``accepted_by_origin`` count from here
    counted_since: float = 0.0  # wall clock; ``balance`` and ``totals`` count from here, over restarts of the manager
    counted_note: str = ""  # why they count from there and not from earlier; "" if the queue was new
    totals: dict[str, int] = {}  # those of ``counters`` that count mail
    uptime_s: float
    stalled: str  # why the manager takes in no mail; "" if it does
    tuned_damage: str  # why values set live are not in force; "" if they are
    restored: str = ""  # why restored mail is held; "" if none is
    active_full: str = ""  # that the active set is full, and who fills it; "" if it is not
    unanswered: str = ""  # which shards did not answer: nothing here includes them; "" if all did
    active_messages: int
    recovered_waiting: int  # messages found at the start that are not active yet
    recovered_at_start: int
    counters: dict[str, int]
    accepted_by_origin: dict[str, Amount]
    balance: BalanceTerms
    receivers: dict[str, int]  # lane -> pid
    deliverers: list[DelivererState]
    lanes: dict[str, LaneState]
    journal: JournalPlaces
    positions: WrittenPositions
    scheduler: SchedulerSnapshot
    measured: MeasuredAnswer | None = None  # None: the metrics cannot be read
    shard: ShardState | None = None  # None: the queue is on this disk alone
    shards: list[ShardRow] = []  # if there are several, all of them
    outcomes: dict[str, dict[str, int]] = {}  # transport -> status -> recipients, from ``started_at`` on


class ShardSize(Struct, kw_only=True):
    """The size of one of several shards."""

    number: int
    messages: int
    recipients: int


class Size(QueueSize, kw_only=True):
    """The size of the queue."""

    unheard: list[str] = []  # lanes whose receiver has not reported yet: their newest mail is not counted
    by_shard: list[ShardSize] = []  # if there are several: those that answer
    unanswered: str = ""  # the shards that do not answer, and why: their mail is not counted


class Places(Struct, kw_only=True):
    """The manager's part of ``positions``; offsets in bytes."""

    lanes: dict[str, LaneCut]
    journal: JournalPlaces
    held: dict[str, list[tuple[int, int]]] | None = None  # lane -> [segment, active messages in it]; None: not known
    working: int | None = None  # active messages; None: not known


class Reply(Struct, kw_only=True):
    """A reply of a next hop, or why there was none."""

    at: float  # the last time
    reply: str
    status: str  # delivered, deferred, bounced or expired
    dsn: str  # enhanced status code, "4.2.0"; "" if there was none
    relay: str
    times: int  # so often in a row


class Outcomes(Struct, kw_only=True):
    """The recipients of a destination by outcome, since the manager's start."""

    delivered: int = 0
    deferred: int = 0
    bounced: int = 0
    expired: int = 0  # these were deferred before, and count there too
    success_share: float | None = None  # of all tries; None: none was made
    recent_share: float | None = None  # of the tries of the last minutes; None: too few of them were made
    last_delivered_at: float | None = None
    last_replies: list[Reply] = []  # the newest one first


class ActiveDestination(DestinationSnapshot, kw_only=True):
    """A destination with mail; it has the fields of ``Outcomes``, too."""

    delivered: int = 0
    deferred: int = 0
    bounced: int = 0
    expired: int = 0
    success_share: float | None = None
    recent_share: float | None = None
    last_delivered_at: float | None = None
    last_replies: list[Reply] = []


class Destinations(Struct, kw_only=True):
    """Destinations with mail, without, and suspended ones; of each at most as many as were asked for."""

    destinations: dict[str, ActiveDestination]  # those with the most mail
    without_mail: dict[str, Outcomes]  # those that replied last, the newest first
    queued: dict[str, int]  # -> recipients anywhere in the queue, most first
    suspended: dict[str, float | None]  # scope -> until when; None: until it is resumed
    states: dict[str, list[StateUntil]]  # of each name above but ""; the first is the one to show
    unanswered: str = ""  # which shards did not answer: nothing here includes them; "" if all did


class InForce(Struct, kw_only=True, omit_defaults=True):
    """A value in force."""

    value: PlainValue | None  # of a suspension: until when; None: until it is resumed
    origin: str  # default, configuration or tuned
    until: float | None = None  # it holds until then; None: until it is removed
    scope: str | None = None  # it is set for this wider scope; None: for the scope itself


class Transports(Struct, kw_only=True):
    """The values in force."""

    scopes: dict[str, dict[str, InForce]]  # scope -> parameter -> value; "" is the global scope


class ValueSet(Struct, kw_only=True, omit_defaults=True):
    """A value that was set or removed, and is synced."""

    scope: str
    parameter: str
    value: PlainValue | None  # None: back to the configured one, or a suspension without end
    before: PlainValue | None  # in force until now
    until: float | None = None  # it holds until then; None: until it is removed
    suspended: InForce | None = None  # after a resume: the suspension of a wider pattern, which remains
    unanswered: str = ""  # after a resume: in which shards a dead destination may not be tried now; "" if in none
