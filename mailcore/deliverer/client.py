"""The SMTP client: an entry in, its verdicts out. It chooses the host, the connection and the encryption.

Laws:
- A host that cannot be reached, greets with anything but 2xx, or loses the handshake, costs one try of ``addresses_max``;
  the next address is tried at once. After a host that deferred every recipient before the dot was sent, one
  further host is tried (Postfix's smtp_mx_session_limit).
- ``site_failure`` is set only when no host could be talked to at all, for a reason that is not our own: temporarily not
  found in DNS, no connection, no greeting, no EHLO, a broken handshake (as in Postfix's smtp(8)). ``transport_failure`` is
  set when the reason would have been the same for any site.
- A kept connection that is found dead does not count as a failure: a fresh one is made, once.
- With TLS level "may", a handshake that fails is followed by one try in the clear at the same address; the address is
  remembered, so that this does not happen for every message. With "encrypt" nothing goes out in the clear.

Knows nothing of queues; DNS is behind the HostFinder.

Keeps law: site-failure-is-the-site, law: encrypt-never-clear, law: stale-connection-is-no-failure (docs/laws.md).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import NamedTuple

from mailcore.config.settings import Deliverer
from mailcore.deliverer.connection import Cause, Connection, Failure, connect_error_text, opportunistic_tls
from mailcore.deliverer.connection_cache import AddressKey, ConnectionCache, HopKey
from mailcore.deliverer.message_data import DataError, MessageData
from mailcore.deliverer.replies import Reply, enhanced_code, status_of
from mailcore.deliverer.transaction import Outcome, transact
from mailcore.envelope import Status, Verdict
from mailcore.esmtp import EXTENSIONS, Extension, OutgoingTable
from mailcore.frames import Deliver, Delivered
from mailcore.routing.mx import Address, HostFinder
from mailcore.routing.resolve import Refused

__all__ = ["Client"]

SESSIONS_MAX = 2  # Postfix's smtp_mx_session_limit
TLS_BROKEN_S = 600.0  # for this long an address cause handshake failed gets mail in the clear with "may"
TLS_BROKEN_MAX = 1_000  # such addresses remembered

_GREETING = "receiving the initial server greeting"
_HELLO = "performing the EHLO handshake"


class _Unusable(NamedTuple):
    """Why there is no connection to an address."""

    status: Status
    dsn: str
    text: str
    cause: Cause = Cause.SITE
    of_tls: bool = False  # perhaps it goes in the clear


class _Session(NamedTuple):
    """A transaction that was made, and its connection."""

    connection: Connection
    outcome: Outcome
    begun_at: float


class Client:
    """Delivers entries. ``our_name`` is the name in EHLO. Raises UnicodeEncodeError when it is not ASCII."""

    def __init__(
        self,
        limits: Deliverer,
        finder: HostFinder,
        our_name: str,
        loop: asyncio.AbstractEventLoop,
        extensions: Sequence[Extension] = EXTENSIONS,
    ) -> None:
        self._limits = limits
        self._finder = finder
        self._our_name = our_name.encode("ascii")
        self._loop = loop
        self._extensions = extensions
        self._tls = opportunistic_tls()
        self._tls_broken: dict[AddressKey, float] = {}  # until when
        self._cache = ConnectionCache(
            loop,
            idle_s=limits.connection_idle_s,
            idle_max=limits.connections_idle_max,
            uses_max=limits.connection_uses_max,
        )

    async def deliver(self, work: Deliver, data: MessageData) -> tuple[Delivered, DataError | None]:
        """Returns one verdict for every recipient, and what is wrong with the data on disk (None when nothing is).

        When cancelled, nothing more is sent; whether the server has the message is then unknown.
        Raises DataError when the data cannot be read before anything was sent.
        """
        hop: HopKey = (work.transport, work.tls, work.next_hop)
        connection = self._cache.take_for_hop(hop)
        if connection is not None:
            started_at = time.monotonic()
            outcome = await self._transact(connection, work, data)
            if outcome is not None:
                return self._delivered(work, hop, _Session(connection, outcome, started_at), 0.0)
        return await self._deliver_to_some_host(work, data, hop)

    def close(self) -> None:
        """Says QUIT on all kept connections."""
        self._cache.close()

    async def _deliver_to_some_host(
        self, work: Deliver, data: MessageData, hop: HopKey
    ) -> tuple[Delivered, DataError | None]:
        started_at = time.monotonic()
        addresses = await self._finder.find(work.next_hop)
        if isinstance(addresses, Refused):
            cause = Cause.MACHINE if addresses.ours else Cause.SITE
            refusal = _Unusable(addresses.status, addresses.dsn, addresses.reply, cause)
            return self._unreached(work, [refusal], "none", started_at)
        answer: tuple[Delivered, DataError | None] | None = None  # of the host that was talked to last
        sessions = 0
        unusable: list[_Unusable] = []
        relay = "none"
        for address in addresses[: self._limits.addresses_max]:
            session = await self._try(work, data, address)
            if isinstance(session, _Unusable):
                unusable.append(session)
                relay = f"{address.host}[{address.address}]:{work.next_hop.port}"
                if session.status is Status.BOUNCED:
                    break
                continue
            sessions += 1
            answer = self._delivered(work, hop, session, session.begun_at - started_at)
            if not session.outcome.elsewhere or sessions >= SESSIONS_MAX:
                break
        return answer if answer is not None else self._unreached(work, unusable, relay, started_at)

    async def _try(self, work: Deliver, data: MessageData, address: Address) -> _Session | _Unusable:
        """Tries one address, over a connection kept under another next hop or a new one."""
        key = _key(work, address)
        connection = self._cache.take_for_address(key)
        if connection is not None:
            begun_at = time.monotonic()
            outcome = await self._transact(connection, work, data)
            if outcome is not None:
                return _Session(connection, outcome, begun_at)
        made = await self._connect(work.tls, address, key)
        if isinstance(made, _Unusable):
            return made
        begun_at = time.monotonic()
        outcome = await self._transact(made, work, data)
        assert outcome is not None  # only a kept connection is dead at its first command
        return _Session(made, outcome, begun_at)

    async def _transact(self, connection: Connection, work: Deliver, data: MessageData) -> Outcome | None:
        try:
            return await transact(connection, work, data, self._limits)
        except BaseException:  # cancelled, or a bug: it is unknown what the server expects next
            connection.abort()
            raise

    # Results

    def _delivered(
        self, work: Deliver, hop: HopKey, session: _Session, connect_s: float
    ) -> tuple[Delivered, DataError | None]:
        connection, outcome, begun_at = session
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
        )
        if connection.failure is None:
            key = (work.transport, work.tls, connection.host, connection.address, work.next_hop.port)
            self._cache.put(connection, hop, key)
        return result, outcome.data_error

    def _unreached(
        self, work: Deliver, reasons: list[_Unusable], relay: str, started_at: float
    ) -> tuple[Delivered, DataError | None]:
        """Makes the result when no host could be talked to; the reason is that of the last one."""
        reason = reasons[-1]
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
        )
        return result, None

    # Connecting

    async def _connect(self, tls: str, address: Address, key: AddressKey) -> Connection | _Unusable:
        if tls == "may" and self._tls_broken.get(key, 0.0) > time.monotonic():
            tls = "none"
        made = await self._open(tls, address, key[-1])
        if isinstance(made, _Unusable) and made.of_tls and tls == "may":
            if len(self._tls_broken) >= TLS_BROKEN_MAX:
                self._tls_broken.clear()
            self._tls_broken[key] = time.monotonic() + TLS_BROKEN_S
            made = await self._open("none", address, key[-1])
        return made

    async def _open(self, tls: str, address: Address, port: int) -> Connection | _Unusable:
        """Returns a connection after EHLO, encrypted as ``tls`` demands; or why there is none."""
        loop = self._loop
        try:
            async with asyncio.timeout(self._limits.connect_timeout_s):
                _, connection = await loop.create_connection(
                    lambda: Connection(loop, address.host, address.address, port), address.address, port
                )
        except OSError as error:  # TimeoutError is one
            text, cause = connect_error_text(error)
            words = f"connect to {address.host}[{address.address}]:{port}: {text}"
            return _Unusable(Status.DEFERRED, "4.4.1" if cause is Cause.SITE else "4.3.0", words, cause)
        try:
            reason = await self._begin(connection, tls)
        except BaseException:
            connection.abort()
            raise
        if reason is None:
            return connection
        connection.quit()
        return reason

    async def _begin(self, connection: Connection, tls: str) -> _Unusable | None:
        limits = self._limits
        greeting = await connection.greeting(limits.greeting_timeout_s)
        if greeting is None:
            return _failed(connection, _GREETING)
        if greeting.code >= 300:  # 5xx too: another host may be better, and tomorrow too (smtp_skip_5xx_greeting)
            return _refused(connection, greeting)._replace(
                status=Status.DEFERRED, dsn="4" + enhanced_code(greeting)[1:]
            )
        reason = await self._hello(connection)
        if reason is not None or tls == "none":
            return reason
        if "starttls" not in connection.features:
            if tls == "encrypt":
                words = f"TLS is required, but was not offered by host {connection.name}"
                return _Unusable(Status.DEFERRED, "4.7.4", words)
            return None
        reply = await connection.encrypt(self._tls, limits.command_timeout_s)
        if reply is None:
            words = f"Cannot start TLS with {connection.name}: handshake failure"
            return _Unusable(Status.DEFERRED, "4.7.5", words, of_tls=True)
        if reply.code != 220:
            if tls == "encrypt":
                words = f"TLS is required, but host {connection.name} refused to start TLS: {reply.text}"
                return _Unusable(Status.DEFERRED, "4.7.4", words)
            return None  # the conversation continues in the clear
        reason = await self._hello(connection)
        # A server that dislikes our handshake in TLS 1.3 says so only here, by hanging up.
        return reason._replace(of_tls=connection.failure is not None) if reason is not None else None

    async def _hello(self, connection: Connection) -> _Unusable | None:
        reply = await connection.hello(self._our_name, self._limits.greeting_timeout_s)
        if reply is None:
            return _failed(connection, _HELLO)
        if reply.code >= 300:
            return _refused(connection, reply)
        connection.extensions = OutgoingTable(self._extensions, connection.features)
        return None


def _key(work: Deliver, address: Address) -> AddressKey:
    return (work.transport, work.tls, address.host, address.address, work.next_hop.port)


def _failed(connection: Connection, stage: str) -> _Unusable:
    failure = connection.failure or Failure.LOST
    words = failure.value.format(name=connection.name, stage=stage)
    return _Unusable(Status.DEFERRED, "4.5.0" if failure is Failure.PROTOCOL else "4.4.2", words)


def _refused(connection: Connection, reply: Reply) -> _Unusable:
    words = f"host {connection.name} refused to talk to me: {reply.text}"
    return _Unusable(status_of(reply), enhanced_code(reply), words)
