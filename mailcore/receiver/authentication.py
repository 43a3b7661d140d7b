"""The logins of one receiver: the users of the file, the check of passwords in threads, and the limits of each user.

Laws
- A password is checked in a bounded pool of threads with a bounded number waiting; further logins get 454.
- A failure counts when the check begins, and is taken off when it succeeds: a client that hangs up, or asks on many
  connections at once, has no more tries than another.
- The reply and its time are the same for a wrong password, an unknown user and a disabled one.
- A user file with a fault in it leaves the users as they were.

Keeps law: login-reveals-no-user, law: logins-throttled (docs/laws.md).
"""

from __future__ import annotations

import ipaddress
import os
import secrets
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Protocol

from mailcore.config.listeners import Auth
from mailcore.supervisor.shared_counts import Counts
from mailcore.users.scram import ScramExchange
from mailcore.users.user import User, Users
from mailcore.users.user_file import UserFileError, read_users
from mailcore.users.verifier import matches

__all__ = ["BUSY", "REFUSED", "Authentication", "AuthenticationLog", "Loop"]

BUSY = b"454 4.7.0 Temporary authentication failure"
REFUSED = b"535 5.7.8 Error: authentication failed"
NETWORKS_KEPT = 4_096
# A user's own network has more tries: many programs of one server log in at the same moment, and others must not lock a user
# out by failures from elsewhere.
KNOWN_FACTOR = 10
PREFIX_FOUR, PREFIX_SIX = 24, 64  # the most that one customer of a provider has


class AuthenticationLog(Protocol):
    """Logs what happens to logins: ``MailLog``."""

    def login_failed(self, client_address: str, method: str, login: str, why: str) -> None:
        """Logs a login that was refused; ``login`` is "" unless a user has that name."""

    def users_read(self, path: str, users: int) -> None:
        """Logs that the file of users was read."""

    def users_refused(self, path: str, faults: Sequence[str], users: int, *, at_start: bool) -> None:
        """Logs the faults of the file, and how many users are in force: at a start those of its other lines."""


class Loop(Protocol):
    """The part of an event loop that is needed here."""

    def call_soon_threadsafe(self, callback: Callable[..., object], *arguments: object) -> object:
        """Calls back in the loop."""


class Authentication:
    """Checks logins. ``threads`` is where the file is read; ``record`` logs, within bounds.

    ``signed_domains``: those with a DKIM key.
    """

    def __init__(
        self,
        settings: Auth,
        path: Path,
        counts: Counts,
        log: AuthenticationLog,
        loop: Loop,
        threads: Executor,
        allowed: Callable[[], bool] = lambda: True,
        signed_domains: Sequence[str] = (),
    ) -> None:
        self.users = Users()
        self.changed: Callable[[], None] = lambda: None  # the mechanisms may be others
        self._settings = settings
        self._path = path
        self._counts = counts
        self._log = log
        self._loop = loop
        self._threads = threads
        self._allowed = allowed  # to write another line into the log
        self._signed = frozenset(signed_domains)
        self._signed_above = {above for domain in signed_domains for above in _above(domain)}
        self._author_domains: dict[str, tuple[str, ...] | None] = {}  # by user
        self._checks = ThreadPoolExecutor(settings.password_threads, "password")
        self._checking = 0
        self._seen: object = None
        self._reading = False

    # -- the file

    def start(self) -> None:
        """Reads the file for the first time; lines without a fault are used."""
        self._seen = self._signature()
        try:
            self._read(read_users(self._path))
        except UserFileError as error:
            self.users = error.usable or Users()
            self._log.users_refused(str(self._path), str(error).splitlines(), len(self.users), at_start=True)
        except OSError as error:
            self._log.users_refused(str(self._path), [error.strerror or str(error)], 0, at_start=True)

    def look(self) -> None:
        """Reads the file again if it has changed; in a thread, because a large one takes a while."""
        signature = self._signature()
        if signature != self._seen and not self._reading:
            self._seen, self._reading = signature, True
            future = self._threads.submit(read_users, self._path)
            future.add_done_callback(lambda done: self._loop.call_soon_threadsafe(self._was_read, done))

    def _was_read(self, done: Future[Users]) -> None:
        self._reading = False
        try:
            if self._seen is None and len(self.users):
                raise FileNotFoundError(2, "the file was removed")
            self._read(done.result())
        except UserFileError as error:
            self._log.users_refused(str(self._path), str(error).splitlines(), len(self.users), at_start=False)
        except OSError as error:
            self._log.users_refused(str(self._path), [error.strerror or str(error)], len(self.users), at_start=False)

    def _read(self, users: Users) -> None:
        self.users = users
        self._author_domains.clear()
        self._log.users_read(str(self._path), len(users))
        self.changed()

    def _signature(self) -> object:
        try:
            status = os.stat(self._path)
        except OSError:
            return None
        return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns

    # -- passwords

    def throttled(self, name: str, client_address: str) -> bool:
        """Tells whether too many logins failed, from the client's network or with this name, to look at another one."""
        network, key = network_of(client_address), name.lower()
        factor = KNOWN_FACTOR if self._is_known(name, client_address) else 1
        failures = self._counts.failures
        return (
            failures.read(f"network {network}")[0] >= factor * self._settings.failures_per_network
            or failures.read(f"user {key}")[0] >= factor * self._settings.failures_per_user
        )

    def _is_known(self, name: str, client_address: str) -> bool:
        """Tells whether the user has logged in from the client's network lately."""
        return bool(self._counts.known.read(f"{name.lower()} {network_of(client_address)}")[0])

    def begin(self, name: str, client_address: str) -> bool:
        """Counts a try as a failure, which ``succeeded`` takes off; False: there were too many, and it is not looked at."""
        if self.throttled(name, client_address):
            return False
        self._count(name, client_address)
        return True

    def _count(self, name: str, client_address: str) -> None:
        self._counts.failures.add(f"network {network_of(client_address)}")
        self._counts.failures.add(f"user {name.lower()}")

    def succeeded(self, user: User, client_address: str) -> None:
        """Takes the try off the failures."""
        network = network_of(client_address)
        self._counts.failures.add(f"network {network}", -1.0)
        self._counts.failures.add(f"user {user.name}", -1.0)
        self._counts.known.add(f"{user.name} {network}")
        self._counts.known.add(network)

    def known_network(self, client_address: str) -> str:
        """Returns the network of a client if a user has logged in from it lately; otherwise \"\"."""
        network = network_of(client_address)
        return network if self._counts.known.read(network)[0] else ""

    def failed(self, name: str, client_address: str, method: str, why: str) -> None:
        """Logs a failure. A name that no user has is not logged: it may be a password typed into the wrong field."""
        if self._allowed():
            user = self.users.get(name.lower())
            self._log.login_failed(client_address, method, user.name if user is not None else "", why)

    def check(
        self, name: str, password: str, client_address: str, method: str, done: Callable[[User | None, bytes], None]
    ) -> bytes:
        """Checks a password in a thread; calls ``done`` in the loop with the user, or None and the reply that refuses.

        Returns b"", or the reply that refuses at once: then ``done`` is not called.
        """
        if self.throttled(name, client_address):
            self.failed(name, client_address, method, "too many failures")
            return BUSY
        waiting_max = self._settings.passwords_waiting_max
        if not self._is_known(name, client_address):  # guesses of many networks must not take all places
            waiting_max -= waiting_max // 2
        if self._checking >= self._settings.password_threads + waiting_max:
            self.failed(name, client_address, method, "too many logins wait")
            return BUSY
        self._count(name, client_address)
        user = self.users.find(name)
        verifier = user.verifier if user is not None else self.users.decoy(name)
        self._checking += 1

        def checked(future: Future[bool]) -> None:
            self._checking -= 1
            if future.exception() is not None:
                self.failed(name, client_address, method, f"the check failed: {future.exception()!r}")
                done(None, BUSY)
            elif user is not None and future.result() and self.is_valid(user):
                self.succeeded(user, client_address)
                done(user, b"")
            else:
                self.failed(name, client_address, method, self.reason(name))
                done(None, REFUSED)

        future = self._checks.submit(matches, verifier, password)
        future.add_done_callback(lambda made: self._loop.call_soon_threadsafe(checked, made))
        return b""

    def reason(self, name: str) -> str:
        """Returns why a login was refused, for the log."""
        user = self.users.get(name.lower())
        return "no such user" if user is None else "wrong password" if user.enabled else "the user is disabled"

    def scram(self) -> ScramExchange:
        """Begins a SCRAM exchange."""
        return ScramExchange(secrets.token_urlsafe(24), self.users.scram_verifier)

    # -- what a user may do

    def is_valid(self, user: User) -> bool:
        """Tells whether a login is still good: the user exists, is enabled and has the same password."""
        now = self.users.get(user.name)
        return now is not None and now.enabled and now.verifier == user.verifier

    def author_domains(self, user: User) -> tuple[str, ...] | None:
        """Returns ``Envelope.author_domains`` of the user's mail: without those that no DKIM key is for, to be short."""
        if user.name not in self._author_domains:
            domains = user.domains
            known = None if domains is None else tuple(sorted(filter(self._may_have_key, domains)))
            self._author_domains[user.name] = known
        return self._author_domains[user.name]

    def _may_have_key(self, pattern: str) -> bool:
        domain = pattern.removeprefix(".")
        return (
            domain in self._signed
            or not self._signed.isdisjoint(_above(domain))
            or (pattern != domain and domain in self._signed_above)
        )

    def take_message(self, user: User) -> bool:
        """Counts a message of a user; False: it has sent as many as it may in an hour."""
        return self._take(user, 0, 1.0, 0.0)

    def take_recipient(self, user: User) -> bool:
        """Counts a recipient of a user; False: it has sent to as many as it may in an hour."""
        return self._take(user, 1, 0.0, 1.0)

    def _take(self, user: User, which: int, messages: float, recipients: float) -> bool:
        user = self.users.get(user.name) or user  # its limits may have changed
        settings = self._settings
        given = (user.messages_per_hour, user.recipients_per_hour)[which]
        limit = (settings.messages_per_hour, settings.recipients_per_hour)[which] if given is None else given
        if limit and self._counts.rates.read(user.name)[which] + 1 > limit:
            return False
        self._counts.rates.add(user.name, messages, recipients)
        return True

    def close(self) -> None:
        """Ends the threads, for tests."""
        self._checks.shutdown()


def _above(domain: str) -> list[str]:
    labels = domain.split(".")
    return [".".join(labels[at:]) for at in range(1, len(labels))]


@lru_cache(maxsize=NETWORKS_KEPT)
def network_of(client_address: str) -> str:
    """Returns the network that failures of a client are counted for: /24, or /64 of IPv6."""
    try:
        address = ipaddress.ip_address(client_address)
    except ValueError:
        return client_address
    return str(
        ipaddress.ip_network(
            (address, PREFIX_FOUR if address.version == 4 else PREFIX_SIX), strict=False
        ).network_address
    )
