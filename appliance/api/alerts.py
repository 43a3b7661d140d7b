"""Alerts: those that are open or were, rules, notices, and what an operator does about them."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Literal

import msgspec
from django.db.models import Q
from django.http import Http404, HttpRequest
from django.utils import timezone
from ninja import Path
from pydantic import Field

from appliance.accounts.roles import Role
from appliance.alerts import handling
from appliance.alerts.forms import SPANS
from appliance.alerts.models import Alert, Notice, RuleCheck, Silence, Watch
from appliance.alerts.open_alerts import is_away
from appliance.alerts.rules import ABOUT
from appliance.api.bodies import Body, Why
from appliance.api.errors import ApiError
from appliance.api.operation import operation
from appliance.api.scopes import Scope
from appliance.common.current_settings import current_settings
from mailcore.bounds import bounds_by_name
from mailcore.config.alerts import RULES, Alerts
from mailcore.faults import Code

__all__ = [
    "acknowledge_alert",
    "alert",
    "alert_notices",
    "alert_rules",
    "alerts",
    "end_silence",
    "silence_alert",
    "silence_rule",
    "test_alerts",
]

ALERTS, ALERTS_MAX = 50, 200
NOTICES_MAX = 50
SILENCE_S_MIN = 60
SILENCE_S_MAX = int(max(span for _, span in SPANS.values()).total_seconds())  # as the page
Number = Annotated[int, Field(ge=1, le=(1 << 63) - 1)]
RuleName = Literal[RULES]  # type: ignore[valid-type]  # the names of all rules


class SilenceShown(msgspec.Struct, kw_only=True):
    """A silence: nothing is sent about a cause, or about any cause of a rule, until a time."""

    id: int
    rule: str
    cause: str  # "": each cause of the rule
    node: str  # of the alert; "": any node; "*": the mail of all nodes
    until: float
    made_at: float
    made_by: str
    why: str


class AlertShown(msgspec.Struct, kw_only=True):
    """An alert. Times are wall clock, in seconds since 1970."""

    id: int
    node: str  # that it is about; "" without [nodes], "*": the mail of all nodes
    cause: str
    rule: str
    severity: str
    state: str  # waiting (not true for long enough yet), open or ended
    summary: str
    detail: str
    link: str  # the page that shows why
    unknown: str  # why nothing is known about it now; "" if it is known
    began_at: float
    opened_at: float | None
    seen_at: float
    ended_at: float | None
    ended_because: str
    acknowledged_at: float | None
    acknowledged_by: str
    acknowledged_why: str
    silenced_until: float | None  # None: it is not silenced now


class AlertList(msgspec.Struct, kw_only=True):
    """Alerts, newest first; the silences in force; and whether the rules are checked at all."""

    alerts: list[AlertShown]
    cursor: int | None  # of the next page; None: this is the last
    silences: list[SilenceShown]
    watch_away: bool  # the process that checks the rules does not run
    watch_seen_at: float | None


class NoticeShown(msgspec.Struct, kw_only=True):
    """A notice about an alert to one target."""

    id: int
    alert: int | None  # None: a test
    kind: str  # opened, ended or test
    channel: str  # mail or webhook
    target: str  # the address; "" of the webhook
    made_at: float
    attempts: int
    sent_at: float | None
    dropped_at: float | None  # its target is not configured any more
    words: str  # the last answer


class NoticeList(msgspec.Struct, kw_only=True):
    """Notices that wait, and the latest others."""

    waiting: list[NoticeShown]
    ended: list[NoticeShown]


class AlertFound(msgspec.Struct, kw_only=True):
    """One alert, its notices, and other alerts of its cause."""

    alert: AlertShown
    notices: list[NoticeShown]
    others: list[int]


class RuleShown(msgspec.Struct, kw_only=True):
    """A rule, and when it was last checked."""

    name: str
    about: str
    off: bool
    checked_at: float | None  # the last time that its facts were known
    tried_at: float | None
    causes: int
    unknown: str  # why it could not be checked; "" if it could
    settings: dict[str, float]  # of [alerts], those of this rule
    silenced_until: float | None


class RuleList(msgspec.Struct, kw_only=True):
    """All rules."""

    rules: list[RuleShown]


class Tested(msgspec.Struct, kw_only=True):
    """The number of targets that get a test."""

    targets: int


class AcknowledgeBody(Body):
    """The reason."""

    why: Why


class SilenceBody(Body):
    """How long nothing is sent."""

    for_s: float = Field(ge=SILENCE_S_MIN, le=SILENCE_S_MAX, description="seconds from now")
    why: Why


@operation("GET", "/alerts", tag="Alerts", scopes={Scope.READ, Scope.ALERTS}, answer=AlertList)
def alerts(
    request: HttpRequest,
    state: Literal["waiting", "open", "ended"] | None = None,
    rule: RuleName | None = None,
    cursor: Number | None = None,
    limit: Annotated[int, Field(ge=1, le=ALERTS_MAX)] = ALERTS,
) -> AlertList:
    """Lists alerts, newest first, and the silences in force."""
    found = Alert.objects.filter(_of_state(state))
    if rule is not None:
        found = found.filter(rule=rule)
    if cursor is not None:
        found = found.filter(pk__lt=cursor)
    rows = list(found[: limit + 1])
    silences = _silences()
    watch = Watch.objects.first()
    return AlertList(
        alerts=[_alert(each, silences) for each in rows[:limit]],
        cursor=rows[limit - 1].pk if len(rows) > limit else None,
        silences=[_silence(each) for each in silences],
        watch_away=is_away(watch),
        watch_seen_at=watch.seen_at.timestamp() if watch is not None else None,
    )


@operation("GET", "/alerts/{number}", tag="Alerts", scopes={Scope.READ, Scope.ALERTS}, answer=AlertFound)
def alert(request: HttpRequest, number: Path[Number]) -> AlertFound:
    """Returns an alert with what was sent about it."""
    it = _of(number)
    others = Alert.objects.filter(node=it.node, cause=it.cause).exclude(pk=it.pk).values_list("pk", flat=True)
    return AlertFound(
        alert=_alert(it, _silences()),
        notices=[_notice(each) for each in it.notices.all()[:NOTICES_MAX]],
        others=list(others[:NOTICES_MAX]),
    )


@operation(
    "POST",
    "/alerts/{number}/acknowledge",
    tag="Alerts",
    scopes={Scope.ALERTS},
    least=Role.OPERATOR,
    answer=AlertShown,
)
def acknowledge_alert(request: HttpRequest, number: Path[Number], body: AcknowledgeBody) -> AlertShown:
    """Notes that an operator knows of an open alert. It stays open until its cause is gone."""
    if not handling.acknowledge(request, _of(number), body.why):
        raise ApiError(f"{number}: this alert is not open; nothing was changed", code=Code.CONFLICT, argument="number")
    return _alert(_of(number), _silences())


@operation(
    "POST", "/alerts/{number}/silence", tag="Alerts", scopes={Scope.ALERTS}, least=Role.OPERATOR, answer=SilenceShown
)
def silence_alert(request: HttpRequest, number: Path[Number], body: SilenceBody) -> SilenceShown:
    """Sends nothing about the cause of an alert for some time. The alert is listed all the same."""
    it = _of(number)
    return _silence(handling.silence(request, it.rule, it, timedelta(seconds=body.for_s), body.why))


@operation("GET", "/alert-rules", tag="Alerts", scopes={Scope.READ, Scope.ALERTS}, answer=RuleList)
def alert_rules(request: HttpRequest) -> RuleList:
    """Lists the rules: when each was last checked, what it found, and its settings."""
    checks = {check.rule: check for check in RuleCheck.objects.all()}
    silences = [each for each in _silences() if not each.cause]
    return RuleList(rules=[_rule(name, checks.get(name), silences) for name in RULES])


@operation(
    "POST", "/alert-rules/{rule}/silence", tag="Alerts", scopes={Scope.ALERTS}, least=Role.OPERATOR, answer=SilenceShown
)
def silence_rule(request: HttpRequest, rule: Path[RuleName], body: SilenceBody) -> SilenceShown:
    """Sends nothing about any cause of a rule for some time."""
    return _silence(handling.silence(request, rule, None, timedelta(seconds=body.for_s), body.why))


@operation(
    "POST",
    "/alert-silences/{number}/end",
    tag="Alerts",
    scopes={Scope.ALERTS},
    least=Role.OPERATOR,
    answer=SilenceShown,
)
def end_silence(request: HttpRequest, number: Path[Number], body: AcknowledgeBody) -> SilenceShown:
    """Ends a silence now. Open alerts that it covered are sent."""
    it = Silence.objects.filter(pk=number).first()
    if it is None:
        raise Http404(f"{number}: there is no such silence")
    if not handling.end_silence(request, it, body.why):
        raise ApiError(f"{number}: this silence had ended", code=Code.CONFLICT, argument="number")
    return _silence(it)


@operation("GET", "/alert-notices", tag="Alerts", scopes={Scope.READ, Scope.ALERTS}, answer=NoticeList)
def alert_notices(request: HttpRequest, limit: Annotated[int, Field(ge=1, le=ALERTS_MAX)] = NOTICES_MAX) -> NoticeList:
    """Lists the notices that wait, oldest first, and the latest that were sent or dropped."""
    waiting = Notice.objects.filter(sent_at__isnull=True, dropped_at__isnull=True).order_by("id")
    ended = Notice.objects.filter(Q(sent_at__isnull=False) | Q(dropped_at__isnull=False))
    return NoticeList(
        waiting=[_notice(each) for each in waiting[:limit]], ended=[_notice(each) for each in ended[:limit]]
    )


@operation(
    "POST", "/alert-notices/test", tag="Alerts", scopes={Scope.ALERTS}, least=Role.OPERATOR, answer=Tested, status=202
)
def test_alerts(request: HttpRequest, body: AcknowledgeBody) -> Tested:
    """Leaves a test for each target of [alerts], which the watch sends within its interval."""
    targets = handling.send_test(request, body.why)
    if not targets:
        raise ApiError("Nothing was sent: set [alerts] recipients or webhook.", code=Code.CONFLICT)
    return Tested(targets=targets)


def _of_state(state: str | None) -> Q:
    match state:
        case "waiting":
            return Q(opened_at__isnull=True, ended_at__isnull=True)
        case "open":
            return Q(opened_at__isnull=False, ended_at__isnull=True)
        case "ended":
            return Q(ended_at__isnull=False)
    return Q()


def _of(number: int) -> Alert:
    found = Alert.objects.filter(pk=number).first()
    if found is None:
        raise Http404(f"{number}: there is no such alert")
    return found


def _silences() -> list[Silence]:
    """Returns the silences in force, the longest first."""
    return list(Silence.objects.filter(until__gt=timezone.now(), ended_at__isnull=True).order_by("-until"))


def _at(time: datetime | None) -> float | None:
    return time.timestamp() if time is not None else None


def _silence(it: Silence) -> SilenceShown:
    return SilenceShown(
        id=it.pk,
        rule=it.rule,
        cause=it.cause,
        node=it.node,
        until=it.until.timestamp(),
        made_at=it.made_at.timestamp(),
        made_by=it.made_by,
        why=it.why,
    )


def _alert(it: Alert, silences: list[Silence]) -> AlertShown:
    state = "ended" if it.ended_at is not None else "waiting" if it.opened_at is None else "open"
    return AlertShown(
        id=it.pk,
        node=it.node,
        cause=it.cause,
        rule=it.rule,
        severity=it.severity,
        state=state,
        summary=it.summary,
        detail=it.detail,
        link=it.link,
        unknown=it.unknown,
        began_at=it.began_at.timestamp(),
        opened_at=_at(it.opened_at),
        seen_at=it.seen_at.timestamp(),
        ended_at=_at(it.ended_at),
        ended_because=it.ended_because,
        acknowledged_at=_at(it.acknowledged_at),
        acknowledged_by=it.acknowledged_by,
        acknowledged_why=it.acknowledged_why,
        silenced_until=next((each.until.timestamp() for each in silences if each.covers(it)), None),
    )


def _notice(it: Notice) -> NoticeShown:
    return NoticeShown(
        id=it.pk,
        alert=it.alert_id,
        kind=it.kind,
        channel=it.channel,
        target=it.target,
        made_at=it.made_at.timestamp(),
        attempts=it.attempts,
        sent_at=_at(it.sent_at),
        dropped_at=_at(it.dropped_at),
        words=it.words,
    )


def _rule(name: str, check: RuleCheck | None, silences: list[Silence]) -> RuleShown:
    own: Alerts = current_settings().alerts
    limits = {
        key: float(getattr(own, key))
        for key, bounds in bounds_by_name(Alerts).items()
        if bounds.doc.startswith(f"{name}: ")
    }
    return RuleShown(
        name=name,
        about=ABOUT[name],
        off=name in own.off,
        checked_at=_at(check.checked_at) if check is not None else None,
        tried_at=_at(check.tried_at) if check is not None else None,
        causes=check.causes if check is not None else 0,
        unknown=check.unknown if check is not None else "",
        settings=limits,
        silenced_until=next((each.until.timestamp() for each in silences if each.rule == name), None),
    )
