"""Lists what needs an operator now, the most urgent first: one entry for a cause, with the page that shows why.

Sources are the open alerts, and what live pages see at once and an alert waits for: a core that is away, a process that does
not run, a disk that refuses mail, a balance that is off, dead destinations with mail. A cause with an open alert is not listed
a second time.

Pure: values only, no clock, no I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.urls import reverse
from django.utils.http import urlencode

from appliance.alerts.models import Alert
from appliance.alerts.open_alerts import OpenAlerts
from appliance.common.templatetags.waypost import number
from appliance.live.hub import SPARE
from mailcore.counted import counted
from mailcore.destination_state import DestinationState

__all__ = ["NEEDS_MAX", "Need", "needs_of"]

NEEDS_MAX = 8  # shown; the rest is counted
_TAKES_NOTHING = (DestinationState.DEAD, DestinationState.TRANSPORT_DEAD)


@dataclass(frozen=True)
class Need:
    """Holds one cause. ``text`` may have text of others, which the template makes harmless."""

    key: str
    text: str
    url: str
    urgent: bool = True
    since: float | datetime | None = None  # wall clock
    words: str = ""  # more about it
    steps: tuple[tuple[str, str], ...] = ()  # label and URL of what to do about it
    rule: str = ""  # the rule of an alert of the same cause


def needs_of(
    snapshot: Mapping[str, Any], alerts: OpenAlerts | None, fault: str, difference: int | None
) -> tuple[list[Need], int]:
    """Returns the needs, and how many are left out. ``difference``: of the balance of the day; None: not known."""
    listed = alerts.alerts if alerts is not None else ()
    rules, summaries = {alert.rule for alert in listed}, " ".join(alert.summary for alert in listed)
    live = [*_of_core(snapshot, fault), *_of_live(snapshot, difference)]
    found = [
        *_of_alerts(listed, acknowledged=False),
        *(each for each in live if each.rule not in rules and each.key not in summaries),
        *_of_alerts(listed, acknowledged=True),
    ]
    if alerts is not None and alerts.away:
        found.append(
            Need(
                "watch",
                "No rule of the alerts is checked now",
                reverse("alerts:alerts"),
                urgent=False,
                since=alerts.away_since,
            )
        )
    found.sort(key=lambda each: not each.urgent)
    return found[:NEEDS_MAX], max(len(found) - NEEDS_MAX, 0) + (alerts.more if alerts is not None else 0)


def _of_core(snapshot: Mapping[str, Any], fault: str) -> Iterator[Need]:
    core = snapshot["core"]
    gone = [process for process in snapshot["processes"] if process["pid"] is None]
    if not core["running"]:
        yield Need(
            "core",
            core["notice"] or "The core does not answer",
            reverse("alerts:rule", args=["core_away"]),
            urgent=core.get("words") != SPARE,
            rule="core_away",
        )
        if len(gone) == len(snapshot["processes"]):  # the same cause
            gone = []
    elif core.get("waits"):
        yield Need("core", core["waits"], reverse("alerts:rule", args=["core_away"]), rule="core_away")
    if fault:
        yield Need("fault", fault, reverse("queue:list"))
    for process in gone:
        words = f"{counted(process['restarts'], 'restart')} since the core began"
        yield Need(
            f"process {process['name']}", f"{process['name']} does not run", reverse("maillog:lines"), words=words
        )


def _of_alerts(alerts: Iterable[Alert], *, acknowledged: bool) -> Iterator[Need]:
    for alert in alerts:
        if (alert.acknowledged_at is not None) is acknowledged:
            by = f"acknowledged by {alert.acknowledged_by}" if acknowledged else ""
            yield Need(
                f"alert {alert.pk}",
                alert.summary,
                alert.link,
                urgent=alert.severity == "critical" and not acknowledged,
                since=alert.began_at,
                words=by,
                steps=(("Alert", reverse("alerts:alert", args=[alert.pk])),),
            )


def _of_live(snapshot: Mapping[str, Any], difference: int | None) -> Iterator[Need]:
    for disk in snapshot["disks"]:
        if disk["full"]:
            yield Need(
                disk["path"],
                f"New mail is refused: the disk of {disk['path']} is full",
                reverse("alerts:alerts"),
                rule="disk",
            )
    if difference:
        text = f"The balance of the day is off by {counted(abs(difference), 'recipient')}"
        yield Need("balance", text, reverse("reports:reports"), rule="balance")
    for row in snapshot["trouble"]:
        if row["queued"] and any(badge["words"] in _TAKES_NOTHING for badge in row["badges"]):
            yield Need(
                row["name"],
                f"{row['text']} takes no mail; queued: {number(row['queued'])}",
                row["url"],
                urgent=False,
                words=row["reason"],
                steps=(("Its mail", f"{reverse('queue:list')}?{urlencode({'destination': row['name']})}"),),
            )
