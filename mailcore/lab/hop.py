"""One next hop: its listening socket, its behaviour, its counters and the ledger of what arrived.

A dead hop keeps its port bound without listening, so that a connection is refused and no other program takes the port.
"""

from __future__ import annotations

import asyncio
import random
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from mailcore.lab.arrival import Arrival, ContentDigest
from mailcore.lab.behaviour import Behaviour, BehaviourError, Deed, parse
from mailcore.lab.session import Session

__all__ = ["ARRIVALS_MAX", "Counters", "Hop", "HopPlan"]

ARRIVALS_MAX = 1_000_000  # kept in memory by one hop (some 600 MB at the very worst); beyond, only counted
BACKLOG = 1024  # of listen(); the kernel caps it at net.core.somaxconn
KEYWORDS = ("PIPELINING", "SIZE 1073741824", "8BITMIME", "SMTPUTF8", "ENHANCEDSTATUSCODES")


class Counters(msgspec.Struct, kw_only=True):
    """Since the start or the last reset."""

    connections: int = 0  # accepted
    connections_now: int = 0
    connections_peak: int = 0
    messages: int = 0  # answered with 250
    recipients: int = 0
    bytes: int = 0
    refused: dict[str, int] = msgspec.field(default_factory=dict)  # replies of 400 and above, by code
    resets: int = 0
    silences: int = 0
    closes: int = 0  # in place of a reply
    not_kept: int = 0  # arrivals that were only counted: ARRIVALS_MAX, or keep is off
    first_at: float = 0.0  # wall clock, the first and last arrival
    last_at: float = 0.0


@dataclass(frozen=True, slots=True)
class HopPlan:
    """``behaviour:host:port``, or ``name=behaviour:host:port``; a TOML table says the same with keys."""

    behaviour: str
    host: str
    port: int
    name: str = ""

    @classmethod
    def parse(cls, text: str) -> HopPlan:
        """Parses a hop such as ``slow(1.5)+limit(2):127.0.0.1:2526``; IPv6 in brackets; port 0 takes a free one. Raises
        BehaviourError."""
        rest, colon, port = text.rpartition(":")
        behaviour, between, host = rest.rpartition(":[") if rest.endswith("]") else rest.rpartition(":")
        host = host.removesuffix("]")
        if not (colon and between and behaviour and host):
            raise BehaviourError(f"{text!r}: a hop is written behaviour:host:port, such as accept:127.0.0.1:2526")
        if not port.isdecimal() or int(port) > 65_535:
            raise BehaviourError(f"{text!r}: {port!r} is not a port; allowed: 0 (any free one) to 65535")
        name, equals, after = behaviour.partition("=")
        if equals and "(" not in name:
            return cls(behaviour=after, host=host, port=int(port), name=name)
        return cls(behaviour=behaviour, host=host, port=int(port))


class Hop:
    """A running next hop. ``messages`` is the ledger, oldest first."""

    def __init__(
        self,
        plan: HopPlan,
        *,
        name: str,
        chance: random.Random,
        on_arrival: Callable[[Arrival], None] | None = None,
        keep: bool = True,
    ) -> None:
        self.name = name
        self.plan = plan
        self.hostname = f"{name}.lab.invalid"
        self.keywords: Sequence[str] = KEYWORDS
        self.messages: list[Arrival] = []
        self.counters = Counters()
        self.behaviour: Behaviour = parse(plan.behaviour, chance)
        self._chance = chance
        self._on_arrival = on_arrival
        self._keep = keep
        self._sessions: set[Session] = set()
        self._open: set[Session] = set()  # those this side has not ended; their sockets may take a moment longer
        self._socket: socket.socket | None = None
        self._server: asyncio.Server | None = None
        self._revival: asyncio.TimerHandle | None = None
        self._opening: asyncio.Task[None] | None = None
        self._port = plan.port
        self._numbered = 0
        self._arrived = 0

    # --- for who runs it --------------------------------------------------------------------------------------------

    @property
    def address(self) -> tuple[str, int]:
        """Returns host and port; the real port if the plan has port 0."""
        return self.plan.host, self._port

    @property
    def listening(self) -> bool:
        """Returns whether the hop accepts connections now."""
        return self._server is not None

    async def start(self) -> None:
        """Binds, and listens unless the behaviour is dead at first. Raises OSError."""
        self._bind()
        if self.behaviour.dead_s > 0:
            self._revive_in(self.behaviour.dead_s)
        else:
            await self._listen()

    async def stop(self) -> None:
        """Ends listening and every session, at once."""
        if self._revival is not None:
            self._revival.cancel()
            self._revival = None
        if self._opening is not None:
            await self._opening
        await self._deafen()
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    async def set_behaviour(self, text: str) -> None:
        """Sets the behaviour, for open sessions too. ``dead_for`` ends them and starts again. Raises BehaviourError."""
        behaviour = parse(text, self._chance)
        self.behaviour = behaviour
        if self._revival is not None:
            self._revival.cancel()
            self._revival = None
        if behaviour.dead_s > 0:
            await self._deafen()
            self._bind()
            self._revive_in(behaviour.dead_s)
        elif self._server is None:
            await self._listen()

    def reset(self) -> None:
        """Forgets what was counted; open connections stay and stay counted."""
        self.messages.clear()
        self.counters = Counters(connections_now=len(self._sessions), connections_peak=len(self._sessions))

    def abort_sessions(self) -> int:
        """Drops every open connection; how many there were."""
        sessions = list(self._sessions)
        for session in sessions:
            session.abort()
        return len(sessions)

    # --- for its sessions -------------------------------------------------------------------------------------------

    @property
    def connections(self) -> int:
        """Returns the connections that a limit counts: a session ends with its last reply, not when its socket is gone."""
        return len(self._open)

    def now(self) -> float:
        """Returns the time of the loop, in seconds."""
        return asyncio.get_running_loop().time()

    def opened(self, session: Session) -> int:
        """Counts a new session; returns its number, from 1."""
        self._sessions.add(session)
        self._open.add(session)
        counters = self.counters
        counters.connections += 1
        counters.connections_now = len(self._sessions)
        counters.connections_peak = max(counters.connections_peak, counters.connections_now)
        self._numbered += 1
        return self._numbered

    def ended(self, session: Session) -> None:
        """Takes a session off ``connections``: it has sent its last reply."""
        self._open.discard(session)

    def closed(self, session: Session) -> None:
        """Takes a session off all counts: its socket is gone."""
        self._open.discard(session)
        self._sessions.discard(session)
        self.counters.connections_now = len(self._sessions)

    def refused(self, code: int) -> None:
        """Counts a reply of 400 or above."""
        refused = self.counters.refused
        refused[str(code)] = refused.get(str(code), 0) + 1

    def did(self, deed: Deed) -> None:
        """Counts a reset, a close or a silence."""
        if deed is Deed.RESET:
            self.counters.resets += 1
        elif deed is Deed.CLOSE:
            self.counters.closes += 1
        else:
            self.counters.silences += 1

    def arrived(
        self,
        *,
        digest: ContentDigest,
        sender: str,
        parameters: str,
        recipients: tuple[str, ...],
        helo: str,
        client: str,
        session: int,
        transaction: int,
    ) -> None:
        """Counts one message that is about to be answered with 250."""
        now = time.time()
        counters = self.counters
        counters.messages += 1
        counters.recipients += len(recipients)
        counters.bytes += digest.size_bytes
        counters.first_at = counters.first_at or now
        counters.last_at = now
        self._arrived += 1
        kept = self._keep and len(self.messages) < ARRIVALS_MAX
        if not kept:
            counters.not_kept += 1
        if not kept and self._on_arrival is None:
            return
        arrival = Arrival(
            number=self._arrived,
            hop=self.name,
            sha256=digest.hexdigest(),
            id=digest.id,
            size_bytes=digest.size_bytes,
            sender=sender,
            parameters=parameters,
            recipients=recipients,
            helo=helo,
            client=client,
            session=session,
            transaction=transaction,
            at=now,
        )
        if kept:
            self.messages.append(arrival)
        if self._on_arrival is not None:
            self._on_arrival(arrival)

    # --- the socket -------------------------------------------------------------------------------------------------

    def _bind(self) -> None:
        if self._socket is not None:
            return
        family = socket.AF_INET6 if ":" in self.plan.host else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.setblocking(False)
            sock.bind((self.plan.host, self._port))
        except OSError:
            sock.close()
            raise
        self._port = sock.getsockname()[1]
        self._socket = sock

    async def _listen(self) -> None:
        self._bind()
        sock, self._socket = self._socket, None
        assert sock is not None
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: Session(self), sock=sock, backlog=BACKLOG)

    async def _deafen(self) -> None:
        if self._server is not None:
            self._server.close()
            self.abort_sessions()
            for _ in range(2):  # connections that were accepted before become sessions in the next turns of the loop
                await asyncio.sleep(0)
                self.abort_sessions()
            await self._server.wait_closed()
            self._server = None

    def _revive_in(self, seconds: float) -> None:
        def revive() -> None:
            self._revival = None
            self._opening = loop.create_task(self._listen())

        loop = asyncio.get_running_loop()
        self._revival = loop.call_later(seconds, revive)
