"""The check of the alerts for ``waypost doctor``: whether the rules are checked, and where alerts are sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.utils import timezone

from appliance.alerts.models import Alert, Notice, Watch
from appliance.alerts.open_alerts import is_away
from appliance.alerts.sending import targets_of
from appliance.common.current_settings import current_settings
from appliance.common.templatetags.waypost import span
from mailcore.counted import counted

__all__ = ["Checked", "look"]


@dataclass(frozen=True)
class Checked:
    """Holds a finding: its ``state`` and text. ``is_stopped``: the watch does not run, and must be started."""

    state: str
    found: str
    is_stopped: bool
    figures: dict[str, Any]


def look() -> Checked:
    """Returns the state of the alerts. Raises DatabaseError."""
    watch = Watch.objects.first()
    if watch is None:
        return Checked("not known", "no rule has ever been checked", True, {})
    ago_s = (timezone.now() - watch.seen_at).total_seconds()
    figures = {
        "checked_at": watch.seen_at.timestamp(),
        "open": Alert.objects.filter(opened_at__isnull=False, ended_at__isnull=True).count(),
        "failing": Notice.objects.filter(sent_at__isnull=True, dropped_at__isnull=True, attempts__gt=0).count(),
    }
    if is_away(watch):
        found = (
            f"no rule has been checked for {span(ago_s)}"
            if ago_s > 0
            else "no rule was checked since the clock was set back"
        )
        return Checked("bad", found, True, figures)
    targets = targets_of(current_settings().alerts)
    where = f"sent to {counted(len(targets), 'target')}" if targets else "only shown in the portal"
    said = f"{counted(figures['open'], 'alert')} open; alerts are {where}"
    if figures["failing"]:
        return Checked("warn", f"{said}; {counted(figures['failing'], 'notice')} could not be sent yet", False, figures)
    return Checked("good", said, False, figures)
