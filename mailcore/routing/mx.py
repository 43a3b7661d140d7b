"""The hosts of a next hop: MX, A and AAAA look-ups, in the order in which the addresses are to be tried.

RFC 5321 5.1: MX hosts by preference, hosts of one preference and addresses of one host at random; without an MX record
the domain itself is the host; a null MX (RFC 7505) takes no mail. Addresses of a host alternate between the families, so
that a broken IPv6 never uses up all tries. A host that is us, and all that are less preferred, are left out (RFC 5321
5.1).

A next hop in brackets is an address, or a name looked up in /etc/hosts first and in DNS then; ``localhost`` is always
loopback (RFC 6761 6.3). MX hosts are looked up in DNS only, as Postfix's smtp_host_lookup does.

Laws: a failure is a ``Refused``, never an exception; memory is bounded; one look-up at a time per next hop serves all that
wait for it; answers are kept for their TTL, bounded; randomness and clock are arguments.

Keeps law: unroutable-is-a-value (docs/laws.md).
"""

from __future__ import annotations

import asyncio
import enum
import ipaddress
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import dns.asyncresolver
import dns.exception
import dns.flags
import dns.message
import dns.name
import dns.rdatatype
import dns.resolver

from mailcore.envelope import Status
from mailcore.exhaustion import is_exhausted
from mailcore.frames import NextHop
from mailcore.routing.hosts_file import in_hosts_file
from mailcore.routing.own_addresses import OwnAddresses
from mailcore.routing.resolve import Refused
from mailcore.routing.resolvers import Resolvers
from mailcore.routing.tlsa import TlsaAnswer, TlsaFinder, is_validated

__all__ = ["HOST_NOT_FOUND", "Address", "Host", "HostFinder"]

LIFETIME_S = 15.0  # of one look-up with all its retries; resolv.conf(5): 5 s, 2 attempts, and some for a second server
TTL_S_MAX = 3600.0  # a changed MX takes effect after an hour at most, for any TTL
TTL_S_MIN = 1.0  # TTL 0 serves those who ask at the same time
NEGATIVE_TTL_S = 60.0  # of "there is no such name"; RFC 2308 allows up to the SOA's, often hours
FAILURE_TTL_S = 5.0  # RFC 2308 7.1: failures may be remembered, 5 minutes at most
ENTRIES_MAX = 10_000  # next hops remembered, about 1 kB each
HOST_NOT_FOUND = "5.4.4"  # RFC 3463 3.5
MX_HOSTS_MAX = 100  # of one domain; a bound against a hostile zone
CNAMES_MAX = 8  # followed here if the server returned only the first; BIND follows 16


_Resolver = dns.asyncresolver.Resolver | None  # None: there is no name server


class Address(NamedTuple):
    """One address to connect to, with the host's name (the address itself for a literal).

    ``secure``: every DNS answer on the way from the next hop to it was validated, by a name server on this host.
    """

    host: str
    address: str
    secure: bool = False
    canonical: str = ""  # the name at the end of the host's CNAMEs; "" without any


class Host(NamedTuple):
    """A host of a next hop, for display; ``preference`` is None when it is not an MX host."""

    preference: int | None
    name: str
    addresses: tuple[str, ...]


class _Missing(enum.Enum):
    """Why an answer has no records. The values are Postfix's texts."""

    NO = ""  # it has
    NAME = "Host not found"  # NXDOMAIN
    DATA = "Host found but no data record of requested type"  # Postfix's words
    RETRY = "Host not found, try again"  # SERVFAIL, time-out
    OURS = "this host lacks what it needs to ask"  # no descriptors, no memory, no name server


class _Answer(NamedTuple):
    records: Sequence[Any]
    ttl_s: float
    missing: _Missing
    secure: bool = False  # as Address.secure
    canonical: str = ""


class _Found(NamedTuple):
    """``groups``: preference after preference, host by host, its addresses. ``preferences`` are theirs, or none."""

    groups: tuple[tuple[tuple[Address, ...], ...], ...]
    preferences: tuple[int, ...] = ()


class _Wanted(NamedTuple):
    """A question to DNS; ``validated`` as ``HostFinder.find``'s."""

    next_hop: NextHop
    validated: bool = False


class HostFinder:
    """Finds and remembers the addresses of next hops.

    ``own_name`` is our host name, and ``own_addresses`` those of our receivers, to detect loops; "" and None disable this.
    """

    def __init__(
        self,
        nameservers: Sequence[str],
        *,
        addresses_max: int,
        own_name: str,
        chance: random.Random,
        clock: Callable[[], float],
        hosts_file: Path = Path("/etc/hosts"),
        resolv_conf: Path = Path("/etc/resolv.conf"),
        own_addresses: OwnAddresses | None = None,
    ) -> None:
        self._addresses_max = addresses_max
        self._own_name = own_name.lower().removesuffix(".")
        self._own_addresses = own_addresses
        self._chance = chance
        self._clock = clock
        self._hosts_file = hosts_file
        self._resolvers = Resolvers(nameservers, clock, resolv_conf)
        # Until when, what, and whether we are one of the MX hosts.
        self._known: dict[_Wanted, tuple[float, _Found | Refused, bool]] = {}
        self._asking: dict[_Wanted, asyncio.Task[_Found | Refused]] = {}
        self._tlsa = TlsaFinder(self._ask_tlsa, clock)

    async def find(self, next_hop: NextHop, *, validated: bool = False) -> tuple[Address, ...] | Refused:
        """Returns at least one and at most ``addresses_max`` addresses, best first; or why there are none.

        ``validated``: if name servers are on this host, only they are asked, so that an answer which they find bogus is not
        replaced by that of another server.
        """
        found = await self._find(_Wanted(next_hop, validated))
        return found if isinstance(found, Refused) else self._order(found)

    def is_ours(self, address: str, port: int) -> bool:
        """Returns whether a connection to this address and port would come to a receiver of ours."""
        return self._own_addresses is not None and self._own_addresses.hold(address, port)

    def is_served_by_us(self, next_hop: NextHop) -> bool:
        """Returns whether we are one of the MX hosts of a domain, by the answer of its last look-up."""
        known = [self._known.get(_Wanted(next_hop, validated)) for validated in (False, True)]
        return any(each[2] for each in known if each is not None)

    async def tlsa(self, host: str, port: int) -> TlsaAnswer:
        """Returns the TLSA records of a host and port."""
        return await self._tlsa.find(host, port)

    async def _ask_tlsa(self, name: str) -> tuple[list[Any], float, bool, bool]:
        answer = await self._query(name, "TLSA", self._resolvers.local())  # another host's denial would lower the level
        failed = answer.missing in (_Missing.RETRY, _Missing.OURS)
        return list(answer.records), answer.ttl_s, failed, answer.secure

    async def why_not_validated(self) -> str:
        """Returns why no answer counts as validated, so that no host has DANE; "" if answers do, or nothing answers."""
        resolver = self._resolvers.local()
        if resolver is None:
            return "none of the name servers is on this host"
        answer = await self._query(".", "SOA", resolver)
        if answer.missing is not _Missing.NO or answer.secure:
            return ""
        return "the name server on this host does not validate: its answer about the root zone has no AD bit"

    async def texts(self, name: str) -> tuple[list[str], float, bool]:
        """Returns the TXT records of a name, how many seconds they hold, and whether the look-up failed."""
        answer = await self._query(name, "TXT", self._resolvers.all())
        failed = answer.missing in (_Missing.RETRY, _Missing.OURS)
        found = [b"".join(record.strings).decode("utf-8", "replace") for record in answer.records]
        return found, answer.ttl_s, failed

    async def lookup(self, name: str, kind: str) -> tuple[list[str], float, bool]:
        """Returns the records of a name as text, how many seconds they hold, and whether the look-up failed."""
        answer = await self._query(name, kind, self._resolvers.all())
        failed = answer.missing in (_Missing.RETRY, _Missing.OURS)
        return [record.to_text() for record in answer.records], answer.ttl_s, failed

    async def hosts(self, next_hop: NextHop) -> tuple[Host, ...] | Refused:
        """Returns what ``find`` chooses from, best preference first; or why there are none."""
        found = await self._find(_Wanted(next_hop))
        if isinstance(found, Refused):
            return found
        preferences = found.preferences or [None] * len(found.groups)
        return tuple(
            Host(preference, host[0].host, tuple(sorted(each.address for each in host)))
            for preference, group in zip(preferences, found.groups, strict=True)
            for host in group
        )

    async def _find(self, wanted: _Wanted) -> _Found | Refused:
        known = self._known.get(wanted)
        if known is not None and known[0] > self._clock():
            found = known[1]
        else:
            task = self._asking.get(wanted)
            if task is None:
                task = self._asking[wanted] = asyncio.create_task(self._ask(wanted))
            found = await asyncio.shield(task)  # one waiting task may be cancelled; the others still need the answer
        return found

    def _order(self, found: _Found) -> tuple[Address, ...]:
        if len(found.groups) == 1 and len(found.groups[0]) == 1 and len(found.groups[0][0]) == 1:
            return found.groups[0][0]
        addresses: list[Address] = []
        for group in found.groups:
            for host in self._shuffled(group):
                addresses += self._interleaved(host)
        return tuple(addresses[: self._addresses_max])

    def _shuffled(self, things: Sequence[Any]) -> list[Any]:
        shuffled = list(things)
        self._chance.shuffle(shuffled)
        return shuffled

    def _interleaved(self, addresses: Sequence[Address]) -> list[Address]:
        """Shuffles addresses such that the address families take turns."""
        queues = [
            [address for address in self._shuffled(addresses) if (":" in address.address) is six]
            for six in (False, True)
        ]
        self._chance.shuffle(queues)
        queues.sort(key=len, reverse=True)
        ordered: list[Address] = []
        while any(queues):
            ordered += [queue.pop() for queue in queues if queue]
        return ordered

    async def _ask(self, wanted: _Wanted) -> _Found | Refused:
        next_hop = wanted.next_hop
        resolver = (self._resolvers.local() if wanted.validated else None) or self._resolvers.all()
        try:
            ask = self._by_mx if next_hop.mx else self._by_name
            found, ttl_s, is_ours = await ask(next_hop.host, resolver)
            if next_hop.mx and self._own_addresses is not None:
                others = self._without_loops(found, next_hop, self._own_addresses)
                found, is_ours = others, is_ours or others is not found
            while len(self._known) >= ENTRIES_MAX:
                del self._known[next(iter(self._known))]  # the one remembered first
            self._known.pop(wanted, None)
            self._known[wanted] = (self._clock() + ttl_s, found, is_ours)
            return found
        finally:
            del self._asking[wanted]

    def _without_loops(self, found: _Found | Refused, next_hop: NextHop, own: OwnAddresses) -> _Found | Refused:
        """Leaves out the hosts that are us, and those of the same or a worse preference (RFC 5321 5.1)."""
        if isinstance(found, Refused):
            return found
        for rank, group in enumerate(found.groups):
            if any(own.hold(address.address, next_hop.port) for host in group for address in host):
                return _Found(found.groups[:rank], found.preferences[:rank]) if rank else _loop(next_hop.host)
        return found

    # One host, taken as it is

    async def _by_name(self, host: str, resolver: _Resolver) -> tuple[_Found | Refused, float, bool]:
        if host.startswith("/"):  # a Unix socket: the host is ours, as in Postfix's log
            return _Found((((Address(self._own_name or "localhost", host),),),)), TTL_S_MAX, False
        try:
            literal = ipaddress.ip_address(host).compressed
        except ValueError:
            pass
        else:
            return _Found((((Address(literal, literal),),),)), TTL_S_MAX, False
        fixed = in_hosts_file(self._hosts_file, host)[: self._addresses_max]
        if fixed:
            return _Found(((tuple(Address(host, address) for address in fixed),),)), NEGATIVE_TTL_S, False
        addresses, ttl_s, missing = await self._addresses(host, resolver)
        if addresses:
            return _Found(((addresses,),)), ttl_s, False
        return *_no_host(host, "A", missing), False

    # A domain, by MX

    async def _by_mx(self, domain: str, resolver: _Resolver) -> tuple[_Found | Refused, float, bool]:
        """Returns also whether we are one of the MX hosts, by our name."""
        answer = await self._query(domain, "MX", resolver)
        if answer.missing is _Missing.DATA:  # RFC 5321 5.1: the implicit MX
            addresses, ttl_s, missing = await self._addresses(domain, resolver)
            if addresses:
                return _Found(((_on_the_way(addresses, answer),),)), min(ttl_s, answer.ttl_s), False
            return *_no_host(domain, "A", missing), False
        if answer.missing is not _Missing.NO:
            return *_no_host(domain, "MX", answer.missing), False
        hosts = [(record.preference, record.exchange.to_text(omit_final_dot=True).lower()) for record in answer.records]
        if all(host in (".", "") for _, host in hosts):
            words = f"Domain {domain} does not accept mail (nullMX)"
            return Refused(Status.BOUNCED, "5.1.10", words), max(answer.ttl_s, NEGATIVE_TTL_S), False
        hosts = [(preference, host) for preference, host in hosts if host not in (".", "")]
        ours = [preference for preference, host in hosts if host == self._own_name]
        if ours:
            hosts = [(preference, host) for preference, host in hosts if preference < min(ours)]
            if not hosts:
                return _loop(domain), answer.ttl_s, True
        found, ttl_s = await self._addresses_of_all(domain, self._ranked(hosts)[:MX_HOSTS_MAX], answer, resolver)
        return found, ttl_s, bool(ours)

    def _ranked(self, hosts: list[tuple[int, str]]) -> list[tuple[int, str]]:
        return sorted(self._shuffled(hosts), key=lambda host: host[0])

    async def _addresses_of_all(
        self, domain: str, hosts: list[tuple[int, str]], mx: _Answer, resolver: _Resolver
    ) -> tuple[_Found | Refused, float]:
        """Addresses of hosts in this order, until there are enough."""
        ttl_s = mx.ttl_s
        groups: dict[int, list[tuple[Address, ...]]] = {}
        count = start = 0
        worst: tuple[str, _Missing] | None = None
        while start < len(hosts) and count < self._addresses_max:
            batch = hosts[start : start + self._addresses_max - count]
            start += len(batch)
            answers = await asyncio.gather(*(self._addresses(host, resolver) for _, host in batch))
            for (preference, host), (addresses, addresses_ttl_s, missing) in zip(batch, answers, strict=True):
                ttl_s = min(ttl_s, addresses_ttl_s)
                if addresses:
                    groups.setdefault(preference, []).append(_on_the_way(addresses, mx))
                    count += len(addresses)
                elif worst is None or missing in (_Missing.RETRY, _Missing.OURS):
                    worst = host, missing
        if groups:
            by_preference = sorted(groups.items())
            return _Found(tuple(tuple(group) for _, group in by_preference), tuple(p for p, _ in by_preference)), ttl_s
        assert worst is not None  # there was at least one host, and no address
        return _no_host(worst[0], "A", worst[1])

    async def _addresses(self, host: str, resolver: _Resolver) -> tuple[tuple[Address, ...], float, _Missing]:
        answers = await asyncio.gather(self._query(host, "A", resolver), self._query(host, "AAAA", resolver))
        found = [answer for answer in answers if answer.missing is _Missing.NO]
        if not found:
            kinds = {answer.missing for answer in answers}
            for missing in (_Missing.OURS, _Missing.RETRY, _Missing.DATA, _Missing.NAME):
                if missing in kinds:
                    return (), min(answer.ttl_s for answer in answers), missing
        secure = all(answer.secure for answer in found)
        canonical = found[0].canonical
        addresses = self._interleaved(
            [Address(host, record.address, secure, canonical) for answer in found for record in answer.records]
        )
        return tuple(addresses[: self._addresses_max]), min(answer.ttl_s for answer in answers), _Missing.NO

    # DNS

    async def _query(self, name: str, kind: str, resolver: _Resolver) -> _Answer:
        """Asks one question, and follows CNAMEs."""
        if resolver is None:
            return _Answer((), FAILURE_TTL_S, _Missing.OURS)
        try:
            question = dns.name.from_text(name)
        except (dns.exception.DNSException, UnicodeError):
            return _Answer((), NEGATIVE_TTL_S, _Missing.NAME)
        ttl_s = TTL_S_MAX
        secure = True
        for _ in range(CNAMES_MAX):
            try:
                answer = await resolver.resolve(
                    question, kind, raise_on_no_answer=False, lifetime=LIFETIME_S, search=False
                )
            except dns.resolver.NXDOMAIN as denial:
                # dnspython does not say which server it was: a denial counts only if all that may be asked are here.
                secure = secure and resolver is self._resolvers.local() and _has_ad(denial)
                return _Answer((), NEGATIVE_TTL_S, _Missing.NAME, secure)
            except (dns.exception.DNSException, OSError) as error:
                return _Answer((), FAILURE_TTL_S, _Missing.OURS if _is_ours(error) else _Missing.RETRY)
            secure = secure and is_validated(answer)
            if answer.rrset is not None:
                ttl_s = max(TTL_S_MIN, min(ttl_s, answer.chaining_result.minimum_ttl))
                end = answer.canonical_name.to_text(omit_final_dot=True).lower()
                canonical = end if end != name.lower().removesuffix(".") else ""
                return _Answer(list(answer.rrset), ttl_s, _Missing.NO, secure, canonical)
            if answer.canonical_name == question:
                return _Answer((), NEGATIVE_TTL_S, _Missing.DATA, secure)
            question = answer.canonical_name  # the server left the rest of the chain to us
        return _Answer((), FAILURE_TTL_S, _Missing.RETRY)


def _has_ad(denial: dns.resolver.NXDOMAIN) -> bool:
    return all(response.flags & dns.flags.AD for response in denial.kwargs["responses"].values())


def _loop(domain: str) -> Refused:
    return Refused(Status.BOUNCED, "5.4.6", f"mail for {domain} loops back to myself")


def _on_the_way(addresses: tuple[Address, ...], mx: _Answer) -> tuple[Address, ...]:
    """Returns addresses that an MX record led to, which is as secure as the weaker of the two."""
    return addresses if mx.secure else tuple([address._replace(secure=False) for address in addresses])


def _no_host(name: str, kind: str, missing: _Missing) -> tuple[Refused, float]:
    """Returns a refusal with Postfix's text and codes: 4.4.3 if the host may be found later, otherwise 5.4.4."""
    words = f"Host or domain name not found. Name service error for name={name} type={kind}: {missing.value}"
    if missing is _Missing.OURS:
        return Refused(Status.DEFERRED, "4.3.0", words, ours=True), FAILURE_TTL_S
    if missing is _Missing.RETRY:
        return Refused(Status.DEFERRED, "4.4.3", words), FAILURE_TTL_S
    return Refused(Status.BOUNCED, HOST_NOT_FOUND, words), NEGATIVE_TTL_S


def _is_ours(error: Exception) -> bool:
    """Returns whether not even one name server could be asked: dnspython keeps the error of each."""
    met = getattr(error, "kwargs", {}).get("errors") or ()
    return is_exhausted(error) or (bool(met) and all(is_exhausted(one[3]) for one in met))
