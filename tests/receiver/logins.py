"""Users, a server where they log in, and what it logs."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import hmac
from collections.abc import AsyncIterator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import argon2

from mailcore.config.listeners import Auth, Listener
from mailcore.receiver.authentication import Authentication
from mailcore.supervisor.shared_counts import Counts
from mailcore.users.scram import ScramVerifier
from mailcore.users.user import User
from mailcore.users.user_file import changing
from tests.deliverer.scripted_server import server_tls
from tests.eventually import eventually
from tests.receiver.server_in_process import Client, Serving, serving

SUBMISSION = Listener(purpose="submission", tls="implicit", auth="required")
CHEAP = argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
PASSWORD = "correct horse"


def user(name: str = "alice", *, scram: bool = False, **more: Any) -> User:
    salt = hashlib.sha256(name.encode()).digest()[:16]
    verifier = str(ScramVerifier.of_password(PASSWORD, salt, 4096)) if scram else CHEAP.hash(PASSWORD)
    return User(**{"name": name, "verifier": verifier, "senders": ("*",), **more})


def write_users(path: Path, users: Iterable[User]) -> None:
    with changing(path, path.parent) as known:
        known.clear()
        known.update({each.name: each for each in users})


class Logged:
    """The log of a login."""

    def __init__(self) -> None:
        self.failures: list[tuple[str, str, str]] = []
        self.refused: list[str] = []
        self.read: list[int] = []
        self.at_start: bool | None = None  # of the last refusal

    def login_failed(self, client_address: str, method: str, login: str, why: str) -> None:
        self.failures.append((method, login, why))

    def users_read(self, path: str, users: int) -> None:
        self.read.append(users)

    def users_refused(self, path: str, faults: Sequence[str], users: int, *, at_start: bool) -> None:
        self.refused += faults
        self.at_start = at_start


class Submission:
    def __init__(
        self, server: Serving, authentication: Authentication, log: Logged, path: Path, times: list[float]
    ) -> None:
        self.server = server
        self.intake = server.intake
        self.authentication = authentication
        self.log = log
        self.path = path
        self.times = times  # the clock of failures and rates

    async def client(self, source: str = "") -> Client:
        """A client that said EHLO under TLS."""
        client = await self.server.client_tls(source)
        await client.hello()
        return client

    async def logged_in(self, name: str = "alice", source: str = "") -> Client:
        client = await self.client(source)
        assert await client.ask(b"AUTH PLAIN " + plain(name)) == b"235 2.7.0 Authentication successful\r\n"
        return client

    def write(self, *users: User) -> None:
        write_users(self.path, users)

    async def changed(self, *users: User) -> None:
        """Writes the file and waits until it is in force."""
        count = len(self.log.read)
        self.write(*users)
        self.authentication.look()
        await eventually(lambda: len(self.log.read) > count)


@contextlib.asynccontextmanager
async def submission(
    directory: Path,
    *users: User,
    rule: Listener = SUBMISSION,
    networks: tuple[str, ...] = ("192.0.2.0/24",),
    auth: dict[str, Any] | None = None,
    signed_domains: Sequence[str] = (),
    **settings: Any,
) -> AsyncIterator[Submission]:
    path = directory / "users.jsonl"
    write_users(path, users)
    log = Logged()
    auth_settings = Auth(**(auth or {}))
    times = [1e6]
    counts = Counts(None, auth_settings.failure_time_s, lambda: times[0])
    threads = ThreadPoolExecutor(1)
    made = Authentication(
        auth_settings, path, counts, log, asyncio.get_running_loop(), threads, signed_domains=signed_domains
    )
    made.start()
    tls = server_tls(directory)
    async with serving(tls=tls, rule=rule, networks=networks, authentication=made, **settings) as server:
        made.changed = lambda: server.server.set_mechanisms(made.users.mechanisms)
        running = Submission(server, made, log, path, times)
        try:
            yield running
        finally:
            made.close()
            threads.shutdown()


def b64(text: str | bytes) -> bytes:
    return base64.b64encode(text.encode() if isinstance(text, str) else text)


def plain(name: str = "alice", password: str = PASSWORD, authzid: str = "") -> bytes:
    return b64(f"{authzid}\0{name}\0{password}")


async def scram(client: Client, name: str = "alice", password: str = PASSWORD, header: str = "n,,") -> bytes:
    """Logs in as RFC 5802 3 says, checks the server's proof, and returns the last reply."""
    return (await scram_replies(client, name, password, header))[-1]


async def scram_replies(
    client: Client,
    name: str = "alice",
    password: str = PASSWORD,
    header: str = "n,,",
    proceed: asyncio.Event | None = None,
) -> list[bytes]:
    """Logs in and returns all replies. ``proceed``: to wait for before the proof is sent."""
    bare = f"n={name},r=fyko+d2lbbFgONRv9qkxdawL"
    answer = await client.ask(b"AUTH SCRAM-SHA-256 " + b64(header + bare))
    if not answer.startswith(b"334 "):
        return [answer]
    replies = [answer]
    if proceed is not None:
        await proceed.wait()
    challenge = base64.b64decode(answer[4:]).decode()
    fields = dict(part.split("=", 1) for part in challenge.split(","))
    assert fields["r"].startswith("fyko+d2lbbFgONRv9qkxdawL")
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), base64.b64decode(fields["s"]), int(fields["i"]))
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    unproved = f"c={b64(header).decode()},r={fields['r']}"
    signed = f"{bare},{challenge},{unproved}".encode()
    signature = hmac.digest(hashlib.sha256(client_key).digest(), signed, "sha256")
    proof = b64(bytes(a ^ b for a, b in zip(client_key, signature, strict=True))).decode()
    answer = await client.ask(b64(f"{unproved},p={proof}"))
    replies.append(answer)
    if not answer.startswith(b"334 "):
        return replies
    server_key = hmac.digest(salted, b"Server Key", "sha256")
    assert base64.b64decode(answer[4:]) == b"v=" + b64(hmac.digest(server_key, signed, "sha256"))
    return [*replies, await client.ask(b"")]
