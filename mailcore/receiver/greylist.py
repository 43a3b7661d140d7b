"""Greylisting, as postgrey: the first mail of an unknown client network, sender and recipient gets 450.

Laws
- Mail that was put off once is accepted at a later try, by any receiver, also if one was killed in between.
- Without the store, or while it is full of entries younger than the delay, mail is accepted.
- A client network that never tries again takes a small part of the store, and pushes out nothing that was accepted: what waits
  goes first. Beyond its part its mail is put off and leaves no entry, until some of its entries have passed or are too old.

Keeps law: greylist-lets-retries-pass, law: store-never-stops-mail (docs/laws.md).
"""

from __future__ import annotations

import functools
import hashlib
import re
import sqlite3
from collections.abc import Callable
from typing import Protocol

from mailcore.config.greylist import Greylist
from mailcore.config.recipients import domain_pattern_of
from mailcore.counted import counted
from mailcore.receiver.client_rates import network_of
from mailcore.receiver.recipient_store import TRIM_EVERY, RecipientStore, trim
from mailcore.routing.address import comparable, split
from mailcore.routing.networks import Networks

__all__ = ["GreyLog", "GreyStore"]

IPV4_PREFIX, IPV6_PREFIX = 24, 64  # as postgrey: servers of one site try again from another address
# Entries of one network that wait for a retry: a mailing list's to a thousand members at once. Of a small store it is a tenth.
NETWORK_WAITING_MAX = 1_000
NETWORK_SHARE = 10
PASSED_SHARE = 0.75  # of the entries, at most: those that wait need room, too
FULL_S = 60.0  # how long mail is accepted when the store is full of what is younger than the delay
TOUCH_S = 3_600.0  # a use is noted once an hour
_NUMBERS = re.compile(r"\d+")


class GreyLog(Protocol):
    """Logs greylisting: ``MailLog``."""

    def greylist_full(self) -> None:
        """Logs that mail is accepted without greylisting."""


class GreyStore:
    """The greylist of one receiver, in the store of all. ``clock`` is wall-clock seconds."""

    def __init__(self, settings: Greylist, store: RecipientStore, log: GreyLog, clock: Callable[[], float]) -> None:
        self._settings = settings
        self._store = store
        self._log = log
        self._clock = clock
        self._exempt = Networks(settings.networks_exempt)
        self._patterns = dict.fromkeys(settings.recipients_exempt, "")
        self._full_until = 0.0
        self._writes = 0

    async def refusal(self, recipient: str, sender: str, client_address: str) -> bytes:
        """Returns the reply that puts a recipient off; b"" if it is accepted."""
        key = comparable(recipient)
        if self._exempt.hold(client_address) or key in self._patterns:
            return b""
        if domain_pattern_of(split(key)[1], self._patterns) or self._clock() < self._full_until:
            return b""
        network = network_of(client_address, IPV4_PREFIX, IPV6_PREFIX)
        triplet = _digest(network, _sender_key(sender), key)
        wait_s = await self._store.run(functools.partial(self._look, triplet, network, self._clock()))
        if self._clock() < self._full_until:
            self._log.greylist_full()
        if not wait_s:  # known; or None: the store failed, which is in the log
            return b""
        address = recipient.encode()
        after = counted(wait_s, "second").encode()
        return b"450 4.2.0 <" + address + b">: Recipient address rejected: Greylisted, try again in " + after

    def _look(self, triplet: bytes, network: str, now: float, database: sqlite3.Connection) -> int:
        """Returns for how many seconds the mail is put off; 0 if it is accepted."""
        settings = self._settings
        client = database.execute("SELECT passes, at FROM grey_clients WHERE network = ?", (network,)).fetchone()
        if client is not None and client[1] + settings.lifetime_s < now:
            client = None
        if settings.passes and client is not None and client[0] >= settings.passes:
            if now - client[1] > TOUCH_S:
                database.execute("UPDATE grey_clients SET at = ? WHERE network = ?", (now, network))
            return 0
        row = database.execute("SELECT first, at, passed FROM grey WHERE triplet = ?", (triplet,)).fetchone()
        if row is not None:
            first, at, passed = float(row[0]), float(row[1]), bool(row[2])
            first = min(first, now)  # the clock may have been set back
            if passed and now - at <= settings.lifetime_s:
                if now - at > TOUCH_S:
                    database.execute("UPDATE grey SET at = ? WHERE triplet = ?", (now, triplet))
                return 0
            if not passed and now - first <= settings.retry_window_s:
                left = first + settings.delay_s - now
                if left > 0:
                    return max(1, round(left))
                database.execute("UPDATE grey SET at = ?, passed = 1 WHERE triplet = ?", (now, triplet))
                passes = 1 if client is None else client[0] + 1
                database.execute("INSERT OR REPLACE INTO grey_clients VALUES (?, ?, ?)", (network, passes, now))
                return 0
        if self._waiting(database, network, now) >= min(NETWORK_WAITING_MAX, settings.entries_max // NETWORK_SHARE):
            return settings.delay_s
        database.execute("INSERT OR REPLACE INTO grey VALUES (?, ?, ?, 0, ?)", (triplet, now, now, network))
        self._writes += 1
        if self._writes % TRIM_EVERY == 0:
            self._trim(database, now)
        return settings.delay_s

    def _waiting(self, database: sqlite3.Connection, network: str, now: float) -> int:
        """Returns how many entries of a network wait for a retry."""
        found = database.execute(
            "SELECT count(*) FROM grey WHERE network = ? AND passed = 0 AND at >= ?",
            (network, now - self._settings.retry_window_s),
        )
        count: int = found.fetchone()[0]
        return count

    def _trim(self, database: sqlite3.Connection, now: float) -> None:
        settings = self._settings
        database.execute("DELETE FROM grey WHERE passed = 0 AND at < ?", (now - settings.retry_window_s,))
        database.execute("DELETE FROM grey WHERE at < ?", (now - settings.lifetime_s,))
        database.execute("DELETE FROM grey_clients WHERE at < ?", (now - settings.lifetime_s,))
        trim(database, "grey_clients", ("network",), "at", settings.entries_max)
        trim(database, "grey", ("triplet",), "at", int(PASSED_SHARE * settings.entries_max), "passed = 1")
        (passed,) = database.execute("SELECT count(*) FROM grey WHERE passed = 1").fetchone()
        if trim(database, "grey", ("triplet",), "at", settings.entries_max - passed, "passed = 0"):
            (oldest,) = database.execute("SELECT min(at) FROM grey WHERE passed = 0").fetchone()
            if oldest > now - settings.delay_s:  # then a retry would find nothing, and be put off again
                self._full_until = now + FULL_S


def _sender_key(sender: str) -> str:
    """Returns a sender as it is compared: without extension, and with one sign for each number, as mailing lists have them."""
    local_part, domain = split(comparable(sender))
    return f"{_NUMBERS.sub('#', local_part.partition('+')[0])}@{domain}"


def _digest(*parts: str) -> bytes:
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=16).digest()
