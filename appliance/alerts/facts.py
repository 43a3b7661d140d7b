"""The facts that the rules judge: answers of the core, disks, certificates and reports. Values only: no clock, no I/O.

Law: a fact that could not be gathered is Unknown, with the reason; it is never a value that looks good.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import TypeVar

from mailcore.control.protocol.messages import AgesPart
from mailcore.control.protocol.state import Certificates
from mailcore.control.protocol.tuning import MailOutcomes
from mailcore.manager_answers import Destinations, State

__all__ = ["DiskSpace", "Facts", "KeyRecord", "LastReport", "Queued", "Unknown", "WebhookFailure"]

T = TypeVar("T")


@dataclass(frozen=True)
class Unknown:
    """Says why a fact could not be gathered. ``expected``: for a reason that has its own alert, or that ends after a start."""

    why: str
    expected: bool = False


@dataclass(frozen=True, kw_only=True)
class DiskSpace:
    """The free space of a directory's disk. ``device``: the same number is the same disk; ``limit_bytes``: below it mail, or
    the portal, stops."""

    what: str  # queue, spool, log or portal
    path: str
    device: int
    free_bytes: int
    reserve_bytes: int = 0  # with less than this, new mail gets 452
    free_inodes: int | None = None  # None: the file system does not limit them
    reserve_inodes: int = 0


@dataclass(frozen=True)
class KeyRecord:
    """The DNS record of a key that signs mail. ``fault``: why signatures cannot be verified with it; "" if they can."""

    name: str
    fault: str | Unknown


@dataclass(frozen=True)
class Queued:
    """The recipients in the queue now, and at a time about an hour before; of the time between, those delivered, and those
    that bounced or expired (None: the counts began again since)."""

    now: int
    before: int
    before_at: float
    delivered: int | None = None
    bounced: int | None = None


@dataclass(frozen=True, kw_only=True)
class LastReport:
    """The latest report of a day, and days with events and without a report. ``words``: the report's own summary.

    ``late``: earlier days that do not balance, with their words, if their reports were made within a day. A day may have been
    unknown when it was the latest, and is made again when its last events are there.
    """

    day: date | None = None
    balances: bool | None = None
    words: str = ""
    late: tuple[tuple[date, str], ...] = ()
    missing: tuple[tuple[date, float], ...] = ()  # each with the seconds since its end


@dataclass(frozen=True, kw_only=True)
class WebhookFailure:
    """A webhook whose receiver takes nothing, and for how long, in seconds. ``lost``: why it stands still; "": it tries."""

    number: int
    name: str
    for_s: float
    words: str
    lost: str = ""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """All facts at one moment (``at``: wall clock). ``core_away``: why the core does not answer; "" if it does."""

    at: float
    core_away: str | Unknown
    state: State | Unknown
    destinations: Destinations | Unknown
    queued: Queued | Unknown
    ages: AgesPart | Unknown
    disks: tuple[DiskSpace, ...] | Unknown
    certificates: Certificates | Unknown
    key_records: tuple[KeyRecord, ...] | Unknown
    report: LastReport | Unknown
    outcomes: MailOutcomes | Unknown
    webhooks: tuple[WebhookFailure, ...] | Unknown
    destinations_max: int = 1_000  # that the answer names
    queued_by_destination: Mapping[str, int] | None = None  # of all destinations, if the answer does not name them all
