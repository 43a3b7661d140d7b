"""Rules about outcomes: bounces by sender domain, and mail in the clear to hosts that have TLS. Pure, as ``rules`` says.

Keeps law: unknown-is-not-good (docs/laws.md).
"""

from __future__ import annotations

from appliance.alerts import links
from appliance.alerts.causes import CAUSES_MAX, Cause, Found, Severity, key_of, shortened, time_of
from appliance.alerts.facts import Facts, Unknown
from appliance.common.templatetags.waypost import visible
from mailcore.config.alerts import Alerts
from mailcore.control.protocol.tuning import HostInTheClear, MailOutcomes, SenderOutcome
from mailcore.counted import counted

__all__ = ["sender_bounces", "tls_clear"]


def sender_bounces(facts: Facts, settings: Alerts, found: Found) -> None:
    """Looks for sender domains much of whose mail bounced within an hour."""
    outcomes = _outcomes(facts, found)
    if outcomes is None:
        return
    many = [
        each
        for each in outcomes.senders
        if each.ended >= settings.sender_bounces_recipients
        and 100 * each.bounced >= settings.sender_bounces_percent * each.ended
    ]
    found.causes += [_of_sender(each, outcomes) for each in many[:CAUSES_MAX]]
    if more := len(many[CAUSES_MAX:]):
        found.causes.append(
            _more("sender_bounces", f"{counted(more, 'more sender domain')} with many bounces", links.LOG)
        )
        found.held |= {key_of("sender_bounces", each.domain) for each in many[CAUSES_MAX:]}
    found.holds_others = bool(outcomes.senders_left_out or outcomes.others_ended)


def tls_clear(facts: Facts, settings: Alerts, found: Found) -> None:
    """Looks for hosts with TLS that got mail in the clear within an hour."""
    outcomes = _outcomes(facts, found)
    if outcomes is None:
        return
    many = [each for each in outcomes.hosts if each.failed + each.not_offered >= settings.tls_clear_transactions]
    found.causes += [_of_host(each, outcomes) for each in many[:CAUSES_MAX]]
    if more := len(many[CAUSES_MAX:]):
        found.causes.append(
            _more("tls_clear", f"{counted(more, 'more host')} with TLS got mail in the clear", links.LOG)
        )
        found.held |= {key_of("tls_clear", each.host) for each in many[CAUSES_MAX:]}
    found.holds_others = bool(outcomes.hosts_left_out)


def _outcomes(facts: Facts, found: Found) -> MailOutcomes | None:
    if isinstance(facts.outcomes, Unknown):
        found.unknown.append(facts.outcomes)
        return None
    if facts.outcomes.note:
        found.unknown.append(Unknown(facts.outcomes.note))
    return facts.outcomes


def _of_sender(sender: SenderOutcome, outcomes: MailOutcomes) -> Cause:
    share = sender.bounced / sender.ended
    return Cause(
        key=key_of("sender_bounces", sender.domain),
        rule="sender_bounces",
        severity=Severity.WARNING,
        summary=f"{share:.0%} of the recipients of mail from {visible(sender.domain)} bounced or expired.",
        detail=f"{sender.bounced} of {sender.ended} since {time_of(outcomes.since)}.",
        link=links.bounces_of(sender.domain),
    )


def _of_host(host: HostInTheClear, outcomes: MailOutcomes) -> Cause:
    clear = host.failed + host.not_offered
    why = f"TLS failed: {host.reason}" if host.failed else "it did not offer TLS, as it had before"
    over = f"; {counted(host.over_tls, 'transaction')} over TLS" if host.over_tls else ""
    return Cause(
        key=key_of("tls_clear", host.host),
        rule="tls_clear",
        severity=Severity.WARNING,
        summary=f"{visible(host.host)} got mail in the clear although it has TLS.",
        detail=shortened(f"{counted(clear, 'transaction')} in the clear since {time_of(outcomes.since)}{over}. {why}."),
        link=links.log_of_host(host.host),
    )


def _more(rule: str, summary: str, link: str) -> Cause:
    return Cause(key=key_of(rule, "*"), rule=rule, severity=Severity.WARNING, summary=summary, link=link)
