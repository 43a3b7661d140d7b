"""Finds messages, those that have left the queue included; and the ages of queued mail."""

from __future__ import annotations

from typing import Annotated

import msgspec
from django.http import HttpRequest
from ninja import Query
from pydantic import BaseModel, Field, StringConstraints

from appliance.api.bodies import TEXT_MAX, given, optional
from appliance.api.errors import ApiError
from appliance.api.operation import operation
from appliance.api.scopes import Scope
from appliance.common.door import door
from appliance.queue.ages import NEXT_LOOK_S, look
from appliance.queue.search_views import CURSOR_MAX, KINDS, PAGE, read_hits
from mailcore.control.protocol.messages import SEARCH_MAX, AgesPart, Hit
from mailcore.control.protocol.operation import refusal

__all__ = ["ages", "search"]


class SearchQuery(BaseModel):
    """The text to search for: exactly one of them."""

    recipient: str = optional(min_length=1, max_length=TEXT_MAX, description="an address with * and ?")
    sender: str = optional(min_length=1, max_length=TEXT_MAX, description="an address with * and ?")
    message_id: str = optional(min_length=1, max_length=TEXT_MAX, description="of the header, with or without < and >")


class Found(msgspec.Struct, kw_only=True):
    """Messages that were found. There may be fewer than asked for, or none, and more with the next page."""

    items: list[Hit]
    cursor: str | None  # of the next page; None: everything was searched
    examined: int  # records read for it
    note: str  # the parts that could not be searched, for a person; "" when all could


@operation("GET", "/queue/search", tag="Queue", scopes={Scope.READ}, answer=Found)
def search(
    request: HttpRequest,
    text: Query[SearchQuery],
    cursor: Annotated[str, StringConstraints(max_length=CURSOR_MAX)] = "",
    limit: Annotated[int, Field(ge=1, le=SEARCH_MAX)] = PAGE,
) -> Found:
    """Finds messages by recipient, sender or Message-ID, also those that have left the queue."""
    wanted = given(text)
    if len(wanted) != 1:
        raise ApiError(f"Give one of {', '.join(KINDS)}.", argument=max(wanted, default="recipient"))
    ((kind, typed),) = wanted.items()
    if error := refusal(kind, typed):
        raise ApiError(f"{kind}: {error}", argument=kind)
    hits = read_hits(door(request), kind, typed, cursor, limit)
    return Found(items=hits.items, cursor=hits.cursor, examined=hits.examined, note=hits.note)


@operation("GET", "/queue/ages", tag="Queue", scopes={Scope.READ}, answer=AgesPart)
def ages(
    request: HttpRequest,
    refresh: Annotated[bool, Field(description="count again, also if the last count is recent")] = False,
) -> AgesPart:
    """Returns the messages of the queue by destination and age, or how far the count is.

    Ask again until ``done`` is true: the count continues while it is asked for.
    """
    return look(door(request), refresh=refresh, patience_s=NEXT_LOOK_S)
