"""Events: what became of messages, as a list by cursor and as a stream of server-sent events.

Laws
- A stream ends within seconds when its token is revoked or expires, or its user loses the role.
- A process has STREAMS_MAX streams at most, and none of them holds a thread or a connection to the database.

Keeps law: streams-end-with-token (docs/laws.md).
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Annotated, Any

import msgspec
from asgiref.sync import sync_to_async
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from ninja import Query
from pydantic import BaseModel, Field, StringConstraints

from appliance.accounts.first_steps import first_step_of
from appliance.accounts.roles import Role, role_of
from appliance.api.authentication import token_of
from appliance.api.bodies import given, optional
from appliance.api.errors import ApiError
from appliance.api.models import ApiToken
from appliance.api.operation import operation
from appliance.api.scopes import Scope
from appliance.api.streams import check_room, streaming
from appliance.common.door import async_door, door
from appliance.live.samples import in_thread
from mailcore.control.client import ControlError, Refused
from mailcore.control.protocol.events import CURSOR_MAX, EVENTS_MAX, KINDS, NOW, OLDEST, Event, EventBatch
from mailcore.faults import Code, Fault
from mailcore.tag import TAG_CHARACTERS

__all__ = ["Events", "events", "events_stream"]

EVENT_STREAM = "text/event-stream"
LIMIT = 100
WAIT_S = 2.0  # then the token is looked at again
ANSWER_S = 30.0
DOMAIN_MAX = 253
LOGIN_MAX = 256


class EventsQuery(BaseModel):
    """The conditions; all must match."""

    kind: list[str] = Field(
        default_factory=list,
        max_length=len(KINDS),
        description="may be given repeatedly; without it: all kinds",
        json_schema_extra={"items": {"type": "string", "enum": list(KINDS)}},
    )
    tag: str = optional(
        min_length=1, max_length=TAG_CHARACTERS, description="of the message, as [receiver] tag_header says"
    )
    sender_domain: str = optional(min_length=1, max_length=DOMAIN_MAX, description="of the sender's address")
    recipient_domain: str = optional(min_length=1, max_length=DOMAIN_MAX, description="of the recipient's address")
    login: str = optional(min_length=1, max_length=LOGIN_MAX, description="that handed the message in")


class Events(msgspec.Struct, kw_only=True):
    """Events, those of one message in their order. There may be fewer than asked for, or none, and more now."""

    events: list[Event]
    cursor: str  # to ask with next; it does not end
    more: bool  # ask again at once; else there are none now
    lost: list[str]  # events that were left out because they are not kept any more, for a person
    unanswered: str = ""  # the shards that did not answer, and why: their events come later; "" while there are more


After = Annotated[
    str,
    StringConstraints(min_length=1, max_length=CURSOR_MAX),
    Field(description=f"a cursor that was answered, {OLDEST} (the first event that is kept) or {NOW} (behind all)"),
]


@operation("GET", "/events", tag="Events", scopes={Scope.READ}, answer=Events)
def events(
    request: HttpRequest,
    conditions: Query[EventsQuery],
    after: After = OLDEST,
    limit: Annotated[int, Field(ge=1, le=EVENTS_MAX)] = LIMIT,
    past_lost: Annotated[bool, Field(description="continue behind events that are not kept any more")] = False,
) -> Events:
    """Lists what became of messages, from a position on.

    404 with the argument after: events behind the cursor are not kept any more; the message says from when on they are.
    """
    arguments = _asked(conditions) | {"after": after, "limit": limit, "past_lost": past_lost}
    batch = door(request).ask("events", EventBatch, arguments)
    return Events(
        events=batch.events, cursor=batch.cursor, more=batch.more, lost=batch.lost, unanswered=batch.unanswered
    )


@operation("GET", "/events/stream", tag="Events", scopes={Scope.READ}, answer=bytes, kind=EVENT_STREAM)
def events_stream(request: HttpRequest, conditions: Query[EventsQuery], after: After = NOW) -> HttpResponse:
    """Streams what becomes of messages, as server-sent events.

    The last event of a batch has the cursor as its id; a client that connects again sends it as Last-Event-ID, or as after.
    """
    cursor = request.headers.get("Last-Event-ID", "")[:CURSOR_MAX] or after
    arguments = _asked(conditions) | {"limit": LIMIT}
    check_room()
    first = door(request).ask("events", EventBatch, arguments | {"after": cursor})  # its errors have a status
    pieces = _stream(token_of(request), request.user.get_username(), arguments, first)
    response = StreamingHttpResponse(pieces, content_type=EVENT_STREAM)
    response.headers["Cache-Control"] = "no-cache, no-transform"
    response.headers["X-Accel-Buffering"] = "no"  # nginx would keep events back
    return response  # type: ignore[return-value]  # a response, which the decorator passes on


def _asked(conditions: EventsQuery) -> dict[str, Any]:
    asked = given(conditions)
    for kind in conditions.kind:
        if kind not in KINDS:
            raise ApiError(f"kind: there is no kind {kind[:40]!r}; allowed: {', '.join(KINDS)}", argument="kind")
    return {**{name: value for name, value in asked.items() if name != "kind"}, "kinds": list(conditions.kind)}


async def _stream(token: ApiToken, who: str, arguments: dict[str, Any], batch: EventBatch) -> AsyncIterator[bytes]:
    async with streaming(), async_door(who, ANSWER_S) as core:
        yield b": events\n\n"
        looked_at = time.monotonic()
        while True:
            yield _lines(batch)
            if time.monotonic() - looked_at >= WAIT_S:
                if not await sync_to_async(_may)(token.pk):
                    return
                looked_at = time.monotonic()
            try:
                asked = arguments | {"after": batch.cursor, "wait_s": WAIT_S}
                batch = await core.ask("events", EventBatch, asked)
            except Refused as error:
                yield b"event: error\ndata: %b\n\n" % msgspec.json.encode(error.fault)
                return
            except ControlError:  # the core is away; the client connects again
                fault = Fault(Code.UNAVAILABLE, "The core does not answer; connect again.")
                yield b"event: error\ndata: %b\n\n" % msgspec.json.encode(fault)
                return


def _lines(batch: EventBatch) -> bytes:
    """Returns the events as server-sent events; without any, a comment, which keeps proxies from closing the connection."""
    if not batch.events:
        return b": waiting\n\n"
    lines = [b"event: %b\ndata: %b\n" % (event.kind.encode(), msgspec.json.encode(event)) for event in batch.events]
    lines[-1] = b"id: %b\n" % batch.cursor.encode() + lines[-1]
    return b"\n".join(lines) + b"\n"


@in_thread
def _may(number: int) -> bool:
    """Returns whether the token may still read."""
    token = ApiToken.objects.select_related("user").filter(pk=number).first()
    if token is None or not token.is_valid or not token.user.is_active or not token.has(Scope.READ):
        return False
    role = role_of(token.user)
    return role is not None and role >= Role.VIEWER and first_step_of(token.user) is None
