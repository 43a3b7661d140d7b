"""Counts new connections for TLS reports (RFC 8460): under which policy of the recipients' domain, and with which result.

Not counted: connections on which TLS was not tried (level "none", a setting that discards STARTTLS, no connection or no
greeting), those that were lost in the handshake, unless the same address then took mail in the clear, those under a level that
the operator chose for the certificate ("verify"), those of messages that waive what the domain publishes, and those of the
reports themselves: otherwise two sites would report on each other's reports each day. A policy in testing mode lowers nothing:
it is tried first as if it were enforced, and what fails is counted.

Loaded only if reports are on.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

from mailcore.config.settings import Settings
from mailcore.config.tlsrpt import DIRECTORY
from mailcore.deliverer.connection import Cause, Connection
from mailcore.deliverer.mta_sts import StsPolicies, refusal
from mailcore.deliverer.opening import Unusable
from mailcore.envelope import Status
from mailcore.frames import NextHop
from mailcore.routing.mx import Address
from mailcore.tls.policy import Policy
from mailcore.tls_result import MX_NOT_IN_POLICY, WAIVED, Result
from mailcore.tls_sessions import Session, SessionCounts

__all__ = ["TlsCounting", "open_counting"]

_OF_DANE = (Result.TLSA_INVALID,)
_DANE = ("dane", "dane-only")
_UNPUBLISHED = ("may", "encrypt")  # levels that ask for no certificate
_UNTRIED = Unusable(Status.DEFERRED, "4.7.5", "", of_tls=True)


def open_counting(settings: Settings, sts: StsPolicies | None, complain: Callable[[str], None]) -> TlsCounting:
    """Returns what counts the sessions of this process."""
    mine = settings.tlsrpt
    directory = settings.home / DIRECTORY
    counts = SessionCounts(directory, mine.kinds_max, mine.bytes_max, mine.write_s, time.time, complain)
    return TlsCounting(counts, sts, mine.sender)


class TlsCounting:
    """Counts for one client. ``sender`` is the address of the reports."""

    def __init__(self, counts: SessionCounts, sts: StsPolicies | None, sender: str) -> None:
        self._counts = counts
        self._sts = sts
        self._sender = sender

    async def connect(
        self,
        connect: Callable[[Policy], Awaitable[Connection | Unusable]],
        sender: str,
        next_hop: NextHop,
        policy: Policy,
        address: Address,
        *,
        tls_is_broken: bool = False,
    ) -> Connection | Unusable:
        """Returns what ``connect`` makes under the policy, and counts it.

        ``tls_is_broken``: a handshake with the address failed lately, so that the level "may" does not try another.
        """
        if policy.level != "may" or not policy.hosts:
            made = await connect(policy)
            self.count(sender, next_hop, policy, address, made)
            return made
        strict = Policy("mta-sts", policy.why, (address.host,), policy.ca_file, policy.hosts)
        tried: Connection | Unusable = _UNTRIED
        if refusal(strict, address.host):
            tried = _UNTRIED._replace(result=Result.VALIDATION_FAILURE, reason_code=MX_NOT_IN_POLICY)
        elif not tls_is_broken:
            tried = await connect(strict)
        self.count(sender, next_hop, policy, address, tried)
        if isinstance(tried, Connection):
            tried.tls_level, tried.tls_verified = str(policy), False  # nothing was demanded
            return tried
        if not (tried.result or tried.of_tls or tried.cause is Cause.LOCAL):
            return tried
        made = await connect(policy)
        if not tried.result and isinstance(made, Connection) and made.tls_result:  # it is in the clear
            self.count(sender, next_hop, policy, address, made)
        return made

    def count(
        self, sender: str, next_hop: NextHop, policy: Policy, address: Address, made: Connection | Unusable
    ) -> None:
        """Counts a connection, or the lack of one, if TLS was tried."""
        if sender == self._sender or not next_hop.mx:
            return
        if isinstance(made, Unusable):
            result, reason, source = made.result, made.reason_code, made.source
            if not result:
                return
        else:
            result, reason, source = made.tls_result, made.tls_reason, made.source_address
            if not result and not made.tls:
                return
        session = self._session(policy, next_hop.host, address.host)
        if session is None:
            return
        if not result and policy.fault:
            result = policy.fault
        if result:
            receiving = address.address
            fields = {"sending_ip": source, "mx_hostname": address.host, "receiving_ip": receiving}
            session = Session(
                session.domain, session.policy_type, session.policy_domain, session.policy_strings, session.mx_hosts,
                result, reason, **fields,
            )  # fmt: skip
        self._counts.count(session)

    def _session(self, policy: Policy, domain: str, host: str) -> Session | None:
        """Returns the policy of a session; None if it is not one that the domain publishes, or that there is none."""
        if policy.tlsa:
            strings = tuple(f"{record} {record.data.hex()}" for record in policy.tlsa)
            return Session(domain, "tlsa", policy.names[0], strings)
        if policy.fault == WAIVED:
            return None
        if policy.level in _DANE or policy.fault in _OF_DANE:
            return Session(domain, "tlsa", host)
        if policy.hosts:
            found = self._sts.known(domain) if self._sts is not None else None
            return Session(domain, "sts", domain, found.lines if found is not None else (), policy.hosts)
        if policy.fault:
            return Session(domain, "sts", domain)
        return Session(domain, "no-policy-found", domain) if policy.level in _UNPUBLISHED else None
