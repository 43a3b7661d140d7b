"""The state of alerts: which cause is true, which alert is open, what is to be sent. One check of all rules is one transaction.

Laws
- An alert opens when its cause has been true for the time of its rule, and ends when it has been gone for ``clear_s``. A cause
  about which nothing is known stays as it is.
- A notice is made in the transaction that opens or ends its alert: a kill leaves both or neither.
- A cause is open once (a constraint of the database), and its notices are made once: ``noticed_at`` says so. The same cause is
  sent again no sooner than ``again_s`` after it was sent.
- Time is counted on a monotonic clock (``elapsed_s``); a wall clock that is set opens and ends nothing, and delays no notice.

- A watch touches the alerts of its node alone; those about the mail of all nodes are kept and sent by the one that has the
  lease (``Lead``), which is taken in the transaction that stores them, and never by one whose core does not answer.
- An alert of one node that is about the mail of all from now on becomes theirs: it is neither sent again, nor told as ended.

Keeps law: notice-with-its-alert, law: one-alert-per-cause, law: unknown-is-not-good (docs/laws.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.conf import settings as django_settings
from django.db import transaction
from django.db.models import Q
from django.db.models.functions import Now

from appliance.alerts import links
from appliance.alerts.causes import Cause, Judgement, Severity
from appliance.alerts.models import TEXT_MAX, Alert, Kind, Lead, Notice, RuleCheck, Silence, Watch, check_key
from appliance.alerts.rules import OF_ALL_MAIL, OF_ALL_PORTALS, WATCH_AWAY, for_s
from appliance.common.node import ALL_NODES, own_node
from mailcore.config.alerts import Alerts

__all__ = ["Target", "forget", "forget_unsent", "note", "note_absence", "own_nodes", "started", "test"]

TURNED_OFF = "the rule was turned off"
NODE_GONE = "its node has not checked it for a day"
LEAD_S = 60.0  # beside three intervals, and longer than a message takes to be sent
OF_ALL_NOW = "there is one of all nodes about it"
GONE = timedelta(days=1)
LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)
OWN_FIELDS = (  # that only this file changes; an operator acknowledges meanwhile
    "rule", "severity", "summary", "detail", "link", "opened_at", "seen_at", "ended_at", "ended_because", "unknown", "true_s",
    "gone_s",
)  # fmt: skip


@dataclass(frozen=True)
class Target:
    """A place that notices go to: ``channel`` is mail or webhook; ``address`` is empty for the webhook."""

    channel: str
    address: str = ""


def note(
    judgements: Sequence[Judgement],
    now: datetime,
    elapsed_s: float,
    settings: Alerts,
    targets: Sequence[Target],
    *,
    sees_mail: bool,
) -> None:
    """Brings the alerts up to date with what the rules found, and makes the notices.

    ``elapsed_s``: seconds of a monotonic clock since the rules were checked the last time; 0 at the first time.
    ``sees_mail``: whether the core of this node answers, also if its rule is off; that of a spare does not. If it does
    not, another node must lead: this one knows nothing of mail.
    """
    with transaction.atomic():
        leads = sees_mail and _take_lead(LEAD_S + 3 * settings.interval_s)
        nodes = _nodes(leads=leads)
        _give_to_all(now)
        unfinished = {
            (alert.node, alert.cause): alert for alert in Alert.objects.filter(ended_at__isnull=True, node__in=nodes)
        }
        by_rule = {judgement.rule: judgement for judgement in judgements}
        for judgement in judgements:
            if (node := _node_of(judgement.rule)) in nodes:
                for cause in judgement.causes:
                    _seen(unfinished.pop((node, cause.key), None), node, cause, now, elapsed_s, settings)
        ended = [
            alert for alert in unfinished.values() if _unseen(alert, by_rule.get(alert.rule), now, elapsed_s, settings)
        ]
        _make_notices(nodes, ended, now, settings, targets)
        _checked(judgements, now)
        Watch.objects.update(seen_at=now)


def own_nodes() -> tuple[str, ...]:
    """Returns whose alerts this watch keeps and sends now: its node's, and those of all nodes if it has the lease."""
    return _nodes(leads=Lead.objects.filter(node=own_node(), until__gt=Now()).exists())


def _nodes(*, leads: bool) -> tuple[str, ...]:
    return (own_node(), ALL_NODES) if leads else (own_node(),)


def _take_lead(for_s: float) -> bool:
    """Takes or prolongs the lease; returns whether this node has it. The row stays locked until the transaction ends."""
    Lead.objects.bulk_create([Lead(node=own_node(), until=LONG_AGO)], ignore_conflicts=True)
    free = Lead.objects.filter(Q(node=own_node()) | Q(until__lt=Now()))
    return bool(free.update(node=own_node(), until=Now() + timedelta(seconds=for_s)))


def _node_of(rule: str) -> str:
    """Returns which node a cause of a rule is about."""
    of_all = OF_ALL_PORTALS | (OF_ALL_MAIL if django_settings.WAYPOST.nodes.listen else frozenset())
    return ALL_NODES if own_node() and rule in of_all else own_node()


def _give_to_all(now: datetime) -> None:
    """Makes alerts of this node, and silences, those of all nodes, if their rules are about the mail of all now: it has got
    ``listen``, or a name."""
    rules = [rule for rule in OF_ALL_PORTALS | OF_ALL_MAIL if _node_of(rule) != own_node()]
    Silence.objects.filter(node=own_node(), rule__in=rules).exclude(cause="").update(node=ALL_NODES)
    own = list(Alert.objects.filter(node=own_node(), rule__in=rules, ended_at__isnull=True))
    if own:
        list(Lead.objects.select_for_update())  # no watch stores alerts of all until the end of this transaction
    for alert in own:
        there = Alert.objects.filter(node=ALL_NODES, cause=alert.cause, ended_at__isnull=True).first()
        if there is None:
            Alert.objects.filter(pk=alert.pk).update(node=ALL_NODES)
            continue
        if there.severity == alert.severity:
            Alert.objects.filter(pk=there.pk, noticed_at__isnull=True).update(noticed_at=alert.noticed_at)
        _end(alert, now, OF_ALL_NOW)


def _seen(alert: Alert | None, node: str, cause: Cause, now: datetime, elapsed_s: float, settings: Alerts) -> None:
    if alert is None:
        alert = Alert(node=node, cause=cause.key, began_at=now, severity=str(cause.severity))
    else:
        alert.true_s += elapsed_s
    alert.rule, alert.link = cause.rule, cause.link
    alert.summary, alert.detail = cause.summary[:TEXT_MAX], cause.detail[:TEXT_MAX]
    alert.seen_at, alert.gone_s, alert.unknown = now, 0.0, ""
    if alert.opened_at is None and alert.true_s >= for_s(cause.rule, settings):
        alert.opened_at = now
    worse = cause.severity is Severity.CRITICAL and alert.severity != str(Severity.CRITICAL)
    if worse:  # it stays so until it ends: a value near the limit does not send again and again
        alert.severity = str(cause.severity)
    _store(alert)
    if worse and alert.noticed_at is not None:
        _forget_reading(alert)


def _forget_reading(alert: Alert) -> None:
    """Makes an alert that has become critical a new one: it is sent again, and is not acknowledged."""
    Alert.objects.filter(pk=alert.pk).update(
        noticed_at=None, acknowledged_at=None, acknowledged_by="", acknowledged_why=""
    )


def _unseen(alert: Alert, judgement: Judgement | None, now: datetime, elapsed_s: float, settings: Alerts) -> bool:
    """Returns whether the alert ends now. One whose cause is gone before it opened is deleted."""
    if judgement is None:
        return _end(alert, now, TURNED_OFF)
    held = alert.cause in judgement.held or (judgement.holds_others and alert.cause not in judgement.gone)
    if judgement.unknown or held:
        alert.unknown = (judgement.unknown or "nothing is known about it now")[:TEXT_MAX]
        _store(alert)
        return False
    alert.gone_s, alert.unknown = alert.gone_s + elapsed_s, ""
    if alert.gone_s >= settings.clear_s:
        return _end(alert, now, "")
    if alert.opened_at is None:
        alert.true_s = max(0.0, alert.true_s - elapsed_s)
    _store(alert)
    return False


def _end(alert: Alert, now: datetime, because: str) -> bool:
    if alert.opened_at is None:
        alert.delete()
        return False
    alert.ended_at, alert.ended_because, alert.unknown = now, because, ""
    _store(alert)
    return True


def _store(alert: Alert) -> None:
    """Stores all but what an operator may change meanwhile."""
    alert.save(update_fields=None if alert.pk is None else OWN_FIELDS)


def _checked(judgements: Sequence[Judgement], now: datetime) -> None:
    """Stores what each rule found; ``checked_at`` stays where its facts are not known."""
    RuleCheck.objects.exclude(key__in=[check_key(each.rule) for each in judgements]).delete()
    for is_known in (True, False):
        rows = [
            RuleCheck(
                key=check_key(each.rule),
                checked_at=now if is_known else None,
                tried_at=now,
                causes=len(each.causes),
                unknown=each.unknown[:TEXT_MAX],
            )
            for each in judgements
            if (not each.unknown) is is_known
        ]
        fields = ["tried_at", "causes", "unknown", *(["checked_at"] if is_known else [])]
        RuleCheck.objects.bulk_create(rows, update_conflicts=True, unique_fields=["key"], update_fields=fields)


# -- notices


def _make_notices(
    nodes: Sequence[str], ended: Sequence[Alert], now: datetime, settings: Alerts, targets: Sequence[Target]
) -> None:
    """Makes the notices of alerts that have opened and have none, and of those that end now. Without targets, those of open
    alerts stay to be made."""
    if not targets:
        return
    silences = list(Silence.objects.filter(until__gt=now, ended_at__isnull=True))
    new = Alert.objects.filter(node__in=nodes, opened_at__isnull=False, ended_at__isnull=True, noticed_at__isnull=True)
    for alert in new:
        if not _is_silenced(alert, silences) and not _sent_lately(alert, now, settings):
            _notify(alert, Kind.OPENED, now, targets)
            Alert.objects.filter(pk=alert.pk).update(noticed_at=now)
    for alert in ended:
        if settings.send_ended and alert.noticed_at is not None and not _is_silenced(alert, silences):
            _notify(alert, Kind.ENDED, now, targets)


def _is_silenced(alert: Alert, silences: Iterable[Silence]) -> bool:
    return any(silence.covers(alert) for silence in silences)


def _notify(alert: Alert, kind: Kind, now: datetime, targets: Iterable[Target]) -> None:
    Notice.objects.bulk_create(
        Notice(
            node=alert.node,
            alert=alert,
            kind=kind,
            channel=each.channel,
            target=each.address,
            made_at=now,
            next_try_at=now,
        )
        for each in targets
    )


def _sent_lately(alert: Alert, now: datetime, settings: Alerts) -> bool:
    """Returns whether an alert of the same cause was sent within ``again_s``. A time that is still to come does not count: the
    clock was set back."""
    since = now - timedelta(seconds=settings.again_s)
    nodes = {alert.node, own_node()}  # also before it was one of all nodes
    return (
        Alert.objects.filter(node__in=nodes, cause=alert.cause, noticed_at__gt=since, noticed_at__lte=now)
        .exclude(pk=alert.pk)
        .exists()
    )


def forget_unsent(numbers: Iterable[int]) -> None:
    """Forgets that notices of open alerts were made, if all were dropped and none was sent: the next check makes them."""
    for alert in Alert.objects.filter(pk__in=list(numbers), ended_at__isnull=True, noticed_at__isnull=False):
        told = Notice.objects.filter(
            alert=alert, kind=Kind.OPENED, made_at__gte=alert.noticed_at, dropped_at__isnull=True
        )
        if not told.exists():
            Alert.objects.filter(pk=alert.pk, noticed_at=alert.noticed_at).update(noticed_at=None)


def test(who: str, now: datetime, targets: Sequence[Target]) -> None:
    """Makes a notice for each target that only says that it arrives."""
    Notice.objects.bulk_create(
        Notice(
            kind=Kind.TEST, channel=each.channel, target=each.address, made_at=now, made_by=who[:150], next_try_at=now
        )
        for each in targets
    )


# -- the watch


def started(pid: int, now: datetime, settings: Alerts, targets: Sequence[Target], *, says_absence: bool = True) -> None:
    """Notes that the rules are checked from now on, and since when they were not, unless another alert says it."""
    with transaction.atomic():
        before = Watch.objects.first()
        Watch.objects.update_or_create(node=own_node(), defaults={"pid": pid, "started_at": now, "seen_at": now})
        if before is not None and says_absence:
            _note_absence(before.seen_at, now, settings, targets)


def note_absence(since: datetime, now: datetime, settings: Alerts, targets: Sequence[Target]) -> None:
    """Notes that no rule was checked from ``since`` until now, though the process ran."""
    with transaction.atomic():
        Watch.objects.update(seen_at=now)
        _note_absence(since, now, settings, targets)


def _note_absence(since: datetime, now: datetime, settings: Alerts, targets: Sequence[Target]) -> None:
    if WATCH_AWAY in settings.off or (now - since).total_seconds() < settings.watch_away_s:
        return
    alert = Alert.objects.create(
        cause=WATCH_AWAY,
        rule=WATCH_AWAY,
        severity=str(Severity.WARNING),
        summary=f"No rule was checked, or no result stored, from {since:%Y-%m-%d %H:%M:%S} to {now:%Y-%m-%d %H:%M:%S} UTC.",
        detail="An alert of that time is only known if its cause lasts.",
        link=links.ALERTS,
        began_at=since,
        opened_at=since,
        seen_at=now,
        ended_at=now,
    )
    silences = Silence.objects.filter(until__gt=now, ended_at__isnull=True)
    if targets and not _is_silenced(alert, silences):
        _notify(alert, Kind.OPENED, now, targets)
        Alert.objects.filter(pk=alert.pk).update(noticed_at=now)


def forget(now: datetime, settings: Alerts) -> int:
    """Deletes alerts, notices of tests and silences that ended before ``keep_days``; returns how many. A notice that is not
    sent yet keeps its alert. Ends the alerts of nodes whose watch has not run for a day, because no other watch would."""
    _end_of_gone(now)
    before = now - timedelta(days=settings.keep_days)
    waiting = Notice.objects.filter(sent_at__isnull=True, dropped_at__isnull=True)
    old = Alert.objects.filter(ended_at__lt=before).exclude(
        pk__in=waiting.filter(alert__isnull=False).values("alert_id")
    )
    deleted = old.delete()[0]
    deleted += Notice.objects.filter(alert__isnull=True, made_at__lt=before).delete()[0]
    return deleted + Silence.objects.filter(Q(until__lt=before) | Q(ended_at__lt=before)).delete()[0]


def _end_of_gone(now: datetime) -> None:
    """Ends the alerts of other nodes that are gone, and forgets their watches. Their notices that wait are dropped."""
    gone = Watch.everywhere.filter(seen_at__lt=now - GONE).exclude(node=own_node())
    for node in list(gone.values_list("node", flat=True)):
        with transaction.atomic():
            Notice.objects.filter(node=node, sent_at__isnull=True, dropped_at__isnull=True).update(
                dropped_at=now, words=NODE_GONE
            )
            open_ones = Alert.objects.filter(node=node, ended_at__isnull=True)
            open_ones.filter(opened_at__isnull=True).delete()
            open_ones.update(ended_at=now, ended_because=NODE_GONE)
            RuleCheck.everywhere.filter(node=node).delete()
            gone.filter(node=node).delete()
