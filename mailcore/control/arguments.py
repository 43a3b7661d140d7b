"""Defines the arguments of each operation of the control socket: one type per operation, with the bounds of each field.

Values only; ``protocol`` assigns a type to each operation, and writes the message for a wrong argument.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from mailcore.envelope import RECIPIENTS_PER_RECORD, Envelope
from mailcore.lookup.filter import Filter
from mailcore.routing.route import RouteError, parse_route

__all__ = [
    "CHUNK_BYTES_MAX",
    "MESSAGES_MAX",
    "NAMES_MAX",
    "PAGE_MAX",
    "AddRecipientsArguments",
    "AgesArguments",
    "Arguments",
    "ChangeArguments",
    "ChangeMatchingArguments",
    "Changed",
    "CheckChangesArguments",
    "DataArguments",
    "DelayArguments",
    "DestinationsArguments",
    "InjectArguments",
    "InjectBeginArguments",
    "InjectDataArguments",
    "ListArguments",
    "OneMessage",
    "RerouteArguments",
    "ResolveArguments",
    "ResumeArguments",
    "SearchArguments",
    "ServiceTimesArguments",
    "SetArguments",
    "ShowArguments",
    "SimulateArguments",
    "SuspendArguments",
    "TimedArguments",
    "TransportSetArguments",
    "TransportsArguments",
    "WorkingArguments",
    "WrongArgument",
]

MESSAGES_MAX = 1_000  # of one request: the manager's answer takes about as long as one sync and 1 000 records
PAGE_MAX = 1_000  # items of one page; about 600 kB
CHUNK_BYTES_MAX = 256 << 10  # of one inject_data; as much as a disk likes to get at once
NAMES_MAX = 10_000
SEARCH_MAX = 200  # messages of one search's page; what became of each is looked up in the journal
SEARCH_CURSOR_MAX = 4_000  # holds the searched part of each lane: with 64 receivers' lanes half of that
CHANGED_MAX = 100  # of one simulation
CUT_CHARACTERS_MAX = 4_000  # of a cut: 64 receivers' lanes and a long ladder have half of that
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
_FILTER_TEXT_MAX = 1_000


class WrongArgument(ValueError):
    """Two arguments that do not fit each other, or one that no bound describes. ``argument`` names it."""

    def __init__(self, message: str, argument: str) -> None:
        super().__init__(message)
        self.argument = argument


class Arguments(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The arguments of an operation that takes none, and the base of all others."""


class WorkingArguments(Arguments, frozen=True, kw_only=True):
    """The messages to look for in the active set."""

    queue_ids: QueueIds


class OneMessage(Arguments, frozen=True, kw_only=True):
    """One message, by its queue id."""

    queue_id: QueueId


class ShowArguments(Arguments, frozen=True, kw_only=True):
    """One message, with or without its recipients."""

    queue_id: QueueId
    recipients: bool = True  # all of them, in further parts


SearchText = Annotated[str, Meta(max_length=1_000)]


class SearchArguments(Arguments, frozen=True, kw_only=True):
    """Texts as in a filter: ``*`` and ``?`` stand for any characters. A page may be empty: continue while there is a cursor."""

    queue_id: Annotated[str, Meta(pattern="^([0-9A-Z]{13,20})?$")] = ""
    message_id: SearchText = ""
    sender: SearchText = ""
    recipient: SearchText = ""
    cursor: Annotated[str, Meta(max_length=SEARCH_CURSOR_MAX)] = ""
    limit: Annotated[int, Meta(ge=1, le=SEARCH_MAX)] = 50


class ServiceTimesArguments(Arguments, frozen=True, kw_only=True):
    """How far back deliveries are measured, in seconds and in records."""

    since_s: Seconds = 3600
    records_max: Annotated[int, Meta(ge=1, le=2_000_000)] = 200_000  # of the journal, the newest: about a second


class DataArguments(Arguments, frozen=True, kw_only=True):
    """A piece of a message's data."""

    queue_id: QueueId
    offset: Offset = 0  # in the data as received, without dot-stuffing
    length: Annotated[int, Meta(ge=1, le=CHUNK_BYTES_MAX)] = CHUNK_BYTES_MAX


class ChangeArguments(Arguments, frozen=True, kw_only=True):
    """Which messages: by queue id, or by the position a list gave (queue id, lane, offset), which saves the search."""

    queue_ids: QueueIds = []
    messages: Messages = []


class DelayArguments(ChangeArguments, frozen=True, kw_only=True):
    """Messages, and the time before which they are not tried."""

    until: WallClock


class RerouteArguments(ChangeArguments, frozen=True, kw_only=True):
    """Messages, and the route that all their recipients take."""

    route: Name  # "transport:next hop", as in the routes table

    def __post_init__(self) -> None:
        _check_route(self.route)


class AddRecipientsArguments(Arguments, frozen=True, kw_only=True):
    """One message, and the addresses to add."""

    queue_id: QueueId
    lane: Annotated[str, Meta(max_length=100)] = ""  # "" and 0: control finds it
    offset: Offset = 0
    recipients: Annotated[list[Address], Meta(min_length=1, max_length=RECIPIENTS_PER_RECORD)]


class InjectArguments(Arguments, frozen=True, kw_only=True):
    """The envelope of a message whose spool file is complete."""

    envelope: Envelope
    not_before: WallClock | None = None


class InjectBeginArguments(Arguments, frozen=True, kw_only=True):
    """The envelope of a message whose data follows."""

    sender: Address
    recipients: Annotated[list[Address], Meta(min_length=1, max_length=RECIPIENTS_PER_RECORD)]
    not_before: WallClock | None = None
    # Seconds that the message has waited in another mail system; they count for its lifetime.
    age_s: Annotated[float, Meta(ge=0, le=3_155_760_000)] = 0.0
    # A reason queues the message in hold, until it is released.
    held_because: Annotated[str, Meta(max_length=1_000)] = ""


class InjectDataArguments(Arguments, frozen=True, kw_only=True):
    """The next piece of the message."""

    data: Annotated[bytes, Meta(max_length=CHUNK_BYTES_MAX)]  # as the author wrote it: any line ends, no dot-stuffing


class TimedArguments(Arguments, frozen=True, kw_only=True):
    """A value, and how long it holds: until a time, for a number of seconds, or until the override is removed."""

    parameter: Name
    value: float | int | bool | ValueText | None  # None: remove the override; "50%": of the value in force
    until: WallClock | None = None
    for_s: Seconds | None = None

    def __post_init__(self) -> None:
        if self.until is not None and self.for_s is not None:
            raise WrongArgument("until and for_s: one of them is allowed", "until")


class TransportSetArguments(TimedArguments, frozen=True, kw_only=True):
    """A value for a transport."""

    transport: Name


class SetArguments(TimedArguments, frozen=True, kw_only=True):
    """A value for any scope."""

    scope: Annotated[str, Meta(max_length=400)]  # "", "smtp", "smtp:example.org", "smtp:.example.org" for all below it


class Changed(Arguments, frozen=True, kw_only=True):
    """A value as ``set`` takes it."""

    scope: Annotated[str, Meta(max_length=400)]
    parameter: Name
    value: float | int | bool | ValueText | None


class CheckChangesArguments(Arguments, frozen=True, kw_only=True):
    """Values that would be set one after the other."""

    changes: Annotated[list[Changed], Meta(min_length=1, max_length=CHANGED_MAX)]


class SimulateArguments(Arguments, frozen=True, kw_only=True):
    """A simulation of the queued mail with ``changes``; the same seed gives the same result."""

    changes: Annotated[list[Changed], Meta(max_length=CHANGED_MAX)] = []
    duration_s: Annotated[float, Meta(gt=0, le=30 * 86_400)] = 86_400.0  # simulated
    backlog: Literal["live", "none"] = "live"
    arrivals: bool = False  # new mail arrives during the simulation
    since_s: Annotated[float, Meta(gt=0, le=30 * 86_400)] = 3_600.0  # next hops as measured in the last seconds
    hops: Annotated[
        dict[Name, dict[Name, Any]], Meta(max_length=CHANGED_MAX)
    ] = {}  # scope -> [next_hops] of a scenario
    seed: Annotated[int, Meta(ge=0, le=1 << 53)] = 1


class TransportsArguments(Arguments, frozen=True, kw_only=True):
    """Which parameters to list: all, or those in force for one destination."""

    destination: Annotated[str, Meta(max_length=400)] = ""  # only what is in force for this one


class DestinationsArguments(Arguments, frozen=True, kw_only=True):
    """How many destinations to list."""

    limit: Annotated[int, Meta(ge=1, le=NAMES_MAX)] = 100


class AgesArguments(Arguments, frozen=True, kw_only=True):
    """Whether the ages are counted again."""

    refresh: bool = False  # a new scan, however short ago the last one was


class ResolveArguments(Arguments, frozen=True, kw_only=True):
    """The address to look up."""

    address: Address


class SuspendArguments(Arguments, frozen=True, kw_only=True):
    """A destination, and until when it gets no deliveries."""

    destination: Name
    until: WallClock | None = None  # None: until it is resumed


class ResumeArguments(Arguments, frozen=True, kw_only=True):
    """The destination whose suspension ends."""

    destination: Name


class ListArguments(Arguments, frozen=True, kw_only=True):
    """One page, or what could be read of it in a fifth of a second: continue while there is a cursor."""

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
    cut: Annotated[str, Meta(max_length=CUT_CHARACTERS_MAX)] = ""  # of a dry run: nothing newer is touched

    def __post_init__(self) -> None:
        _check_filter(self.filter)
        if (self.until is None) == (self.change == "delay"):
            raise WrongArgument("until is allowed, and needed, for delay only", "until")
        if (not self.route) == (self.change == "reroute"):
            raise WrongArgument("route is allowed, and needed, for reroute only", "route")
        if self.route:
            _check_route(self.route)


def _check_route(text: str) -> None:
    try:
        parse_route(text)
    except RouteError as error:
        raise WrongArgument(str(error), "route") from error


def _check_filter(filter_: Filter) -> None:
    for name in ("sender", "recipient", "destination", "lane", "reason"):
        if len(getattr(filter_, name)) > _FILTER_TEXT_MAX:
            raise WrongArgument(f"filter.{name} is too long; allowed: {_FILTER_TEXT_MAX} characters", f"filter.{name}")
    for name in ("older_than_s", "younger_than_s"):
        if not 0 <= getattr(filter_, name) <= WALL_CLOCK_MAX:
            raise WrongArgument(f"filter.{name}: allowed is 0 or more seconds", f"filter.{name}")
    if not 0 <= filter_.arrived_before <= WALL_CLOCK_MAX:
        message = "filter.arrived_before: allowed is a time in seconds since 1970, or 0 for any"
        raise WrongArgument(message, "filter.arrived_before")
    for name in ("larger_than_bytes", "smaller_than_bytes"):
        if getattr(filter_, name) < 0:
            raise WrongArgument(f"filter.{name}: allowed is 0 or more", f"filter.{name}")
