"""The right to read the bodies of messages, which is apart from the roles; passwords, invitations, identities and sessions."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils import timezone

from appliance.accounts.session_store import Session
from appliance.common.node import NODE_MAX

__all__ = ["GivenPassword", "Identity", "Invitation", "PortalKey", "Rights", "Session"]


class Rights(models.Model):
    """Holds permissions; there is no table."""

    class Meta:
        """Defines the permission to read message bodies; there is no table."""

        managed = False
        default_permissions = ()
        permissions = (("read_bodies", "may read message bodies (each view is recorded in the audit log)"),)


class GivenPassword(models.Model):
    """Says that another person gave this user the password: it must be changed at the next sign-in, before anything else."""

    user = models.OneToOneField(settings.AUTH_USER_MODEL, primary_key=True, on_delete=models.CASCADE, related_name="+")
    given_at = models.DateTimeField(default=timezone.now)

    def __str__(self) -> str:
        return f"of {self.user_id}"


class Invitation(models.Model):
    """An invitation by mail to become a user. The database has the digest of its code, never the code."""

    digest = models.CharField(max_length=64, unique=True)  # SHA-256 in hexadecimal, of 256 random bits
    address = models.EmailField(max_length=254)
    username = models.CharField(max_length=150)
    role = models.CharField(max_length=20)
    invited_by = models.CharField(max_length=150)  # stays when that user is gone
    made_at = models.DateTimeField(default=timezone.now)
    expires_at = models.DateTimeField()
    queue_id = models.CharField(max_length=40, blank=True)  # of the mail; "" if it could not be sent
    fault = models.CharField(max_length=400, blank=True)  # why it could not be sent
    accepted_at = models.DateTimeField(null=True)
    withdrawn_at = models.DateTimeField(null=True)

    class Meta:
        """Sorts invitations newest first."""

        ordering = ("-pk",)

    def __str__(self) -> str:
        return f"{self.username} at {self.address}"


class Identity(models.Model):
    """A user's identity at a provider of single sign-on: the provider's own name for the person, which never changes."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    issuer = models.CharField(max_length=255)
    subject = models.CharField(max_length=255)
    linked_at = models.DateTimeField(default=timezone.now)
    had_second_factor = models.BooleanField(default=False)  # at the last sign-in, if [oidc] second_factor_amr counts it

    class Meta:
        """Allows one user an identity, and one identity a user: the database decides which of two requests is first."""

        constraints = (
            models.UniqueConstraint(fields=("issuer", "subject"), name="identity_once"),
            models.UniqueConstraint(fields=("issuer", "user"), name="identity_of_user"),
        )

    def __str__(self) -> str:
        return f"{self.subject} at {self.issuer}"


class PortalKey(models.Model):
    """With which key the portal of a node signs, as a digest that tells nothing of the key."""

    node = models.CharField(max_length=NODE_MAX, unique=True, blank=True)
    digest = models.CharField(max_length=64)

    def __str__(self) -> str:
        return self.node
