"""Defines the manager's answers about messages: the manager constructs them, control reads them or passes them on.

This module is apart because neither process imports the other. The rows that name them are in ``mailcore.control.protocol``.

Law: values only. Must not know: any room; of the words, it knows the faults.
"""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType

from mailcore.faults import Fault

__all__ = ["Cut", "Injected", "LaneCut", "Located", "Ordered", "Progress", "Reason", "Reasons", "Working"]


class Injected(Struct, kw_only=True):
    """The message that was injected, or is being injected."""

    queue_id: str


class Ordered(Struct, kw_only=True):
    """The result of a change, once its records are synced."""

    changed: int  # messages
    errors: dict[str, Fault]  # queue id -> why this message was not changed
    elsewhere: list[str]  # queue ids of those errors for which the message may be in another lane


class LaneCut(Struct, array_like=True):
    """Where to read a lane. The three are offsets in bytes."""

    browse: int  # the lowest at which a message that is not finished may lie
    runner: int  # the messages before it are active, or no longer in this lane
    end: int  # all bytes before it are durable


class Cut(Struct, kw_only=True):
    """Where browsing starts and ends."""

    lanes: dict[str, LaneCut]  # by name of the lane


class Located(Struct, kw_only=True):
    """The place of an active message."""

    lane: str  # "": the message is not active
    offset: int


class Progress(Struct, kw_only=True):
    """How far an active message is. ``done`` and ``replies`` are bounded, so either may lack some of many recipients."""

    remaining: int  # recipients without a final verdict
    in_flight: int  # deliveries
    lane: str  # where its envelope lies
    offset: int
    generation: int
    done: list[int]  # numbers of the recipients with a final verdict, ascending
    replies: dict[int, str]  # number of a recipient -> the reply that deferred it in this pass


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
    attempts: int | UnsetType = UNSET
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
