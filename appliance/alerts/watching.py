"""The watch: checks all rules again and again, and sends what is to be sent. A process of its own (``manage.py watch``).

Laws
- It needs neither the core nor Celery, Redis or a page of the portal; without the database it sends that alone
  (``emergency.py``).
- One watch runs at a time (a lock on a file). It may be killed at any moment: what is not stored is found again by the next
  check, and what is stored is sent.
- How long a cause lasts is measured on the monotonic clock.
- Other settings are used by the next check, which comes within a second of them; a wait that has begun is not prolonged.

Keeps law: alerts-do-without-the-queue (docs/laws.md).
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Protocol

from django.db import DatabaseError, connections
from django.utils import timezone

from appliance.alerts import book
from appliance.alerts.causes import Cause, Judgement
from appliance.alerts.emergency import Emergency, NotMade
from appliance.alerts.facts import Facts, Unknown
from appliance.alerts.outbox import Outbox
from appliance.alerts.rules import judge
from appliance.alerts.sending import targets_of
from mailcore.config.alerts import Alerts

__all__ = ["Watcher"]

STEP_MAX_S = 60.0  # beside the interval: a longer step is time in which nothing was looked at
TIDY_S = 3_600.0
LOOK_S = 1.0  # between two looks for other settings, while the next check is not due
_log = logging.getLogger("waypost.alerts")


class Gathers(Protocol):
    """Gathers the facts."""

    def gather(self) -> Facts:
        """Returns all facts as they are now."""


class Watcher:
    """Checks the rules. ``ready``: whether the database has all its tables; ``renewed`` returns the settings in force."""

    def __init__(
        self,
        settings: Alerts,
        targets: Sequence[book.Target],
        gatherer: Gathers,
        outbox: Outbox,
        emergency: Emergency,
        *,
        ready: Callable[[], bool] = lambda: True,
        renewed: Callable[[], Alerts] | None = None,
        wall: Callable[[], datetime] = timezone.now,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._targets = targets
        self._gatherer = gatherer
        self._outbox = outbox
        self._emergency = emergency
        self._ready = ready
        self._renewed = renewed or (lambda: settings)
        self._wall = wall
        self._monotonic = monotonic
        self._is_ready = False
        self._stored: tuple[float, datetime] | None = None  # when a check was stored the last time
        self._tidied_at = float("-inf")
        self._sending: threading.Thread | None = None

    def run(self) -> None:
        """Checks the rules until the process ends."""
        while True:
            began = self._monotonic()
            try:
                self.check()
            except Exception:  # a fault here must not end all alerts
                _log.exception("alerts: a check failed")
            while not self._renew() and (rest := began + self._settings.interval_s - self._monotonic()) > 0:
                time.sleep(min(rest, LOOK_S))

    def _renew(self) -> bool:
        """Goes by the settings that are in force now; returns True if they are others."""
        settings = self._renewed()
        if settings == self._settings:
            return False
        self._settings, self._targets = settings, targets_of(settings)
        self._outbox.use(settings, self._targets)
        self._emergency.use(settings, self._targets)
        _log.warning("alerts: other settings are in force; %d targets", len(self._targets))
        return True

    def check(self) -> None:
        """Checks all rules once, stores what they found, and begins to send what is due."""
        facts = self._gatherer.gather()
        judgements = judge(facts, self._settings)
        now, monotonic = self._wall(), self._monotonic()
        try:
            self._store(judgements, now, monotonic, sees_mail=not isinstance(facts.state, Unknown))
            self._emergency.worked(now)
        except DatabaseError as error:
            connections.close_all()  # a connection that broke is not used again
            self._emergency.failed(error, _causes(judgements), monotonic, now)
        else:
            self._begin_sending()

    def _store(self, judgements: Sequence[Judgement], now: datetime, monotonic: float, *, sees_mail: bool) -> None:
        if not self._is_ready:
            self._is_ready = self._ready()
            if not self._is_ready:
                raise NotMade("it has not all its tables; the portal makes them when it starts")
        elapsed_s = 0.0
        if self._stored is None:
            book.started(os.getpid(), now, self._settings, self._targets, says_absence=not self._emergency.explains)
        else:
            elapsed_s = monotonic - self._stored[0]
            if elapsed_s >= self._settings.watch_away_s and not self._emergency.explains:
                book.note_absence(self._stored[1], now, self._settings, self._targets)
            elapsed_s = min(elapsed_s, STEP_MAX_S + self._settings.interval_s)
        book.note(judgements, now, elapsed_s, self._settings, self._targets, sees_mail=sees_mail)
        self._stored = monotonic, now
        if monotonic - self._tidied_at >= TIDY_S:
            self._tidied_at = monotonic
            book.forget(now, self._settings)

    def _begin_sending(self) -> None:
        """Sends in a thread, so that a mail server that does not answer delays no check."""
        if self._sending is not None and self._sending.is_alive():
            return
        self._sending = threading.Thread(target=self._send, daemon=True, name="outbox")
        self._sending.start()

    def _send(self) -> None:
        try:
            self._outbox.send_due(self._wall())
        except DatabaseError as error:
            _log.warning("alerts: the database cannot be used: %s", error)
        except Exception:
            _log.exception("alerts: sending failed")
        finally:
            connections.close_all()  # this thread's


def _causes(judgements: Sequence[Judgement]) -> list[Cause]:
    return [cause for judgement in judgements for cause in judgement.causes]
