"""The parts that parameters and bodies of requests share: a filter of messages, a reason, an optional value.

Law: a value that is not given limits nothing; ``null`` and an empty text are errors, as they are everywhere
(law: empty-is-an-error).
"""

from __future__ import annotations

import unicodedata
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from appliance.queue.change_forms import WHY_MAX
from mailcore.control.protocol.operation import QUEUE_ID_PATTERN, WALL_CLOCK_MAX

__all__ = ["ONE_LINE", "Body", "FilterBody", "FilterQuery", "QueueId", "Why", "given", "optional"]

WHY_MIN = 3
TEXT_MAX = 1_000  # of a condition, as the core allows
BYTES_MAX = 1 << 62
_CONTROLS = frozenset(("Cc", "Cs", "Zl", "Zp"))


def optional(**named: Any) -> Any:
    """Returns a field that may be left out, and is not null then: ``given`` leaves it out, too."""
    return Field(default=None, **named)


def given(model: BaseModel) -> dict[str, Any]:
    """Returns the values that a request has."""
    return model.model_dump(exclude_unset=True)


def one_line(text: str) -> str:
    """Returns the text. Raises ValueError if it has a control character: it becomes part of a line of a log."""
    if any(unicodedata.category(character) in _CONTROLS for character in text):
        raise ValueError("control characters are not allowed")
    return text


# For the description alone: one_line decides.
ONE_LINE = Field(json_schema_extra={"pattern": r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029]*$"})
Why = Annotated[
    str,
    StringConstraints(strip_whitespace=True, min_length=WHY_MIN, max_length=WHY_MAX),
    AfterValidator(one_line),
    ONE_LINE,
    Field(description="the reason; stored in the audit log and in the journal"),
]
QueueId = Annotated[str, StringConstraints(pattern=QUEUE_ID_PATTERN)]


class Body(BaseModel):
    """The body of a request: a name that it does not have is an error, and 5 is not "5"."""

    model_config = ConfigDict(extra="forbid", strict=True)


class FilterQuery(BaseModel):
    """Selects the messages that fulfil all conditions given, as the filter of the queue page does."""

    sender: str = optional(
        min_length=1, max_length=TEXT_MAX, description='an address with * and ?; "<>" is the sender of bounces'
    )
    recipient: str = optional(min_length=1, max_length=TEXT_MAX, description="an address with * and ?")
    destination: str = optional(min_length=1, max_length=TEXT_MAX, description="transport:next hop, with * and ?")
    lane: str = optional(min_length=1, max_length=TEXT_MAX, description="the lane, such as retry.*, hold or deleted")
    reason: str = optional(
        min_length=1, max_length=TEXT_MAX, description="a part of the last reply, or of the reason for a hold"
    )
    older_than_s: float = optional(gt=0, le=WALL_CLOCK_MAX, description="seconds since the arrival")
    younger_than_s: float = optional(gt=0, le=WALL_CLOCK_MAX, description="seconds since the arrival")
    larger_than_bytes: int = optional(gt=0, le=BYTES_MAX)
    smaller_than_bytes: int = optional(gt=0, le=BYTES_MAX)
    arrived_before: float = optional(gt=0, le=WALL_CLOCK_MAX, description="seconds since 1970")


class FilterBody(FilterQuery, Body):
    """Selects messages as FilterQuery does."""
