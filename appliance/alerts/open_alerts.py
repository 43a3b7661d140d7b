"""The open alerts, and whether rules are checked at all, for the frame of every page and for the overview."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from datetime import datetime

from django.db import DatabaseError
from django.utils import timezone

from appliance.alerts.causes import Severity
from appliance.alerts.models import Alert, Watch
from appliance.common.current_settings import current_settings

__all__ = ["SHOWN_MAX", "OpenAlerts", "in_order", "is_away", "open_alerts", "open_alerts_now"]

SHOWN_MAX = 10  # on the overview
KEPT_S = 2.0  # live pages ask once a second, each
PATIENCE_S = 120.0  # beside three intervals: questions to a core that does not answer take time


@dataclass(frozen=True)
class OpenAlerts:
    """Holds the open alerts, the most urgent first, how many there are, and since when no rule was checked."""

    alerts: tuple[Alert, ...] = ()
    count: int = 0
    critical: bool = False
    away: bool = False
    away_since: datetime | None = None  # None: no rule was ever checked

    @property
    def more(self) -> int:
        """Returns how many open alerts are not in ``alerts``."""
        return self.count - len(self.alerts)


_lock = threading.Lock()
_kept: tuple[float, OpenAlerts | None] | None = None


def open_alerts() -> OpenAlerts | None:
    """Returns the open alerts of at most two seconds ago; None if the database does not answer."""
    global _kept  # noqa: PLW0603  # one a process
    with _lock:
        if _kept is None or time.monotonic() - _kept[0] >= KEPT_S:
            try:
                _kept = (time.monotonic(), open_alerts_now())
            except DatabaseError:
                _kept = (time.monotonic(), None)
        return _kept[1]


def open_alerts_now() -> OpenAlerts:
    """Returns the open alerts. Raises DatabaseError."""
    alerts = in_order(Alert.objects.filter(opened_at__isnull=False, ended_at__isnull=True))
    watch = Watch.objects.first()
    return OpenAlerts(
        alerts=tuple(alerts[:SHOWN_MAX]),
        count=len(alerts),
        critical=any(alert.severity == str(Severity.CRITICAL) for alert in alerts),
        away=is_away(watch),
        away_since=watch.seen_at if watch is not None else None,
    )


def in_order(alerts: object) -> list[Alert]:
    """Returns alerts, the critical ones first, then those that opened last."""
    listed: list[Alert] = list(alerts)  # type: ignore[call-overload]
    return sorted(
        listed,
        key=lambda alert: (
            alert.severity != str(Severity.CRITICAL),
            -(alert.opened_at or alert.began_at).timestamp(),
        ),
    )


def is_away(watch: Watch | None) -> bool:
    """Returns whether no rule is checked now. A time still to come says the same: the clock was set back."""
    if watch is None:
        return True
    limit_s = 3 * current_settings().alerts.interval_s + PATIENCE_S
    return abs((timezone.now() - watch.seen_at).total_seconds()) > limit_s
