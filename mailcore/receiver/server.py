"""The SMTP server of one process: its listening sockets, its sessions and their bounds.

Laws
- Accepting is our own: uvloop's server closes itself for good when the process is out of file descriptors, and asyncio's
  logs for every try. Here accepting pauses, logs that once, and tries again.
- Connections are bounded, in all and per client (``Admission``); a connection beyond that gets 421 and costs no session.
- A listener with implicit TLS and without a certificate that can be used closes each connection at once: it speaks nothing
  in the clear.
- Behind a listed balancer, the client of a connection is the one that the PROXY header names. Until the header has come, the
  connection counts, but has no session.
- One timer for all sessions: each notes the tick at which its client last sent something. ``Guard`` decides who has to hurry.

Keeps law: sessions-bounded, law: client-address-believed (docs/laws.md).
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import errno
import functools
import socket
import ssl
from collections.abc import Iterable, Sequence

from mailcore.authenticity.sender_check import SenderCheck
from mailcore.config.clients import Clients
from mailcore.config.esmtp import Esmtp
from mailcore.config.header_completion import Headers
from mailcore.config.lenient import STRICT, Lenient
from mailcore.config.listeners import MX, Listener
from mailcore.config.milters import Milter
from mailcore.config.settings import Receiver
from mailcore.esmtp import EXTENSIONS, Extension
from mailcore.milter.away import Away
from mailcore.receiver.admission import Admission
from mailcore.receiver.auth_session import AuthSession
from mailcore.receiver.authentication import Authentication
from mailcore.receiver.check import Checks
from mailcore.receiver.checked_session import CheckedSession
from mailcore.receiver.client_rates import ClientRates
from mailcore.receiver.guard import Guard
from mailcore.receiver.inline_room import InlineRoom
from mailcore.receiver.intake import Intake, Refusal
from mailcore.receiver.line_session import LineSession, State
from mailcore.receiver.milter_session import MilterSession
from mailcore.receiver.policy import RelayPolicy
from mailcore.receiver.proxy_header import Passed
from mailcore.receiver.proxy_reader import HEADER_TIMEOUT_S, HeaderReader
from mailcore.receiver.server_context import DEFAULTS, NO_CLIENTS, ServerContext
from mailcore.receiver.session import ServerSession
from mailcore.receiver.tls_failure import why_failed
from mailcore.routing.networks import ByNetwork
from mailcore.routing.reverse_names import ReverseNames

__all__ = ["Server"]

ACCEPTS_PER_TURN = 16  # then the connected clients have their turn
IDLE_TICKS = 8  # the idle time-out is kept to an eighth, and
TICK_S_MAX = 1.0  # to a second, as are the times under stress
ENDING_LOOK_S = 0.02  # between two looks for sessions that have ended a transaction and begin none
PAUSE_S_MIN = 0.1
PAUSE_S_MAX = 5.0
_OUT_OF_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)  # accept(2)


class Server:
    """Accepts connections and makes sessions. The keyword arguments are those of ``ServerContext``, one for each rule."""

    def __init__(
        self,
        settings: Receiver,
        policy: RelayPolicy,
        intake: Intake,
        loop: asyncio.AbstractEventLoop,
        *,
        hostname: str,
        inline_room: InlineRoom,
        spool_data_at: int,
        tls_context: ssl.SSLContext | None = None,
        connections_max: int | None = None,
        extensions: Sequence[Extension] = EXTENSIONS,
        authentication: Authentication | None = None,
        clients: Clients = NO_CLIENTS,
        rates: ClientRates | None = None,
        esmtp: Esmtp = DEFAULTS,
        lenient: Lenient = STRICT,
        reverse_names: ReverseNames | None = None,
        milters: Sequence[Milter] = (),
        client_keywords: ByNetwork[frozenset[str]] | None = None,
        sender_check: SenderCheck | None = None,
        checks: Checks | None = None,
        headers: Headers | None = None,
    ) -> None:
        self._make_context = functools.partial(
            ServerContext,
            settings,
            policy,
            intake,
            loop,
            hostname=hostname,
            inline_room=inline_room,
            spool_data_at=spool_data_at,
            extensions=extensions,
            authentication=authentication,
            clients=clients,
            rates=rates,
            esmtp=esmtp,
            lenient=lenient,
            milters=milters,
            away=Away(loop.time),
            headers=headers,
            client_keywords=client_keywords,
            sender_check=sender_check,
            checks=checks,
        )
        self._tls_context = tls_context
        self._mechanisms = authentication.users.mechanisms if authentication is not None else ""
        self._contexts: dict[Listener, ServerContext] = {}  # by the rule without its address
        self.context = self._context_of(MX)
        self.settings = settings
        self.policy = policy
        self.intake = intake
        self.loop = loop
        self.sessions: set[LineSession] = set()
        self._connections_max = min(settings.connections_max, connections_max or settings.connections_max)
        self._listeners: dict[socket.socket, ServerContext] = {}
        self._opening: dict[LineSession, asyncio.Task[object]] = {}
        self._headers: set[HeaderReader] = set()  # connections of balancers whose PROXY header has not come yet
        self.header_timeout_s = HEADER_TIMEOUT_S
        self._pause_s = PAUSE_S_MIN
        self._paused: asyncio.TimerHandle | None = None
        self._complained = False
        self._tick_s = min(settings.idle_timeout_s / IDLE_TICKS, settings.stress_timeout_s / IDLE_TICKS, TICK_S_MAX)
        self._reverse_names = reverse_names
        self._guard = Guard(settings, self._connections_max)
        known_network = [] if authentication is None else [authentication.known_network]
        self._admission = Admission(settings, clients, self._guard, rates, hostname, *known_network)
        self._ticking = loop.call_later(self._tick_s, self._tick)

    def start(self, listeners: Iterable[socket.socket], rule: Listener = MX) -> None:
        """Accepts connections on ``listeners``, which do not block, by the settings in ``rule``."""
        for listener in listeners:
            self._listeners[listener] = self._context_of(rule)
            self._watch(listener)

    def _context_of(self, rule: Listener) -> ServerContext:
        rule = dataclasses.replace(rule, address="")
        context = self._contexts.get(rule)
        if context is None:
            context = self._contexts[rule] = self._make_context(tls_context=self._tls_context, rule=rule)
            context.set_mechanisms(self._mechanisms)
            context.renamed = self._renamed
        return context

    def set_tls(self, tls_context: ssl.SSLContext | None) -> None:
        """Changes the certificates of the next handshakes; None: there is none that can be used."""
        self._tls_context = tls_context
        for context in self._contexts.values():
            context.set_tls(tls_context)

    def set_mechanisms(self, mechanisms: str) -> None:
        """Changes the mechanisms of AUTH that are offered from the next EHLO on."""
        self._mechanisms = mechanisms
        for context in self._contexts.values():
            context.set_mechanisms(mechanisms)

    async def end(self) -> None:
        """Accepts no more connections and no more transactions; returns when those that had begun have ended.

        The listening sockets stay open: connections wait there for the process that comes next.
        """
        if self._paused is not None:
            self._paused.cancel()
        for listener in self._listeners:
            self.loop.remove_reader(listener.fileno())
        for reader in list(self._headers):
            reader.close()
        self._headers.clear()
        for context in self._contexts.values():
            context.is_ending = True
        while True:
            going_on = False
            for session in list(self.sessions):
                assert isinstance(session, ServerSession)
                if session.state in (State.CLOSING, State.CLOSED):
                    continue
                if session.is_between_transactions and session not in self._opening:
                    session.end_for_reload()
                else:
                    going_on = True
            if not going_on:
                return
            await asyncio.sleep(ENDING_LOOK_S)

    def close(self) -> None:
        """Closes everything, for tests; the process itself just ends."""
        self._ticking.cancel()
        if self._paused is not None:
            self._paused.cancel()
        for listener in self._listeners:
            self.loop.remove_reader(listener.fileno())
            listener.close()
        self._listeners.clear()
        for reader in self._headers:
            reader.close()
        self._headers.clear()
        for session in list(self.sessions):
            session.abort()

    def closed(self, session: LineSession) -> None:
        """Takes a session off the counts: it is over, or never began."""
        if session in self.sessions:
            self.sessions.remove(session)
            self._guard.ended(session)
            self._admission.ended(session)

    @property
    def _connections(self) -> int:
        return len(self.sessions) + len(self._headers)

    def _renamed(self, session: AuthSession) -> bytes:
        """Watches a session by what its client is now; returns the reply that refuses this client."""
        refusal = self._admission.renamed(
            session,
            session.address,
            trusted=session.trusted,
            submission=session.context.rule.purpose == "submission",
            connections=self._connections - 1,
        )
        if refusal:
            self.intake.refused(Refusal("CONNECT", refusal.decode(), session.address))
            return refusal
        if self._reverse_names is not None and not session.client_name:
            self._reverse_names.find(session.address, session.named)
        self._guard.renamed(session, self.loop.time(), trusted=session.trusted)
        return b""

    # -- accepting

    def _watch(self, listener: socket.socket) -> None:
        self.loop.add_reader(listener.fileno(), self._accept, listener)

    def _accept(self, listener: socket.socket) -> None:
        server_address = listener.getsockname()[0]
        context = self._listeners[listener]
        for _ in range(ACCEPTS_PER_TURN):
            try:
                connection, peer = listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in _OUT_OF_RESOURCES:
                    self._pause(error)
                    return
                continue  # of that one connection: gone before it was accepted
            if self._complained:
                self._complained = False
                self._pause_s = PAUSE_S_MIN
            if context.balancers is not None and context.balancers.hold(peer[0]):
                self._await_header(context, connection, peer[0], peer[1])
            else:
                self._take(context, connection, peer[0], peer[1], server_address, self.policy.trusts(peer[0]))

    def _await_header(self, context: ServerContext, connection: socket.socket, balancer: str, port: int) -> None:
        """Reads the PROXY header, then takes the connection as that of the client in it."""
        submission = context.rule.purpose == "submission"
        connections, headers = self._connections, len(self._headers)
        if not self._admission.may_send_header(submission=submission, connections=connections, headers=headers):
            connection.close()
            self.intake.proxy_refused(balancer, "too many connections")
            return

        def done(reader: HeaderReader, passed: Passed | None, why: str) -> None:
            self._headers.discard(reader)
            if passed is None:
                connection.close()
                self.intake.proxy_refused(balancer, why)
            elif passed.client:
                trusted = self.policy.trusts(passed.client)
                self._take(context, connection, passed.client, passed.client_port, passed.server, trusted)
            else:  # the balancer's own, or a client it cannot name: that is not trusted for the balancer's address
                own = connection.getsockname()[0]
                self._take(context, connection, balancer, port, own, trusted=False, is_named=False)

        self._headers.add(HeaderReader(self.loop, connection, done, self.header_timeout_s))

    def _take(
        self,
        context: ServerContext,
        connection: socket.socket,
        address: str,
        port: int,
        server_address: str,
        trusted: bool,
        is_named: bool = True,
    ) -> None:
        submission = context.rule.purpose == "submission"
        refusal = self._admission.refusal(
            address, trusted=trusted, submission=submission, connections=self._connections
        )
        if refusal := refusal or self.intake.closed():
            with connection, contextlib.suppress(OSError):
                connection.setblocking(False)
                if not context.is_implicit:
                    connection.send(refusal + b"\r\n")
            self.intake.refused(Refusal("CONNECT", refusal.decode(), address))
            return
        if context.is_implicit and context.tls_context is None:  # the log says why since the certificate was read
            connection.close()
            return
        connection.setblocking(False)
        if server_address in ("0.0.0.0", "::"):  # noqa: S104 - compared, not bound
            server_address = connection.getsockname()[0]
        make: type[ServerSession] = ServerSession
        if context.milters or context.sender_check is not None:
            make = MilterSession if context.milters else CheckedSession
        session = make(context, address, port, server_address, self.closed)
        if not is_named:
            session.distrust()
        self._admission.began(session, address, trusted=trusted, submission=submission, connections=self._connections)
        self.sessions.add(session)
        if self._reverse_names is not None:
            self._reverse_names.find(session.address, session.named)
        if not trusted:
            self._guard.began(session, self.loop.time())
            if context.checks is not None and context.rule.purpose == "mx":  # elsewhere a client must log in
                context.checks.connected(session.address)
        opening = self.loop.create_task(self._open(session, connection))
        self._opening[session] = opening
        opening.add_done_callback(lambda _: self._opening.pop(session, None))

    async def _open(self, session: ServerSession, connection: socket.socket) -> None:
        context = session.context
        try:
            if context.is_implicit:
                await self.loop.connect_accepted_socket(
                    lambda: session,
                    connection,
                    ssl=context.tls_context,
                    ssl_handshake_timeout=self.settings.idle_timeout_s,
                )
            else:
                await self.loop.connect_accepted_socket(lambda: session, connection)
        except (
            OSError,
            asyncio.CancelledError,
        ) as error:  # it is gone already, or the handshake failed or took too long
            if context.is_implicit and isinstance(error, OSError):
                self.intake.tls_failed(session.address, session.client_name, why_failed(error))
            connection.close()
            self.closed(session)

    def _pause(self, error: OSError) -> None:
        if self._paused is not None:
            return
        for listener in self._listeners:
            self.loop.remove_reader(listener.fileno())
        self._paused = self.loop.call_later(self._pause_s, self._resume)
        if not self._complained:  # one line an episode
            self._complained = True
            self.intake.accept_paused(error, self._pause_s)
        self._pause_s = min(2 * self._pause_s, PAUSE_S_MAX)

    def _resume(self) -> None:
        self._paused = None
        for listener in self._listeners:
            self._watch(listener)

    # -- time

    def _tick(self) -> None:
        self._ticking = self.loop.call_later(self._tick_s, self._tick)
        for context in self._contexts.values():
            context.ticks += 1
        idle = self.settings.idle_timeout_s / self._tick_s
        late = [(each, b"timeout exceeded") for each in self.sessions if each.context.ticks - each.heard > idle]
        now, guard = self.loop.time(), self._guard
        if guard.look(now):
            self.intake.stressed(guard.stressed, guard.untrusted)
            for context in self._contexts.values():
                context.stressed = guard.stressed
        late += guard.too_slow(now, self.settings.stress_timeout_s / self._tick_s)
        for session, reason in late:
            try:
                if (opening := self._opening.get(session)) is not None:
                    opening.cancel()  # its TLS handshake
                else:
                    session.idle(reason)
            except Exception as error:  # of one session; the others must be looked at as well
                self.intake.session_failed(session.address, error)
