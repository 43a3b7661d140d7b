"""The sessions of users: what they show of themselves, and their end.

A session ends when a person ends it, and when its user is disabled, deleted, or gets other rights or another password. The role
is read with each request, so no right depends on this; but a user who left a page open has to sign in again. Its streams end
with it (``appliance.live.listeners``).
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from allauth.account.authentication import get_authentication_records
from allauth.account.signals import password_changed
from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser, Group, User
from django.contrib.auth.signals import user_logged_in
from django.contrib.sessions.backends.base import SessionBase
from django.db.models.signals import m2m_changed, post_save, pre_save
from django.dispatch import receiver
from django.http import HttpRequest
from django.utils import timezone
from django.utils.crypto import constant_time_compare

from appliance.accounts.browsers import AGENT_MAX, browser_in_words
from appliance.accounts.session_store import SIGN_IN, Session

__all__ = [
    "SEEN",
    "SignedIn",
    "end_sessions",
    "is_in_force",
    "is_over",
    "note_seen",
    "number_of",
    "sessions_of",
    "signed_in_by",
]

SEEN = "waypost_seen"  # key of a session: when it was last used, in seconds since 1970
_SEEN_AT = "waypost_seen_at"  # key of a session: the address that used it last
_HOW = {"password": "password", "oidc": "single sign-on"}
_FACTORS = {"totp": "code", "recovery_codes": "recovery code", "webauthn": "passkey"}
_NEVER = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True)
class SignedIn:
    """One session of a user, as pages show it. Times are aware; None: not known."""

    number: str
    browser: str
    how: str
    address: str  # of the sign-in
    signed_in_at: datetime | None
    last_address: str
    seen_at: datetime | None
    is_current: bool

    def __str__(self) -> str:
        when = self.signed_in_at.isoformat(timespec="seconds") if self.signed_in_at else "an unknown time"
        return f"{self.browser}, from {self.address or 'an unknown address'}, signed in at {when}"


def sessions_of(user: User, current: str = "") -> list[SignedIn]:
    """Returns the sessions of the user that are in force, the one used last first. ``current``: number of the asker's own."""
    found = [_described(number, data, current) for number, data in _in_force(user)]
    return sorted(found, key=lambda each: (each.is_current, each.seen_at or _NEVER), reverse=True)


def end_sessions(users: set[int], *, numbers: set[str] | None = None, but: str = "") -> int:
    """Ends sessions of the users, at once; returns how many ended.

    ``numbers``: only these; None: all. ``but``: the number of a session that stays.
    """
    rows = Session.objects.filter(user_id__in=users)
    if numbers is not None:
        rows = rows.filter(number__in=numbers)
    if but:
        rows = rows.exclude(number=uuid.UUID(but))
    return rows.delete()[0]


def number_of(session: SessionBase) -> str:
    """Returns the number of a session; "" before a sign-in."""
    return str((session.get(SIGN_IN) or {}).get("number", ""))


def note_seen(request: HttpRequest, now: int) -> None:
    """Notes in the session when and from where it was used."""
    request.session[SEEN] = now
    request.session[_SEEN_AT] = _address(request)


def is_in_force(data: dict[str, Any], user: User | None) -> bool:
    """Returns whether a session with this data signs in this user, by the rules of ``django.contrib.auth.get_user``."""
    if user is None or not user.is_active or data.get(SESSION_KEY) != str(user.pk):
        return False
    if data.get(BACKEND_SESSION_KEY) not in settings.AUTHENTICATION_BACKENDS:
        return False
    if is_over(data):
        return False
    given = str(data.get(HASH_SESSION_KEY, ""))
    hashes = (user.get_session_auth_hash(), *user.get_session_auth_fallback_hash())
    return any(constant_time_compare(given, each) for each in hashes)


def is_over(data: Mapping[str, Any]) -> bool:
    """Returns whether the time of a session by single sign-on is over, also if it was used until now."""
    until = (data.get(SIGN_IN) or {}).get("until")
    return until is not None and time.time() > until


def signed_in_by(request: HttpRequest, user: AbstractBaseUser | AnonymousUser, method: str) -> dict[str, Any] | None:
    """Returns what was noted when this user last proved who he is by this method in this session; None if he did not."""
    records = [each for each in get_authentication_records(request, user) if each.get("method") == method]
    return records[-1] if records else None


def _in_force(user: User) -> Iterator[tuple[str, dict[str, Any]]]:
    rows = Session.objects.filter(user=user, expire_date__gt=timezone.now()).exclude(number=None)
    for row in rows:
        if is_in_force(data := row.get_decoded(), user):
            yield str(row.number), data


def _described(number: str, data: dict[str, Any], current: str) -> SignedIn:
    noted = data.get(SIGN_IN, {})
    address = str(noted.get("address", ""))
    return SignedIn(
        number=number,
        browser=browser_in_words(str(noted.get("agent", ""))),
        how=str(noted.get("how", "")) or "unknown",
        address=address,
        signed_in_at=_time(noted.get("at")),
        last_address=str(data.get(_SEEN_AT, address)),
        seen_at=_time(data.get(SEEN) or noted.get("at")),
        is_current=number == current,
    )


def _time(seconds: float | None) -> datetime | None:
    return datetime.fromtimestamp(seconds, UTC) if seconds else None


def _address(request: HttpRequest) -> str:
    return str(request.META.get("REMOTE_ADDR") or "")


def _how(request: HttpRequest, user: User) -> str:
    """Returns in words how the user has just proved who he is: "password and code"."""
    words = [
        _FACTORS.get(str(each.get("type", "")), str(each.get("type", "")))
        if each.get("method") == "mfa"
        else _HOW.get(str(each.get("method", "")), str(each.get("method", "")))
        for each in get_authentication_records(request, user)
    ]
    return " and ".join(dict.fromkeys(words))


# Beginning and end of sessions


@receiver(user_logged_in)
def _signed_in(request: HttpRequest, user: User, **_: Any) -> None:
    request.session[SIGN_IN] = {
        "number": str(uuid.uuid4()),
        "at": int(time.time()),
        "address": _address(request),
        "agent": request.headers.get("User-Agent", "")[:AGENT_MAX],
        "how": _how(request, user),
        "until": (signed_in_by(request, user, "oidc") or {}).get("until"),
    }


@receiver(password_changed)
def _password_changed(request: HttpRequest, user: User, **_: Any) -> None:
    """Ends the other sessions. Django refuses them by their hash; so they also leave the list."""
    end_sessions({user.pk}, but=number_of(request.session))


@receiver(pre_save, sender=User)
def _remember_superuser(sender: type[User], instance: User, **_: Any) -> None:
    if instance.pk is not None:
        was = User.objects.filter(pk=instance.pk).values_list("is_superuser", flat=True).first()
        setattr(instance, "_was_superuser", was)  # noqa: B010


@receiver(post_save, sender=User)
def _user_saved(sender: type[User], instance: User, created: bool, **_: Any) -> None:
    was = getattr(instance, "_was_superuser", instance.is_superuser)
    if not created and (not instance.is_active or was != instance.is_superuser):
        end_sessions({instance.pk})


@receiver(m2m_changed, sender=User.groups.through)
@receiver(m2m_changed, sender=User.user_permissions.through)
def _rights_changed(instance: Any, action: str, reverse: bool, pk_set: set[int] | None, **_: Any) -> None:
    if not reverse:
        # No set: all were taken away; an empty one: nothing was changed.
        if action.startswith("post_") and (pk_set is None or pk_set):
            end_sessions({instance.pk})
    elif action in ("post_add", "post_remove"):
        end_sessions(set(pk_set or ()))
    elif action == "pre_clear":
        members = instance.user_set if isinstance(instance, Group) else User.objects.filter(user_permissions=instance)
        end_sessions(set(members.values_list("pk", flat=True)))
