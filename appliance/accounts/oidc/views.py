"""The two addresses of single sign-on: one sends the browser to the provider, one takes it back.

Laws
- An answer is looked at only if this session asked for it: each state is random, is in the session, counts once, and for
  ten minutes.
- A person who is refused gets a page that says why and what to do; the audit log has it.
"""

from __future__ import annotations

import functools
import hmac
import logging
import secrets
import time
from http import HTTPStatus
from typing import Any

from allauth import account
from allauth.account.adapter import get_adapter
from allauth.account.internal.flows.login import perform_login, record_authentication
from allauth.account.models import Login
from allauth.core.internal import ratelimit
from allauth.mfa.stages import AuthenticateStage
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from appliance.accounts.invitation_views import INVITATION
from appliance.accounts.oidc.people import Refused, signed_in_user
from appliance.accounts.oidc.provider import Provider, Unavailable, Untrusted
from appliance.audit.models import Outcome
from appliance.audit.record import record
from appliance.common.own_names import site
from mailcore.config.oidc import Oidc

__all__ = ["begin", "callback"]

PENDING = "waypost_oidc"  # key of a session: state -> what belongs to it
PENDING_MAX = 5  # sign-ins begun in several windows
PENDING_S = 600  # a person types a password and a code meanwhile
_log = logging.getLogger("waypost.portal")


@functools.lru_cache(maxsize=1)
def _provider(given: Oidc) -> Provider:
    return Provider(given)


@login_not_required
@require_safe
@never_cache
def begin(request: HttpRequest) -> HttpResponse:
    """Sends the browser to the provider. 503 if it is not available."""
    if request.user.is_authenticated:
        return redirect(settings.LOGIN_REDIRECT_URL)
    if not settings.OIDC.issuer:
        return redirect("account_login")
    limited: HttpResponse | None = ratelimit.consume_or_429(
        request, app=account.__package__, action="oidc", limit_get=True
    )
    if limited:
        return limited
    state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
    try:
        address = _provider(settings.OIDC).address_to_sign_in(
            _own_address(request), state=state, nonce=nonce, verifier=verifier
        )
    except Unavailable as error:
        return _unavailable(request, error)
    target = request.GET.get("next", "")
    begun = {"nonce": nonce, "verifier": verifier, "at": time.time(), "next": target if _is_own(target) else ""}
    pending = {**request.session.get(PENDING, {}), state: begun}
    request.session[PENDING] = dict(list(pending.items())[-PENDING_MAX:])
    return redirect(address)


@login_not_required
@require_safe
@never_cache
def callback(request: HttpRequest) -> HttpResponse:
    """Takes the browser back from the provider, and signs the person in."""
    begun = _begun(request)
    if begun is None or request.user.is_authenticated:
        if not request.user.is_authenticated and request.GET:
            messages.error(request, "This sign-in was not begun here, is too old, or was used already. Begin again.")
        return redirect("account_login")
    if code := request.GET.get("error", "")[:60]:
        _refused(request, f"the provider said {code!r}")
        messages.error(request, f"{settings.OIDC.name} did not sign you in ({code}).")
        return redirect("account_login")
    try:
        if request.GET.get("iss", settings.OIDC.issuer) != settings.OIDC.issuer:  # RFC 9207
            raise Untrusted("the answer is of another provider (iss)")
        claims = _provider(settings.OIDC).claims(
            request.GET.get("code", "")[:2_000], _own_address(request), nonce=begun["nonce"], verifier=begun["verifier"]
        )
        user = signed_in_user(request, claims, str(request.session.get(INVITATION, "")))
    except Unavailable as error:
        return _unavailable(request, error)
    except Untrusted as error:
        _log.warning("single sign-on refused: %s", error)
        _refused(request, f"not trusted: {error}")
        words = f"The answer of {settings.OIDC.name} is not valid. Try again; if it stays so, tell an administrator."
        return _page(request, words, HTTPStatus.FORBIDDEN)
    except Refused as error:
        _refused(request, str(error), error.who)
        return _page(request, str(error), HTTPStatus.FORBIDDEN)
    request.session.pop(INVITATION, None)
    has_factor = bool(claims.amr.intersection(settings.OIDC.second_factor_amr))
    until = int(time.time()) + settings.OIDC.session_s
    record_authentication(request, user, "oidc", second_factor=has_factor, until=until)
    # Of a user who has shown a second factor to the provider, the portal does not ask another one.
    stages = {AuthenticateStage.key: {"handled": True}} if has_factor else {}
    login = Login(user=user, redirect_url=begun["next"] or None)
    login.state["stages"] = stages
    answer: HttpResponse = perform_login(request, login)
    return answer


def _begun(request: HttpRequest) -> dict[str, Any] | None:
    """Returns what this session noted about the sign-in that comes back; None if it did not begin it. Counts once."""
    given = request.GET.get("state", "")
    pending: dict[str, Any] = request.session.get(PENDING, {})
    found = next(
        (state for state in pending if hmac.compare_digest(state.encode(), given.encode("utf-8", "replace"))), None
    )
    if found is None:
        return None
    begun: dict[str, Any] = pending[found]
    request.session[PENDING] = {state: each for state, each in pending.items() if state != found}
    return begun if 0 <= time.time() - begun["at"] <= PENDING_S else None


def _own_address(request: HttpRequest) -> str:
    """Returns the address that the provider sends the browser back to."""
    path = reverse("account_oidc_callback")
    return f"{site()}{path}" if settings.PORTAL.public_url else request.build_absolute_uri(path)


def _is_own(target: str) -> bool:
    return bool(target and get_adapter().is_safe_url(target))


def _unavailable(request: HttpRequest, error: Unavailable) -> HttpResponse:
    _log.warning("single sign-on is not available: %s", error)
    _refused(request, f"not available: {error}")
    more = "Try again later, or sign in with a password." if settings.OIDC.passwords else "Try again later."
    words = f"{settings.OIDC.name} is not available at the moment. {more} The audit log has the reason."
    return _page(request, words, HTTPStatus.SERVICE_UNAVAILABLE)


def _refused(request: HttpRequest, words: str, who: str = "") -> None:
    name = who or "(no such user)"
    record(request, "sign_in.failed", name, who=name, outcome=Outcome.REFUSED, words=f"single sign-on: {words}")


def _page(request: HttpRequest, words: str, status: HTTPStatus) -> HttpResponse:
    return render(request, "accounts/oidc_error.html", {"words": words}, status=status)
