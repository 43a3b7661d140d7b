"""Defines types for answers of the control socket. Not every operation has one yet.

The server sends these types for six operations: ``ping`` (Ping), ``check_changes`` (ChangesChecked), ``inject_begin``
(Injected), ``inject_data`` (Nothing), ``headers`` (Headers) and ``data`` (DataPiece).

For these operations a type describes the answer, but the server, or the manager behind it, still sends a plain map, which
the server does not check against the type: ``disks`` (Disks), ``routes`` (Routes), ``resolve`` (Resolved), ``change_matching``
(MatchingProgress), ``inject_end`` and the internal ``inject`` (Injected), and ``delete``, ``undelete``, ``hold``, ``release``,
``retry``, ``delay``, ``reroute``, ``bounce`` and ``add_recipients`` (ChangeResult).

The answers of all other operations are open maps, and ``explain`` answers with a list of them: ``processes``, ``list``,
``show``, ``state``, ``size``, ``working``, ``explain``, ``transports``, ``destinations``, ``parameters``, ``history``,
``search``, ``simulate``, ``service_times``, ``positions``, ``ages``, ``transport_set``, ``set``, ``suspend``, ``resume``, and
the internal ``places``, ``cut`` and ``locate``.

The names of the fields are the keys of the answer on the wire and in ``--json``. A field with a default may be missing in an
answer. ``protocol.OPERATIONS`` has the type of each operation. ``ControlClient.ask`` converts an answer to its type and checks
it; ``call`` and ``parts`` return maps.
"""

from __future__ import annotations

import msgspec

from mailcore.faults import Fault

__all__ = [
    "ChangeResult",
    "ChangesChecked",
    "DataPiece",
    "Disk",
    "Disks",
    "Headers",
    "Host",
    "Injected",
    "MatchingProgress",
    "Nothing",
    "Ping",
    "Resolved",
    "Result",
    "Route",
    "Routes",
]


class Result(msgspec.Struct, kw_only=True):
    """The base of all."""


class Nothing(Result):
    """An answer without a value: the operation is done."""


class Ping(Result):
    """The control process is there."""

    pid: int
    manager: bool  # whether the manager is connected


class ChangeResult(Result):
    """The result of a change to chosen messages."""

    changed: int
    errors: dict[str, str]  # queue id -> why this message was not changed, for a person


class MatchingProgress(Result, omit_defaults=True):
    """The progress of a change to all that match; the last part has ``done``."""

    matched: int
    matched_recipients: int
    changed: int
    failed: int
    errors: dict[str, str]  # queue id -> why; the first 100
    done: bool
    note: str  # "" or that the manager could not be asked where to read
    cut: str = ""  # of a dry run: a change with this cut leaves later messages untouched


class ChangesChecked(Result):
    """For each value, in the order of the request: why it could not be set, or None."""

    faults: list[Fault | None]


class Injected(Result):
    """The message that was injected, or is being injected."""

    queue_id: str


class Disk(Result):
    """A directory, and the free space of its disk."""

    what: str  # queue, spool or log
    path: str
    total_bytes: int
    free_bytes: int
    reserve_bytes: int  # kept free for deliveries
    device: int  # the same number: the same disk


class Disks(Result):
    """The disks of the queue, the spool and the log."""

    disks: list[Disk]


class Route(Result):
    """A row of the routes table."""

    pattern: str
    transport: str
    next_hop: str  # "": the recipient's domain
    line: int | None  # in the configuration file; None: not known here


class Routes(Result):
    """The routes table, in the order in which its rows count."""

    routes: list[Route]
    default: Route
    transports: list[str]


class Host(Result):
    """A host that takes mail for a next hop."""

    preference: int | None  # of its MX; None: it was not found by MX
    name: str
    addresses: list[str]


class Resolved(Result):
    """Where mail for an address would go; ``refused`` when it would go nowhere."""

    address: str
    transport: str
    destination: str
    next_hop: str
    matched: str  # the pattern of the route
    refused: str  # "" or the SMTP reply
    hosts: list[Host]
    dns_error: str  # "" or why no host was found, for a person


class Headers(Result):
    """The header section of a message."""

    queue_id: str
    headers: list[list[str]]  # [name, value] each, unfolded and decoded; a line that is not a field has the name ""
    raw: str
    truncated: bool


class DataPiece(Result):
    """A piece of a message's data, as received."""

    data: bytes
    offset: int
    size_bytes: int  # of all its data as stored
    more: bool
