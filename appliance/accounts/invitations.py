"""Invitations by mail: making one, sending it, and accepting it once.

Laws
- A code works once: of two requests that accept it at the same time, one makes a user. It ends with its time, when it is
  withdrawn, and when the invitation is sent again with another code.
- The code is in the mail alone. The link has it behind ``#``, which browsers send to no server: no log and no referrer has it,
  and a program that opens links in mail uses up nothing. The database has its digest.

Keeps law: invitation-once (docs/laws.md).
"""

from __future__ import annotations

import email.policy
import email.utils
import hashlib
import secrets
from datetime import datetime, timedelta
from email.message import EmailMessage

from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Q, QuerySet
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import timezone

from appliance.accounts.models import Invitation
from appliance.accounts.permissions import set_rights
from appliance.common.door import door_of
from appliance.common.own_names import host, sender_or_own, site
from mailcore.control.client import ControlError

__all__ = ["NotValid", "accept", "find", "invite", "open_invitations", "send_again", "withdraw"]

CODE_BYTES = 32
CODE_MAX = 100  # characters; what is longer is not looked up
KEPT = timedelta(days=90)  # how long invitations that have ended are listed
POLICY = email.policy.SMTP.clone(cte_type="7bit")  # so that any next hop takes it


class NotValid(Exception):
    """Says that an invitation was used, withdrawn, has expired, or that its user name is taken."""


def open_invitations() -> QuerySet[Invitation]:
    """Returns the invitations that can still be accepted."""
    return Invitation.objects.filter(accepted_at=None, withdrawn_at=None, expires_at__gt=timezone.now())


def invite(address: str, username: str, role: str, invited_by: str) -> Invitation:
    """Makes an invitation and sends it; returns it, with ``fault`` if the mail could not be handed to the core."""
    Invitation.objects.filter(expires_at__lt=timezone.now() - KEPT).delete()
    code = secrets.token_urlsafe(CODE_BYTES)
    invitation = Invitation.objects.create(
        digest=digest_of(code),
        address=address,
        username=username,
        role=role,
        invited_by=invited_by,
        expires_at=_end(),
    )
    _send(invitation, code)
    return invitation


def send_again(invitation: Invitation) -> None:
    """Sends the invitation again with another code, which works for the whole time; the one of before no longer works.

    Raises NotValid if it was accepted or withdrawn meanwhile.
    """
    code = secrets.token_urlsafe(CODE_BYTES)
    rows = Invitation.objects.filter(pk=invitation.pk, accepted_at=None, withdrawn_at=None)
    if not rows.update(digest=digest_of(code), expires_at=_end()):
        raise NotValid("it was accepted or withdrawn meanwhile")
    invitation.refresh_from_db()
    _send(invitation, code)


def withdraw(invitation: Invitation) -> None:
    """Ends the invitation. Raises NotValid if it was accepted meanwhile."""
    rows = Invitation.objects.filter(pk=invitation.pk, accepted_at=None)
    if not rows.update(withdrawn_at=timezone.now()):
        raise NotValid("it was accepted meanwhile")


def digest_of(code: str) -> str:
    """Returns the digest by which an invitation is found. Its code has 256 random bits, so that it needs no slow hash."""
    return hashlib.sha256(code.encode("utf-8", "surrogateescape")).hexdigest()


def find(*, code: str = "", digest: str = "") -> Invitation | None:
    """Returns the invitation that can still be accepted, by its code or the digest of it; None if there is none."""
    if len(code) > CODE_MAX:
        return None
    return open_invitations().filter(digest=digest or digest_of(code)).first()


def accept(invitation: Invitation, password: str | None) -> User:
    """Makes the invited user; returns it. ``password`` None: the user signs in otherwise. Raises NotValid."""
    with transaction.atomic():
        # The database decides which of two requests is first: the second one finds no row.
        if not open_invitations().filter(pk=invitation.pk).update(accepted_at=timezone.now()):
            raise NotValid("the invitation was used, withdrawn, or has expired")
        taken = Q(username=invitation.username) | Q(email__iexact=invitation.address)
        if User.objects.filter(taken).exists():
            raise NotValid("the user name or the mail address belongs to another user by now")
        user = User.objects.create_user(invitation.username, email=invitation.address, password=password)
        set_rights(user, invitation.role, bodies=False)
    return user


def _end() -> datetime:
    return timezone.now() + timedelta(seconds=settings.PORTAL.invitation_s)


def _send(invitation: Invitation, code: str) -> None:
    """Hands the mail to the core; notes its queue id, or why it could not."""
    sender = sender_or_own(settings.REPORTS.sender)
    queue_id = fault = ""
    try:
        queue_id = door_of(invitation.invited_by).inject(
            sender, [invitation.address], letter(invitation, code, sender).as_bytes(), why="an invitation to the portal"
        )
    except ControlError as error:
        fault = str(error)[:400]
    invitation.queue_id, invitation.fault = queue_id, fault
    invitation.save(update_fields=["queue_id", "fault"])


def letter(invitation: Invitation, code: str, sender: str) -> EmailMessage:
    """Returns the mail with the link."""
    message = EmailMessage(policy=POLICY)
    message["From"] = f"Waypost <{sender}>"
    message["To"] = invitation.address
    message["Subject"] = f"Waypost {host()}: invitation"
    message["Date"] = email.utils.localtime()
    message["Message-ID"] = email.utils.make_msgid(domain=sender.rpartition("@")[2])
    message["Auto-Submitted"] = "auto-generated"  # RFC 3834: no vacation notice answers it
    link = f"{site()}{reverse('account_invitation')}#{code}"
    message.set_content(
        render_to_string("mail/invitation.txt", {"invitation": invitation, "link": link, "host": host()})
    )
    return message
