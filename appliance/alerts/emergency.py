"""The alert that the portal's database cannot be used, which is where all other alerts are. It is sent without the database.

A file beside the database lists the targets that have it, so that a watch that is started again does not send it twice; where
the disk takes no file, it does.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from django.db import DatabaseError, transaction

from appliance.alerts import links
from appliance.alerts.book import Target
from appliance.alerts.causes import Cause, Severity
from appliance.alerts.models import TEXT_MAX, Alert, Kind, Notice
from appliance.alerts.rules import DATABASE
from appliance.alerts.sending import NotSent, send
from mailcore.config.alerts import Alerts

__all__ = ["Emergency", "NotMade"]

RETRY_S = 60.0
MAKING_S = 60.0  # that the portal has to make its tables, at the first start, before a line in the log
FILE = "alerts-without-database.json"
SUMMARY = "The portal's database cannot be used; alerts are not recorded."
_log = logging.getLogger("waypost.alerts")


class NotMade(DatabaseError):
    """Raised if the portal has not made its tables yet."""


class Emergency:
    """Follows whether the database works. Not for several threads."""

    def __init__(
        self,
        directory: Path,
        settings: Alerts,
        targets: Sequence[Target],
        sender: Callable[[Target, Sequence[Notice], Alerts, datetime], str] = send,
    ) -> None:
        self._file = directory / FILE
        self._settings = settings
        self._targets = targets
        self._send = sender
        self._failed_at: float | None = None  # monotonic
        self._since: datetime | None = None
        self._next_try: float = 0.0
        self._lasted = False
        self._is_logged = False  # that it cannot be used
        self._told = self._read()

    def use(self, settings: Alerts, targets: Sequence[Target]) -> None:
        """Goes by these settings from now on."""
        self._settings, self._targets = settings, targets

    @property
    def explains(self) -> bool:
        """Returns whether the alert of the database was sent, or will be: then it says why no check was stored."""
        return DATABASE not in self._settings.off and (bool(self._told) or self._failed_at is not None)

    def failed(self, error: Exception, also: Sequence[Cause], monotonic: float, now: datetime) -> None:
        """Notes that the database failed, and tells each target once when this lasts. ``also``: causes that are true now."""
        if self._failed_at is None:
            self._failed_at, self._since = monotonic, now
        if not self._is_logged and not (isinstance(error, NotMade) and monotonic - self._failed_at < MAKING_S):
            _log.warning("alerts: the portal's database cannot be used, and no alert is recorded: %s", error)
            self._is_logged = True
        if DATABASE in self._settings.off or monotonic - self._failed_at < self._settings.database_s:
            return
        self._lasted = True
        if monotonic < self._next_try:
            return
        notice = Notice(kind=Kind.OPENED, made_at=now, alert=self._alert(error, also, now))
        for target in self._targets:
            if target not in self._told:
                try:
                    self._send(target, [notice], self._settings, now)
                except NotSent as fault:
                    _log.warning("alerts: %s %s: %s", target.channel, target.address, fault)
                    self._next_try = monotonic + RETRY_S
                else:
                    self._told[target] = (self._since or now).timestamp()
                    self._write()

    def worked(self, now: datetime) -> None:
        """Notes that the database works. Records a time without it that lasted, and tells the same targets that it ended.
        Raises DatabaseError, and then does it the next time."""
        if self._told or self._lasted:
            since = min([self._since or now, *(datetime.fromtimestamp(at, UTC) for at in self._told.values())])
            with transaction.atomic():
                alert = Alert.objects.create(
                    cause=DATABASE, rule=DATABASE, severity=str(Severity.CRITICAL), summary=SUMMARY, link=links.ALERTS,
                    began_at=since, opened_at=since, seen_at=now, ended_at=now, noticed_at=now,
                )  # fmt: skip
                if self._settings.send_ended:
                    Notice.objects.bulk_create(
                        Notice(
                            alert=alert, kind=Kind.ENDED, channel=each.channel, target=each.address, made_at=now,
                            next_try_at=now,
                        )
                        for each in self._told
                    )  # fmt: skip
            self._told, self._lasted = {}, False
            self._file.unlink(missing_ok=True)
        if self._is_logged:
            _log.warning("alerts: the portal's database can be used again")
            self._is_logged = False
        self._failed_at = self._since = None
        self._next_try = 0.0

    def _alert(self, error: Exception, also: Sequence[Cause], now: datetime) -> Alert:
        detail = " ".join(str(error).split()) or type(error).__name__
        if also:
            detail += " Also true now: " + " ".join(cause.summary for cause in also)
        return Alert(
            cause=DATABASE, rule=DATABASE, severity=str(Severity.CRITICAL), summary=SUMMARY, detail=detail[:TEXT_MAX],
            link=links.ALERTS, began_at=self._since or now, opened_at=now, seen_at=now,
        )  # fmt: skip

    # -- the file

    def _read(self) -> dict[Target, float]:
        try:
            given = json.loads(self._file.read_text())
            return {Target(channel, address): float(at) for channel, address, at in given}
        except (OSError, ValueError, TypeError):
            return {}

    def _write(self) -> None:
        told = [[target.channel, target.address, at] for target, at in self._told.items()]
        try:
            self._file.write_text(json.dumps(told))
        except OSError as error:  # the disk is full, say
            _log.warning("alerts: %s: %s", self._file, error.strerror)
