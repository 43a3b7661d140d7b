"""The overview: state of the core, queue by lane, counts, destinations in trouble, disks, processes; and the token."""

from __future__ import annotations

import time

import msgspec
from django.http import HttpRequest

from appliance.accounts.roles import role_of
from appliance.api.authentication import token_of
from appliance.api.operation import operation
from appliance.api.scopes import Scope
from appliance.common.door import door
from appliance.live.snapshot import counts_of, queue_of, trouble_of
from mailcore.control.protocol.state import Child, Disk, Disks, Processes
from mailcore.control.unanswered import unanswered
from mailcore.manager_answers import Destinations, Size, State

__all__ = ["overview", "own_token"]

DESTINATIONS_ASKED = 1_000


class LaneSize(msgspec.Struct, kw_only=True):
    """A lane: what is in it, and the interval of its runner, in seconds; None: it passes once."""

    messages: int
    recipients: int
    interval_s: float | None


class QueueSize(msgspec.Struct, kw_only=True):
    """The size of the queue; deleted mail does not count."""

    messages: int
    recipients: int
    active: int  # messages in the scheduler's memory
    in_flight: int  # deliveries in progress
    destinations: int
    lanes: dict[str, LaneSize]


class Trouble(msgspec.Struct, kw_only=True):
    """A destination that is dead, suspended or failing."""

    name: str
    states: list[str]
    queued: int | None  # recipients
    reason: str


class Overview(msgspec.Struct, kw_only=True):
    """The state of the appliance. Times are wall clock, in seconds since 1970."""

    at: float
    manager_started_at: float
    stalled: str  # why the manager takes in no mail; "" if it does
    restored: str  # why restored mail is held; "" if none is
    unanswered: str  # which shards did not answer, and are not in this; "" if all did
    active_full: str  # that the active set is full; "" if it is not
    tuned_damage: str  # why values set live are not in force; "" if they are
    counted_since: float
    counts: dict[str, int]  # recipients since then: accepted, delivered, deferred, bounced, expired, deleted, ...
    queue: QueueSize
    trouble: list[Trouble]  # the worst first
    disks: list[Disk]
    processes: dict[str, Child]


class OwnToken(msgspec.Struct, kw_only=True):
    """The token that asks. Its user's role limits it beside its scopes."""

    name: str
    user: str
    role: str
    scopes: list[str]
    created_at: float
    expires_at: float


@operation("GET", "/overview", tag="Status", scopes={Scope.READ}, answer=Overview)
def overview(request: HttpRequest) -> Overview:
    """Returns the state of the appliance now."""
    core = door(request)
    state, size = core.ask("state", State), core.ask("size", Size)
    found = core.ask("destinations", Destinations, {"limit": DESTINATIONS_ASKED})
    trouble = [
        Trouble(
            name=row["name"],
            states=[badge["words"] for badge in row["badges"]],
            queued=row["queued"],
            reason=row["reason"],
        )
        for row in trouble_of(found)
    ]
    return Overview(
        at=time.time(),
        manager_started_at=state.started_at,
        stalled="; ".join(each for each in (state.stalled, state.unanswered) if each),
        unanswered=unanswered(state, size, found),
        restored=state.restored,
        active_full=state.active_full,
        tuned_damage=state.tuned_damage,
        counted_since=state.counted_since,
        counts=counts_of(state),
        queue=msgspec.convert(queue_of(state, size), QueueSize),
        trouble=trouble,
        disks=core.ask("disks", Disks).disks,
        processes=core.ask("processes", Processes).children,
    )


@operation("GET", "/token", tag="Status", scopes=(), answer=OwnToken)
def own_token(request: HttpRequest) -> OwnToken:
    """Returns what the token that asks is: its user, scopes and end."""
    token = token_of(request)
    role = role_of(token.user)
    return OwnToken(
        name=token.name,
        user=token.user.get_username(),
        role=role.name.lower() if role is not None else "",
        scopes=list(token.scopes),
        created_at=token.created_at.timestamp(),
        expires_at=token.expires_at.timestamp(),
    )
