"""The question to the child process that simulates, and its encoding. Values only.

All times are seconds from now. Measurements have been turned into models; the child adds the scheduler and random numbers.
"""

from __future__ import annotations

from typing import Any

import msgspec

from mailcore.config.settings import Settings

__all__ = ["LaneSample", "MessageSample", "Question", "Value", "decoded", "encoded"]

# (age_s, due in seconds, [(destination, recipients)])
MessageSample = tuple[float, float, list[tuple[str, int]]]


class Value(msgspec.Struct, frozen=True, kw_only=True):
    """A parameter that is set from the start, as the scheduler takes it, for a time or for good."""

    scope: str
    parameter: str
    value: float | int | bool | str
    until_s: float | None = None


class LaneSample(msgspec.Struct, frozen=True, kw_only=True):
    """A sample of the messages of one lane."""

    is_new: bool
    messages: int
    recipients: int
    parts: list[list[MessageSample]]
    large: int = 0  # messages of the sample whose size decides how long a delivery takes


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """All input of a simulation in a child process."""

    settings: Settings
    live: list[Value]  # above the configuration, now
    asked: list[Value]  # the changes asked for
    hops: dict[str, dict[str, Any]]  # scope -> fields of a next-hop model
    lanes: list[LaneSample]
    destinations: dict[str, int]  # recipients
    arriving: dict[str, float]  # recipients a second
    recipients_of_one: float = 1.0  # of an arriving message
    duration_s: float
    seed: int
    entries_max: int
    patience_s: float  # of the asker; what is not done by then says so


def encoded(question: Question) -> bytes:
    """Returns the question as msgpack."""
    return msgspec.msgpack.encode(question, enc_hook=str)  # of all there is only a path is not known to it


def _convert(kind: type, value: Any) -> Any:
    return kind(value)


_decoder = msgspec.msgpack.Decoder(Question, dec_hook=_convert)


def decoded(data: bytes) -> Question:
    """Returns the question of a msgpack text. Raises msgspec.DecodeError."""
    return _decoder.decode(data)
