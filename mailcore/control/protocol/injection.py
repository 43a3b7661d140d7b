"""Defines the operations that put a message into the queue: its envelope, its data in pieces, its end."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from mailcore.control.protocol.operation import (
    CHUNK_BYTES_MAX,
    Access,
    Address,
    Answerer,
    Arguments,
    Nothing,
    Operation,
    WallClock,
)
from mailcore.envelope import RECIPIENTS_PER_RECORD, Envelope
from mailcore.manager_answers import Injected

__all__ = ["OPERATIONS", "InjectArguments", "InjectBeginArguments", "InjectDataArguments", "Injected"]


class InjectBeginArguments(Arguments, frozen=True, kw_only=True):
    """The envelope of a message whose data follows."""

    sender: Address
    recipients: Annotated[list[Address], Meta(min_length=1, max_length=RECIPIENTS_PER_RECORD)]
    not_before: WallClock | None = None
    # Seconds that the message has waited in another mail system; they count for its lifetime.
    age_s: Annotated[float, Meta(ge=0, le=3_155_760_000)] = 0.0
    # A reason queues the message in hold, until it is released.
    held_because: Annotated[str, Meta(max_length=1_000)] = ""
    # False for mail whose addresses are final, because another mail system has rewritten them.
    rewrite: bool = True


class InjectDataArguments(Arguments, frozen=True, kw_only=True):
    """The next piece of the message."""

    data: Annotated[bytes, Meta(max_length=CHUNK_BYTES_MAX)]  # as the author wrote it: any line ends, no dot-stuffing


class InjectArguments(Arguments, frozen=True, kw_only=True):
    """The envelope of a message whose spool file is complete."""

    envelope: Envelope
    not_before: WallClock | None = None


_CHANGE, _INTERNAL = Access.CHANGE, Access.INTERNAL
_CONTROL, _MANAGER = Answerer.CONTROL, Answerer.MANAGER

OPERATIONS = (
    Operation(
        "inject_begin",
        InjectBeginArguments,
        _CHANGE,
        _CONTROL,
        "a new message; one at a time a connection",
        Injected,
    ),
    Operation("inject_data", InjectDataArguments, _CHANGE, _CONTROL, "the next piece of it", Nothing),
    Operation(
        "inject_end",
        Arguments,
        _CHANGE,
        _CONTROL,
        "it is complete: answered when it is queued and synced",
        Injected,
    ),
    Operation("inject", InjectArguments, _INTERNAL, _MANAGER, "a message whose spool file is complete", Injected),
)
