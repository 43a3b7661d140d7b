"""The SMTP client: an entry in, its verdicts out. It chooses the host, the connection and the encryption.

Laws:
- A host that cannot be reached, greets with anything but 2xx, or loses the handshake, costs one try of ``addresses_max``;
  the next address is tried at once. After a host that deferred every recipient before the dot was sent, one
  further host is tried (Postfix's smtp_mx_session_limit).
- ``site_failure`` is set only when no host could be talked to at all, for a reason that is not our own: temporarily not
  found in DNS, no connection, no greeting, no EHLO, a broken handshake (as in Postfix's smtp(8)). ``transport_failure`` is
  set when the reason would have been the same for any site.
- A kept connection that is found dead does not count as a failure: a fresh one is made, once.
- A connection is used only under the policy that it was made under; how it is made is ``opening``'s.

Knows nothing of queues; DNS is behind the HostFinder.

Keeps law: site-failure-is-the-site, law: fallback-returns-nothing, law: tls-level-is-kept, law: stale-connection-is-no-failure
(docs/laws.md).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from mailcore.config.client_auth import NO_LOGINS, ClientAuth, Login, LoginFileError
from mailcore.config.settings import Deliverer
from mailcore.deliverer.connection import Cause, Connection
from mailcore.deliverer.connection_cache import AddressKey, ConnectionCache, HopKey
from mailcore.deliverer.conversion import Conversion, Misfit
from mailcore.deliverer.fallback import fault_of, is_unreachable, unusable
from mailcore.deliverer.keyword_masks import NO_MASK, KeywordMasks, Mask
from mailcore.deliverer.login import LoginFile
from mailcore.deliverer.message_data import DataError, MessageData
from mailcore.deliverer.mta_sts import StsPolicies, refusal
from mailcore.deliverer.opening import Opener, Unusable, relay_of
from mailcore.deliverer.outcome import Outcome
from mailcore.deliverer.require_tls import (
    NOT_OFFERED,
    PUBLISHED,
    requires_tls,
    returned,
    strengthened,
    waives_tls,
    without_requirement,
)
from mailcore.deliverer.server_limits import without
from mailcore.deliverer.shared_ends import SharedEnds
from mailcore.deliverer.transaction import transact
from mailcore.envelope import Status, Verdict
from mailcore.esmtp import EXTENSIONS, REQUIRETLS, Extension
from mailcore.frames import Deliver, Delivered, NextHop
from mailcore.routing.mx import Address, HostFinder
from mailcore.routing.resolve import Refused
from mailcore.tls.ca_file import Complain, silent
from mailcore.tls.dane import policy_of_host
from mailcore.tls.policy import Policies, Policy
from mailcore.tls_result import MX_NOT_IN_POLICY, WAIVED, Result

if TYPE_CHECKING:  # a process without [tlsrpt] does not load it
    from mailcore.deliverer.tls_counting import TlsCounting

__all__ = ["Client"]

SESSIONS_MAX = 2  # Postfix's smtp_mx_session_limit


class _Session(NamedTuple):
    """A transaction that was made, and its connection."""

    connection: Connection
    outcome: Outcome
    begun_at: float
    policy: Policy


class Client:
    """Delivers entries. ``our_name`` is the name in EHLO, ``lmtp`` are the transports that speak LMTP, ``chunked`` those that
    prefer BDAT. Fallback next hops come with each entry, so that the manager's file of them counts, as it is then.

    Raises UnicodeEncodeError when ``our_name`` is not ASCII.
    """

    def __init__(
        self,
        limits: Deliverer,
        finder: HostFinder,
        our_name: str,
        loop: asyncio.AbstractEventLoop,
        extensions: Sequence[Extension] = EXTENSIONS,
        policies: Policies | None = None,
        auth: ClientAuth = NO_LOGINS,
        sts: StsPolicies | None = None,
        lmtp: Collection[str] = (),
        masks: KeywordMasks | None = None,
        conversion: Conversion | None = None,
        counting: TlsCounting | None = None,
        chunked: Collection[str] = (),
        complain: Complain = silent,
    ) -> None:
        self._limits = limits
        self._finder = finder
        self._sts = sts
        self._lmtp = frozenset(lmtp)
        self._chunked = frozenset(chunked)
        self._masks = masks
        self._conversion = conversion or Conversion()
        self._counting = counting
        self._policies = policies if policies is not None else Policies({}, limits.port)
        self._opener = Opener(limits, our_name.encode("ascii"), loop, extensions, auth, complain)
        self._logins = LoginFile(auth.password_file, limits.port) if auth.password_file else None
        self._cache = ConnectionCache(
            loop,
            idle_s=limits.connection_idle_s,
            idle_max=limits.connections_idle_max,
            uses_max=limits.connection_uses_max,
        )
        self.ends = SharedEnds(loop, self._cache)

    async def deliver(self, work: Deliver, data: MessageData) -> tuple[Delivered, DataError | None]:
        """Returns one verdict for every recipient, and what is wrong with the data on disk (None when nothing is).

        When cancelled, nothing more is sent; whether the server has the message is then unknown.
        Raises DataError when the data cannot be read before anything was sent.
        """
        result, data_error = await self._deliver(work, data)
        while len(result.verdicts) < len(work.recipients):  # the server takes fewer in a transaction
            rest = without(work, {verdict.number for verdict in result.verdicts})
            if data_error is not None or _is_hopeless(result):
                more = msgspec.structs.replace(result, verdicts=_same(rest, result.verdicts[-1]))
            else:
                more, data_error = await self._deliver(rest, data)
            result = _together(result, more)
        return result, data_error

    async def _deliver(self, work: Deliver, data: MessageData) -> tuple[Delivered, DataError | None]:
        """Makes one transaction, on several hosts if need be. Recipients beyond the server's limits get no verdict."""
        login: Login | None = None
        policy = self._policies.of(work.transport, work.tls, work.next_hop)
        required = bool(work.options) and requires_tls(work.options)
        if policy.level in PUBLISHED and not required and waives_tls(data):
            policy = policy.instead("may", "the message says TLS-Required: No")._replace(fault=WAIVED)
        if policy.level == "mta-sts" and self._sts is not None:
            policy = await self._sts.policy_for(policy, work.next_hop)
        if required and work.next_hop.port:
            policy = strengthened(policy, work.next_hop, self._policies.ca_file)
        elif required:
            work = msgspec.structs.replace(work, options=without_requirement(work.options))
        if self._logins is not None:
            try:
                login = self._logins.of(work.next_hop, work.sender)
            except LoginFileError as error:
                reason = Unusable(Status.DEFERRED, "4.3.5", f"the logins are not known: {error}", Cause.MACHINE)
                return self._unreached(work, [reason], "none", time.monotonic())
        hop: HopKey = (work.transport, policy, work.next_hop, login)
        connection = self._fit(self._cache.take_for_hop(hop), work)
        if connection is not None:
            started_at = time.monotonic()
            outcome = await self._transact(connection, work, data)
            if outcome is not None:
                return self._delivered(work, hop, _Session(connection, outcome, started_at, policy), 0.0)
        answer = await self._deliver_to_some_host(work, data, hop)
        return await self._fall_back(work, data, answer) if work.fallbacks else answer

    async def _fall_back(
        self, work: Deliver, data: MessageData, answer: tuple[Delivered, DataError | None]
    ) -> tuple[Delivered, DataError | None]:
        """Tries the fallback next hops, as long as no host could be found or reached.

        Not for a domain that has us among its MX hosts: the fallback would look for the domain's hosts and find us, so that
        mail would go round between us (as Postfix's smtp_fallback_relay).
        """
        first = answer[0]
        if not is_unreachable(first) or self._finder.is_served_by_us(work.next_hop):
            return answer
        for hop in work.fallbacks:
            why = await self._loop_of(hop)
            if not why:
                answer = await self.deliver(msgspec.structs.replace(work, next_hop=hop, fallbacks=()), data)
                why = fault_of(answer[0])
            if why:
                answer = unusable(first, why), None
            elif not is_unreachable(answer[0]):
                break
        return answer

    async def _loop_of(self, hop: NextHop) -> str:
        """Returns in which way a fallback next hop is ourselves; "" if it is not. Those found by MX are the finder's."""
        addresses = () if hop.mx else await self._finder.find(hop)
        if isinstance(addresses, Refused) or not any(
            self._finder.is_ours(each.address, hop.port) for each in addresses
        ):
            return ""
        return f"mail for {hop.host} loops back to myself"

    def resting(self, destination: str) -> int:
        """Returns how many connections to a destination rest, if several queues share its limit."""
        return self._cache.resting_to(destination)

    def _fit(self, connection: Connection | None, work: Deliver) -> Connection | None:
        if connection is not None and work.shared and connection.destination != work.shared:
            self._cache.drop_one(work.shared)
            connection.destination = work.shared
        return _fit(connection, work)

    def close(self) -> None:
        """Says QUIT on all kept connections."""
        self._cache.close()

    async def _deliver_to_some_host(
        self, work: Deliver, data: MessageData, hop: HopKey
    ) -> tuple[Delivered, DataError | None]:
        started_at = time.monotonic()
        addresses = await self._finder.find(work.next_hop, validated=_follows_dnssec(hop[1]))
        if isinstance(addresses, Refused):
            cause = Cause.MACHINE if addresses.ours else Cause.SITE
            refusal = Unusable(addresses.status, addresses.dsn, addresses.reply, cause)
            return self._unreached(work, [refusal], "none", started_at)
        answer: tuple[Delivered, DataError | None] | None = None  # of the host that was talked to last
        sessions = 0
        unusable: list[Unusable] = []
        relay = "none"
        for address in addresses[: self._limits.addresses_max]:
            session = await self._try(work, data, address, hop[1], hop[3])
            if isinstance(session, Unusable):
                unusable.append(session)
                relay = relay_of(address, work.next_hop.port)
                if session.status is Status.BOUNCED:
                    break
                continue
            sessions += 1
            answer = self._delivered(work, hop, session, session.begun_at - started_at)
            if not session.outcome.elsewhere or sessions >= SESSIONS_MAX:
                break
        return answer if answer is not None else self._unreached(work, unusable, relay, started_at)

    async def _try(
        self, work: Deliver, data: MessageData, address: Address, policy: Policy, login: Login | None
    ) -> _Session | Unusable:
        """Tries one address, over a connection kept under another next hop or a new one."""
        of_host = await self._policy_of_host(policy, address, work.next_hop)
        if isinstance(of_host, Unusable):
            return self._counted(work, policy, address, of_host)
        policy = of_host
        mask = NO_MASK
        if self._masks is not None:
            mask = self._masks.of(work.transport, work.next_hop, address.address)
        key = _key(work, policy, address, login, mask)
        connection = self._fit(self._cache.take_for_address(key), work)
        if connection is not None:
            begun_at = time.monotonic()
            outcome = await self._transact(connection, work, data)
            if outcome is not None:
                return _Session(connection, outcome, begun_at, policy)
        made = await self._connect(work, policy, address, login, mask)
        if isinstance(made, Unusable):
            return made
        if work.options and work.sender and requires_tls(work.options) and not _keeps_tls(made):
            made.quit()
            words = f"REQUIRETLS is required, but was not offered by host {made.name}"
            return Unusable(Status.DEFERRED, NOT_OFFERED, words, level=made.tls_level)
        made.prefers_chunks = work.transport in self._chunked and "chunking" in made.features
        begun_at = time.monotonic()
        outcome = await self._transact(made, work, data)
        assert outcome is not None  # only a kept connection is dead at its first command
        return _Session(made, outcome, begun_at, policy)

    async def _policy_of_host(self, policy: Policy, address: Address, next_hop: NextHop) -> Policy | Unusable:
        """Returns what the policy of a next hop demands of one of its hosts, or why the host may not be used."""
        if policy.level == "mta-sts":
            why = refusal(policy, address.host)
            if why:
                return Unusable(
                    Status.DEFERRED, "4.7.5", why, result=Result.VALIDATION_FAILURE, reason_code=MX_NOT_IN_POLICY,
                    level=str(policy),
                )  # fmt: skip
            return policy._replace(names=(address.host,))
        if policy.level in ("dane", "dane-only"):
            return await self._by_tlsa(policy, address, next_hop)
        if policy.why == REQUIRETLS and address.secure:  # DNSSEC says that this is a host of the domain
            found = await self._by_tlsa(Policy("dane-only", REQUIRETLS), address, next_hop)
            return found if isinstance(found, Policy) else policy._replace(names=(*policy.names, address.host))
        return policy

    async def reach(self, transport: str, level: str, next_hop: NextHop) -> tuple[Policy, str]:
        """Connects to a host of the next hop as mail would, under its policy, and ends the connection without a message.

        Returns the policy, and "" or why no host can be used. ``level`` is the transport's. There is no login; kept connections
        and counts of TLS are left alone.
        """
        policy = self._policies.of(transport, level, next_hop)
        if policy.level == "mta-sts" and self._sts is not None:
            policy = await self._sts.policy_for(policy, next_hop)
        addresses = await self._finder.find(next_hop, validated=_follows_dnssec(policy))
        if isinstance(addresses, Refused):
            return policy, addresses.reply
        why = "no host has an address"
        for address in addresses[: self._limits.addresses_max]:
            of_host = await self._policy_of_host(policy, address, next_hop)
            if isinstance(of_host, Unusable):
                why = of_host.text
                continue
            made = await self._opener.connect(of_host, address, next_hop.port, lmtp=transport in self._lmtp)
            if isinstance(made, Unusable):
                why = made.text
                continue
            made.quit()
            return policy, ""
        return policy, why

    async def _connect(
        self, work: Deliver, policy: Policy, address: Address, login: Login | None, mask: Mask
    ) -> Connection | Unusable:
        port, lmtp, shared = work.next_hop.port, work.transport in self._lmtp, work.shared
        if shared:
            self._cache.drop_one(shared)  # a delivery has one connection
        if self._counting is None or lmtp:
            return await self._opener.connect(policy, address, port, login, lmtp=lmtp, mask=mask, shared=shared)

        async def connect(policy: Policy) -> Connection | Unusable:
            return await self._opener.connect(policy, address, port, login, mask=mask, shared=shared)

        broken = self._opener.broken(address, port) is not None
        return await self._counting.connect(connect, work.sender, work.next_hop, policy, address, tls_is_broken=broken)

    def _counted(self, work: Deliver, policy: Policy, address: Address, reason: Unusable) -> Unusable:
        if self._counting is not None:
            self._counting.count(work.sender, work.next_hop, policy, address, reason)
        return reason

    async def _by_tlsa(self, policy: Policy, address: Address, next_hop: NextHop) -> Policy | Unusable:
        """Returns the policy that the TLSA records of a host make."""
        found = await policy_of_host(policy, address, next_hop, self._finder.tlsa)
        if isinstance(found, Policy):
            return found
        result = Result.DNSSEC_INVALID if found.failed else Result.DANE_REQUIRED
        return Unusable(Status.DEFERRED, "4.7.5", found.text, result=result, level=str(policy))

    async def _transact(self, connection: Connection, work: Deliver, data: MessageData) -> Outcome | None:
        if connection.limits is not None:
            work = connection.limits.part_of(work)
        if work.options and requires_tls(work.options):
            if not connection.tls_verified:
                words = f"TLS with a checked certificate is required, but there is none with host {connection.name}"
                verdicts = [Verdict(number, Status.BOUNCED, "5.7.10", words) for number, _ in work.recipients]
                return Outcome(verdicts, elsewhere=False)
            if not work.sender and not _keeps_tls(connection):  # RFC 8689 5: a bounce is not discarded for that
                work = msgspec.structs.replace(work, options=without_requirement(work.options))
        try:
            if not connection.takes_8bit:
                fitting = await self._conversion.fitting(work, data, connection)
                if isinstance(fitting, Misfit):
                    verdicts = [Verdict(number, Status.BOUNCED, *fitting) for number, _ in work.recipients]
                    return Outcome(verdicts, elsewhere=False)
                if fitting is not data:
                    work, data = msgspec.structs.replace(work, length=fitting.length), fitting
            return await transact(connection, work, data, self._limits)
        # The transaction was cancelled, its data cannot be read, or we have a bug: what the server expects next is not known.
        except BaseException:
            connection.abort()
            raise

    # Results

    def _delivered(
        self, work: Deliver, hop: HopKey, session: _Session, connect_s: float
    ) -> tuple[Delivered, DataError | None]:
        connection, outcome, begun_at, policy = session
        result = Delivered(
            work.entry,
            tuple(outcome.verdicts),
            connection.relay,
            connection.tls,
            site_failure=False,
            connect_s=connect_s,
            transmit_s=time.monotonic() - begun_at,
            source_address=connection.source_address,
            tls_verified=connection.tls_verified,
            tls_level=connection.tls_level,
        )
        connection.destination = work.shared
        if connection.failure is None and work.shared and not self.ends.may_rest(work.shared):
            connection.quit()
        elif connection.failure is None:
            address = Address(connection.host, connection.address)
            self._cache.put(connection, hop, _key(work, policy, address, hop[3], connection.discarded))
        return result, outcome.data_error

    def _unreached(
        self, work: Deliver, reasons: list[Unusable], relay: str, started_at: float
    ) -> tuple[Delivered, DataError | None]:
        """Makes the result when no host could be talked to; the reason is that of the last one."""
        reason = reasons[-1]
        if work.options and requires_tls(work.options):
            reason = returned(reasons) or reason
        deferred = reason.status is Status.DEFERRED
        result = Delivered(
            work.entry,
            tuple(Verdict(number, reason.status, reason.dsn, reason.text) for number, _ in work.recipients),
            relay,
            "",
            site_failure=deferred and all(one.cause is Cause.SITE for one in reasons),
            connect_s=time.monotonic() - started_at,
            transmit_s=0.0,
            transport_failure=deferred and any(one.cause is Cause.MACHINE for one in reasons),
            tls_level=reason.level,
        )
        return result, None


def _keeps_tls(connection: Connection) -> bool:
    """Returns whether the server offers REQUIRETLS."""
    return REQUIRETLS.lower() in connection.features


def _follows_dnssec(policy: Policy) -> bool:
    """Returns whether DNS decides what the policy demands of a host."""
    return policy.level in ("dane", "dane-only") or policy.why == REQUIRETLS


def _fit(connection: Connection | None, work: Deliver) -> Connection | None:
    """Returns a connection that is kept if the message may go over it; else it is closed."""
    if (
        connection is None
        or not (work.options and work.sender and requires_tls(work.options))
        or _keeps_tls(connection)
    ):
        return connection
    connection.quit()  # another host may offer it
    return None


def _is_hopeless(result: Delivered) -> bool:
    """Returns whether another transaction with the same next hop would now only end in the same way."""
    return all(verdict.status is Status.DEFERRED and verdict.dsn[:3] in ("4.3", "4.4") for verdict in result.verdicts)


def _same(rest: Deliver, verdict: Verdict) -> tuple[Verdict, ...]:
    return tuple([Verdict(number, verdict.status, verdict.dsn, verdict.reply) for number, _ in rest.recipients])


def _together(result: Delivered, more: Delivered) -> Delivered:
    """Returns the result of an entry that took another transaction. A site that was reached once has not failed."""
    return msgspec.structs.replace(
        result,
        verdicts=result.verdicts + more.verdicts,
        transmit_s=result.transmit_s + more.connect_s + more.transmit_s,
    )


def _key(work: Deliver, policy: Policy, address: Address, login: Login | None, mask: Mask) -> AddressKey:
    return work.transport, policy, address.host, address.address, work.next_hop.port, login, mask
