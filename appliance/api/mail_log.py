"""Lines of the mail log: the last that match, older ones before a place, newer ones after it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from django.http import HttpRequest
from ninja import Query
from pydantic import BaseModel, Field

from appliance.api.bodies import given, optional
from appliance.api.operation import operation
from appliance.api.scopes import Scope
from appliance.common.door import door
from mailcore.control.protocol.log import LINES_MAX, LogLines

__all__ = ["log_lines"]

LINES = 100
PATTERN_MAX = 512
PLACE = "^[0-9]{1,20}:[0-9]{1,20}$"
PLACE_BEFORE = "^(events:)?[0-9]{1,20}:[0-9]{1,20}$"  # in front of the files, events continue


def _pattern() -> Any:
    return optional(min_length=1, max_length=PATTERN_MAX, description="* and ? stand for any characters")


class LogFilter(BaseModel):
    """Selects lines as the page of the log does."""

    queue_id: str = optional(pattern="^[0-9A-Za-z]{1,20}$")
    sender: str = _pattern()
    recipient: str = _pattern()
    destination: str = _pattern()
    client: str = optional(min_length=1, max_length=PATTERN_MAX, description="an address of a client, with * and ?")
    status: Literal["sent", "deferred", "bounced", "expired"] = optional()
    event: str = optional(min_length=1, max_length=40)
    level: Literal["info", "warning", "error"] = optional(description="this one and those above it")
    before: str = optional(pattern=PLACE_BEFORE, description="``older`` of an answer: lines before it")
    after: str = optional(pattern=PLACE, description="``newest`` of an answer: lines that were written since")


@operation("GET", "/log", tag="Log", scopes={Scope.READ}, answer=LogLines)
def log_lines(
    request: HttpRequest,
    conditions: Query[LogFilter],
    limit: Annotated[int, Field(ge=1, le=LINES_MAX)] = LINES,
) -> LogLines:
    """Lists lines of the mail log, the last that match, oldest first.

    ``older`` of the answer is the cursor of the lines before them ("": there are none), ``newest`` that of new lines. With
    ``after`` these are the last lines written since. If there are more than ``limit``, ``note`` says so, and the others are
    before ``older``.
    """
    return door(request).ask("log", LogLines, {**given(conditions), "limit": limit})
