"""The sessions that this process has let in, for the time in which the portal's database is away: they see the state of mail.

Law: a session that was ended is not remembered: the portal that keeps a sample each minute compares them with the database, so
one that was ended a minute before the database went away sees nothing. Nothing is changed by a remembered session.
"""

from __future__ import annotations

import threading
import time

from django.conf import settings
from django.utils import timezone

from appliance.accounts.session_store import Session

__all__ = ["forget_ended", "is_remembered", "remember"]

SESSIONS_MAX = 1_000

_lock = threading.Lock()
_seen: dict[str, float] = {}  # key of a session -> when it was let in, monotonic; the last one at the end


def remember(session_key: str | None) -> None:
    """Notes that a session was let in now, with a role."""
    if not session_key:
        return
    with _lock:
        _seen.pop(session_key, None)
        _seen[session_key] = time.monotonic()
        if len(_seen) > SESSIONS_MAX:
            del _seen[next(iter(_seen))]


def is_remembered(session_key: str | None) -> bool:
    """Returns whether a session was let in no longer ago than it lasts without a request."""
    with _lock:
        at = _seen.get(session_key or "")
    return at is not None and time.monotonic() - at < settings.PORTAL.session_idle_s


def forget_ended() -> None:
    """Forgets the sessions that were ended. Raises DatabaseError, and then forgets none."""
    with _lock:
        keys = list(_seen)
    if not keys:
        return
    there = Session.objects.filter(session_key__in=keys, expire_date__gt=timezone.now())
    ended = set(keys) - set(there.values_list("session_key", flat=True))
    with _lock:
        for key in ended:
            _seen.pop(key, None)
