"""Keeps room for clients that send mail while others hold connections: a reserve, and short times under stress.

"Trusted" are clients in our own networks and users who have logged in. All others are untrusted.

Laws
- Untrusted clients never have the connections that are reserved (but see ``Admission`` for those of known networks).
  Of two reserves, one is for submission listeners: the clients
  there are users who have not logged in yet, and an attack on the port for other servers does not shut them out.
- Under stress an untrusted client has ``stress_timeout_s`` for a whole command, and its data comes at ``data_rate_min`` or
  faster, measured over such a time. A message has one clock, also between its chunks. Time in which the client waits for us
  does not count.
- Without stress no client is measured: a slow one costs nothing while there is room.

Pure: time is an argument. Keeps law: sessions-bounded (docs/laws.md).
"""

from __future__ import annotations

from collections.abc import Iterator

from mailcore.config.client_bounds import ClientBounds
from mailcore.receiver.data_session import DataSession
from mailcore.receiver.line_session import LineSession, State

__all__ = ["Guard"]

STRESS_SHARE = 0.8  # of the connections that untrusted clients can have; below, there is time to wait for slow ones


class _Mark:
    """When an untrusted client connected, and how much of its data had come when."""

    __slots__ = ("data_at", "data_bytes", "since")

    def __init__(self, now: float) -> None:
        self.since = now
        self.data_at = -1.0  # -1: it sends no data
        self.data_bytes = 0


class Guard:
    """The untrusted clients of one server. Times are monotonic seconds."""

    def __init__(self, settings: ClientBounds, connections_max: int) -> None:
        self._settings = settings
        self._connections_max = connections_max
        self.reserve = min(settings.connections_reserved, connections_max // 4)
        self._stress_at = max(1, int(STRESS_SHARE * (connections_max - 2 * self.reserve)))
        self._untrusted: dict[DataSession, _Mark] = {}
        self.stressed = False

    def room(self, *, trusted: bool, submission: bool) -> int:
        """Returns how many connections there may be when a client of this kind is accepted, without it."""
        return self._connections_max - (0 if trusted else self.reserve if submission else 2 * self.reserve)

    def began(self, session: DataSession, now: float) -> None:
        """Notes the session of an untrusted client."""
        self._untrusted[session] = _Mark(now)

    def renamed(self, session: DataSession, now: float, *, trusted: bool) -> None:
        """Notes that another client has taken the place of the one that connected."""
        if trusted:
            self._untrusted.pop(session, None)
        elif session not in self._untrusted:
            self.began(session, now)

    def ended(self, session: LineSession) -> None:
        """Forgets a session, if it was that of an untrusted client."""
        if isinstance(session, DataSession):
            self._untrusted.pop(session, None)

    def look(self, now: float) -> bool:
        """Decides whether there is stress now; returns whether that has changed."""
        before, self.stressed = self.stressed, len(self._untrusted) >= self._stress_at
        return before is not self.stressed

    @property
    def untrusted(self) -> int:
        """Returns how many untrusted clients are connected."""
        return len(self._untrusted)

    def too_slow(self, now: float, silent_ticks: float) -> Iterator[tuple[DataSession, bytes]]:
        """Yields the sessions to end, with the reason. ``silent_ticks``: the ticks of ``stress_timeout_s``."""
        settings = self._settings
        for session, mark in list(self._untrusted.items()):
            if session.login:
                del self._untrusted[session]
            elif now - mark.since > settings.session_time_max_s:
                yield session, b"session too long"
            elif self.stressed and not session.waits_for_disk:
                if session.context.ticks - session.heard > silent_ticks or self._is_slow(session, mark, now):
                    yield session, b"timeout exceeded"
            else:
                mark.data_at = -1.0

    def _is_slow(self, session: DataSession, mark: _Mark, now: float) -> bool:
        if session.state not in (State.DATA, State.CHUNK) and not session.is_receiving:
            mark.data_at = -1.0
            return False
        had = session.data_bytes
        if mark.data_at < 0 or had < mark.data_bytes:  # the data has just begun, or that of the next message
            mark.data_at, mark.data_bytes = now, had
        passed_s = now - mark.data_at
        if passed_s < self._settings.stress_timeout_s:
            return False
        slow = had - mark.data_bytes < self._settings.data_rate_min * passed_s
        mark.data_at, mark.data_bytes = now, had
        return slow
