"""Acknowledges an alert, silences a cause or a rule, ends a silence, leaves a test.

Law: each is entered in the audit log before it is done, with user, token and reason; the pages and the HTTP API call it here.
"""

from __future__ import annotations

from datetime import timedelta

from django.http import HttpRequest
from django.utils import timezone

from appliance.alerts import book
from appliance.alerts.models import Alert, Silence
from appliance.alerts.sending import targets_of
from appliance.audit.record import audited
from appliance.common.current_settings import current_settings
from mailcore.config.alerts import Alerts

__all__ = ["acknowledge", "end_silence", "own_settings", "send_test", "silence"]

WHO_MAX = 150  # characters


def own_settings() -> Alerts:
    """Returns the settings of [alerts]."""
    alerts_settings: Alerts = current_settings().alerts
    return alerts_settings


def acknowledge(request: HttpRequest, it: Alert, why: str) -> bool:
    """Notes that an operator knows of an alert; returns False if it is not open any more. It stays open."""
    with audited(request, "alert.acknowledge", it.cause, why=why) as entry:
        changed = Alert.objects.filter(pk=it.pk, ended_at__isnull=True, opened_at__isnull=False).update(
            acknowledged_at=timezone.now(), acknowledged_by=_who(request), acknowledged_why=why
        )
        entry.words = f"alert {it.pk}" if changed else f"alert {it.pk} is not open"
    return bool(changed)


def silence(request: HttpRequest, rule: str, it: Alert | None, lasts: timedelta, why: str) -> Silence:
    """Sends nothing about the cause of an alert until a time; None: about any cause of the rule, at any node."""
    now = timezone.now()
    cause, node = (it.cause, it.node) if it is not None else ("", "")
    until = now + lasts
    with audited(request, "alert.silence", cause or rule, after={"until": until.timestamp()}, why=why):
        return Silence.objects.create(
            rule=rule, cause=cause, node=node, until=until, made_at=now, made_by=_who(request), why=why
        )


def end_silence(request: HttpRequest, it: Silence, why: str) -> bool:
    """Ends a silence now; returns False if it had ended. Open alerts that it covered are sent."""
    with audited(request, "alert.end_silence", str(it), before={"until": it.until.timestamp()}, why=why) as entry:
        changed = Silence.objects.filter(pk=it.pk, ended_at__isnull=True).update(ended_at=timezone.now())
        entry.words = "" if changed else "it had ended"
    return bool(changed)


def send_test(request: HttpRequest, why: str) -> int:
    """Leaves a test for each target, which the watch sends; returns their number. 0: no target is configured."""
    targets = targets_of(own_settings())
    if targets:
        with audited(request, "alert.test", f"{len(targets)} targets", why=why):
            book.test(request.user.get_username(), timezone.now(), targets)
    return len(targets)


def _who(request: HttpRequest) -> str:
    return request.user.get_username()[:WHO_MAX]
