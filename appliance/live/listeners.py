"""Who may still listen: the sessions of all open streams of this process, looked at together every few seconds.

Law: who signed out, whose session ended, who lost the role or got another password is told by the next look; it costs three
questions to the database, however many listen.

Keeps law: streams-end-with-session (docs/laws.md).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.utils import timezone
from django.utils.crypto import constant_time_compare

from appliance.accounts.roles import role_of
from appliance.live.samples import in_thread

__all__ = ["LOOK_S", "Listeners", "listeners"]

LOOK_S = 2.0  # with a picture a second, or every four from a core that hangs, a stream ends within five


class Listeners:
    """Knows the sessions of the open streams, and which of them may still listen."""

    def __init__(self, look: Callable[[frozenset[str]], frozenset[str]]) -> None:
        """``look``: those of these sessions whose user may listen; called in a thread."""
        self._look = look
        self._open: Counter[str] = Counter()
        self._may: frozenset[str] = frozenset()
        self._looked_at = float("-inf")
        self._looking = asyncio.Lock()

    @contextmanager
    def one(self, session: str) -> Iterator[None]:
        """A stream of this session is open meanwhile."""
        self._open[session] += 1
        try:
            yield
        finally:
            self._open[session] -= 1
            if not self._open[session]:
                del self._open[session]

    async def may(self, session: str, since: float) -> bool:
        """As the last look has it; ``since``, of the loop's clock, is when this stream was let in."""
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
    """As ``django.contrib.auth.get_user`` would say it of each."""
    kept = Session.objects.filter(session_key__in=sessions, expire_date__gt=timezone.now())
    told = {str(each.session_key): each.get_decoded() for each in kept}
    users = User.objects.in_bulk({int(each[SESSION_KEY]) for each in told.values() if SESSION_KEY in each})
    return frozenset(key for key, session in told.items() if _is_in_force(session, users))


def _is_in_force(session: dict[str, Any], users: dict[int, User]) -> bool:
    user = users.get(int(session.get(SESSION_KEY, 0)))
    if user is None or session.get(BACKEND_SESSION_KEY) not in settings.AUTHENTICATION_BACKENDS:
        return False
    given = str(session.get(HASH_SESSION_KEY, ""))
    hashes = (user.get_session_auth_hash(), *user.get_session_auth_fallback_hash())
    return any(constant_time_compare(given, each) for each in hashes) and role_of(user) is not None


_listeners: Listeners | None = None


def listeners() -> Listeners:
    """Of this process and its loop."""
    global _listeners  # noqa: PLW0603  # one a process, as the hub is
    if _listeners is None:
        _listeners = Listeners(_who_may)
    return _listeners
