"""Defines the operations that change messages of the queue: chosen ones, or all that match a filter."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from msgspec import UNSET, Meta, UnsetType

from mailcore.control.protocol.operation import (
    MESSAGES_MAX,
    Access,
    Address,
    Answerer,
    Arguments,
    Name,
    Offset,
    Operation,
    QueueId,
    QueueIds,
    Result,
    WallClock,
    WrongArgument,
    check_filter,
)
from mailcore.envelope import RECIPIENTS_PER_RECORD
from mailcore.faults import Code, Fault
from mailcore.lookup.filter import Filter
from mailcore.routing.route import RouteError, parse_route

__all__ = [
    "CHANGES",
    "CUT_CHARACTERS_MAX",
    "OPERATIONS",
    "AddRecipientsArguments",
    "ChangeArguments",
    "ChangeMatchingArguments",
    "ChangeName",
    "ChangeResult",
    "DelayArguments",
    "MatchingProgress",
    "Messages",
    "Place",
    "RerouteArguments",
]

CUT_CHARACTERS_MAX = 16_000  # of a cut: 64 receivers' lanes, and a long ladder in each of 16 shards, have half of that
ChangeName = Literal["delete", "hold", "release", "undelete", "retry", "delay", "reroute", "bounce"]
CHANGES: tuple[str, ...] = get_args(ChangeName)
Place = tuple[QueueId, Name, Offset]
WaitSeconds = Annotated[float, Meta(ge=0, le=60)]  # for deliveries in progress to end, so that the answer says how
Messages = Annotated[list[Place], Meta(max_length=MESSAGES_MAX)]


def _check_route(text: str) -> None:
    try:
        parse_route(text)
    except RouteError as error:
        raise WrongArgument(str(error), "route") from error


class ChangeArguments(Arguments, frozen=True, kw_only=True):
    """Which messages: by queue id, or by the position a list gave (queue id, lane, offset), which saves the search."""

    queue_ids: QueueIds = []
    messages: Messages = []
    wait_s: WaitSeconds = 0.0


class DelayArguments(ChangeArguments, frozen=True, kw_only=True):
    """Messages, and the time before which they are not tried."""

    until: WallClock


class RerouteArguments(ChangeArguments, frozen=True, kw_only=True):
    """Messages, and the route that all their recipients take."""

    route: Name  # "transport:next hop", as in the routes table

    def __post_init__(self) -> None:
        _check_route(self.route)


class AddRecipientsArguments(Arguments, frozen=True, kw_only=True):
    """One message, and the addresses to add."""

    queue_id: QueueId
    lane: Annotated[str, Meta(max_length=100)] = ""  # "" and 0: control finds it
    offset: Offset = 0
    recipients: Annotated[list[Address], Meta(min_length=1, max_length=RECIPIENTS_PER_RECORD)]


class ChangeMatchingArguments(Arguments, frozen=True, kw_only=True):
    """One change to all that match, as they lay when it began; ``dry_run`` only counts."""

    change: ChangeName
    filter: Filter
    until: WallClock | None = None  # for delay
    route: Name | UnsetType = UNSET  # for reroute
    scheduled: bool = False  # for retry: also recipients that an operator or the sender delayed
    dry_run: bool = False
    wait_s: WaitSeconds = 0.0
    cut: Annotated[str, Meta(min_length=1, max_length=CUT_CHARACTERS_MAX)] | UnsetType = (
        UNSET  # nothing newer is touched
    )

    def __post_init__(self) -> None:
        check_filter(self.filter)
        if (self.until is None) == (self.change == "delay"):
            raise WrongArgument("until is allowed, and needed, for delay only", "until")
        if (self.route is UNSET) == (self.change == "reroute"):
            raise WrongArgument("route is allowed, and needed, for reroute only", "route")
        if self.route is not UNSET:
            _check_route(self.route)
        if self.scheduled and self.change != "retry":
            raise WrongArgument("scheduled is allowed for retry only", "scheduled")


class ChangeResult(Result):
    """The result of a change to chosen messages.

    Codes of ``errors``: conflict (its state does not allow the change), not_found (no longer in the queue), unavailable (not
    reached: the manager was away), outcome_unknown (the manager ended meanwhile), busy (try again), internal (its records
    cannot be read).
    """

    changed: int  # messages
    recipients: int  # of these messages: those that the change applies to
    in_flight: int  # of these recipients: those who were being delivered when they were changed
    too_late: int  # of those being delivered: delivered, or refused with a final reply, before the change
    undecided: int  # of those being delivered: it was not known how this ends when this was answered
    errors: dict[str, Fault]  # queue id -> why this message was not changed
    dead: list[str]  # of a retry: dead destinations of these recipients, which are deferred without an attempt


class MatchingProgress(Result, omit_defaults=True):
    """The progress of a change to all that match; the last part has ``done``.

    Law: matched = changed + failed, and failed is the sum of ``failures``, whose codes are those of ChangeResult.
    """

    matched: int
    matched_recipients: int
    changed: int
    changed_recipients: int
    in_flight: int  # of these recipients: those who were being delivered when they were changed
    too_late: int  # of those being delivered: delivered, or refused with a final reply, before the change; at the end
    undecided: int  # of those being delivered: it is not known yet how this ends
    failed: int
    failures: dict[Code, int]  # of ``failed``: how many by their error's code
    errors: dict[str, Fault]  # queue id -> why; the first 100
    dead: list[str]  # of a retry: dead destinations of these recipients; the first 20
    done: bool
    manager_away: bool  # it could not be asked where to read: what is counted may be out of date
    note: str  # "" or that, with the time of what was counted
    cut: str = ""  # of a dry run: a change with this cut leaves later messages untouched


_CHANGE = Access.CHANGE
_CONTROL, _RESOLVED = Answerer.CONTROL, Answerer.RESOLVED

OPERATIONS = (
    Operation("delete", ChangeArguments, _CHANGE, _RESOLVED, "can be undone for undo_time", ChangeResult),
    Operation(
        "undelete",
        ChangeArguments,
        _CHANGE,
        _RESOLVED,
        "undoes a delete; what was held is held again",
        ChangeResult,
    ),
    Operation("hold", ChangeArguments, _CHANGE, _RESOLVED, "waits until it is released", ChangeResult),
    Operation("release", ChangeArguments, _CHANGE, _RESOLVED, "ends a hold; due at once", ChangeResult),
    Operation("retry", ChangeArguments, _CHANGE, _RESOLVED, "due at once", ChangeResult),
    Operation("delay", DelayArguments, _CHANGE, _RESOLVED, "not before a time", ChangeResult),
    Operation("reroute", RerouteArguments, _CHANGE, _RESOLVED, "its recipients take another route", ChangeResult),
    Operation("bounce", ChangeArguments, _CHANGE, _RESOLVED, "returned to its sender now", ChangeResult),
    Operation(
        "add_recipients", AddRecipientsArguments, _CHANGE, _RESOLVED, "more recipients for a message", ChangeResult
    ),
    Operation(
        "change_matching",
        ChangeMatchingArguments,
        _CHANGE,
        _CONTROL,
        "one change to all that match",
        MatchingProgress,
    ),
)
