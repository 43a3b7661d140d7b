"""The rules: facts in, causes out. Pure: no clock, no I/O; times are arguments.

Laws
- A rule whose facts are unknown says so (``Judgement.unknown``); it never says that all is well.
- One cause has one key, and one rule: mail that waits because of TLS is not reported as a dead destination, too.
- The number of causes is bounded: destinations beyond ``CAUSES_MAX`` are one cause together.

Keeps law: unknown-is-not-good, law: one-alert-per-cause (docs/laws.md).
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime

from appliance.alerts import links
from appliance.alerts.facts import DiskSpace, Facts, Unknown
from appliance.common.templatetags.waypost import size, span, visible
from mailcore.config.alerts import RULES, Alerts
from mailcore.counted import counted
from mailcore.destination_state import DestinationState
from mailcore.mail_state import MailState
from mailcore.manager_answers import Destinations, Outcomes, Reply

__all__ = [
    "ABOUT", "CAUSES_MAX", "DATABASE", "NOT_CHECKED", "WATCH_AWAY", "Cause", "Judgement", "Severity", "for_s", "judge",
    "key_of",
]  # fmt: skip

CAUSES_MAX = 50  # of one rule
KEY_CHARACTERS = 200
DETAIL_CHARACTERS = 1_000
URGENT_S = 3 * 86_400  # before a certificate expires
TLS_CODES = frozenset({"4.7.4", "4.7.5", "4.7.30"})  # of our deliverers: TLS that is demanded is not to be had
DEAD = frozenset({DestinationState.DEAD, DestinationState.TRANSPORT_DEAD})
AT_REST = frozenset({MailState.HELD, MailState.DELAYED})
NOT_CHECKED, WATCH_AWAY, DATABASE = "not_checked", "watch_away", "database"

# The meaning of each rule, on its page and in docs/alerts.md.
ABOUT = {
    "core_away": "The core does not answer the portal.",
    "active_set_full": "The active set is full, and new mail waits behind it.",
    "destination_dead": "A destination takes no mail, and mail for it waits.",
    "tls_failing": "Mail for a destination waits because TLS with it fails.",
    "queue_age": "The oldest message in the queue is too old.",
    "queue_growth": "The queue grows.",
    "bounces": "Much of the mail bounces.",
    "disk": "A disk has little free space or few free inodes, or deliveries are limited because it is full.",
    "certificate": "A certificate of the receivers expires soon.",
    "dkim": "The DNS record of a key that signs mail is missing or not usable.",
    "balance": "Mail that came in, that left and that is queued does not add up.",
    "report_missing": "The report of a day was not made.",
    NOT_CHECKED: "A rule could not be checked.",
    WATCH_AWAY: "No rule was checked for some time.",
    DATABASE: "The portal's database, which holds the alerts, cannot be used.",
}


class Severity(enum.StrEnum):
    """Tells how urgent an alert is."""

    CRITICAL = "critical"  # mail is stopped or at risk
    WARNING = "warning"


@dataclass(frozen=True, kw_only=True)
class Cause:
    """One reason to alert. ``summary``: a sentence; ``detail``: more about it; ``link``: path of the page that shows why."""

    key: str
    rule: str
    severity: Severity
    summary: str
    link: str
    detail: str = ""


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """The result of one rule. ``held``: keys about which nothing is known now; ``unknown``: why it could not be checked."""

    rule: str
    causes: tuple[Cause, ...] = ()
    held: frozenset[str] = frozenset()
    holds_others: bool = False  # all other keys are held, too, but those in ``gone``: not all destinations are named
    gone: frozenset[str] = frozenset()
    unknown: str = ""
    expected: bool = False  # the reason has its own alert, or ends after a start


@dataclass
class _Found:
    causes: list[Cause] = field(default_factory=list)
    held: set[str] = field(default_factory=set)
    holds_others: bool = False
    gone: set[str] = field(default_factory=set)
    unknown: list[Unknown] = field(default_factory=list)


def judge(facts: Facts, settings: Alerts) -> list[Judgement]:
    """Returns what each rule that is on found; the rules about the watch are not among them."""
    judgements = []
    for rule in RULES:
        if rule in settings.off or rule not in _RULES:
            continue
        found = _Found()
        try:
            _RULES[rule](facts, settings, found)
        except Exception as error:  # such as an answer of another version: the other rules are checked all the same
            found = _Found(unknown=[Unknown(f"this rule failed: {type(error).__name__}: {error}")])
        causes = {cause.key: cause for cause in found.causes}
        judgements.append(
            Judgement(
                rule=rule,
                causes=tuple(causes.values()),
                held=frozenset(found.held) - causes.keys(),
                holds_others=found.holds_others,
                gone=frozenset(found.gone),
                unknown="; ".join(dict.fromkeys(each.why for each in found.unknown)),
                expected=all(each.expected for each in found.unknown),
            )
        )
    if NOT_CHECKED not in settings.off:
        held = frozenset(key_of(NOT_CHECKED, each.rule) for each in judgements if each.unknown and each.expected)
        judgements.append(Judgement(rule=NOT_CHECKED, causes=tuple(_not_checked(judgements)), held=held))
    return judgements


def for_s(rule: str, settings: Alerts) -> float:
    """Returns for how many seconds a cause must be true before it opens an alert."""
    return float(getattr(settings, f"{rule}_s")) if rule in _LASTING else 0.0


def key_of(rule: str, name: str = "") -> str:
    """Returns the key of a cause. A long name is shortened, and stays different from all others."""
    key = f"{rule}:{name}" if name else rule
    if len(key) <= KEY_CHARACTERS:
        return key
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{key[: KEY_CHARACTERS - 17]}~{digest}"


# -- the rules


def _core_away(facts: Facts, settings: Alerts, found: _Found) -> None:
    if isinstance(facts.core_away, Unknown):
        found.unknown.append(facts.core_away)
    elif facts.core_away:
        found.causes.append(
            Cause(
                key=key_of("core_away"),
                rule="core_away",
                severity=Severity.CRITICAL,
                summary="The core does not answer; mail may not be accepted or delivered.",
                detail=_detail(facts.core_away),
                link=links.OVERVIEW,
            )
        )


def _active_set_full(facts: Facts, settings: Alerts, found: _Found) -> None:
    if isinstance(facts.state, Unknown):
        found.unknown.append(facts.state)
    elif facts.state.active_full:
        found.causes.append(
            Cause(
                key=key_of("active_set_full"),
                rule="active_set_full",
                severity=Severity.WARNING,
                summary="The active set is full; new mail waits.",
                detail=_detail(facts.state.active_full),
                link=links.DESTINATIONS,
            )
        )


def _destination_dead(facts: Facts, settings: Alerts, found: _Found) -> None:
    _destinations(facts, found, "destination_dead", of_tls=False)


def _tls_failing(facts: Facts, settings: Alerts, found: _Found) -> None:
    _destinations(facts, found, "tls_failing", of_tls=True)


def _destinations(facts: Facts, found: _Found, rule: str, *, of_tls: bool) -> None:
    answer = facts.destinations
    if isinstance(answer, Unknown):
        found.unknown.append(answer)
        return
    is_cut_off = len(answer.queued) >= facts.destinations_max
    mail = facts.queued_by_destination if is_cut_off and facts.queued_by_destination is not None else answer.queued
    found.holds_others = bool(mail.get("")) or (is_cut_off and facts.queued_by_destination is None)
    waiting = []
    for name, queued in sorted(mail.items(), key=lambda each: (-each[1], each[0])):
        states = {each.state for each in answer.states.get(name, [])}
        if not name or not queued or DestinationState.SUSPENDED in states:
            continue
        known = _outcomes(answer, name)
        reply = _last_reply(known)
        dead = not states.isdisjoint(DEAD)
        if not dead and reply is None and (known is None or known.last_delivered_at is None):
            found.held.add(key_of(rule, name))  # not tried since the manager started
        elif (dead or _waits(known, reply)) and (reply is not None and reply.dsn in TLS_CODES) is of_tls:
            waiting.append((name, queued, reply))
    for name in (*answer.destinations, *answer.without_mail):
        known = _outcomes(answer, name)
        if known is not None and known.last_delivered_at is not None and not _waits(known, _last_reply(known)):
            found.gone.add(key_of(rule, name))
    found.causes += [_of_destination(rule, *each) for each in waiting[:CAUSES_MAX]]
    if more := len(waiting[CAUSES_MAX:]):
        found.causes.append(
            Cause(
                key=key_of(rule, "*"),
                rule=rule,
                severity=Severity.WARNING,
                summary=f"{counted(more, 'more destination')} with the same trouble",
                link=links.DESTINATIONS,
            )
        )
        found.held |= {key_of(rule, name) for name, _, _ in waiting[CAUSES_MAX:]}  # an alert about one of them stays


def _outcomes(answer: Destinations, name: str) -> Outcomes | None:
    active = answer.destinations.get(name)
    if active is None:
        return answer.without_mail.get(name)
    return Outcomes(last_delivered_at=active.last_delivered_at, last_replies=active.last_replies)


def _last_reply(known: Outcomes | None) -> Reply | None:
    return known.last_replies[0] if known is not None and known.last_replies else None


def _waits(known: Outcomes | None, reply: Reply | None) -> bool:
    """Returns whether the last attempt was a deferral, and nothing was delivered since."""
    if known is None or reply is None or reply.status != "deferred":
        return False
    return known.last_delivered_at is None or known.last_delivered_at < reply.at


def _of_destination(rule: str, name: str, queued: int, reply: Reply | None) -> Cause:
    shown = visible(name)
    trouble = "has no TLS as it is demanded" if rule == "tls_failing" else "takes no mail"
    return Cause(
        key=key_of(rule, name),
        rule=rule,
        severity=Severity.WARNING,
        summary=f"{shown} {trouble}; {counted(queued, 'recipient')} waiting.",
        detail=_detail(f"Last reply at {_time(reply.at)}: {reply.reply}" if reply is not None else ""),
        link=links.destination(name),
    )


def _queue_age(facts: Facts, settings: Alerts, found: _Found) -> None:
    ages = facts.ages
    if isinstance(ages, Unknown):
        found.unknown.append(ages)
        return
    oldest = ages.oldest
    if oldest is None or ages.as_of - oldest.arrived_at < settings.queue_age_s:
        return
    if oldest.state in AT_REST:
        # Held and scheduled mail may be old. There is other old mail for certain if more is old than rests.
        old = sum(
            count
            for low, count in zip([0, *ages.buckets_s], ages.counts, strict=False)
            if low is not None and low >= settings.queue_age_s
        )
        if old <= sum(ages.by_state.get(state, 0) for state in AT_REST):
            return
    found.causes.append(
        Cause(
            key=key_of("queue_age"),
            rule="queue_age",
            severity=Severity.WARNING,
            summary=f"The oldest message in the queue is {span(ages.as_of - oldest.arrived_at)} old.",
            detail=_detail(
                f"It is {oldest.queue_id} for {oldest.destination or 'an unknown destination'}, {oldest.state}."
            ),
            link=links.AGES,
        )
    )


def _queue_growth(facts: Facts, settings: Alerts, found: _Found) -> None:
    queued = facts.queued
    if isinstance(queued, Unknown):
        found.unknown.append(queued)
    elif queued.now - queued.before >= settings.queue_growth_recipients:
        found.causes.append(
            Cause(
                key=key_of("queue_growth"),
                rule="queue_growth",
                severity=Severity.WARNING,
                summary=f"The queue has {counted(queued.now - queued.before, 'recipient')} more than an hour before.",
                detail=f"{queued.before} at {_time(queued.before_at)}, {queued.now} now.",
                link=links.DESTINATIONS,
            )
        )


def _bounces(facts: Facts, settings: Alerts, found: _Found) -> None:
    queued = facts.queued
    if isinstance(queued, Unknown):
        found.unknown.append(queued)
        return
    if queued.delivered is None or queued.bounced is None:
        found.unknown.append(Unknown("the counts of mail began again within the last hour", expected=True))
        return
    ended = queued.delivered + queued.bounced
    if ended >= settings.bounces_recipients and 100 * queued.bounced >= settings.bounces_percent * ended:
        found.causes.append(
            Cause(
                key=key_of("bounces"),
                rule="bounces",
                severity=Severity.WARNING,
                summary=f"{queued.bounced / ended:.0%} of the recipients of an hour bounced or expired.",
                detail=f"{queued.bounced} of {ended} since {_time(queued.before_at)}.",
                link=links.DESTINATIONS,
            )
        )


def _disk(facts: Facts, settings: Alerts, found: _Found) -> None:
    if isinstance(facts.state, Unknown):
        found.unknown.append(facts.state)
    elif facts.state.stalled:
        found.causes.append(
            Cause(
                key=key_of("disk", "stalled"),
                rule="disk",
                severity=Severity.CRITICAL,
                summary="The disk is full; deliveries go out one at a time.",
                detail=_detail(facts.state.stalled),
                link=links.OVERVIEW,
            )
        )
    if isinstance(facts.disks, Unknown):
        found.unknown.append(facts.disks)
        return
    together: dict[int, list[DiskSpace]] = {}
    for disk in facts.disks:
        together.setdefault(disk.device, []).append(disk)
    for of_one in together.values():
        found.causes += _of_disk(of_one, settings)


def _of_disk(of_one: list[DiskSpace], settings: Alerts) -> Iterator[Cause]:
    """Yields the causes of one disk, of which several directories may be; the one that needs most room decides."""
    names = ", ".join(disk.what for disk in of_one)
    free = min(disk.free_bytes for disk in of_one)
    reserve = max(disk.reserve_bytes for disk in of_one)
    own = settings.portal_disk_free_bytes if any(disk.what in ("portal", "log") for disk in of_one) else 0
    if free < max(reserve * settings.disk_reserve_times, own):
        stopped = reserve > 0 and free <= reserve
        yield Cause(
            key=key_of("disk", f"space:{of_one[0].what}"),
            rule="disk",
            severity=Severity.CRITICAL if stopped else Severity.WARNING,
            summary=f"The disk of {names} has {size(free)} free" + ("; new mail is refused." if stopped else "."),
            detail=_detail(
                f"{of_one[0].path}; new mail gets 452 below {size(reserve)}." if reserve else of_one[0].path
            ),
            link=links.OVERVIEW,
        )
    inodes = min((disk.free_inodes for disk in of_one if disk.free_inodes is not None), default=None)
    kept = max(disk.reserve_inodes for disk in of_one)
    if inodes is not None and kept and inodes < kept * settings.disk_reserve_times:
        stopped = inodes <= kept
        yield Cause(
            key=key_of("disk", f"inodes:{of_one[0].what}"),
            rule="disk",
            severity=Severity.CRITICAL if stopped else Severity.WARNING,
            summary=f"The disk of {names} has {counted(inodes, 'free inode')}"
            + ("; new mail is refused." if stopped else "."),
            detail=_detail(f"{of_one[0].path}; new mail gets 452 below {kept}."),
            link=links.OVERVIEW,
        )


def _certificate(facts: Facts, settings: Alerts, found: _Found) -> None:
    if isinstance(facts.certificates, Unknown):
        found.unknown.append(facts.certificates)
        return
    for each in facts.certificates.certificates:
        key = key_of("certificate", each.path)
        if each.not_after is None:
            found.unknown.append(Unknown(f"certificate {visible(each.path)}: {visible(each.fault)}"))
            found.held.add(key)
            continue
        left = each.not_after - facts.at
        if left >= settings.certificate_days * 86_400:
            continue
        when = f"expired on {_time(each.not_after)}" if left <= 0 else f"expires in {span(left)}"
        found.causes.append(
            Cause(
                key=key,
                rule="certificate",
                severity=Severity.CRITICAL if left < URGENT_S else Severity.WARNING,
                summary=f"The certificate {visible(each.path)} {when}.",
                detail=_detail(
                    f"For {', '.join(each.names)}." if each.names else "For clients that ask for no other name."
                ),
                link=links.rule("certificate"),
            )
        )


def _dkim(facts: Facts, settings: Alerts, found: _Found) -> None:
    if isinstance(facts.key_records, Unknown):
        found.unknown.append(facts.key_records)
        return
    for each in facts.key_records:
        key = key_of("dkim", each.name)
        if isinstance(each.fault, Unknown):
            found.unknown.append(each.fault)
            found.held.add(key)
        elif each.fault:
            found.causes.append(
                Cause(
                    key=key,
                    rule="dkim",
                    severity=Severity.WARNING,
                    summary=f"The DNS record {visible(each.name)} {each.fault}; other servers cannot verify our signatures.",
                    detail="waypost dkim check compares it with the key.",
                    link=links.rule("dkim"),
                )
            )


def _balance(facts: Facts, settings: Alerts, found: _Found) -> None:
    if isinstance(facts.state, Unknown):
        found.unknown.append(facts.state)
    else:
        off = {
            what: terms["difference"]
            for what, terms in (
                ("recipients", facts.state.balance.recipients), ("messages", facts.state.balance.messages),
            )
            if terms.get("difference")
        }  # fmt: skip
        if off:
            found.causes.append(
                Cause(
                    key=key_of("balance", "live"),
                    rule="balance",
                    severity=Severity.CRITICAL,
                    summary="The balance of mail does not add up: "
                    + ", ".join(f"{difference:+d} {what}" for what, difference in off.items()),
                    link=links.OVERVIEW,
                )
            )
    if isinstance(facts.report, Unknown):
        found.unknown.append(facts.report)
    elif facts.report.day is not None and facts.report.balances is False:
        day = facts.report.day.isoformat()
        found.causes.append(
            Cause(
                key=key_of("balance", f"report:{day}"),
                rule="balance",
                severity=Severity.CRITICAL,
                summary=f"The report of {day} does not balance.",
                detail=_detail(facts.report.words),
                link=links.report(facts.report.day),
            )
        )


def _report_missing(facts: Facts, settings: Alerts, found: _Found) -> None:
    if isinstance(facts.report, Unknown):
        found.unknown.append(facts.report)
        return
    for day, late_s in facts.report.missing:
        if late_s >= settings.report_late_s:
            found.causes.append(
                Cause(
                    key=key_of("report_missing", day.isoformat()),
                    rule="report_missing",
                    severity=Severity.WARNING,
                    summary=f"There is no report of {day}, though it has events.",
                    detail=f"To make it: waypost report {day}",
                    link=links.REPORTS,
                )
            )


def _not_checked(judgements: list[Judgement]) -> Iterator[Cause]:
    for each in judgements:
        if each.unknown and not each.expected:
            yield Cause(
                key=key_of(NOT_CHECKED, each.rule),
                rule=NOT_CHECKED,
                severity=Severity.WARNING,
                summary=f"The rule {each.rule} could not be checked.",
                detail=_detail(each.unknown),
                link=links.rule(each.rule),
            )


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(" ", "seconds")


def _detail(text: str) -> str:
    shown = visible(text)
    return shown if len(shown) <= DETAIL_CHARACTERS else shown[: DETAIL_CHARACTERS - 1] + "…"


_Rule = Callable[[Facts, Alerts, _Found], None]
_RULES: dict[str, _Rule] = {
    "core_away": _core_away,
    "active_set_full": _active_set_full,
    "destination_dead": _destination_dead,
    "tls_failing": _tls_failing,
    "queue_age": _queue_age,
    "queue_growth": _queue_growth,
    "bounces": _bounces,
    "disk": _disk,
    "certificate": _certificate,
    "dkim": _dkim,
    "balance": _balance,
    "report_missing": _report_missing,
}
_LASTING = frozenset(
    {"core_away", "active_set_full", "destination_dead", "tls_failing", "dkim", "balance", NOT_CHECKED}
)
