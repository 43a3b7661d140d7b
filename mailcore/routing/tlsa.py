"""TLSA records of a host and port (RFC 6698), remembered for their TTL in bounded memory.

The name server must be a validating one on this host; whether an answer was validated is said with it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import dns.flags
import dns.resolver

from mailcore.routing.nameserver import is_local

__all__ = ["Tlsa", "TlsaAnswer", "TlsaFinder", "is_validated"]

ENTRIES_MAX = 10_000  # hosts remembered
RECORDS_MAX = 100  # of one host; a bound against a hostile zone


class Tlsa(NamedTuple):
    """One TLSA record, RFC 6698 2.1."""

    usage: int
    selector: int
    matching: int
    data: bytes

    def __str__(self) -> str:
        """Returns the three numbers, as "3 1 1"."""
        return f"{self.usage} {self.selector} {self.matching}"


class TlsaAnswer(NamedTuple):
    """The records of a name. ``failed``: they could not be looked up, the answer was bogus (SERVFAIL), or no name server on
    this host gave it."""

    records: tuple[Tlsa, ...]
    secure: bool
    failed: bool = False


class TlsaFinder:
    """Finds TLSA records. ``ask`` returns those of a name, how long they hold, whether it failed, and was validated."""

    def __init__(
        self, ask: Callable[[str], Awaitable[tuple[list[Any], float, bool, bool]]], clock: Callable[[], float]
    ) -> None:
        self._ask = ask
        self._clock = clock
        self._known: dict[str, tuple[float, TlsaAnswer]] = {}  # until when, what

    async def find(self, host: str, port: int) -> TlsaAnswer:
        """Returns the records of a host and port. Never raises for what a name server does."""
        name = f"_{port}._tcp.{host}"
        known = self._known.get(name)
        if known is not None and known[0] > self._clock():
            return known[1]
        found, ttl_s, failed, secure = await self._ask(name)
        records = tuple(Tlsa(each.usage, each.selector, each.mtype, each.cert) for each in found[:RECORDS_MAX])
        answer = TlsaAnswer(records, secure, failed)
        while len(self._known) >= ENTRIES_MAX:
            del self._known[next(iter(self._known))]  # the one remembered first
        self._known[name] = self._clock() + ttl_s, answer
        return answer


def is_validated(answer: dns.resolver.Answer) -> bool:
    """Returns whether the answer has the AD bit, and it comes from a name server on this host.

    On any other way the bit is worth nothing: who can change packets can set it (RFC 7672 2.1, RFC 4035 4.9.3).
    """
    local = is_local(answer.nameserver or "")
    return local and bool(answer.response.flags & dns.flags.AD)
