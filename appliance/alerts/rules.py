"""The rules: facts in, causes out. Pure: no clock, no I/O; times are arguments.

Laws
- A rule whose facts are unknown says so (``Judgement.unknown``); it never says that all is well.
- One cause has one key, and one rule: mail that waits because of TLS is not reported as a dead destination, too.
- The number of causes is bounded: destinations beyond ``CAUSES_MAX`` are one cause together.

Keeps law: unknown-is-not-good, law: one-alert-per-cause (docs/laws.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from appliance.alerts import host_rules, links, outcome_rules
from appliance.alerts.causes import CAUSES_MAX, Cause, Found, Judgement, Severity, key_of, shortened, time_of
from appliance.alerts.facts import Facts, Unknown
from appliance.common.templatetags.waypost import span, visible
from mailcore.config.alerts import RULES, Alerts
from mailcore.counted import counted
from mailcore.destination_state import DestinationState
from mailcore.mail_state import MailState
from mailcore.manager_answers import Destinations, Outcomes, Reply

__all__ = ["ABOUT", "DATABASE", "NOT_CHECKED", "OF_ALL_MAIL", "OF_ALL_PORTALS", "WATCH_AWAY", "for_s", "judge"]

TLS_CODES = frozenset({"4.7.4", "4.7.5", "4.7.30"})  # of our deliverers: TLS that is demanded is not to be had
DEAD = frozenset({DestinationState.DEAD, DestinationState.TRANSPORT_DEAD})
AT_REST = frozenset({MailState.HELD, MailState.DELAYED})
NOT_CHECKED, WATCH_AWAY, DATABASE = "not_checked", "watch_away", "database"

# Rules about the mail of all nodes, where each shows it ([nodes] listen): one node judges them for all.
OF_ALL_MAIL = frozenset(
    ("active_set_full", "destination_dead", "tls_failing", "queue_age", "queue_growth", "bounces", "balance")
)

# Rules about rows that the portals of all nodes have in common.
OF_ALL_PORTALS = frozenset(("webhook",))

# The meaning of each rule, on its page and in docs/alerts.md.
ABOUT = {
    "core_away": "The core does not answer the portal.",
    "active_set_full": "The active set is full, and new mail waits behind it.",
    "destination_dead": "A destination takes no mail, and mail for it waits.",
    "tls_failing": "Mail for a destination waits because TLS with it fails.",
    "queue_age": "The oldest message in the queue is too old.",
    "queue_growth": "The queue grows.",
    "bounces": "Much of the mail bounces.",
    "sender_bounces": "Much of the mail from one sender domain bounces.",
    "tls_clear": "A host that has TLS got mail in the clear.",
    "disk": "A disk has little free space or few free inodes, or deliveries are limited because it is full.",
    "certificate": "A certificate of the receivers or of the portal expires soon.",
    "dkim": "The DNS record of a key that signs mail is missing or not usable.",
    "balance": "Mail that came in, that left and that is queued does not add up.",
    "report_missing": "The report of a day was not made.",
    "replication": "The database that keeps the queue beside this disk does not take what it is given.",
    "webhook": "The receiver of a webhook takes no events, or events for it are gone.",
    NOT_CHECKED: "A rule could not be checked.",
    WATCH_AWAY: "No rule was checked for some time.",
    DATABASE: "The portal's database, which holds the alerts, cannot be used.",
}


def judge(facts: Facts, settings: Alerts) -> list[Judgement]:
    """Returns what each rule that is on found; the rules about the watch are not among them."""
    judgements = []
    for rule in RULES:
        if rule in settings.off or rule not in _RULES:
            continue
        found = Found()
        try:
            _RULES[rule](facts, settings, found)
        except Exception as error:  # such as an answer of another version: the other rules are checked all the same
            found = Found(unknown=[Unknown(f"this rule failed: {type(error).__name__}: {error}")])
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


# -- the rules


def _core_away(facts: Facts, settings: Alerts, found: Found) -> None:
    if isinstance(facts.core_away, Unknown):
        found.unknown.append(facts.core_away)
    elif facts.core_away:
        found.causes.append(
            Cause(
                key=key_of("core_away"),
                rule="core_away",
                severity=Severity.CRITICAL,
                summary="The core does not answer; mail may not be accepted or delivered.",
                detail=shortened(facts.core_away),
                link=links.OVERVIEW,
            )
        )


def _active_set_full(facts: Facts, settings: Alerts, found: Found) -> None:
    if isinstance(facts.state, Unknown):
        found.unknown.append(facts.state)
    elif facts.state.active_full:
        found.causes.append(
            Cause(
                key=key_of("active_set_full"),
                rule="active_set_full",
                severity=Severity.WARNING,
                summary="The active set is full; new mail waits.",
                detail=shortened(facts.state.active_full),
                link=links.DESTINATIONS,
            )
        )


def _destination_dead(facts: Facts, settings: Alerts, found: Found) -> None:
    _destinations(facts, found, "destination_dead", of_tls=False)


def _tls_failing(facts: Facts, settings: Alerts, found: Found) -> None:
    _destinations(facts, found, "tls_failing", of_tls=True)


def _destinations(facts: Facts, found: Found, rule: str, *, of_tls: bool) -> None:
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
    if answer.unanswered:  # its mail in a silent shard may be in trouble still, also if others deliver there
        found.holds_others = True
        found.gone.clear()
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
        detail=shortened(f"Last reply at {time_of(reply.at)}: {reply.reply}" if reply is not None else ""),
        link=links.destination(name),
    )


def _queue_age(facts: Facts, settings: Alerts, found: Found) -> None:
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
            detail=shortened(
                f"It is {oldest.queue_id} for {oldest.destination or 'an unknown destination'}, {oldest.state}."
            ),
            link=links.AGES,
        )
    )


def _queue_growth(facts: Facts, settings: Alerts, found: Found) -> None:
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
                detail=f"{queued.before} at {time_of(queued.before_at)}, {queued.now} now.",
                link=links.DESTINATIONS,
            )
        )


def _bounces(facts: Facts, settings: Alerts, found: Found) -> None:
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
                detail=f"{queued.bounced} of {ended} since {time_of(queued.before_at)}.",
                link=links.DESTINATIONS,
            )
        )


def _balance(facts: Facts, settings: Alerts, found: Found) -> None:
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
        return
    latest = facts.report.day if facts.report.balances is False else None
    for day, words in (*facts.report.late, *(((latest, facts.report.words),) if latest is not None else ())):
        found.causes.append(
            Cause(
                key=key_of("balance", f"report:{day.isoformat()}"),
                rule="balance",
                severity=Severity.CRITICAL,
                summary=f"The report of {day.isoformat()} does not balance.",
                detail=shortened(words),
                link=links.report(day),
            )
        )


def _report_missing(facts: Facts, settings: Alerts, found: Found) -> None:
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


def _webhook(facts: Facts, settings: Alerts, found: Found) -> None:
    if isinstance(facts.webhooks, Unknown):
        found.unknown.append(facts.webhooks)
        return
    for each in facts.webhooks:
        if each.lost or each.for_s >= settings.webhook_failing_s:
            trouble = "stands still: events for it are gone" if each.lost else f"was not taken for {span(each.for_s)}"
            found.causes.append(
                Cause(
                    key=key_of("webhook", str(each.number)),
                    rule="webhook",
                    severity=Severity.WARNING,
                    summary=f"The webhook {visible(each.name)} {trouble}.",
                    detail=shortened(each.lost or each.words),
                    link=links.webhook(each.number),
                )
            )


def _replication(facts: Facts, settings: Alerts, found: Found) -> None:
    if isinstance(facts.state, Unknown):
        found.unknown.append(facts.state)
        return
    shard = facts.state.shard
    if shard is not None and shard.limits_trouble:
        found.causes.append(
            Cause(
                key=key_of("replication", "limits"),
                rule="replication",
                severity=Severity.CRITICAL,
                summary=f"Shard {visible(shard.name)} has no share of the limits of destinations: it delivers no mail.",
                detail=shortened(shard.limits_trouble),
                link=links.OVERVIEW,
            )
        )
    if shard is None or (shard.lease_s and not shard.trouble and shard.commit_waits_s < settings.replication_s):
        return
    waits = f"A commit has waited for {span(shard.commit_waits_s)}. " if shard.commit_waits_s >= 1 else ""
    found.causes.append(
        Cause(
            key=key_of("replication"),
            rule="replication",
            severity=Severity.CRITICAL,
            summary=f"The database does not take what shard {visible(shard.name)} gives it: no mail is accepted or delivered.",
            detail=shortened(f"{waits}{shard.trouble}".strip()),
            link=links.OVERVIEW,
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
                detail=shortened(each.unknown),
                link=links.rule(each.rule),
            )


_Rule = Callable[[Facts, Alerts, Found], None]
_RULES: dict[str, _Rule] = {
    "core_away": _core_away,
    "active_set_full": _active_set_full,
    "destination_dead": _destination_dead,
    "tls_failing": _tls_failing,
    "queue_age": _queue_age,
    "queue_growth": _queue_growth,
    "bounces": _bounces,
    "sender_bounces": outcome_rules.sender_bounces,
    "tls_clear": outcome_rules.tls_clear,
    "disk": host_rules.disk,
    "certificate": host_rules.certificate,
    "dkim": host_rules.dkim,
    "balance": _balance,
    "report_missing": _report_missing,
    "replication": _replication,
    "webhook": _webhook,
}
_LASTING = frozenset(
    {"core_away", "active_set_full", "destination_dead", "tls_failing", "dkim", "balance", "replication", NOT_CHECKED}
)
