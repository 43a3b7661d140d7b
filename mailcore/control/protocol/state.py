"""Defines the operations about the running appliance: processes, live state, sizes, restart positions, disks."""

from __future__ import annotations

from mailcore.control.protocol.operation import Access, Answerer, Arguments, Operation, Result

__all__ = ["OPERATIONS", "Disk", "Disks", "Ping"]


class Ping(Result):
    """The control process is there."""

    pid: int
    manager: bool  # whether the manager is connected


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


_READ, _INTERNAL = Access.READ, Access.INTERNAL
_CONTROL, _MANAGER = Answerer.CONTROL, Answerer.MANAGER

OPERATIONS = (
    Operation("ping", Arguments, _READ, _CONTROL, "control is there", Ping),
    Operation("processes", Arguments, _READ, _CONTROL, "the supervisor's children"),
    Operation("state", Arguments, _READ, _MANAGER, "live state"),
    Operation("size", Arguments, _READ, _MANAGER, "messages and recipients, by lane and by destination"),
    Operation("positions", Arguments, _READ, _CONTROL, "runners, ends, segments and what keeps them; recovery now"),
    Operation("disks", Arguments, _READ, _CONTROL, "free space where queue, spool and log are", Disks),
    Operation("places", Arguments, _INTERNAL, _MANAGER, "the manager's part of positions"),
)
