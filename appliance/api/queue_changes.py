"""Changes to messages: of named messages at once; of all that match a filter in two steps, as on the page.

    POST /queue/counts               operation and filter -> a change that is counted
    GET  /queue/changes/{tag}        until its phase is "counted": how many messages match
    POST /queue/changes/{tag}/start  with that number and a reason

Law: a change of matching messages needs the number that was counted, and leaves newer messages unchanged. So it never changes
more than its caller saw.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from django.contrib.auth.models import User
from django.http import Http404, HttpRequest
from ninja import Path
from pydantic import Field, StringConstraints

from appliance.accounts.roles import Role
from appliance.api.bodies import Body, FilterBody, QueueId, Why, given, one_line
from appliance.api.errors import ApiError
from appliance.api.operation import operation
from appliance.api.scopes import Scope
from appliance.queue.change_forms import CHOSEN_MAX, RouteForm
from appliance.queue.changing import CountedElsewhere, TooMany, change_chosen, count, in_background, start_counted, undo
from appliance.queue.filters import FilterForm
from appliance.queue.models import TAG_CHARACTERS, Change, Phase
from mailcore.control.protocol.operation import refusal
from mailcore.faults import Code

__all__ = ["change", "change_messages", "changes", "count_messages", "start_change", "stop_change", "undo_change"]

CHANGES, CHANGES_MAX = 50, 200
Tag = Annotated[str, StringConstraints(pattern=f"^[0-9A-Z]{{{TAG_CHARACTERS}}}$")]
Operation = Literal["delete", "undelete", "hold", "release", "retry", "reroute", "bounce"]
Route = Annotated[str, Field(max_length=400, description="transport:next hop; for reroute only, which needs it")]


class ChosenBody(Body):
    """A change to named messages."""

    operation: Operation
    queue_ids: list[QueueId] = Field(min_length=1, max_length=CHOSEN_MAX)
    route: Route | None = None
    why: Why


class CountBody(Body):
    """A change to all messages that match; it is only counted."""

    operation: Operation
    filter: FilterBody
    route: Route | None = None
    scheduled: bool = Field(
        default=False, description="of a retry: also recipients that an operator or the sender delayed"
    )


class StartChangeBody(Body):
    """The start of a counted change."""

    matched: int = Field(ge=0, le=1 << 62, description="the number of messages that the count found")
    why: Why


class UndoBody(Body):
    """The reason to undo a delete."""

    why: Why


class ChangeShown(msgspec.Struct, kw_only=True):
    """A change to messages. Times are wall clock, in seconds since 1970."""

    tag: str
    operation: str
    phase: str  # counting, counted, running, done, stopped, refused or unknown
    abandoned: bool  # the portal ended during the change
    who: str
    why: str
    filter: dict[str, Any]  # empty for named messages, and for the whole queue
    named: bool  # it changes named messages
    route: str
    matched: int
    matched_recipients: int
    changed: int
    changed_recipients: int
    in_flight: int  # of these recipients: being delivered when they were changed
    too_late: int  # of those being delivered: delivered or refused before the change
    undecided: int  # of those being delivered: their end was not known
    failed: int
    failures: dict[str, int]  # code of an error -> how many of ``failed``
    errors: dict[str, str]  # queue id -> why not; the first hundred
    error: str  # why the change as a whole was refused, or its end is not known; "" otherwise
    begun_at: float
    ended_at: float | None
    undo_until: float | None  # of a delete
    undoes: str | None  # the tag of the delete that it undoes


class ChangeList(msgspec.Struct, kw_only=True):
    """The latest changes, newest first."""

    changes: list[ChangeShown]


@operation("GET", "/queue/changes", tag="Queue", scopes={Scope.READ, Scope.QUEUE}, answer=ChangeList)
def changes(request: HttpRequest, limit: Annotated[int, Field(ge=1, le=CHANGES_MAX)] = CHANGES) -> ChangeList:
    """Lists the latest changes to messages."""
    return ChangeList(changes=[_shown(each) for each in Change.objects.all()[:limit]])


@operation("GET", "/queue/changes/{tag}", tag="Queue", scopes={Scope.READ, Scope.QUEUE}, answer=ChangeShown)
def change(request: HttpRequest, tag: Path[Tag]) -> ChangeShown:
    """Returns a change with its progress."""
    return _shown(_of(tag))


@operation("POST", "/queue/changes", tag="Queue", scopes={Scope.QUEUE}, least=Role.OPERATOR, answer=ChangeShown)
def change_messages(request: HttpRequest, body: ChosenBody) -> ChangeShown:
    """Changes named messages, and answers when the change is synced."""
    queue_ids = list(dict.fromkeys(body.queue_ids))
    made = Change(
        who=_who(request),
        operation=body.operation,
        route=_route(body.operation, body.route),
        messages=[[queue_id] for queue_id in queue_ids],
        words=f"{len(queue_ids)} selected",
        why=body.why,
    )
    change_chosen(request, made)
    return _shown(made)


@operation(
    "POST", "/queue/counts", tag="Queue", scopes={Scope.QUEUE}, least=Role.OPERATOR, answer=ChangeShown, status=202
)
def count_messages(request: HttpRequest, body: CountBody) -> ChangeShown:
    """Begins to count the messages that match a filter, for a change that is not started yet.

    An empty filter is the whole queue. The count continues after the answer: ask for the change until its phase is counted.
    """
    conditions = given(body.filter)
    for name, value in conditions.items():
        if error := refusal(name, value):
            raise ApiError(f"filter.{name}: {error}", argument=f"filter.{name}")
    if body.scheduled and body.operation != "retry":
        raise ApiError("scheduled: allowed for retry only", argument="scheduled")
    asked = FilterForm.of({name: str(value) for name, value in conditions.items()})
    known = asked.is_valid()
    made = Change(
        who=_who(request),
        operation=body.operation,
        route=_route(body.operation, body.route),
        scheduled=body.scheduled,
        filter=conditions,
        query=asked.query if known else "",
        words=asked.words if known else str(conditions),
    )
    try:
        in_background(count, request, made)
    except TooMany as error:
        raise ApiError(str(error), code=Code.BUSY) from error
    return _shown(made)


@operation(
    "POST",
    "/queue/changes/{tag}/start",
    tag="Queue",
    scopes={Scope.QUEUE},
    least=Role.OPERATOR,
    answer=ChangeShown,
    status=202,
)
def start_change(request: HttpRequest, tag: Path[Tag], body: StartChangeBody) -> ChangeShown:
    """Starts a counted change, if ``matched`` is the number of messages that was counted. It continues after the answer."""
    it = _of(tag)
    if it.phase != Phase.COUNTED:
        raise ApiError(f"{tag}: the change is {it.get_phase_display()}, and not counted", code=Code.CONFLICT)
    if body.matched != it.matched:
        raise ApiError(
            f"matched: the count was {it.matched}, not {body.matched}; nothing was changed",
            code=Code.CONFLICT,
            argument="matched",
        )
    try:
        if not start_counted(request, it, body.why):
            raise ApiError(f"{tag}: another request has started this change", code=Code.CONFLICT)
    except CountedElsewhere as error:
        raise ApiError(f"{tag}: {error}", code=Code.CONFLICT) from error
    except TooMany as error:
        raise ApiError(str(error), code=Code.BUSY) from error
    return _shown(it)


@operation(
    "POST", "/queue/changes/{tag}/stop", tag="Queue", scopes={Scope.QUEUE}, least=Role.OPERATOR, answer=ChangeShown
)
def stop_change(request: HttpRequest, tag: Path[Tag]) -> ChangeShown:
    """Stops a change between two steps; messages that were changed stay changed."""
    it = _of(tag)
    if it.under_way:
        Change.objects.filter(pk=tag).update(stop_wanted=True)
    return _shown(it)


@operation(
    "POST",
    "/queue/changes/{tag}/undo",
    tag="Queue",
    scopes={Scope.QUEUE},
    least=Role.OPERATOR,
    answer=ChangeShown,
    status=202,
)
def undo_change(request: HttpRequest, tag: Path[Tag], body: UndoBody) -> ChangeShown:
    """Undoes a delete: returns the recipients that it deleted. The undo is a change of its own, which continues."""
    it = _of(tag)
    if not it.can_be_undone:
        raise ApiError(f"{tag}: this can no longer be undone", code=Code.CONFLICT)
    try:
        return _shown(undo(request, it, body.why))
    except TooMany as error:
        raise ApiError(str(error), code=Code.BUSY) from error


def _of(tag: str) -> Change:
    found = Change.objects.filter(pk=tag).first()
    if found is None:
        raise Http404(f"{tag}: there is no such change")
    return found


def _who(request: HttpRequest) -> str:
    assert isinstance(request.user, User)
    return request.user.get_username()


def _route(operation: str, route: str | None) -> str:
    """Returns the route of a change; "" if it is none that has one. The core checks it again."""
    if operation != "reroute":
        if route is not None:
            raise ApiError("route: allowed for reroute only", argument="route")
        return ""
    if route is None:
        raise ApiError("route: reroute needs it", argument="route")
    try:
        one_line(route)
    except ValueError as error:
        raise ApiError(f"route: {error}", argument="route") from error
    form = RouteForm({"route": route})
    if not form.is_valid():
        raise ApiError(f"route: {form.errors['route'][0]}", argument="route")
    return str(form.cleaned_data["route"])


def _shown(it: Change) -> ChangeShown:
    return ChangeShown(
        tag=it.tag,
        operation=it.operation,
        phase=it.phase,
        abandoned=it.abandoned,
        who=it.who,
        why=it.why,
        filter=it.filter,
        named=it.messages is not None,
        route=it.route,
        matched=it.matched,
        matched_recipients=it.matched_recipients,
        changed=it.changed,
        changed_recipients=it.changed_recipients,
        in_flight=it.in_flight,
        too_late=it.too_late,
        undecided=it.undecided,
        failed=it.failed,
        failures=dict(it.failures),
        errors=it.errors,
        error=it.error,
        begun_at=it.begun_at.timestamp(),
        ended_at=it.ended_at.timestamp() if it.ended_at is not None else None,
        undo_until=it.undo_until,
        undoes=it.undoes_id,
    )
