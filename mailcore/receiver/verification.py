"""Recipients known by asking the next hop, as Postfix's reject_unverified_recipient, with a memory that all receivers share.

Laws
- One probe at a time for an address; probes are bounded in all, and by client network. Beyond that the client gets 450.
- An answer belongs to recipient and destination: after a change of the route it is asked for again.
- A next hop that cannot be asked is never remembered as a refusal: what was known stays until it expires, else it is 450.
- A session waits for a probe for a bounded time; the probe continues, and the client's next try finds its answer.

Keeps law: only-rcpt-decides, law: probes-bounded (docs/laws.md).
"""

from __future__ import annotations

import asyncio
import functools
import sqlite3
from collections.abc import Callable
from typing import NamedTuple, Protocol

from mailcore.config.recipients import Recipients
from mailcore.envelope import Status
from mailcore.frames import NextHop
from mailcore.receiver.client_rates import network_of
from mailcore.receiver.probe import Answer, Outcome, Prober, Question
from mailcore.receiver.recipient_store import TRIM_EVERY, RecipientStore, trim
from mailcore.receiver.refusals import Allowance
from mailcore.routing.address import comparable
from mailcore.routing.mx import HostFinder
from mailcore.routing.resolve import Refused, Resolved, Routing
from mailcore.tls.policy import Policy

__all__ = ["ProbeLog", "Verification"]

DOWN_S = 10.0  # how long a next hop that no probe could connect to is left alone
DESTINATIONS_MAX = 1_000  # such next hops remembered
CLIENTS_MAX = 4_096  # client networks whose probes are counted
IPV4_PREFIX, IPV6_PREFIX = 24, 64  # of these networks
MINUTE_S = 60.0
LOGGED_S, LOGGED_BURST = 1.0, 50  # lines a second about probes that decide nothing, after a burst


class ProbeLog(Protocol):
    """Logs what probes find: ``MailLog``."""

    def recipient_verified(self, recipient: str, destination: str, outcome: str, text: str) -> None:
        """Logs the outcome of a probe."""

    def probes_exceeded(self, client_address: str, why: str) -> None:
        """Logs that a recipient is not asked for, because there are too many probes."""


class _Known(NamedTuple):
    valid: bool
    age_s: float
    text: str


class Verification:
    """Asks next hops. ``policy`` returns the encryption of a transport and next hop; ``clock`` is wall-clock seconds."""

    def __init__(
        self,
        settings: Recipients,
        routing: Routing,
        lmtp: frozenset[str],
        policy: Callable[[str, NextHop], Policy],
        finder: HostFinder,
        store: RecipientStore,
        log: ProbeLog,
        loop: asyncio.AbstractEventLoop,
        clock: Callable[[], float],
        hostname: str,
    ) -> None:
        self._settings = settings
        self.routing = routing  # another one after files of [route_maps] have changed
        self._lmtp = lmtp
        self._policy = policy
        self._prober = Prober(finder)
        self._store = store
        self._log = log
        self._loop = loop
        self._clock = clock
        self._hostname = hostname
        self._probes: dict[str, asyncio.Task[Answer]] = {}  # by destination and recipient
        self._down: dict[str, tuple[float, str]] = {}  # by destination: until when, why
        self._clients: dict[str, Allowance] = {}
        self._logged = Allowance(LOGGED_S, LOGGED_BURST, loop.time())
        self._writes = 0

    async def refusal(self, recipient: str, sender: str, client_address: str) -> bytes:
        """Returns the reply that refuses a recipient; b"" if the next hop has it."""
        route = self.routing.of_message(sender, "")(recipient, "")
        if isinstance(route, Refused):
            return self._by_route(recipient, route)
        settings = self._settings
        key = f"{route.destination} {comparable(recipient)}"
        known = await self._store.run(functools.partial(_read, key, self._clock()))
        if known is not None and known.age_s >= self._expire_s(known.valid):
            known = None
        if known is not None and known.valid:
            if known.age_s >= settings.address_verify_positive_refresh_time_s:
                self._begin(key, recipient, route)
            return b""
        if known is not None and known.age_s < settings.address_verify_negative_refresh_time_s:
            return _unknown(recipient, known.text)
        answer = await self._answer(key, recipient, route, client_address)
        if answer.outcome is Outcome.VALID:
            return b""
        if answer.outcome is Outcome.UNKNOWN:
            return _unknown(recipient, answer.text)
        return self._undecided(recipient) if known is None else _unknown(recipient, known.text)

    def _by_route(self, recipient: str, route: Refused) -> bytes:
        """Returns the reply for a recipient that no next hop gets."""
        if route.status is Status.DELIVERED or route.released:  # discarded or held, as its route says
            return b""
        return _unknown(recipient, route.reply) if route.status is Status.BOUNCED else self._undecided(recipient)

    def _expire_s(self, valid: bool) -> int:
        settings = self._settings
        return (
            settings.address_verify_positive_expire_time_s if valid else settings.address_verify_negative_expire_time_s
        )

    def _undecided(self, recipient: str) -> bytes:
        if self._settings.unverified_recipient_tempfail_action == "accept":
            return b""
        address = recipient.encode()
        return b"450 4.1.1 <" + address + b">: Recipient address rejected: unverified address: try again later"

    # -- probes

    async def _answer(self, key: str, recipient: str, route: Resolved, client_address: str) -> Answer:
        """Returns the answer of a probe, or why there is none."""
        undecided = Answer(Outcome.UNDECIDED, "")
        probe = self._probes.get(key)
        if probe is None:
            until, why = self._down.get(route.destination, (0.0, ""))
            if until > self._loop.time():
                return undecided._replace(text=why)
            if not self._allows(client_address):
                self._exceeded(client_address, "its network asks for too many recipients that are not known yet")
                return undecided
            probe = self._begin(key, recipient, route)
            if probe is None:
                self._exceeded(client_address, "address_verify_concurrency probes are under way")
                return undecided
        done, _ = await asyncio.wait([probe], timeout=self._settings.address_verify_wait_s)
        return probe.result() if done else undecided

    def _begin(self, key: str, recipient: str, route: Resolved) -> asyncio.Task[Answer] | None:
        """Begins a probe; None if there are too many."""
        if key in self._probes:
            return self._probes[key]
        if len(self._probes) >= self._settings.address_verify_concurrency:
            return None
        probe = self._probes[key] = self._loop.create_task(self._probe(key, recipient, route))
        probe.add_done_callback(lambda _: self._probes.pop(key, None))
        return probe

    async def _probe(self, key: str, recipient: str, route: Resolved) -> Answer:
        hop = route.next_hop
        policy = self._policy(route.transport, hop)
        addresses = await self._prober.find(policy, hop)
        if isinstance(addresses, Refused):
            answer = Answer(Outcome.UNDECIDED, addresses.reply)  # of the DNS, not of the recipient
        else:
            lmtp = route.transport in self._lmtp
            question = Question(
                recipient,
                self._settings.address_verify_sender,
                self._hostname,
                policy,
                lmtp,
                self._settings.address_verify_timeout_s,
            )
            answer = await self._prober.ask(question, addresses, hop)
        if not answer.reached:
            if len(self._down) >= DESTINATIONS_MAX:
                self._down.clear()
            self._down[route.destination] = self._loop.time() + DOWN_S, answer.text
        if answer.outcome is not Outcome.UNDECIDED:
            await self._store.run(functools.partial(self._write, key, answer, self._clock()))
        if answer.outcome is not Outcome.UNDECIDED or self._logged.taken(self._loop.time()):
            self._log.recipient_verified(recipient, route.destination, answer.outcome.value, answer.logged)
        return answer

    def _allows(self, client_address: str) -> bool:
        limit = self._settings.address_verify_client_rate_limit
        if not limit:
            return True
        network = network_of(client_address, IPV4_PREFIX, IPV6_PREFIX)
        now = self._loop.time()
        allowance = self._clients.pop(network, None) or Allowance(limit / MINUTE_S, limit, now)
        while len(self._clients) >= CLIENTS_MAX:
            del self._clients[next(iter(self._clients))]  # the one that asked least recently
        self._clients[network] = allowance
        return allowance.taken(now)

    def _exceeded(self, client_address: str, why: str) -> None:
        if self._logged.taken(self._loop.time()):
            self._log.probes_exceeded(client_address, why)

    def _write(self, key: str, answer: Answer, now: float, database: sqlite3.Connection) -> None:
        row = key, answer.outcome is Outcome.VALID, now, answer.text
        database.execute("INSERT OR REPLACE INTO verified VALUES (?, ?, ?, ?)", row)
        self._writes += 1
        if self._writes % TRIM_EVERY == 0:
            trim(database, "verified", ("key",), "at", self._settings.address_verify_cache_entries)

    def close(self) -> None:
        """Ends the probes, for tests."""
        for probe in list(self._probes.values()):
            probe.cancel()


def _read(key: str, now: float, database: sqlite3.Connection) -> _Known | None:
    row = database.execute("SELECT valid, at, reply FROM verified WHERE key = ?", (key,)).fetchone()
    return None if row is None else _Known(bool(row[0]), max(0.0, now - row[1]), row[2])


def _unknown(recipient: str, text: str) -> bytes:
    words = "".join(each if " " <= each <= "~" else "?" for each in text)
    return f"550 5.1.1 <{recipient}>: Recipient address rejected: undeliverable address: {words}".encode()
