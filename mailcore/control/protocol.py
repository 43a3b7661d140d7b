"""Lists the operations of the control socket: each once, with its arguments, their bounds, and the process that answers it.

Frames are ``frames.Request`` and ``frames.Response``. Portal, command line and tests speak only this protocol. Arguments are
a map; an argument that is missing, unknown or out of bounds gives an error that names it and says what is allowed. A change
carries who and why, and is answered once its record is synced.

Laws: values only, no I/O. An operation that is not in ``OPERATIONS`` is refused. An operation for the manager has the same
name and arguments on its socket, except that control has turned ``queue_ids`` into ``messages``.

Keeps law: operations-are-listed (docs/laws.md).
"""

from __future__ import annotations

import enum
import math
import re
from dataclasses import dataclass
from typing import Any

import msgspec

from mailcore.control.arguments import (
    AddRecipientsArguments,
    AgesArguments,
    Arguments,
    ChangeArguments,
    ChangeMatchingArguments,
    CheckChangesArguments,
    DataArguments,
    DelayArguments,
    DestinationsArguments,
    InjectArguments,
    InjectBeginArguments,
    InjectDataArguments,
    ListArguments,
    OneMessage,
    RerouteArguments,
    ResolveArguments,
    ResumeArguments,
    SearchArguments,
    ServiceTimesArguments,
    SetArguments,
    ShowArguments,
    SimulateArguments,
    SuspendArguments,
    TransportsArguments,
    TransportSetArguments,
    WorkingArguments,
    WrongArgument,
)
from mailcore.control.results import (
    ChangeResult,
    ChangesChecked,
    DataPiece,
    Disks,
    Headers,
    Injected,
    MatchingProgress,
    Nothing,
    Ping,
    Resolved,
    Routes,
)
from mailcore.faults import Code, FaultError
from mailcore.lookup.filter import Filter

__all__ = [
    "CHANGES",
    "CLIENT_FRAME_BYTES_MAX",
    "OPERATIONS",
    "Access",
    "Answerer",
    "ArgumentError",
    "Operation",
    "check",
]

CLIENT_FRAME_BYTES_MAX = 1 << 20  # the longest a client may send: 1 000 recipients or 1 000 positions fit


class ArgumentError(FaultError):
    """An argument that is wrong: the message says what is allowed."""

    default = Code.INVALID


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
    result: Any = Any  # the shape of each part of the answer (see control.results); Any: an open map


_READ, _CHANGE, _INTERNAL = Access.READ, Access.CHANGE, Access.INTERNAL
_CONTROL, _MANAGER, _RESOLVED = Answerer.CONTROL, Answerer.MANAGER, Answerer.RESOLVED

OPERATIONS: dict[str, Operation] = {
    operation.name: operation
    for operation in (
        Operation("ping", Arguments, _READ, _CONTROL, "control is there", Ping),
        Operation("processes", Arguments, _READ, _CONTROL, "the supervisor's children"),
        Operation("list", ListArguments, _READ, _CONTROL, "a page of the queue"),
        Operation("show", ShowArguments, _READ, _CONTROL, "one message: item, why it waits, all recipients in parts"),
        Operation(
            "change_matching",
            ChangeMatchingArguments,
            _CHANGE,
            _CONTROL,
            "one change to all that match",
            MatchingProgress,
        ),
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
        Operation("state", Arguments, _READ, _MANAGER, "live state"),
        Operation("size", Arguments, _READ, _MANAGER, "messages and recipients, by lane and by destination"),
        Operation("working", WorkingArguments, _READ, _MANAGER, "those of the messages that are in the active set"),
        Operation("explain", OneMessage, _READ, _CONTROL, "why it waits, wherever it is"),
        Operation(
            "transports", TransportsArguments, _READ, _MANAGER, "their parameters, with the origin of each value"
        ),
        Operation("destinations", DestinationsArguments, _READ, _MANAGER, "those with the most mail"),
        Operation(
            "parameters", Arguments, _READ, _CONTROL, "the parameters that can be tuned: bounds, units, explanations"
        ),
        Operation("history", OneMessage, _READ, _CONTROL, "all that is still known of it, also when it is finished"),
        Operation(
            "search", SearchArguments, _READ, _CONTROL, "messages in the queue, and those gone but not forgotten"
        ),
        Operation("headers", OneMessage, _READ, _CONTROL, "its header section, decoded", Headers),
        Operation("data", DataArguments, _CHANGE, _CONTROL, "a piece of its data, as received", DataPiece),
        Operation("simulate", SimulateArguments, _READ, _CONTROL, "a simulation with other parameters"),
        Operation(
            "check_changes",
            CheckChangesArguments,
            _READ,
            _CONTROL,
            "for each value, why it cannot be set",
            ChangesChecked,
        ),
        Operation("service_times", ServiceTimesArguments, _READ, _CONTROL, "how long deliveries took, by destination"),
        Operation("positions", Arguments, _READ, _CONTROL, "runners, ends, segments and what keeps them; recovery now"),
        Operation("ages", AgesArguments, _READ, _CONTROL, "messages by destination and age"),
        Operation("disks", Arguments, _READ, _CONTROL, "free space where queue, spool and log are", Disks),
        Operation("routes", Arguments, _READ, _CONTROL, "the routes table", Routes),
        Operation("resolve", ResolveArguments, _READ, _CONTROL, "where mail for an address would go", Resolved),
        Operation("places", Arguments, _INTERNAL, _MANAGER, "the manager's part of positions"),
        Operation("cut", Arguments, _INTERNAL, _MANAGER, "where browsing starts and ends in each lane"),
        Operation("locate", OneMessage, _INTERNAL, _MANAGER, "where a message in memory lies"),
        Operation("inject", InjectArguments, _INTERNAL, _MANAGER, "a message whose spool file is complete", Injected),
        Operation("delete", ChangeArguments, _CHANGE, _RESOLVED, "can be undone for undo_time", ChangeResult),
        Operation(
            "undelete",
            ChangeArguments,
            _CHANGE,
            _RESOLVED,
            "undoes a delete; what was held is held again",
            ChangeResult,
        ),
        Operation("hold", ChangeArguments, _CHANGE, _RESOLVED, "waits until it is released", ChangeResult),
        Operation("release", ChangeArguments, _CHANGE, _RESOLVED, "ends a hold; due at once", ChangeResult),
        Operation("retry", ChangeArguments, _CHANGE, _RESOLVED, "due at once", ChangeResult),
        Operation("delay", DelayArguments, _CHANGE, _RESOLVED, "not before a time", ChangeResult),
        Operation(
            "reroute", RerouteArguments, _CHANGE, _RESOLVED, "all its recipients take another route", ChangeResult
        ),
        Operation("bounce", ChangeArguments, _CHANGE, _RESOLVED, "returned to its sender now", ChangeResult),
        Operation(
            "add_recipients", AddRecipientsArguments, _CHANGE, _RESOLVED, "more recipients for a message", ChangeResult
        ),
        Operation("transport_set", TransportSetArguments, _CHANGE, _MANAGER, "a transport's parameter, live"),
        Operation("set", SetArguments, _CHANGE, _MANAGER, "a parameter of any scope, live"),
        Operation("suspend", SuspendArguments, _CHANGE, _MANAGER, "no deliveries to a destination"),
        Operation("resume", ResumeArguments, _CHANGE, _MANAGER, "ends a suspension"),
    )
}
CHANGES: tuple[str, ...] = ("delete", "hold", "release", "undelete", "retry", "delay", "reroute", "bounce")

_AT_PATH = re.compile(r" - at `\$\.?(?P<path>[^`]*)`$")


def check(name: str, arguments: dict[str, Any]) -> tuple[Operation, Any]:
    """Returns the operation and its arguments, typed. Raises ArgumentError."""
    operation = OPERATIONS.get(name)
    if operation is None:
        raise ArgumentError(f"there is no operation {name[:50]!r}; allowed: {', '.join(sorted(OPERATIONS))}")
    for argument, value in arguments.items():
        if isinstance(value, float) and not math.isfinite(value):  # passes every comparison, and so every bound
            raise ArgumentError(f"{name}: {argument}: Expected a finite number", argument=argument)
    try:
        return operation, msgspec.convert(arguments, operation.arguments)
    except msgspec.ValidationError as error:
        argument, text = _explain(operation, str(error))
        if isinstance(error.__cause__, WrongArgument):
            argument = error.__cause__.argument
        raise ArgumentError(f"{name}: {text}", argument=argument) from None


def _explain(operation: Operation, text: str) -> tuple[str, str]:
    """Returns the argument and the sentence with the argument in front.

    msgspec says "Expected `int` >= 1 - at `$.limit`", and tells the place in no other way.
    """
    path = ""
    if match := _AT_PATH.search(text):
        path, text = match["path"], text[: match.start()]
    if "unknown field" in text:
        allowed = Filter.__struct_fields__ if path == "filter" else operation.arguments.__struct_fields__
        text += f"; allowed: {', '.join(allowed) or 'none'}"
    return path, f"{path}: {text}" if path else text
