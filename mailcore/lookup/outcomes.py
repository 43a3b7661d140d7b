"""The outcome of the mail of a time, by sender domain; and the hosts that got mail in the clear although they have TLS.

Verdicts are read from the DELIVERY records at the end of the journal backwards, and where it begins later from the archive, as
``service_times`` does: until they are too old, or enough were read.

Law: memory is bounded by DOMAINS_MAX and HOSTS_MAX; what is beyond is one sum. Must not know: sockets, the manager.

Keeps law: lookup-memory-bounded (docs/laws.md).
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from mailcore.envelope import Status
from mailcore.frames import TLS_CLEAR, TLS_NOT_OFFERED
from mailcore.lookup.answers import HostInTheClear, MailOutcomes, SenderOutcome
from mailcore.lookup.archive import Archive, Trouble
from mailcore.lookup.browse import Browser
from mailcore.lookup.service_times import newest_first
from mailcore.lookup.tracing import Steps
from mailcore.queue.records import Delivery

__all__ = ["outcomes_since"]

DOMAINS_MAX = 10_000  # sender domains with counts of their own
HOSTS_MAX = 10_000  # the same of hosts
SHOWN_MAX = 200  # of each in an answer, those with the most first


@dataclass(slots=True)
class _Host:
    over_tls: int = 0
    failed: int = 0
    not_offered: int = 0
    reason: str = ""


def outcomes_since(
    browser: Browser, since: float, records_max: int, archive: Archive | None = None
) -> Steps[MailOutcomes]:
    """Counts recipients that ended since ``since`` (wall clock), and transactions by host."""
    senders: dict[str, list[int]] = {}  # -> ended, bounced
    others = [0, 0]
    hosts: dict[str, _Host] = {}
    examined, reached, trouble, cut_short = 0, float("inf"), Trouble(), False
    with contextlib.closing(newest_first(browser, since, archive, trouble)) as pieces:
        for deliveries, records in pieces:
            newest = 0.0
            for delivery in deliveries:
                newest = max(newest, delivery.at)
                if delivery.at < since:
                    continue
                reached = min(reached, delivery.at)
                _count_sender(delivery, senders, others)
                _count_host(delivery, hosts)
            examined += records
            if examined >= records_max:
                cut_short = True
                break
            if 0 < newest < since:
                break
            yield
    ranked = sorted(senders.items(), key=lambda pair: (-pair[1][1], -pair[1][0], pair[0]))
    clear = [
        HostInTheClear(
            host=name, over_tls=host.over_tls, failed=host.failed, not_offered=host.not_offered, reason=host.reason
        )
        for name, host in hosts.items()
        if host.failed or (host.over_tls and host.not_offered)
    ]
    clear.sort(key=lambda each: (-each.failed - each.not_offered, each.host))
    return MailOutcomes(
        since=min(reached, browser.clock()) if cut_short else since,
        senders=[SenderOutcome(domain=name, ended=counts[0], bounced=counts[1]) for name, counts in ranked[:SHOWN_MAX]],
        senders_left_out=max(len(ranked) - SHOWN_MAX, 0),
        others_ended=others[0],
        others_bounced=others[1],
        hosts=clear[:SHOWN_MAX],
        hosts_left_out=max(len(clear) - SHOWN_MAX, 0),
        examined=examined,
        note=str(trouble),
    )


def _count_sender(delivery: Delivery, senders: dict[str, list[int]], others: list[int]) -> None:
    """Counts recipients that ended; of mail without a sender none, nor those that an operator deleted."""
    if not delivery.sender_domain:
        return
    ended = bounced = 0
    for verdict in delivery.verdicts:
        if verdict.status is Status.DELIVERED:
            ended += 1
        elif verdict.status in (Status.BOUNCED, Status.EXPIRED):
            ended += 1
            bounced += 1
    if not ended:
        return
    counts = senders.get(delivery.sender_domain)
    if counts is None:
        if len(senders) >= DOMAINS_MAX:
            counts = others
        else:
            counts = senders[delivery.sender_domain] = [0, 0]
    counts[0] += ended
    counts[1] += bounced


def _count_host(delivery: Delivery, hosts: dict[str, _Host]) -> None:
    """Counts a transaction, by the host that it was made with."""
    in_the_clear = not delivery.tls and TLS_CLEAR in delivery.tls_level
    if not (delivery.tls or in_the_clear) or delivery.relay in ("", "none"):
        return
    host = hosts.get(delivery.relay)
    if host is None:
        if len(hosts) >= HOSTS_MAX:
            return
        host = hosts[delivery.relay] = _Host()
    if delivery.tls:
        host.over_tls += 1
    elif delivery.tls_level.endswith(TLS_CLEAR + TLS_NOT_OFFERED):
        host.not_offered += 1
    else:
        host.failed += 1
        host.reason = host.reason or delivery.tls_level.partition(TLS_CLEAR)[2]
