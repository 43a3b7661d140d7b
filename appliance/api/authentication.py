"""Finds out who asks, by the token, and what this token may be used for at this moment.

Laws
- The token is the only proof: a session's cookie is not looked at, so no page of another site can ask in a user's name.
- 401: there is no valid token, or its user is disabled. 403: it is valid, but its scopes or its user's role do not reach.
- Requests with unknown tokens are counted by address; above the limit they get 429. A valid token is never refused for what
  others send from its address: it cannot be guessed, so there is nothing to slow down.

Keeps law: token-below-its-user (docs/laws.md).
"""

from __future__ import annotations

import time
from collections.abc import Collection
from http import HTTPStatus

from django.core.cache import cache
from django.db import DatabaseError
from django.http import HttpRequest
from ninja.errors import AuthenticationError
from ninja.security import HttpBearer

from appliance.accounts.first_steps import first_step_of
from appliance.accounts.roles import Role, role_of
from appliance.api.errors import ApiError
from appliance.api.models import ApiToken
from appliance.api.scopes import Scope
from appliance.api.tokens import count_use, find, note_refusal
from appliance.audit.record import TOKEN_OF_REQUEST, client_address
from mailcore.faults import Code

__all__ = ["Bearer", "authenticated", "token_of"]

MINUTE_S = 60
UNKNOWN_PER_MINUTE = 60  # from one address; as many as sign-ins (ACCOUNT_RATE_LIMITS)
_TOKEN = "_waypost_api_token"  # noqa: S105  # the name of an attribute


def token_of(request: HttpRequest) -> ApiToken:
    """Returns the token of a request that was authenticated."""
    token = getattr(request, _TOKEN)
    assert isinstance(token, ApiToken)
    return token


def authenticated(request: HttpRequest, text: str) -> ApiToken:
    """Returns the valid token with this text, and acts in its user's name from here on. Counts the request.

    Raises AuthenticationError for a token that is not valid, ApiError for a user without access and for too many requests.
    """
    token = find(text)
    if token is None:
        raise _unknown(request)
    if why := _not_valid(token):
        note_refusal(request, token, why)
        raise AuthenticationError
    if wait := count_use(token, request):
        raise ApiError(
            "Too many requests with this token.",
            code=Code.BUSY,
            status=HTTPStatus.TOO_MANY_REQUESTS,
            retry_after_s=wait.seconds,
        )
    if role_of(token.user) is None:
        raise ApiError("The user of this token has no role.", code=Code.FORBIDDEN)
    if step := first_step_of(token.user):
        raise ApiError(f"The user of this token must sign in to the portal first: {step.words}.", code=Code.FORBIDDEN)
    request.user = token.user
    setattr(request, _TOKEN, token)
    setattr(request, TOKEN_OF_REQUEST, token.name)
    return token


class Bearer(HttpBearer):
    """Checks the token of an operation. ``scopes``: one of them is needed; none: any token will do."""

    def __init__(self, scopes: Collection[Scope], least: Role) -> None:
        super().__init__()
        self.scopes = frozenset(scopes)
        self.least = least

    def authenticate(self, request: HttpRequest, token: str) -> ApiToken:
        """Returns the token. Raises AuthenticationError, ApiError."""
        found = authenticated(request, token)
        if self.scopes and not any(found.has(scope) for scope in self.scopes):
            needed = " or ".join(sorted(self.scopes))
            raise ApiError(f"This token lacks the scope {needed}.", code=Code.FORBIDDEN)
        role = role_of(found.user)
        if role is None or role < self.least:
            raise ApiError(f"permission denied: requires the role {self.least.name.lower()}", code=Code.FORBIDDEN)
        return found


def _not_valid(token: ApiToken) -> str:
    """Returns why a token that exists is refused; "" if it is valid."""
    if token.revoked_at is not None:
        return "revoked"
    if not token.is_valid:
        return "expired"
    return "" if token.user.is_active else "the user is disabled"


def _unknown(request: HttpRequest) -> Exception:
    if _unknown_in_minute(request) <= UNKNOWN_PER_MINUTE:
        return AuthenticationError()
    return ApiError(
        "Too many requests without a valid token from this address.",
        code=Code.BUSY,
        status=HTTPStatus.TOO_MANY_REQUESTS,
        retry_after_s=MINUTE_S,
    )


def _unknown_in_minute(request: HttpRequest) -> int:
    """Counts a request with an unknown token; returns how many there were from its address in this minute."""
    key = f"api:unknown:{client_address(request)}:{int(time.time()) // MINUTE_S}"
    try:
        return 1 if cache.add(key, 1, 2 * MINUTE_S) else cache.incr(key)
    except (ValueError, DatabaseError):  # it has just expired, or the portal's database cannot be used
        return 1
