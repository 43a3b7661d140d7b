"""Defines the operation about the mail log: lines that were written before, or since the last look.

Where its files end, the lines continue with those that events have, in the same form.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from mailcore.control.protocol.operation import Access, Answerer, Arguments, Operation, Result, WrongArgument
from mailcore.lookup.log_selection import EVENTS

__all__ = ["LINES_MAX", "OPERATIONS", "LogArguments", "LogLine", "LogLines"]

LINES_MAX = 500
Pattern = Annotated[str, Meta(max_length=512)]
PlaceText = Annotated[str, Meta(pattern=r"^([0-9]{1,20}:[0-9]{1,20}|events:[0-9]{1,18}:[0-9]{1,9})?$")]


class LogArguments(Arguments, frozen=True, kw_only=True):
    """Which lines; all conditions must match. ``before``, ``after``: places out of an earlier answer."""

    queue_id: Annotated[str, Meta(pattern="^[0-9A-Za-z]{0,20}$")] = ""
    sender: Pattern = ""
    recipient: Pattern = ""
    destination: Pattern = ""
    client: Pattern = ""
    status: Literal["", "sent", "deferred", "bounced", "expired"] = ""
    event: Annotated[str, Meta(max_length=40)] = ""
    level: Literal["info", "warning", "error"] = "info"
    before: PlaceText = ""
    after: PlaceText = ""
    limit: Annotated[int, Meta(ge=1, le=LINES_MAX)] = 100

    def __post_init__(self) -> None:
        if self.before and self.after:
            raise WrongArgument("before and after: one of them is allowed", "after")
        if self.event and self.event not in EVENTS:
            raise WrongArgument(f"event: there is no event {self.event!r}", "event")


class LogLine(Result):
    """A line of mail.jsonl, or one in the same form out of events: its place, its level, and its values."""

    place: str
    level: str
    values: dict[str, Any]
    source: str = "file"  # or events


class LogLines(Result):
    """The lines, oldest first. ``older``: before which place to look next, "" if there are none; ``newest``: after which."""

    lines: list[LogLine]
    older: str
    newest: str
    examined_bytes: int  # of files
    note: str = ""  # why it is not complete; "" if it is


OPERATIONS = (
    Operation(
        "log", LogArguments, Access.READ, Answerer.CONTROL, "Read lines of the mail log, the last that match.", LogLines
    ),
)
