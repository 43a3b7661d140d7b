"""Defines a row of the table of operations, and the types and bounds that several families share."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, Struct

from mailcore.lookup.filter import Filter, refusal, selects_all
from mailcore.lookup.pattern import literal

__all__ = [
    "CHUNK_BYTES_MAX",
    "ENVELOPE_ADDRESS_MAX",
    "MESSAGES_MAX",
    "QUEUE_ID_PATTERN",
    "WALL_CLOCK_MAX",
    "Access",
    "Address",
    "Answerer",
    "Arguments",
    "Name",
    "Nothing",
    "Offset",
    "Operation",
    "QueueId",
    "QueueIds",
    "Result",
    "Seconds",
    "WallClock",
    "WrongArgument",
    "check_filter",
    "check_given",
    "literal",
    "refusal",
    "selects_all",
]

MESSAGES_MAX = 1_000  # of one request: the manager's answer takes about as long as one sync and 1 000 records
CHUNK_BYTES_MAX = 256 << 10  # of one inject_data; as much as a disk likes to get at once
WALL_CLOCK_MAX = 32_503_680_000.0  # the year 3000
ENVELOPE_ADDRESS_MAX = 512  # characters; routing.address.ADDRESS_MAX counts octets and is checked where it matters
QUEUE_ID_PATTERN = "^[0-9A-Z]{13,20}$"
QueueId = Annotated[str, Meta(pattern=QUEUE_ID_PATTERN, title="queue ID")]
Address = Annotated[str, Meta(max_length=ENVELOPE_ADDRESS_MAX)]
Name = Annotated[str, Meta(min_length=1, max_length=400)]
WallClock = Annotated[float, Meta(ge=0, le=WALL_CLOCK_MAX)]
Seconds = Annotated[float, Meta(gt=0, le=3_155_760_000)]  # a hundred years
Offset = Annotated[int, Meta(ge=0, le=1 << 62)]
QueueIds = Annotated[list[QueueId], Meta(max_length=MESSAGES_MAX)]
CONDITIONS = frozenset((*Filter.__struct_fields__, "message_id"))  # of a filter or a search; ``refusal`` knows them


class WrongArgument(ValueError):
    """Two arguments that do not fit each other, or one that no bound describes. ``argument`` names it."""

    def __init__(self, message: str, argument: str) -> None:
        super().__init__(message)
        self.argument = argument


class Arguments(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The arguments of an operation that takes none, and the base of all others."""


def check_given(conditions: Struct, path: str = "") -> None:
    """Checks each condition that is given, of a filter or a search: an empty value is an error. Raises WrongArgument."""
    for name, value in msgspec.structs.asdict(conditions).items():
        if value is not UNSET and name in CONDITIONS and (error := refusal(name, value)):
            raise WrongArgument(f"{path}{name}: {error}", f"{path}{name}")


def check_filter(filter_: Filter) -> None:
    """Checks the values of a filter. Raises WrongArgument."""
    check_given(filter_, "filter.")


class Result(msgspec.Struct, kw_only=True):
    """The base of all."""


class Nothing(Result):
    """An answer without a value: the operation is done."""


class Answerer(enum.Enum):
    """The process that answers an operation."""

    CONTROL = "control"  # by reading lanes and files itself
    MANAGER = "manager"  # control passes it on
    RESOLVED = "resolved"  # control finds where the messages lie, then passes it on


class Access(enum.Enum):
    """The right that an operation needs."""

    READ = "read"  # every user who may connect
    CHANGE = "change"  # the daemon's user, root, and the group of the settings
    INTERNAL = "internal"  # control alone asks this of the manager; clients may not


@dataclass(frozen=True, slots=True)
class Operation:
    """A row of the table of operations."""

    name: str
    arguments: type[Arguments]
    access: Access
    answerer: Answerer
    doc: str
    result: type[Struct]  # of each part of the answer
