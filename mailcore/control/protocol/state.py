"""Defines the operations about the running appliance: processes, live state, sizes, restart positions, disks."""

from __future__ import annotations

from mailcore.control.protocol.operation import Access, Answerer, Arguments, Operation, Result
from mailcore.lookup.answers import Retired, Segment
from mailcore.manager_answers import Places, Size, State

__all__ = [
    "OPERATIONS",
    "Certificate",
    "Certificates",
    "Child",
    "Disk",
    "Disks",
    "JournalPositions",
    "LanePositions",
    "Ping",
    "Positions",
    "Processes",
    "Recovery",
    "Segment",
]


class Ping(Result):
    """The control process is there."""

    pid: int
    manager: bool  # whether the manager is connected


class Child(Result):
    """A process that the supervisor starts, or the supervisor itself."""

    pid: int | None  # None: it does not run now
    started_at: float  # wall clock
    restarts: int


class Processes(Result):
    """The processes of this appliance, by name; none if they were started without a supervisor."""

    processes: dict[str, int]  # -> pid, of those that run
    children: dict[str, Child]
    manager: bool  # whether the manager is connected


class LanePositions(Result):
    """A lane, its positions, and its segments on disk; offsets and sizes in bytes."""

    lane: str
    interval_s: float | None  # between two passes of the runner; None: it only passes once
    runner: int
    end: int
    lag_bytes: int  # from the runner to the end
    browse: int  # the first envelope that may be alive
    segments: list[Segment]
    segments_left_out: int
    garbage_prefix_bytes: int  # from the first segment to ``browse``
    bytes_on_disk: int  # without retired segments
    retired: Retired


class JournalPositions(Result):
    """The journal, its positions, and its segments on disk; offsets and sizes in bytes."""

    suffix: int
    end: int
    durable: int
    suffix_bytes: int  # from the suffix to the end
    segments: list[Segment]
    segments_left_out: int
    garbage_prefix_bytes: int
    bytes_on_disk: int


class Recovery(Result):
    """The cost of a start now."""

    bytes: int  # of the journal, to be read
    records_estimate: int
    seconds_estimate: float
    messages: int | None  # to continue with; None: not known
    sentence: str


class Positions(Result):
    """Where the runners are, what is on disk and why, and what a start would cost."""

    sequence: int  # of the restart positions on disk
    written_at: float  # wall clock; 0.0: none are on disk
    age_s: float | None
    note: str  # "" or that the manager is away
    lanes: list[LanePositions]
    journal: JournalPositions
    recovery: Recovery
    unanswered: str = ""  # the shards that did not answer, and why; it is in the note, too


class Disk(Result):
    """A directory, and the free space of its disk."""

    what: str  # queue, spool or log
    path: str
    total_bytes: int
    free_bytes: int
    reserve_bytes: int  # with less than this free, new mail gets 452
    device: int  # the same number: the same disk
    free_inodes: int | None = None  # None: the file system does not limit them
    reserve_inodes: int = 0
    ballast_bytes: int = 0  # set aside for delivery on this disk, now
    ballast_inodes: int = 0
    ballast_bytes_whole: int = 0  # the same when no delivery uses it; 0: there is no ballast on this disk
    ballast_inodes_whole: int = 0


class Disks(Result):
    """The disks of the queue, the spool and the log."""

    disks: list[Disk]


class Certificate(Result):
    """The file of a certificate of the receivers."""

    path: str
    names: list[str]  # that clients ask for; none: for all others
    not_after: float | None  # wall clock; None: it cannot be read
    fault: str = ""  # why it cannot be read


class Certificates(Result):
    """The certificates of the receivers, as their files are now, and the keys that sign mail."""

    certificates: list[Certificate]
    key_records: list[str] = []  # names of the DNS records of the keys of [[dkim]] and [arc]


_READ, _INTERNAL = Access.READ, Access.INTERNAL
_CONTROL, _MANAGER = Answerer.CONTROL, Answerer.MANAGER

OPERATIONS = (
    Operation("ping", Arguments, _READ, _CONTROL, "control is there", Ping),
    Operation("processes", Arguments, _READ, _CONTROL, "the supervisor's children", Processes),
    Operation("state", Arguments, _READ, _MANAGER, "live state", State),
    Operation("size", Arguments, _READ, _MANAGER, "messages and recipients, by lane and by destination", Size),
    Operation(
        "positions", Arguments, _READ, _CONTROL, "runners, ends, segments and what keeps them; recovery now", Positions
    ),
    Operation("disks", Arguments, _READ, _CONTROL, "free space where queue, spool and log are", Disks),
    Operation(
        "certificates",
        Arguments,
        _READ,
        _CONTROL,
        "when the receivers' certificates expire; names of the keys that sign mail",
        Certificates,
    ),
    Operation("places", Arguments, _INTERNAL, _MANAGER, "the manager's part of positions", Places),
)
