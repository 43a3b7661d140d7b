"""The sessions of all open streams of this process, checked together every few seconds.

Law: after a sign-out, the end of a session, a lost role or a new password, the next check ends the streams of that session.
A check costs three database queries, independent of the number of readers.

Keeps law: streams-end-with-session (docs/laws.md).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.contrib.auth import SESSION_KEY
from django.contrib.auth.models import User
from django.utils import timezone

from appliance.accounts.roles import role_of
from appliance.accounts.session_store import Session
from appliance.accounts.sessions import is_in_force
from appliance.live.samples import in_thread

__all__ = ["LOOK_S", "Listeners", "listeners"]

LOOK_S = 2.0  # snapshots come each second, or every 4 s if the core hangs: so a stream ends within 5 s


class Listeners:
    """Knows the sessions of the open streams, and which of them may still listen."""

    def __init__(self, look: Callable[[frozenset[str]], frozenset[str]]) -> None:
        """Makes the register. ``look`` returns the given sessions whose users may listen; it is called in a thread."""
        self._look = look
        self._open: Counter[str] = Counter()
        self._may: frozenset[str] = frozenset()
        self._looked_at = float("-inf")
        self._looking = asyncio.Lock()

    @contextmanager
    def one(self, session: str) -> Iterator[None]:
        """Registers a stream of this session while it is open."""
        self._open[session] += 1
        try:
            yield
        finally:
            self._open[session] -= 1
            if not self._open[session]:
                del self._open[session]

    async def may(self, session: str, since: float) -> bool:
        """Returns whether a session may listen, as of the last check. ``since``: start of its stream, on the loop's clock."""
        now = asyncio.get_running_loop().time()
        if now - self._looked_at >= LOOK_S:
            async with self._looking:  # the others wait for this one's answer
                if now - self._looked_at >= LOOK_S:
                    asked_at = asyncio.get_running_loop().time()
                    self._may = await asyncio.to_thread(self._look, frozenset(self._open))
                    self._looked_at = asked_at
        return session in self._may or since > self._looked_at


@in_thread
def _who_may(sessions: frozenset[str]) -> frozenset[str]:
    """Returns the sessions whose users may listen, by the rules of ``django.contrib.auth.get_user``."""
    kept = Session.objects.filter(session_key__in=sessions, expire_date__gt=timezone.now())
    told = {str(each.session_key): each.get_decoded() for each in kept}
    users = User.objects.in_bulk({int(each[SESSION_KEY]) for each in told.values() if SESSION_KEY in each})
    return frozenset(key for key, session in told.items() if _may_listen(session, users))


def _may_listen(session: dict[str, Any], users: dict[int, User]) -> bool:
    user = users.get(int(session.get(SESSION_KEY, 0)))
    return user is not None and is_in_force(session, user) and role_of(user) is not None


_listeners: Listeners | None = None


def listeners() -> Listeners:
    """Returns the listeners of this process and its loop."""
    global _listeners  # noqa: PLW0603  # one a process, as the hub is
    if _listeners is None:
        _listeners = Listeners(_who_may)
    return _listeners
