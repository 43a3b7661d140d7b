"""SPF (RFC 7208): whether a client may send mail for a domain.

Laws
- The number of look-ups is bounded by the RFC: 10 terms that ask, 2 answers without records, 10 hosts of one term. A loop of
  records ends there.
- The text that a domain has for refused clients (exp=) is not fetched: it is the sender's text in our reply.

No maintained library is asynchronous (decision 0043); the RFC's own test suite is run in tests/authenticity/test_spf.py.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import NamedTuple

from mailcore.authenticity.answers import Answer, Answers, is_askable
from mailcore.authenticity.spf_record import BadRecord, Record, Term, expanded, is_record, parse_record, wants_name

__all__ = ["SpfResult", "check_host", "no_spf"]

TERMS_MAX = 10  # section 4.6.4
VOID_MAX = 2
HOSTS_MAX = 10
NAMES_MAX = 10

_IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


class SpfResult(NamedTuple):
    """``result`` as in RFC 8601 2.7.2, for the identity ``domain``. ``reason``: of an error, in our words."""

    result: str
    domain: str
    reason: str = ""


class _Ends(Exception):
    """An error that ends the evaluation: temperror or permerror."""

    def __init__(self, result: str, reason: str) -> None:
        super().__init__(reason)
        self.result = result
        self.reason = reason


def no_spf(domain: str) -> SpfResult:
    """Returns the result for an identity that is not there."""
    return SpfResult("none", domain)


async def check_host(answers: Answers, address: str, domain: str, sender: str, helo: str) -> SpfResult:
    """Evaluates the record of ``domain`` for a client; ``sender`` is the whole address, or "" for the HELO identity."""
    try:
        client = ipaddress.ip_address(address)
    except ValueError:
        return no_spf(domain)
    if isinstance(client, ipaddress.IPv6Address) and client.ipv4_mapped is not None:
        client = client.ipv4_mapped
    local_part = sender.rpartition("@")[0] or "postmaster"
    check = _Check(answers, client, f"{local_part}@{domain}", local_part, domain, helo)
    try:
        return SpfResult(await check.result(domain), domain)
    except _Ends as end:
        return SpfResult(end.result, domain, end.reason)


class _Check:
    """One evaluation, with what it has used of its limits."""

    def __init__(
        self, answers: Answers, client: _IpAddress, sender: str, local_part: str, sender_domain: str, helo: str
    ) -> None:
        self._answers = answers
        self._client = client
        self._terms = 0
        self._void = 0
        self._names: list[str] | None = None
        nibbles = client.exploded.replace(":", "") if client.version == 6 else ""
        self._values: Mapping[str, str] = {
            "s": sender,
            "l": local_part,
            "o": sender_domain,
            "i": ".".join(nibbles) if nibbles else str(client),
            "v": "ip6" if nibbles else "in-addr",
            "h": helo,
        }

    async def result(self, domain: str) -> str:
        """Returns the result for a domain. Raises _Ends."""
        domain = domain.removesuffix(".")
        if not domain.isascii() or not is_askable(domain) or "." not in domain:
            return "none"
        found = await self._answers.find(domain, "TXT")
        if found.failed:
            raise _Ends("temperror", "the SPF record could not be looked up")
        records = [text for text in found.records if is_record(text)]
        if len(records) > 1:
            raise _Ends("permerror", "the domain has several SPF records")
        if not records:
            return "none"
        try:
            record = parse_record(records[0])
        except BadRecord:
            raise _Ends("permerror", "the SPF record has an error") from None
        return await self._evaluate(record, domain)

    async def _evaluate(self, record: Record, domain: str) -> str:
        for term in record.terms:
            if await self._matches(term, domain):
                return term.result
        if record.redirect:
            self._count()
            result = await self.result(await self._expand(record.redirect, domain))
            if result == "none":
                raise _Ends("permerror", "a redirect of the SPF record leads nowhere")
            return result
        return "neutral"

    async def _matches(self, term: Term, domain: str) -> bool:
        kind = term.kind
        if kind == "all":
            return True
        if term.network is not None:
            return self._client in term.network
        self._count()
        name = await self._expand(term.domain, domain) if term.domain else domain
        if kind == "include":
            result = await self.result(name)
            if result == "none":
                raise _Ends("permerror", "an include of the SPF record leads nowhere")
            return result == "pass"
        if kind == "exists":
            return bool((await self._ask(name, "A")).records)
        if kind == "a":
            return await self._is_at(name, term)
        if kind == "mx":
            return await self._is_mail_host(name, term)
        wanted = name.lower().removesuffix(".")
        return any(each == wanted or each.endswith("." + wanted) for each in await self._client_names())

    async def _is_at(self, name: str, term: Term, *, counted: bool = True) -> bool:
        kind, bits = ("A", term.bits4) if self._client.version == 4 else ("AAAA", term.bits6)
        found = await self._ask(name, kind, counted=counted)
        return any(_is_within(self._client, each, bits) for each in found.records)

    async def _is_mail_host(self, name: str, term: Term) -> bool:
        hosts = [each.split()[-1] for each in (await self._ask(name, "MX")).records]
        if len(hosts) > HOSTS_MAX:
            raise _Ends("permerror", "a term of the SPF record has too many hosts")
        for host in hosts:
            if await self._is_at(host, term, counted=False):
                return True
        return False

    async def _client_names(self) -> list[str]:
        """Returns the names of the client that lead back to it; a look-up that fails finds none (section 5.5)."""
        if self._names is None:
            self._names = []
            kind = "A" if self._client.version == 4 else "AAAA"
            pointers = await self._answers.find(self._client.reverse_pointer, "PTR")
            if not pointers.records and not pointers.failed:
                self._count_void()
            for pointer in pointers.records[:NAMES_MAX]:
                found = await self._answers.find(pointer, kind)
                if any(_is_within(self._client, each, self._client.max_prefixlen) for each in found.records):
                    self._names.append(pointer.lower().removesuffix("."))
        return self._names

    async def _expand(self, text: str, domain: str) -> str:
        values = {**self._values, "d": domain}
        if wants_name(text):
            names = await self._client_names()
            exact = [each for each in names if each == domain.lower()]
            below = [each for each in names if each.endswith("." + domain.lower())]
            values["p"] = (exact or below or names or ["unknown"])[0]
        return expanded(text, values)

    async def _ask(self, name: str, kind: str, *, counted: bool = True) -> Answer:
        found = await self._answers.find(name, kind)
        if found.failed:
            raise _Ends("temperror", "a name in the SPF record could not be looked up")
        if not found.records and counted:
            self._count_void()
        return found

    def _count(self) -> None:
        self._terms += 1
        if self._terms > TERMS_MAX:
            raise _Ends("permerror", "the SPF record needs too many look-ups")

    def _count_void(self) -> None:
        self._void += 1
        if self._void > VOID_MAX:
            raise _Ends("permerror", "the SPF record names too many hosts that do not exist")


def _is_within(client: _IpAddress, text: str, bits: int) -> bool:
    try:
        return client in ipaddress.ip_network((text, bits), strict=False)
    except ValueError:
        return False
