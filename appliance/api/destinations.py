"""Destinations: their state, and suspending and resuming them."""

from __future__ import annotations

import time
from typing import Annotated

import msgspec
from django.http import HttpRequest
from pydantic import AfterValidator, Field, StringConstraints

from appliance.accounts.roles import Role
from appliance.api.bodies import Body, Why, one_line
from appliance.api.errors import ApiError
from appliance.api.operation import operation
from appliance.api.scopes import Scope
from appliance.common.door import door
from appliance.destinations.orders import order_resumption, order_suspension
from appliance.destinations.row import NAMES_MAX, SORTS, Row, rows_of
from mailcore.control.protocol.operation import WALL_CLOCK_MAX
from mailcore.manager_answers import Destinations, Reply

__all__ = ["destinations", "resume", "suspend"]

FOR_S_MAX = 366 * 86_400  # as the tuning page
NAME_MAX = 400  # as the core allows


def _destination(text: str) -> str:
    one_line(text)
    transport, colon, next_hop = text.partition(":")
    if not transport or not colon or not next_hop or "/" in transport:
        raise ValueError("write transport:next hop")
    return text


Name = Annotated[
    str,
    StringConstraints(max_length=NAME_MAX),
    AfterValidator(_destination),
    Field(json_schema_extra={"pattern": r"^[^:/\x00-\x1f\x7f-\x9f]+:[^\x00-\x1f\x7f-\x9f\u2028\u2029]+$"}),
    Field(description="transport:next hop, or transport:.domain for all below it"),
]


class StateShown(msgspec.Struct, kw_only=True):
    """A state of a destination, and its end; None: without an end, or it is not known."""

    state: str
    until: float | None


class DestinationShown(msgspec.Struct, kw_only=True):
    """A destination. None: the core did not report it. Times are wall clock, in seconds since 1970."""

    name: str
    states: list[StateShown]  # the first is the one to show
    in_trouble: bool
    queued: int | None  # recipients in all lanes
    messages: int | None  # active messages
    window: int | None  # maximum of concurrent deliveries now
    limit: int | None  # which the window never exceeds
    busy: int | None  # deliveries in progress
    success_share: float | None
    site_failures: int | None
    delivered: int  # recipients, since the manager started
    deferred: int
    bounced: int
    last_delivered_at: float | None
    replies: list[Reply]  # the newest first


class DestinationList(msgspec.Struct, kw_only=True):
    """Destinations: those in trouble first, then those with the most mail."""

    destinations: list[DestinationShown]
    patterns: list[DestinationShown]  # suspensions of patterns, and of destinations without mail
    unnamed: int  # recipients whose destinations have no name in the core's counts
    more: bool  # the core named as many as it names at most
    unanswered: str  # which shards did not answer, and are not in it; "" if all did


class SuspendBody(Body):
    """A suspension: until a time, for a number of seconds, or without an end if neither is given."""

    destination: Name
    until: float | None = Field(default=None, gt=0, le=WALL_CLOCK_MAX, description="seconds since 1970")
    for_s: float | None = Field(default=None, gt=0, le=FOR_S_MAX, description="seconds from now")
    why: Why


class ResumeBody(Body):
    """The destination to resume."""

    destination: Name
    why: Why


class Suspended(msgspec.Struct, kw_only=True):
    """A destination that was suspended."""

    destination: str
    until: float | None  # None: until it is resumed


class Resumed(msgspec.Struct, kw_only=True):
    """A destination that was resumed."""

    destination: str
    still_suspended_by: str | None  # a wider pattern that is suspended; None: none is
    unanswered: str  # in which shards a dead destination may not be tried now; "" if in none


@operation("GET", "/destinations", tag="Destinations", scopes={Scope.READ}, answer=DestinationList)
def destinations(
    request: HttpRequest,
    name: Annotated[str, Field(min_length=1, max_length=NAME_MAX, description="this one only")] | None = None,
    trouble: Annotated[bool, Field(description="only those that are dead, suspended or failing")] = False,
    limit: Annotated[int, Field(ge=1, le=NAMES_MAX)] = NAMES_MAX,
) -> DestinationList:
    """Lists destinations."""
    table = rows_of(door(request).ask("destinations", Destinations, {"limit": NAMES_MAX}))

    def wanted(row: Row) -> bool:
        return (name is None or row.name == name) and (row.in_trouble or not trouble)

    found = sorted((row for row in table.rows if wanted(row)), key=lambda row: row.name)
    found.sort(key=SORTS["trouble"])
    return DestinationList(
        destinations=[_shown(row) for row in found[:limit]],
        patterns=[_shown(row) for row in table.patterns if wanted(row)][:limit],
        unnamed=table.unnamed,
        more=table.may_be_more or len(found) > limit,
        unanswered=table.unanswered,
    )


@operation(
    "POST", "/destinations/suspend", tag="Destinations", scopes={Scope.TUNE}, least=Role.OPERATOR, answer=Suspended
)
def suspend(request: HttpRequest, body: SuspendBody) -> Suspended:
    """Suspends a destination: no new delivery starts; its mail stays in the queue."""
    if body.until is not None and body.for_s is not None:
        raise ApiError("until and for_s: one of them is allowed", argument="until")
    now = time.time()
    until = body.until if body.for_s is None else now + body.for_s
    if until is not None and until <= now:
        raise ApiError("until: this time has passed", argument="until")
    order_suspension(request, body.destination, until, body.why)
    return Suspended(destination=body.destination, until=until)


@operation("POST", "/destinations/resume", tag="Destinations", scopes={Scope.TUNE}, least=Role.OPERATOR, answer=Resumed)
def resume(request: HttpRequest, body: ResumeBody) -> Resumed:
    """Resumes a destination; a dead one is tried now, too."""
    answer = order_resumption(request, body.destination, body.why)
    wider = answer.suspended
    return Resumed(
        destination=body.destination,
        still_suspended_by=wider.scope if wider is not None else None,
        unanswered=answer.unanswered,
    )


def _shown(row: Row) -> DestinationShown:
    counts = row.counts
    return DestinationShown(
        name=row.name,
        states=[StateShown(state=each.state, until=each.until) for each in row.states],
        in_trouble=row.in_trouble,
        queued=row.queued,
        messages=row.messages,
        window=row.window,
        limit=row.limit,
        busy=row.busy,
        success_share=row.success_share,
        site_failures=row.site_failures,
        delivered=counts["delivered"],
        deferred=counts["deferred"],
        bounced=counts["bounced"],
        last_delivered_at=row.last_delivered_at,
        replies=row.replies,
    )
