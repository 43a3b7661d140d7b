"""Lists in the DNS (DNSBL and DNSWL, RFC 5782): how many points the lists give to a client's address.

Laws
- A list that fails, is late, refuses our queries (127.255.255.x, 127.0.0.1) or answers outside of 127.0.0.0/8 counts as if the
  client were not on it; the log says so, with a limit.
- So does a list that has 127.0.0.1 on it, which no list may have (RFC 5782 5): one that was shut down answers to every name. It
  is asked for this with the first client, and again every ``max_ttl_s``.
- A list that was late LATE_MAX times in a row is not asked for ``late_rest_s``: one dead list would keep each new client
  waiting. Then one client tries it again.
- Look-ups begin when a client connects; nothing waits for them before a recipient is named, and then ``timeout_s`` for all.
- Answers are kept in bounded memory; one look-up serves all sessions of a client.

Keeps law: list-failure-is-not-listed (docs/laws.md).
"""

from __future__ import annotations

import asyncio
import functools
import ipaddress
import math
from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol

from mailcore.config.dnsbl import UNLISTED, Dnsbl, DnsList, why_not_listed
from mailcore.receiver.refusals import Allowance

__all__ = ["DnsLists", "ListLog", "Listing"]

# Returns the records of a name as text, how many seconds they hold, and whether the look-up failed.
Lookup = Callable[[str, str], Awaitable[tuple[list[str], float, bool]]]

TEXT_MAX = 200  # characters of a TXT record in the reply
NAMES_MAX = 3  # lists named in the reply
LATE_MAX = 3  # times in a row
LOGGED_S, LOGGED_BURST = 0.2, 20  # lines a second about lists that fail, after a burst


class Listing(NamedTuple):
    """Holds the answer of all lists. ``names`` are the lists of bad clients that the address is on, the heaviest first."""

    score: int = 0
    names: tuple[str, ...] = ()
    text: str = ""


NOT_LISTED = Listing()


class ListLog(Protocol):
    """Logs lists that do not work: ``MailLog``."""

    def dns_list_failed(self, domain: str, why: str) -> None:
        """Logs that a list counts as if the client were not on it."""


class DnsLists:
    """The lists of one receiver. ``clock`` is monotonic seconds."""

    def __init__(
        self,
        settings: Dnsbl,
        lookup: Lookup,
        log: ListLog,
        loop: asyncio.AbstractEventLoop,
        clock: Callable[[], float],
    ) -> None:
        self._settings = settings
        self._lookup = lookup
        self._log = log
        self._loop = loop
        self._clock = clock
        self._lists: dict[str, list[DnsList]] = {}  # by domain: one question for all its filters
        for each in settings.lists:
            self._lists.setdefault(each.domain, []).append(each)
        self._known: dict[str, tuple[float, Listing]] = {}  # until when, what
        self._asking: dict[str, asyncio.Task[Listing]] = {}
        self._testing: dict[str, asyncio.Task[None]] = {}  # by domain: whether it lists every client
        self._tested: dict[str, tuple[float, bool]] = {}  # until when that is known, and whether it does
        self._late: dict[str, int] = {}  # by domain: how often in a row it was late
        self._rests_until: dict[str, float] = {}  # by domain
        self._logged = Allowance(LOGGED_S, LOGGED_BURST, clock())

    def begin(self, address: str) -> None:
        """Begins to look a client up, unless it is known already."""
        known = self._known.get(address)
        if (known is not None and known[0] > self._clock()) or address in self._asking:
            return
        try:
            parsed = ipaddress.ip_address(address)
        except ValueError:
            return
        if len(self._asking) >= self._settings.lookups_max:
            self._failed("all lists", f"lookups_max clients are being looked up; [{address}] is not")
            return
        task = self._asking[address] = self._loop.create_task(self._ask(address, parsed))
        task.add_done_callback(functools.partial(self._asked, address))

    async def listing(self, address: str) -> Listing:
        """Returns what the lists say of a client; waits for answers that are under way."""
        self.begin(address)
        task = self._asking.get(address)
        if task is not None:
            await asyncio.wait([task])  # which ends after timeout_s
        known = self._known.get(address)
        return NOT_LISTED if known is None else known[1]

    async def _ask(self, given: str, address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> Listing:
        settings, until = self._settings, self._loop.time() + self._settings.timeout_s
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        name = address.reverse_pointer.rpartition(".")[0].rpartition(".")[0]  # without in-addr.arpa, ip6.arpa
        domains = [domain for domain in self._lists if not self._rests(domain)]
        tasks = {domain: self._loop.create_task(self._lookup_in(f"{name}.{domain}", domain)) for domain in domains}
        tests = [test for domain in domains if (test := self._test_due(domain)) is not None]
        if tasks:
            await asyncio.wait([*tasks.values(), *tests], timeout=settings.timeout_s)
        score, ttl_s = 0, float(settings.max_ttl_s if len(domains) == len(self._lists) else settings.min_ttl_s)
        listed: list[tuple[int, str]] = []
        for domain, task in tasks.items():
            if not task.done():
                task.cancel()
                self._was_late(domain)
                ttl_s = settings.min_ttl_s
                continue
            self._late.pop(domain, None)
            self._rests_until.pop(domain, None)
            answers, of_answers_s = task.result()
            ttl_s = min(ttl_s, of_answers_s)
            if self._tested.get(domain, (0.0, False))[1]:
                continue
            weight = sum(each.weight for each in self._lists[domain] if _fits(each, answers))
            score += weight
            if weight > 0:
                listed.append((weight, domain))
        names = tuple(domain for _, domain in sorted(listed, key=lambda each: -each[0])[:NAMES_MAX])
        text = ""
        if settings.has_texts and names and score >= settings.threshold:
            text = await self._text(f"{name}.{names[0]}", until)
        found = Listing(score, names, text)
        while len(self._known) >= settings.clients_max:
            del self._known[next(iter(self._known))]  # the one remembered first
        self._known.pop(given, None)
        self._known[given] = self._clock() + max(settings.min_ttl_s, ttl_s), found
        return found

    def _rests(self, domain: str) -> bool:
        """Returns whether a list is not asked now. At the end of its rest, the client that asks is the only one."""
        until = self._rests_until.get(domain)
        if until is None:
            return False
        if until > self._clock():
            return True
        self._rests_until[domain] = self._clock() + self._settings.timeout_s
        return False

    def _was_late(self, domain: str) -> None:
        late = self._late[domain] = self._late.get(domain, 0) + 1
        rest_s = self._settings.late_rest_s
        if late < LATE_MAX or not rest_s:
            self._failed(domain, "does not answer in time")
            return
        self._rests_until[domain] = self._clock() + rest_s
        self._failed(domain, f"does not answer in time and is not asked for {rest_s} s")

    async def _lookup_in(self, name: str, domain: str) -> tuple[list[ipaddress.IPv4Address], float]:
        """Returns the answers of a list that count, and how many seconds they hold."""
        records, ttl_s, failed = await self._lookup(name, "A")
        if failed:
            self._failed(domain, "cannot be asked")
        answers = []
        for record in records:
            answer = ipaddress.IPv4Address(record)
            if why := why_not_listed(answer):
                self._failed(domain, why)
            else:
                answers.append(answer)
        return answers, ttl_s

    def _test_due(self, domain: str) -> asyncio.Task[None] | None:
        """Begins to test a list, if it is time; returns the test that is under way."""
        test = self._testing.get(domain)
        if test is None and self._tested.get(domain, (-math.inf, False))[0] <= self._clock():
            test = self._testing[domain] = self._loop.create_task(self._test(domain))
            test.add_done_callback(functools.partial(self._test_ended, domain))
        return test

    async def _test(self, domain: str) -> None:
        """Finds out whether a list lists every client."""
        settings = self._settings
        records, _, failed = await self._lookup(f"{UNLISTED}.{domain}", "A")
        answers = [each for each in map(ipaddress.IPv4Address, records) if not why_not_listed(each)]
        if answers:
            self._failed(domain, f"lists every client: it answered {answers[0]} for 127.0.0.1")
        self._tested[domain] = self._clock() + (settings.min_ttl_s if failed else settings.max_ttl_s), bool(answers)

    def _test_ended(self, domain: str, task: asyncio.Task[None]) -> None:
        del self._testing[domain]
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failed(domain, f"an error of ours: {error!r}")

    async def _text(self, name: str, until: float) -> str:
        try:
            async with asyncio.timeout_at(until):
                texts, _, _ = await self._lookup(name, "TXT")
        except TimeoutError:
            return ""
        text = texts[0].strip('"') if texts else ""
        return "".join(each if " " <= each <= "~" else "?" for each in text)[:TEXT_MAX]

    def _asked(self, address: str, task: asyncio.Task[Listing]) -> None:
        del self._asking[address]
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failed("all lists", f"an error of ours: {error!r}")

    def _failed(self, domain: str, why: str) -> None:
        if self._logged.taken(self._clock()):
            self._log.dns_list_failed(domain, why)

    def close(self) -> None:
        """Ends the look-ups, for tests."""
        for task in [*self._asking.values(), *self._testing.values()]:
            task.cancel()


def _fits(each: DnsList, answers: list[ipaddress.IPv4Address]) -> bool:
    """Returns whether one of the answers fits the filter of a list."""
    if not each.octets:
        return bool(answers)
    return any(
        all(octet in allowed for octet, allowed in zip(answer.packed, each.octets, strict=True)) for answer in answers
    )
