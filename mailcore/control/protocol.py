"""The vocabulary of the control socket: every operation once, with its arguments, their bounds, and who answers it.

Frames are ``wire.Request`` and ``wire.Response``. Portal, command line and tests speak only this. Arguments are a map; an
argument that is missing, unknown or out of bounds gives an error that names it and says what is allowed. A change carries
who and why, and is answered once its record is synced.

Laws: values only, no I/O. What is not in ``OPERATIONS`` does not exist. An operation for the manager has the same name and
arguments on its socket, except that control has turned ``queue_ids`` into ``messages``.
"""

from __future__ import annotations

import enum
import math
import re
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from mailcore.envelope import RECIPIENTS_PER_RECORD, Envelope
from mailcore.queue.matching import Filter
from mailcore.routing.route import parse_route

__all__ = [
    "CHANGES",
    "CHUNK_BYTES_MAX",
    "CLIENT_FRAME_BYTES_MAX",
    "MESSAGES_MAX",
    "OPERATIONS",
    "PAGE_MAX",
    "Access",
    "Answerer",
    "ArgumentError",
    "Operation",
    "check",
]

MESSAGES_MAX = 1_000  # of one request: the manager's answer takes about as long as one sync and 1 000 records
PAGE_MAX = 1_000  # items of one page; about 600 kB
CHUNK_BYTES_MAX = 256 << 10  # of one inject_data; as much as a disk likes to get at once
CLIENT_FRAME_BYTES_MAX = 1 << 20  # the longest a client may send: 1 000 recipients or 1 000 positions fit
NAMES_MAX = 10_000
WALL_CLOCK_MAX = 32_503_680_000.0  # the year 3000

_ENVELOPE_ADDRESS_MAX = 512  # characters; routing.address.ADDRESS_MAX counts octets and is checked where it matters

QueueId = Annotated[str, Meta(pattern="^[0-9A-Z]{13,20}$")]
Address = Annotated[str, Meta(max_length=_ENVELOPE_ADDRESS_MAX)]
Name = Annotated[str, Meta(min_length=1, max_length=400)]
WallClock = Annotated[float, Meta(ge=0, le=WALL_CLOCK_MAX)]
Seconds = Annotated[float, Meta(gt=0, le=3_155_760_000)]  # a hundred years
ValueText = Annotated[str, Meta(max_length=100)]  # the longest is a feedback
Offset = Annotated[int, Meta(ge=0, le=1 << 62)]
Place = tuple[QueueId, Name, Offset]
QueueIds = Annotated[list[QueueId], Meta(max_length=MESSAGES_MAX)]
Messages = Annotated[list[Place], Meta(max_length=MESSAGES_MAX)]


class ArgumentError(ValueError):
    """Which argument of which operation is wrong, and what is allowed; for a person as it is."""


class Answerer(enum.Enum):
    CONTROL = "control"  # by reading lanes and files itself
    MANAGER = "manager"  # control passes it on
    RESOLVED = "resolved"  # control finds where the messages lie, then passes it on


class Access(enum.Enum):
    READ = "read"  # everybody who may connect
    CHANGE = "change"  # the daemon's user, root, and the group of the settings
    INTERNAL = "internal"  # control alone asks this of the manager; clients may not


class Arguments(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of an operation without any; the others' base."""


class WorkingArguments(Arguments, frozen=True, kw_only=True):
    queue_ids: QueueIds


class OneMessage(Arguments, frozen=True, kw_only=True):
    queue_id: QueueId


class ShowArguments(Arguments, frozen=True, kw_only=True):
    queue_id: QueueId
    recipients: bool = True  # all of them, in further parts


class ChangeArguments(Arguments, frozen=True, kw_only=True):
    """Which messages: by queue id, or by the position a list gave (queue id, lane, offset), which saves the search."""

    queue_ids: QueueIds = []
    messages: Messages = []


class DelayArguments(ChangeArguments, frozen=True, kw_only=True):
    until: WallClock


class RerouteArguments(ChangeArguments, frozen=True, kw_only=True):
    route: Name  # "transport:next hop", as in the routes table

    def __post_init__(self) -> None:
        parse_route(self.route)


class AddRecipientsArguments(Arguments, frozen=True, kw_only=True):
    queue_id: QueueId
    lane: Annotated[str, Meta(max_length=100)] = ""  # "" and 0: control finds it
    offset: Offset = 0
    recipients: Annotated[list[Address], Meta(min_length=1, max_length=RECIPIENTS_PER_RECORD)]


class InjectArguments(Arguments, frozen=True, kw_only=True):
    envelope: Envelope
    not_before: WallClock | None = None


class InjectBeginArguments(Arguments, frozen=True, kw_only=True):
    sender: Address
    recipients: Annotated[list[Address], Meta(min_length=1, max_length=RECIPIENTS_PER_RECORD)]
    not_before: WallClock | None = None


class InjectDataArguments(Arguments, frozen=True, kw_only=True):
    data: Annotated[bytes, Meta(max_length=CHUNK_BYTES_MAX)]  # as the author wrote it: any line ends, no dot-stuffing


class TimedArguments(Arguments, frozen=True, kw_only=True):
    """A value, and how long it holds: until a time, for so many seconds, or until it is taken back."""

    parameter: Name
    value: float | int | bool | ValueText | None  # None: taken back; "50%": of the value in force
    until: WallClock | None = None
    for_s: Seconds | None = None

    def __post_init__(self) -> None:
        if self.until is not None and self.for_s is not None:
            raise ValueError("until and for_s: one of them is allowed")


class TransportSetArguments(TimedArguments, frozen=True, kw_only=True):
    transport: Name


class SetArguments(TimedArguments, frozen=True, kw_only=True):
    scope: Annotated[str, Meta(max_length=400)]  # "", "smtp", "smtp:example.org", "smtp:.example.org" for all below it


class TransportsArguments(Arguments, frozen=True, kw_only=True):
    destination: Annotated[str, Meta(max_length=400)] = ""  # only what is in force for this one


class DestinationsArguments(Arguments, frozen=True, kw_only=True):
    limit: Annotated[int, Meta(ge=1, le=NAMES_MAX)] = 100


class SuspendArguments(Arguments, frozen=True, kw_only=True):
    destination: Name
    until: WallClock | None = None  # None: until it is resumed


class ResumeArguments(Arguments, frozen=True, kw_only=True):
    destination: Name


class ListArguments(Arguments, frozen=True, kw_only=True):
    """One page, or what could be read of it in a fifth of a second: go on while there is a cursor."""

    filter: Filter = Filter()
    cursor: Annotated[str, Meta(max_length=200)] = ""
    limit: Annotated[int, Meta(ge=1, le=PAGE_MAX)] = 100

    def __post_init__(self) -> None:
        _check_filter(self.filter)


ChangeName = Literal["delete", "hold", "release", "undelete", "retry", "delay", "reroute", "bounce"]


class ChangeMatchingArguments(Arguments, frozen=True, kw_only=True):
    """One change to all that match, as they lay when it began; ``dry_run`` only counts."""

    change: ChangeName
    filter: Filter
    until: WallClock | None = None  # for delay
    route: Annotated[str, Meta(max_length=400)] = ""  # for reroute
    dry_run: bool = False

    def __post_init__(self) -> None:
        _check_filter(self.filter)
        if (self.until is None) == (self.change == "delay"):
            raise ValueError("until is allowed, and needed, for delay only")
        if (not self.route) == (self.change == "reroute"):
            raise ValueError("route is allowed, and needed, for reroute only")
        if self.route:
            parse_route(self.route)


@dataclass(frozen=True, slots=True)
class Operation:
    name: str
    arguments: type[Arguments]
    access: Access
    answerer: Answerer
    doc: str


_READ, _CHANGE, _INTERNAL = Access.READ, Access.CHANGE, Access.INTERNAL
_CONTROL, _MANAGER, _RESOLVED = Answerer.CONTROL, Answerer.MANAGER, Answerer.RESOLVED

OPERATIONS: dict[str, Operation] = {
    operation.name: operation
    for operation in (
        Operation("ping", Arguments, _READ, _CONTROL, "control is there"),
        Operation("processes", Arguments, _READ, _CONTROL, "the supervisor's children"),
        Operation("list", ListArguments, _READ, _CONTROL, "a page of the queue"),
        Operation("show", ShowArguments, _READ, _CONTROL, "one message: item, why it waits, all recipients in parts"),
        Operation("change_matching", ChangeMatchingArguments, _CHANGE, _CONTROL, "one change to all that match"),
        Operation("inject_begin", InjectBeginArguments, _CHANGE, _CONTROL, "a new message; one at a time a connection"),
        Operation("inject_data", InjectDataArguments, _CHANGE, _CONTROL, "the next piece of it"),
        Operation("inject_end", Arguments, _CHANGE, _CONTROL, "it is complete: answered when it is queued and synced"),
        Operation("state", Arguments, _READ, _MANAGER, "live state"),
        Operation("size", Arguments, _READ, _MANAGER, "messages and recipients, by lane and by destination"),
        Operation("working", WorkingArguments, _READ, _MANAGER, "those of the messages that are in the active set"),
        Operation("explain", OneMessage, _READ, _CONTROL, "why it waits, wherever it is"),
        Operation(
            "transports", TransportsArguments, _READ, _MANAGER, "their parameters, with the origin of each value"
        ),
        Operation("destinations", DestinationsArguments, _READ, _MANAGER, "those with the most mail"),
        Operation("cut", Arguments, _INTERNAL, _MANAGER, "where browsing starts and ends in each lane"),
        Operation("locate", OneMessage, _INTERNAL, _MANAGER, "where a message in memory lies"),
        Operation("inject", InjectArguments, _INTERNAL, _MANAGER, "a message whose spool file is complete"),
        Operation("delete", ChangeArguments, _CHANGE, _RESOLVED, "can be undone for undo_time"),
        Operation("undelete", ChangeArguments, _CHANGE, _RESOLVED, "undoes a delete"),
        Operation("hold", ChangeArguments, _CHANGE, _RESOLVED, "waits until it is released"),
        Operation("release", ChangeArguments, _CHANGE, _RESOLVED, "ends a hold; due at once"),
        Operation("retry", ChangeArguments, _CHANGE, _RESOLVED, "due at once"),
        Operation("delay", DelayArguments, _CHANGE, _RESOLVED, "not before a time"),
        Operation("reroute", RerouteArguments, _CHANGE, _RESOLVED, "all its recipients take another route"),
        Operation("bounce", ChangeArguments, _CHANGE, _RESOLVED, "returned to its sender now"),
        Operation("add_recipients", AddRecipientsArguments, _CHANGE, _RESOLVED, "more recipients for a message"),
        Operation("transport_set", TransportSetArguments, _CHANGE, _MANAGER, "a transport's parameter, live"),
        Operation("set", SetArguments, _CHANGE, _MANAGER, "a parameter of any scope, live"),
        Operation("suspend", SuspendArguments, _CHANGE, _MANAGER, "no deliveries to a destination"),
        Operation("resume", ResumeArguments, _CHANGE, _MANAGER, "ends a suspension"),
    )
}
CHANGES: tuple[str, ...] = ("delete", "hold", "release", "undelete", "retry", "delay", "reroute", "bounce")

_AT_PATH = re.compile(r" - at `\$\.?(?P<path>[^`]*)`$")
_FILTER_TEXT_MAX = 1_000


def check(name: str, arguments: dict[str, Any]) -> tuple[Operation, Any]:
    """The operation and its arguments, typed. Raises ArgumentError."""
    operation = OPERATIONS.get(name)
    if operation is None:
        raise ArgumentError(f"there is no operation {name[:50]!r}; allowed: {', '.join(sorted(OPERATIONS))}")
    for argument, value in arguments.items():
        if isinstance(value, float) and not math.isfinite(value):  # passes every comparison, and so every bound
            raise ArgumentError(f"{name}: {argument}: Expected a finite number")
    try:
        return operation, msgspec.convert(arguments, operation.arguments)
    except msgspec.ValidationError as error:
        raise ArgumentError(f"{name}: {_explain(operation, str(error))}") from None


def _explain(operation: Operation, text: str) -> str:
    """msgspec says "Expected `int` >= 1 - at `$.limit`"; the argument belongs in front."""
    path = ""
    if match := _AT_PATH.search(text):
        path, text = match["path"], text[: match.start()]
    if "unknown field" in text:
        allowed = Filter.__struct_fields__ if path == "filter" else operation.arguments.__struct_fields__
        text += f"; allowed: {', '.join(allowed) or 'none'}"
    return f"{path}: {text}" if path else text


def _check_filter(filter_: Filter) -> None:
    for name in ("sender", "recipient", "destination", "lane", "reason"):
        if len(getattr(filter_, name)) > _FILTER_TEXT_MAX:
            raise ValueError(f"filter.{name} is too long; allowed: {_FILTER_TEXT_MAX} characters")
    if not 0 <= filter_.older_than_s <= WALL_CLOCK_MAX:
        raise ValueError("filter.older_than_s: allowed is 0 or more seconds")
    if filter_.larger_than_bytes < 0:
        raise ValueError("filter.larger_than_bytes: allowed is 0 or more")
