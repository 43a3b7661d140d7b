"""Gathers the facts that the rules judge: from the core, the disks, the samples of the queue, and the reports.

Law: gathering raises nothing and waits for nothing longer than a question to the core may take; what fails is Unknown.

Keeps law: unknown-is-not-good (docs/laws.md).
"""

from __future__ import annotations

import os
import shutil
import threading
import time
import zoneinfo
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec
from django.conf import settings
from django.db import DatabaseError

from appliance.alerts.facts import DiskSpace, Facts, KeyRecord, LastReport, Queued, Unknown, WebhookFailure
from appliance.alerts.key_records import look_up
from appliance.common.door import Door, door_of
from appliance.destinations.row import NAMES_MAX
from appliance.live.models import Sample
from appliance.live.samples import keep_sample
from appliance.live.snapshot import counts_of
from appliance.reports import report_store
from appliance.reports.preferences import in_force, yesterday
from appliance.reports.shard_events import event_places
from appliance.webhooks.models import Webhook
from mailcore.config.certificates import CertificateError, not_after
from mailcore.config.waiting import waits_in
from mailcore.control.client import ControlError, NotUnderstood, Waits
from mailcore.control.protocol.messages import AgesPart
from mailcore.control.protocol.state import Certificate, Certificates, Disks
from mailcore.control.protocol.tuning import MailOutcomes, OutcomesPart
from mailcore.faults import Code
from mailcore.manager_answers import Destinations, Size, State

__all__ = ["Gatherer"]

WHO = "alerts"
SLOWLY_S = 300.0  # between two looks at what changes slowly: ages, certificates, reports
LATE_S = 86_400.0  # time after the making of an earlier report in which it is reported
LONG_S = 1_800.0  # after which a result that is still awaited is unknown
HOUR_MINUTES = 60
SLACK_MINUTES = 15  # the sample of an hour before may be this much older
UNITS = Path("/etc/systemd/system")  # Ansible installs units here; a checkout has no units
R = TypeVar("R", bound=msgspec.Struct)
T = TypeVar("T")
V = TypeVar("V")


class Gatherer:
    """Gathers facts, and keeps those that change slowly for some minutes. Not for several threads."""

    def __init__(
        self, *, wall: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self._ages: _InThread[AgesPart] = _InThread("the queue has not been read yet", monotonic)
        self._outcomes: _InThread[MailOutcomes] = _InThread("the deliveries have not been read yet", monotonic)
        self._key_records: _InThread[tuple[KeyRecord, ...]] = _InThread(
            "the name servers were not asked yet", monotonic
        )
        self._kept: dict[str, tuple[float, Any]] = {}  # name -> when it was gathered, and it

    def gather(self) -> Facts:
        """Returns all facts as they are now."""
        door = door_of(WHO)
        state, away = _state(door)
        report = self._slowly("report", lambda: _report(self._wall()))
        webhooks = _webhooks(self._wall())
        if isinstance(state, Unknown):
            return Facts(
                at=self._wall(),
                core_away=away,
                state=state,
                destinations=state,
                queued=state,
                ages=state,
                disks=state,
                certificates=state,
                key_records=state,
                report=report,
                outcomes=state,
                webhooks=webhooks,
            )
        destinations = _asked(door, "destinations", Destinations, {"limit": NAMES_MAX})
        by_destination = None
        if not isinstance(destinations, Unknown) and len(destinations.queued) >= NAMES_MAX:
            size = _asked(door, "size", Size)
            by_destination = None if isinstance(size, Unknown) else size.destinations
        certificates = self._slowly("certificates", lambda: _certificates(door))
        return Facts(
            at=self._wall(),
            core_away=away,
            state=state,
            destinations=destinations,
            destinations_max=NAMES_MAX,
            queued_by_destination=by_destination,
            queued=self._queued(door, state),
            ages=self._ages.last(lambda: _ages(door)),
            disks=_disks(door),
            certificates=certificates,
            key_records=self._records(certificates),
            report=report,
            outcomes=self._outcomes.last(lambda: _outcomes(door)),
            webhooks=webhooks,
        )

    def _records(self, certificates: Certificates | Unknown) -> tuple[KeyRecord, ...] | Unknown:
        if isinstance(certificates, Unknown):
            return certificates
        names = certificates.key_records
        return self._key_records.last(lambda: look_up(names)) if names else ()

    def _slowly(self, name: str, gather: Callable[[], T | Unknown]) -> T | Unknown:
        """Returns what was gathered a short time ago, or gathers it; what was unknown is gathered again at once."""
        kept = self._kept.get(name)
        if kept is not None and self._monotonic() - kept[0] < SLOWLY_S and not isinstance(kept[1], Unknown):
            value: T = kept[1]
            return value
        found = gather()
        self._kept[name] = (self._monotonic(), found)
        return found

    def _queued(self, door: Door, state: State) -> Queued | Unknown:
        at = self._wall()
        minute = int(at // 60)
        try:
            if not Sample.objects.filter(minute=minute).exists():  # no portal runs, say
                size = _asked(door, "size", Size)
                if isinstance(size, Unknown):
                    return size
                keep_sample(at, state, size)
            before = Sample.objects.filter(
                minute__gte=minute - HOUR_MINUTES - SLACK_MINUTES, minute__lte=minute - HOUR_MINUTES
            ).last()
        except DatabaseError as error:
            return Unknown(f"the portal's database: {error}", expected=True)
        if before is None:
            return Unknown("the queue was not counted an hour before", expected=True)
        queued = Queued(state.balance.recipients["queued"], before.recipients, before.at)
        if before.started_at != state.counted_since:
            return queued
        counts = counts_of(state)
        bounced = counts["bounced"] + counts["expired"] - before.bounced - before.expired
        return replace(queued, delivered=max(0, counts["delivered"] - before.delivered), bounced=max(0, bounced))


class _InThread(Generic[V]):
    """Gathers in a thread what may take minutes, such as reading a queue of millions of messages. ``at_first``: why nothing is
    known before that."""

    def __init__(self, at_first: str, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._value: V | Unknown = Unknown(at_first, expected=True)
        self._began = float("-inf")
        self._thread: threading.Thread | None = None

    def last(self, gather: Callable[[], V | Unknown]) -> V | Unknown:
        """Returns what was gathered last, and begins to gather again if that is old."""
        now = self._monotonic()
        if self._thread is not None and self._thread.is_alive():
            if now - self._began > LONG_S:
                return Unknown(f"this has taken longer than {LONG_S / 60:.0f} minutes")
        elif now - self._began >= SLOWLY_S or isinstance(self._value, Unknown):
            self._began = now
            self._thread = threading.Thread(target=self._run, args=(gather,), daemon=True)
            self._thread.start()
        return self._value

    def _run(self, gather: Callable[[], V | Unknown]) -> None:
        try:
            self._value = gather()
        except Exception as error:  # else the last value would stay, and look good
            self._value = Unknown(str(error) or type(error).__name__)


def _ages(door: Door) -> AgesPart | Unknown:
    part = next(iter(deque(door.ask_parts("ages", AgesPart), maxlen=1)), None)  # the last one
    if part is None or not part.done or part.manager_away:
        return Unknown(part.note if part is not None and part.note else "the queue could not be read")
    return part


def _outcomes(door: Door) -> MailOutcomes | Unknown:
    part = next(iter(deque(door.ask_parts("outcomes", OutcomesPart, {"since_s": HOUR_MINUTES * 60}), maxlen=1)), None)
    if part is None or part.outcomes is None:
        return Unknown("the deliveries could not be read")
    return part.outcomes


def _certificates(door: Door) -> Certificates | Unknown:
    """Returns those of the receivers, which the core reads, and that of the portal, which the core may not know."""
    found = _asked(door, "certificates", Certificates)
    path = settings.PORTAL.tls_certificate
    if isinstance(found, Unknown) or not path or any(each.path == path for each in found.certificates):
        return found
    at, fault = None, ""
    try:
        at = not_after(path)
    except CertificateError as error:
        fault = str(error)
    own = Certificate(path=path, names=["the portal"], not_after=at, fault=fault)
    return msgspec.structs.replace(found, certificates=[*found.certificates, own])


def _state(door: Door) -> tuple[State | Unknown, str | Unknown]:
    """Returns the manager's state, and why the core is away ("" if it is not).

    A core that is away has its own alert, which a spare does not raise. A node that waits and is not a spare raises it, though
    other nodes may answer for theirs. An answer of another version, or a missing permission, does not say whether it is away.
    """
    waiting = waits_in(Path(settings.CONTROL_SOCKET).parent)
    why = waiting.sentence if waiting is not None and not waiting.is_in_order else ""
    try:
        return door.ask("state", State), why
    except ControlError as error:
        if isinstance(error, NotUnderstood) or error.code is Code.FORBIDDEN:
            unknown = Unknown(str(error))
            return unknown, unknown
        if isinstance(error, Waits) and error.is_in_order:
            return Unknown(str(error), expected=True), ""
        return Unknown(f"the core does not answer: {error}", expected=True), str(error)


def _asked(door: Door, operation: str, result: type[R], arguments: dict[str, Any] | None = None) -> R | Unknown:
    try:
        return door.ask(operation, result, arguments)
    except ControlError as error:
        return Unknown(str(error))


def _disks(door: Door) -> tuple[DiskSpace, ...] | Unknown:
    answer = _asked(door, "disks", Disks)
    if isinstance(answer, Unknown):
        return answer
    own = settings.PORTAL_DIRECTORY
    try:
        usage, device = shutil.disk_usage(own), os.stat(own).st_dev
    except OSError as error:
        return Unknown(f"{own}: {error.strerror or error}")
    disks = [
        DiskSpace(
            what=each.what,
            path=each.path,
            device=each.device,
            free_bytes=each.free_bytes,
            reserve_bytes=each.reserve_bytes,
            free_inodes=each.free_inodes,
            reserve_inodes=each.reserve_inodes,
        )
        for each in answer.disks
    ]
    return (*disks, DiskSpace(what="portal", path=str(own), device=device, free_bytes=usage.free))


# -- reports


def _report(now: float) -> LastReport | Unknown:
    """Returns what is known about the reports; nothing on a server that makes none."""
    if (UNITS / "waypost-core.service").is_file() and not (UNITS / "waypost-worker.service").is_file():
        return LastReport()
    try:
        zone = in_force().zone
        for directory in (*event_places(), settings.REPORTS_DIRECTORY / "gold"):
            if directory.exists():
                os.listdir(directory)  # report_store takes what cannot be read for missing
    except DatabaseError as error:
        return Unknown(f"the portal's database: {error}", expected=True)
    except OSError as error:
        return Unknown(f"{error.filename}: {error.strerror}")
    days = report_store.available(report_store.Period.DAY)
    day = next(iter(days), None)
    report = report_store.report_of(report_store.Period.DAY, day) if day is not None else None
    if day is not None and report is None:
        return Unknown(f"the report of {day} cannot be read")
    missing = []
    for back in range(settings.REPORTS.catch_up_days):
        last = yesterday(zone) - timedelta(days=back)
        if report_store.has_events(last) and not report_store.exists(report_store.Period.DAY, last):
            end = datetime.combine(last + timedelta(days=1), datetime.min.time(), zoneinfo.ZoneInfo(zone))
            missing.append((last, now - end.timestamp()))
    return LastReport(
        day=day,
        balances=report.balances if report is not None else None,
        words=report.words if report is not None else "",
        late=tuple(_late(days[1 : settings.REPORTS.catch_up_days], now)),
        missing=tuple(missing),
    )


def _late(days: list[date], now: float) -> Iterator[tuple[date, str]]:
    """Yields the days that do not balance, with their words, if their reports were made within a day."""
    for day in days:
        report = report_store.report_of(report_store.Period.DAY, day)
        try:
            if report is not None and report.balances is False and now - report.made_at < LATE_S:
                yield day, report.words
        except OSError:  # it is made again at this moment
            continue


# -- webhooks


def _webhooks(now: float) -> tuple[WebhookFailure, ...] | Unknown:
    try:
        failing = list(Webhook.objects.filter(enabled=True, failing_since__isnull=False))
    except DatabaseError as error:
        return Unknown(f"the portal's database: {error}", expected=True)
    return tuple(
        WebhookFailure(
            number=hook.pk, name=hook.name, for_s=now - hook.failing_since.timestamp(), words=hook.words, lost=hook.lost
        )
        for hook in failing
        if hook.failing_since is not None
    )
