"""Opens connections: connect, greeting, EHLO, STARTTLS as the policy demands, login. A connection, or the reason for none.

Laws:
- A connection is returned only if it has what its policy demands: under any level but "none" and "may" it is encrypted, and
  under "verify" its certificate is trusted and has one of the policy's names.
- Only under the level "may" is a failed handshake followed by one try in the clear at the same address. The address is
  remembered, so that this does not happen for every message. ``Connection.tls_level`` has level and reason, which are logged
  and recorded; it says so if mail goes in the clear under "may".
- Commands and replies in the clear count for nothing after the handshake (RFC 3207 4.2): EHLO is said again.

Knows nothing of messages; DNS and connections that are kept are the client's.

Keeps law: tls-level-is-kept, law: encrypt-never-clear (docs/laws.md).
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Sequence
from typing import NamedTuple

from mailcore.config.client_auth import NO_LOGINS, ClientAuth, Login
from mailcore.config.settings import Deliverer
from mailcore.deliverer.connection import Cause, Connection, Failure, connect_error_text
from mailcore.deliverer.keyword_masks import NO_MASK, Mask
from mailcore.deliverer.login import authenticate
from mailcore.deliverer.replies import Reply, enhanced_code, status_of
from mailcore.envelope import Status
from mailcore.esmtp import Extension, OutgoingTable
from mailcore.frames import TLS_CLEAR, TLS_NOT_OFFERED
from mailcore.remote_reply import refused_tls, refused_to_talk
from mailcore.routing.mx import Address
from mailcore.tls.ca_file import Complain, silent
from mailcore.tls.certificates import Contexts
from mailcore.tls.checking import checked
from mailcore.tls.policy import Policy
from mailcore.tls_result import CONNECTION_LOST, TLSA_MISMATCH, Result

__all__ = ["Opener", "Unusable", "relay_of"]

TLS_BROKEN_S = 600.0  # for this long an address that failed a handshake gets mail in the clear with "may"
TLS_BROKEN_MAX = 1_000  # such addresses remembered
CLEAR_WHY_MAX = (
    200  # characters: it is recorded with every delivery over such a connection, and has words of the server
)

_GREETING = "receiving the initial server greeting"
_HELLO = "performing the EHLO handshake"
_LMTP_HELLO = "performing the LHLO handshake"
_CERTIFICATE_EXPIRED = 10  # X509_V_ERR_CERT_HAS_EXPIRED
_UNKNOWN_REASON = "handshake-failure"
_UNKNOWN_COMMAND = (500, 502)  # RFC 5321 4.2.4


class Unusable(NamedTuple):
    """Why there is no connection to an address."""

    status: Status
    dsn: str
    text: str
    cause: Cause = Cause.SITE
    of_tls: bool = False  # perhaps it goes in the clear
    result: str = ""  # a ``mailcore.tls_result.Result`` if TLS is known to be the reason
    reason_code: str = ""  # more about it: OpenSSL's word or one of ours
    source: str = ""  # address of our end
    level: str = ""  # the policy that was not fulfilled, as ``Delivered.tls_level``; "" if that is not the reason


class Opener:
    """Opens connections for one client. ``our_name`` is the name in EHLO; ``complain`` logs a bad file of CAs."""

    def __init__(
        self,
        limits: Deliverer,
        our_name: bytes,
        loop: asyncio.AbstractEventLoop,
        extensions: Sequence[Extension],
        auth: ClientAuth = NO_LOGINS,
        complain: Complain = silent,
    ) -> None:
        self._limits = limits
        self._our_name = our_name
        self._loop = loop
        self._extensions = extensions
        self._auth = auth
        self._contexts = Contexts(complain)
        self._tls_broken: dict[tuple[str, int], tuple[float, Unusable]] = {}  # address and port -> until when, why

    async def connect(
        self,
        policy: Policy,
        address: Address,
        port: int,
        login: Login | None = None,
        *,
        lmtp: bool = False,
        mask: Mask = NO_MASK,
        shared: str = "",
    ) -> Connection | Unusable:
        """Returns a connection that fulfils ``policy``, after EHLO (``lmtp``: LHLO) and ``login``; or why there is none.

        The keywords in ``mask`` are not used. ``shared``: the destination, if several queues share its limit.
        """
        if policy.level != "may":
            return await self._open(policy, address, port, login, lmtp, mask, shared)
        key = address.address, port
        broken = self.broken(address, port)
        if broken is None:
            made = await self._open(policy, address, port, login, lmtp, mask, shared)
            if isinstance(made, Connection) or not made.of_tls:
                return made
            broken = made
            if len(self._tls_broken) >= TLS_BROKEN_MAX:
                self._tls_broken.clear()
            self._tls_broken[key] = time.monotonic() + TLS_BROKEN_S, broken
        made = await self._open(policy._replace(level="none"), address, port, login, lmtp, mask, shared)
        if isinstance(made, Connection):
            made.tls_level = _in_the_clear(policy, broken.text)
            # In the clear it works: TLS, and not the network, broke the connection.
            made.tls_result, made.tls_reason = broken.result or Result.VALIDATION_FAILURE, broken.reason_code
        elif made.level:
            return made._replace(level=str(policy))
        return made

    def broken(self, address: Address, port: int) -> Unusable | None:
        """Returns why an address gets mail in the clear under "may"; None if TLS is tried."""
        until, why = self._tls_broken.get((address.address, port), (0.0, None))
        return why if until > time.monotonic() else None

    async def _open(
        self, policy: Policy, address: Address, port: int, login: Login | None, lmtp: bool, mask: Mask, shared: str
    ) -> Connection | Unusable:
        loop = self._loop

        def protocol() -> Connection:
            return Connection(loop, address.host, address.address, port, shared)

        try:
            async with asyncio.timeout(self._limits.connect_timeout_s):
                if port:
                    _, connection = await loop.create_connection(protocol, address.address, port)
                else:
                    _, connection = await loop.create_unix_connection(protocol, address.address)
        except OSError as error:  # TimeoutError is one
            text, cause = connect_error_text(error)
            words = f"connect to {relay_of(address, port)}: {text}"
            return Unusable(Status.DEFERRED, "4.4.1" if cause is Cause.SITE else "4.3.0", words, cause)
        connection.speaks_lmtp = lmtp
        connection.discarded = mask
        try:
            reason = await self._begin(connection, policy, login)
        except BaseException:
            connection.abort()
            raise
        if reason is None:
            return connection
        connection.quit()
        return reason._replace(source=connection.source_address) if reason.result else reason

    async def _begin(self, connection: Connection, policy: Policy, login: Login | None) -> Unusable | None:
        greeting = await connection.greeting(self._limits.greeting_timeout_s)
        if greeting is None:
            return _failed(connection, _GREETING)
        if greeting.code >= 300:  # 5xx too: another host may be better, and tomorrow too (smtp_skip_5xx_greeting)
            return _refused(connection, greeting)._replace(
                status=Status.DEFERRED, dsn="4" + enhanced_code(greeting)[1:]
            )
        reason = await self._hello(connection)
        if policy.level == "none":
            connection.tls_level = str(policy) if policy.why else ""  # "": a Unix socket
        elif reason is None:
            reason = await self._encrypt(connection, policy)
            if reason is not None:
                return reason._replace(level=str(policy))
        if reason is None and login is not None:
            timeout_s = self._limits.command_timeout_s
            dsn, words = await authenticate(connection, login, self._auth, timeout_s, policy.level)
            if dsn:
                cause = Cause.LOCAL if dsn == "4.3.5" else Cause.SITE
                return Unusable(Status.DEFERRED, dsn, words, cause, level=connection.tls_level)
        return reason

    async def _encrypt(self, connection: Connection, policy: Policy) -> Unusable | None:
        """Starts TLS as ``policy`` demands; None if the connection is now what it demands."""
        if "starttls" not in connection.features:
            hidden = connection.hides_starttls
            if policy.demands_tls:
                why = "STARTTLS is discarded by a setting for" if hidden else "was not offered by"
                words = f"TLS is required, but {why} host {connection.name}"
                return Unusable(Status.DEFERRED, "4.7.4", words, result="" if hidden else Result.STARTTLS_NOT_SUPPORTED)
            why = "a setting discards STARTTLS of this server" if hidden else TLS_NOT_OFFERED
            connection.tls_level = _in_the_clear(policy, why)
            connection.tls_result = "" if hidden else Result.STARTTLS_NOT_SUPPORTED
            return None
        try:
            context = self._contexts.of(policy)
        except OSError as error:
            words = f"cannot read the certificates of CAs in {policy.ca_file or 'the system'}: {error}"
            return Unusable(Status.DEFERRED, "4.3.5", words, Cause.LOCAL)  # other policies may have other files
        reply = await connection.encrypt(context, self._limits.command_timeout_s, policy.server_name)
        if reply is None:
            words = f"Cannot start TLS with {connection.name}: {connection.tls_error or 'handshake failure'}"
            result, reason_code = _result_of(connection.tls_exception)
            return Unusable(Status.DEFERRED, "4.7.5", words, of_tls=True, result=result, reason_code=reason_code)
        if reply.code != 220:
            if policy.demands_tls:
                words = refused_tls(connection.name, reply.text)
                return Unusable(Status.DEFERRED, "4.7.4", words, result=Result.STARTTLS_NOT_SUPPORTED)
            connection.tls_result = Result.STARTTLS_NOT_SUPPORTED
            connection.tls_level = _in_the_clear(policy, f"{connection.name} refused to start TLS: {reply.text}")
            return None  # the conversation continues in the clear
        found = checked(connection.ssl_object, policy)
        connection.tls_verified = found.verified
        if found.missing:
            words = f"Server certificate of {connection.name} not verified: {found.missing}"
            result, code = Result.CERTIFICATE_HOST_MISMATCH, ""
            if policy.tlsa:
                result, code = Result.CERTIFICATE_NOT_TRUSTED, TLSA_MISMATCH
            return Unusable(Status.DEFERRED, "4.7.5", words, result=result, reason_code=code)
        by_record = f"{policy.level}: TLSA {found.record} of {policy.names[0]}" if found.record is not None else ""
        connection.tls_level = by_record or str(policy)
        reason = await self._hello(connection)
        # A server that dislikes our handshake in TLS 1.3 says so only here, by hanging up.
        if reason is None or connection.failure is None:
            return reason
        result, reason_code = _result_of(connection.tls_exception)
        return reason._replace(of_tls=True, result=result, reason_code=reason_code)

    async def _hello(self, connection: Connection) -> Unusable | None:
        reply = await connection.hello(self._our_name, self._limits.greeting_timeout_s)
        if reply is None:
            return _failed(connection, _LMTP_HELLO if connection.speaks_lmtp else _HELLO)
        if reply.code >= 300:
            refused = _refused(connection, reply)
            if connection.speaks_lmtp and reply.code in _UNKNOWN_COMMAND:  # it speaks SMTP: a mistake in our settings
                return refused._replace(status=Status.DEFERRED, dsn="4" + refused.dsn[1:])
            return refused
        connection.extensions = OutgoingTable(self._extensions, connection.features)
        return None


def relay_of(address: Address, port: int) -> str:
    """Returns the name of a host and its address as it is logged; a Unix socket has no port."""
    name = f"{address.host}[{address.address}]"
    return f"{name}:{port}" if port else name


def _result_of(error: Exception | None) -> tuple[str, str]:
    """Returns the result and the reason code of a handshake that failed; the result is "" if the connection was lost.

    The network, or a server that stops, may be the reason then: RFC 8460 4.3 has results of TLS only.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        expired = error.verify_code == _CERTIFICATE_EXPIRED
        result = Result.CERTIFICATE_EXPIRED if expired else Result.CERTIFICATE_NOT_TRUSTED
        return result, error.verify_message
    if error is None or (isinstance(error, OSError) and not isinstance(error, ssl.SSLError)):
        return "", CONNECTION_LOST
    if isinstance(error, ssl.SSLEOFError | ssl.SSLSyscallError):
        return "", CONNECTION_LOST
    reason = error.reason if isinstance(error, ssl.SSLError) else None
    return Result.VALIDATION_FAILURE, reason.lower() if reason else _UNKNOWN_REASON


def _in_the_clear(policy: Policy, why: str) -> str:
    """Returns what is recorded of mail that is sent in the clear under a level that allows it."""
    why = why[:CLEAR_WHY_MAX]
    return f"{policy}{'; ' if policy.why else ': '}{TLS_CLEAR}{why}"


def _failed(connection: Connection, stage: str) -> Unusable:
    failure = connection.failure or Failure.LOST
    dsn = "4.5.0" if failure is Failure.PROTOCOL else "4.4.2"
    return Unusable(Status.DEFERRED, dsn, failure.value.format(name=connection.name, stage=stage))


def _refused(connection: Connection, reply: Reply) -> Unusable:
    words = refused_to_talk(connection.name, reply.text)
    return Unusable(status_of(reply), enhanced_code(reply), words)
