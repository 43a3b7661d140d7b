"""The pages of alerts: those that are open, one alert, one rule, and what an operator may do about them."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from django import forms
from django.contrib import messages
from django.db.models import Prefetch
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from appliance.accounts.roles import operator, viewer
from appliance.alerts import handling
from appliance.alerts.forms import AcknowledgeForm, SilenceForm
from appliance.alerts.models import Alert, Kind, Notice, RuleCheck, Silence, Watch, check_key
from appliance.alerts.open_alerts import in_order, is_away
from appliance.alerts.rules import ABOUT
from appliance.alerts.sending import WEBHOOK, targets_of
from appliance.common.current_settings import current_settings
from appliance.common.templatetags.waypost import number, size
from appliance.common.units import duration
from mailcore.bounds import bounds_by_name
from mailcore.config.alerts import RULES, Alerts

__all__ = ["acknowledge", "alert", "alerts", "end_silence", "rule", "silence_alert", "silence_rule", "test"]

HISTORY_MAX = 50  # on a page
NOTICES_MAX = 50


@viewer
@require_safe
@never_cache
def alerts(request: HttpRequest) -> HttpResponse:
    """Renders the open alerts, the rules and the history; for htmx the notices, which refresh while a test is under way."""
    if request.headers.get("HX-Request"):
        return render(request, "alerts/notices.html", _notices())
    unfinished = Alert.objects.filter(ended_at__isnull=True)
    silences = _silences()
    before = _cursor(request)
    ended = Alert.objects.filter(ended_at__isnull=False)
    history = list((ended.filter(pk__lt=before) if before else ended)[: HISTORY_MAX + 1])
    watch = Watch.objects.first()
    context = {
        "open": _with_silences(in_order(unfinished.filter(opened_at__isnull=False)), silences),
        "soon": unfinished.filter(opened_at__isnull=True),
        "silences": silences,
        "rules": _rules(silences, away=is_away(watch)),
        "watch": watch,
        "away": is_away(watch),
        "targets": _targets(),
        "history": history[:HISTORY_MAX],
        "older": history[HISTORY_MAX - 1].pk if len(history) > HISTORY_MAX else None,
        "before": before,
        **_notices(),
    }
    return render(request, "alerts/alerts.html", context)


@viewer
@require_safe
@never_cache
def alert(request: HttpRequest, pk: int) -> HttpResponse:
    """Renders one alert: why, since when, what was sent about it, and what was done."""
    return _alert_page(request, get_object_or_404(Alert, pk=pk))


def _alert_page(
    request: HttpRequest, it: Alert, *, acknowledging: forms.Form | None = None, silencing: forms.Form | None = None
) -> HttpResponse:
    wrong = acknowledging is not None or silencing is not None
    context = {
        "alert": it,
        "silences": [silence for silence in _silences() if silence.covers(it)],
        "notices": it.notices.all()[:NOTICES_MAX],
        "acknowledging": acknowledging or AcknowledgeForm(prefix="acknowledge"),
        "silencing": silencing or SilenceForm(prefix="silence"),
        "others": Alert.objects.filter(node=it.node, cause=it.cause).exclude(pk=it.pk)[:NOTICES_MAX],
        "about": ABOUT.get(it.rule, ""),
    }
    return render(request, "alerts/alert.html", context, status=422 if wrong else 200)


@viewer
@require_safe
@never_cache
def rule(request: HttpRequest, rule: str) -> HttpResponse:
    """Renders a rule: when it was checked, what it found, and its settings. Raises Http404 for an unknown rule."""
    return _rule_page(request, _known(rule))


def _rule_page(request: HttpRequest, rule: str, *, silencing: forms.Form | None = None) -> HttpResponse:
    silences = [silence for silence in _silences() if silence.rule == rule]
    watch = Watch.objects.first()
    of_rule = Alert.objects.filter(rule=rule)
    context = {
        "rule": rule,
        "about": ABOUT[rule],
        "check": RuleCheck.objects.filter(key=check_key(rule)).first(),
        "off": rule in current_settings().alerts.off,
        "away": is_away(watch),
        "watch": watch,
        "limits": _limits(rule),
        "silences": silences,
        "open": _with_silences(in_order(of_rule.filter(opened_at__isnull=False, ended_at__isnull=True)), silences),
        "soon": of_rule.filter(opened_at__isnull=True),
        "history": of_rule.filter(ended_at__isnull=False)[:HISTORY_MAX],
        "silencing": silencing or SilenceForm(prefix="silence"),
    }
    return render(request, "alerts/rule.html", context, status=422 if silencing is not None else 200)


@operator
@require_POST
def acknowledge(request: HttpRequest, pk: int) -> HttpResponse:
    """Notes that an operator knows of an alert. It stays open until its cause is gone."""
    it = get_object_or_404(Alert, pk=pk)
    form = AcknowledgeForm(request.POST, prefix="acknowledge")
    if not form.is_valid():
        return _alert_page(request, it, acknowledging=form)
    changed = handling.acknowledge(request, it, form.cleaned_data["why"])
    if changed:
        messages.success(request, "The alert is acknowledged. It stays open until its cause is gone.")
    else:
        messages.warning(request, "The alert is not open any more; nothing was changed.")
    return redirect("alerts:alert", pk=pk)


@operator
@require_POST
def silence_alert(request: HttpRequest, pk: int) -> HttpResponse:
    """Sends nothing about the cause of an alert until a time."""
    it = get_object_or_404(Alert, pk=pk)
    form = SilenceForm(request.POST, prefix="silence")
    if not form.is_valid():
        return _alert_page(request, it, silencing=form)
    _silence(request, form, it.rule, it)
    return redirect("alerts:alert", pk=pk)


@operator
@require_POST
def silence_rule(request: HttpRequest, rule: str) -> HttpResponse:
    """Sends nothing about any cause of a rule until a time. Raises Http404 for an unknown rule."""
    form = SilenceForm(request.POST, prefix="silence")
    if not form.is_valid():
        return _rule_page(request, _known(rule), silencing=form)
    _silence(request, form, _known(rule), None)
    return redirect("alerts:rule", rule=rule)


def _silence(request: HttpRequest, form: SilenceForm, rule: str, it: Alert | None) -> None:
    handling.silence(request, rule, it, form.lasts, form.cleaned_data["why"])
    messages.success(request, "Nothing is sent about it until then. Alerts are still shown here.")


@operator
@require_POST
def end_silence(request: HttpRequest, pk: int) -> HttpResponse:
    """Ends a silence now. Open alerts that it covered are sent."""
    it = get_object_or_404(Silence, pk=pk)
    handling.end_silence(request, it, "End the silence")
    messages.success(request, "The silence has ended. Open alerts that it kept back are sent with the next check.")
    return redirect("alerts:alerts")


@operator
@require_POST
def test(request: HttpRequest) -> HttpResponse:
    """Leaves a test for each target, which the watch sends as it sends alerts."""
    if not handling.send_test(request, "Send a test"):
        messages.warning(request, "Nothing was sent: set [alerts] recipients or webhook.")
        return redirect("alerts:alerts")
    messages.success(request, "The watch sends the test within its interval; the answer is shown below.")
    return redirect("alerts:alerts")


# -- what the pages show


def _known(rule: str) -> str:
    if rule not in RULES:
        raise Http404("unknown rule")
    return rule


def _cursor(request: HttpRequest) -> int | None:
    given = request.GET.get("before", "")
    return int(given) if given.isascii() and given.isdigit() and len(given) < 19 else None


def _silences() -> list[Silence]:
    return list(Silence.objects.filter(until__gt=timezone.now(), ended_at__isnull=True))


def _with_silences(found: list[Alert], silences: list[Silence]) -> list[tuple[Alert, Silence | None]]:
    """Returns each alert with the silence that covers it longest."""
    longest = sorted(silences, key=lambda silence: silence.until, reverse=True)
    return [(each, next((silence for silence in longest if silence.covers(each)), None)) for each in found]


def _targets() -> list[str]:
    """Returns the places that notices go to. Of the webhook's address only the host: the rest may be a secret."""
    own = handling.own_settings()
    hook = urlsplit(own.webhook).hostname or ""
    return [f"webhook at {hook}" if each.channel == WEBHOOK else each.address for each in targets_of(own)]


def _rules(silences: list[Silence], *, away: bool) -> list[dict[str, Any]]:
    checks = {check.rule: check for check in RuleCheck.objects.all()}
    off = handling.own_settings().off
    return [
        {
            "name": name,
            "about": ABOUT[name],
            "off": name in off,
            "check": checks.get(name),
            "away": away,
            "silence": next((each for each in silences if each.rule == name and not each.cause), None),
        }
        for name in RULES
    ]


def _limits(rule: str) -> list[tuple[str, str, str]]:
    """Returns the settings of a rule with their values in units that people read, and their meanings."""
    own = handling.own_settings()
    return [
        (name, _in_units(getattr(own, name), bounds.unit), bounds.doc.partition(": ")[2])
        for name, bounds in bounds_by_name(Alerts).items()
        if bounds.doc.startswith(f"{rule}: ")
    ]


def _in_units(value: float, unit: str) -> str:
    if unit == "seconds":
        return duration(value)
    return size(value) if unit == "bytes" else f"{number(value)} {unit}"


def _notices() -> dict[str, Any]:
    """Returns the notices that wait, and the last ones that were sent."""
    listed = Notice.objects.prefetch_related(Prefetch("alert"))
    waiting = list(listed.filter(sent_at__isnull=True, dropped_at__isnull=True).order_by("id")[:NOTICES_MAX])
    return {
        "waiting": waiting,
        "testing": any(notice.kind == Kind.TEST for notice in waiting),
        "sent": listed.exclude(pk__in=[notice.pk for notice in waiting])[: HISTORY_MAX // 5],
    }
