"""Makes tokens, and finds the token of a request: whether it is valid, and whether it has asked too often.

Laws
- The token is shown once, when it is made; the database has its digest.
- The user, the role and the second factor are those of the moment of use, so a user who was disabled or given another role
  takes all tokens along.
- A token that has ended stays in the list for a year, and is deleted when its user makes another one.
- Requests are counted in the database by one statement, so that all portal processes share the count. While the database
  cannot be written, requests are not counted: looks continue, and a change needs the database anyway.

Keeps law: token-below-its-user (docs/laws.md).
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from django.conf import settings
from django.contrib.auth.models import User
from django.db import DatabaseError
from django.db.models import Case, F, Q, QuerySet, Value, When
from django.http import HttpRequest
from django.utils import timezone

from appliance.api.models import ApiToken
from appliance.api.scopes import Scope
from appliance.audit.models import Outcome
from appliance.audit.record import client_address, record

__all__ = ["PREFIX", "Wait", "count_use", "digest_of", "find", "is_known_form", "make", "note_refusal", "tokens_in_use"]

PREFIX = "wpt_"  # so that a scanner of repositories knows a token when it sees one
SECRET_BYTES = 32
TOKEN_MAX = 100  # characters; what is longer is not looked up
BEGINNING = len(PREFIX) + 4  # characters that are shown later; 232 bits are left
ENDED_KEPT = timedelta(days=365)
REFUSALS_NOTED_EVERY = timedelta(hours=1)  # in the audit log, for each token
MINUTE_S = 60
_log = logging.getLogger("waypost.portal")


@dataclass(frozen=True)
class Wait:
    """Says that a token has asked too often, and after how many seconds it may ask again."""

    seconds: int


def make(user: User, name: str, scopes: Sequence[Scope], days: int) -> tuple[ApiToken, str]:
    """Stores a new token; returns it, and its text, which is not stored."""
    now = timezone.now()
    long_ago = now - ENDED_KEPT
    ApiToken.objects.filter(Q(expires_at__lt=long_ago) | Q(revoked_at__lt=long_ago), user=user).delete()
    text = PREFIX + secrets.token_urlsafe(SECRET_BYTES)
    token = ApiToken.objects.create(
        user=user,
        name=name,
        scopes=[scope.value for scope in Scope if scope in scopes],
        digest=digest_of(text),
        beginning=text[:BEGINNING],
        created_at=now,
        expires_at=now + timedelta(days=min(days, settings.PORTAL.api_token_days_max)),
    )
    return token, text


def tokens_in_use(user: User) -> QuerySet[ApiToken]:
    """Returns the valid tokens of the user."""
    return ApiToken.objects.filter(user=user, revoked_at=None, expires_at__gt=timezone.now())


def digest_of(text: str) -> str:
    """Returns the digest by which a token is looked up."""
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def is_known_form(text: str) -> bool:
    """Returns whether a text can be a token at all."""
    return text.startswith(PREFIX) and len(text) <= TOKEN_MAX


def find(text: str) -> ApiToken | None:
    """Returns the token with this text, valid or not, with its user; None if there is none."""
    if not is_known_form(text):
        return None
    digest = digest_of(text)
    token = ApiToken.objects.select_related("user").filter(digest=digest).first()
    return token if token is not None and hmac.compare_digest(token.digest, digest) else None


def count_use(token: ApiToken, request: HttpRequest) -> Wait | None:
    """Counts a request and notes when and from where it came; returns Wait if it is one too many."""
    at = time.time()
    minute = int(at) // MINUTE_S
    try:
        ApiToken.objects.filter(pk=token.pk).update(
            used_in_minute=Case(When(minute=minute, then=F("used_in_minute") + 1), default=Value(1)),
            minute=minute,
            last_used_at=timezone.now(),
            last_address=client_address(request),
        )
        used = ApiToken.objects.values_list("used_in_minute", flat=True).get(pk=token.pk)
    except DatabaseError as error:
        _log.error("a request of the HTTP API was not counted: %s", error)
        return None
    if used <= settings.PORTAL.api_requests_per_minute:
        return None
    return Wait(MINUTE_S - int(at) % MINUTE_S)


def note_refusal(request: HttpRequest, token: ApiToken, why: str) -> None:
    """Enters in the audit log that a token was refused, at most once an hour for each token."""
    now = timezone.now()
    due = ApiToken.objects.filter(pk=token.pk).exclude(refused_at__gt=now - REFUSALS_NOTED_EVERY)
    try:
        if due.update(refused_at=now):
            who = token.user.get_username()
            record(request, "token.refused", token.name, who=who, outcome=Outcome.REFUSED, words=why)
    except DatabaseError as error:
        _log.error("the refusal of a token is not in the audit log: %s", error)
