"""The pages of invitations: the administrator's list, and the way of an invited person from the code to the first session.

Law: a GET changes nothing, so that programs that open links in mail use up no invitation. A code that is unknown, used,
withdrawn or expired gets one answer.
"""

from __future__ import annotations

from allauth.account.internal.flows.login import perform_login, record_authentication
from allauth.account.models import Login
from allauth.core import ratelimit
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST

from appliance.accounts.invitation_forms import AcceptForm, CodeForm, InviteForm
from appliance.accounts.invitations import NotValid, find, invite, open_invitations, send_again
from appliance.accounts.invitations import accept as accept_once
from appliance.accounts.invitations import withdraw as withdraw_open
from appliance.accounts.models import Invitation
from appliance.accounts.passkeys import passkeys_work
from appliance.accounts.roles import administrator
from appliance.audit.models import Outcome
from appliance.audit.record import record

__all__ = ["INVITATION", "accept", "again", "enter", "listed", "withdraw"]

INVITATION = "waypost_invitation"  # key of a session: the digest of the code that was entered in it
ENDED_SHOWN = 50
_NOT_VALID = "This invitation does not work. It was used, withdrawn or sent again, or has expired. Ask for another one."


@administrator
@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
def listed(request: HttpRequest) -> HttpResponse:
    """Renders the open invitations and the form; a POST invites."""
    form = InviteForm(request.POST if request.method == "POST" else None)
    if form.is_bound and form.is_valid():
        given = form.cleaned_data
        invitation = invite(given["address"], given["username"], given["role"], request.user.get_username())
        record(
            request, "user.invite", given["username"], why=given["why"], words=_outcome(invitation),
            after={"mail address": given["address"], "role": given["role"], "until": invitation.expires_at.isoformat()},
        )  # fmt: skip
        _tell(request, invitation)
        return redirect("account_invitations")
    ended = Invitation.objects.exclude(pk__in=open_invitations().values("pk"))[:ENDED_SHOWN]
    context = {"form": form, "open": open_invitations(), "ended": ended}
    return render(request, "accounts/invitations.html", context, status=422 if form.errors else 200)


@administrator
@require_POST
def again(request: HttpRequest, pk: int) -> HttpResponse:
    """Sends an invitation again, with another code."""
    invitation = get_object_or_404(Invitation, pk=pk)
    try:
        send_again(invitation)
    except NotValid as error:
        messages.error(request, f"Not sent: {error}.")
    else:
        record(request, "user.invite", invitation.username, words=f"sent again; {_outcome(invitation)}")
        _tell(request, invitation)
    return redirect("account_invitations")


@administrator
@require_POST
def withdraw(request: HttpRequest, pk: int) -> HttpResponse:
    """Withdraws an invitation."""
    invitation = get_object_or_404(Invitation, pk=pk)
    try:
        withdraw_open(invitation)
    except NotValid as error:
        messages.error(request, f"Not withdrawn: {error}.")
    else:
        record(request, "user.invite", invitation.username, words="withdrawn")
        messages.success(request, f"The invitation of {invitation.username} is withdrawn.")
    return redirect("account_invitations")


@login_not_required
@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
@sensitive_post_parameters()
def enter(request: HttpRequest) -> HttpResponse:
    """Renders the form for the code; a POST leads on if there is an open invitation with it."""
    form = CodeForm(request.POST if request.method == "POST" else None)
    if form.is_bound:
        if limited := _limited(request):
            return limited
        if form.is_valid():
            invitation = find(code=form.cleaned_data["code"].strip())
            if invitation is not None:
                request.session[INVITATION] = invitation.digest
                return redirect("account_invitation_accept")
            record(
                request,
                "user.accept",
                "(no such invitation)",
                who="anonymous",
                outcome=Outcome.REFUSED,
                words="unknown code",
            )
            form.add_error("code", _NOT_VALID)
    return render(request, "accounts/invitation.html", {"form": form})


@login_not_required
@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
@sensitive_post_parameters()
def accept(request: HttpRequest) -> HttpResponse:
    """Renders how the invited person may sign in; a POST makes the user, who is signed in then."""
    digest = str(request.session.get(INVITATION, ""))
    invitation = find(digest=digest) if digest else None
    if invitation is None or request.user.is_authenticated:
        if digest and not request.user.is_authenticated:
            request.session.pop(INVITATION, None)
            messages.error(request, _NOT_VALID)
        return redirect("account_invitation")
    invited = User(username=invitation.username, email=invitation.address)
    with_passkey = "passkey" in request.POST and passkeys_work(request)
    form = AcceptForm(invited, request.POST if request.method == "POST" and not with_passkey else None)
    if with_passkey:
        return _limited(request) or _accepted(request, invitation, None)
    if form.is_bound:
        if limited := _limited(request):
            return limited
        if settings.OIDC.passwords and form.is_valid():
            return _accepted(request, invitation, form.cleaned_data["new_password1"])
    return render(request, "accounts/invitation_accept.html", {"form": form, "invitation": invitation})


def _accepted(request: HttpRequest, invitation: Invitation, password: str | None) -> HttpResponse:
    request.session.pop(INVITATION, None)
    try:
        user = accept_once(invitation, password)
    except NotValid:
        messages.error(request, _NOT_VALID)
        return redirect("account_invitation")
    words = f"invited by {invitation.invited_by}"
    record(
        request,
        "user.accept",
        user.get_username(),
        who=user.get_username(),
        after={"role": invitation.role},
        words=words,
    )
    record_authentication(request, user, "password" if password else "invitation")
    answer: HttpResponse = perform_login(request, Login(user=user))
    return answer


def _limited(request: HttpRequest) -> HttpResponse | None:
    answer: HttpResponse | None = ratelimit.consume_or_429(request, action="invitation")
    return answer


def _outcome(invitation: Invitation) -> str:
    if invitation.fault:
        return f"not sent: {invitation.fault}"
    return f"sent to {invitation.address} with queue id {invitation.queue_id}"


def _tell(request: HttpRequest, invitation: Invitation) -> None:
    if invitation.fault:
        messages.error(request, f"The mail was not sent: {invitation.fault}. Send it again later.")
    else:
        messages.success(
            request, f"{invitation.username} is invited: the mail to {invitation.address} is in the queue."
        )
