"""Tokens of the HTTP API, and the answers kept for repeated requests.

Law: the database has the digest of a token, never the token. It has 256 random bits, so its digest needs no salt and no slow
hash: it can be looked up, and cannot be guessed.
"""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.db import models
from django.utils import timezone

from appliance.api.scopes import Scope
from appliance.queue.owner_process import WORKER_MAX

__all__ = ["ApiToken", "KeptAnswer"]

NAME_MAX = 60
KEY_MAX = 255  # characters of an Idempotency-Key


class ApiToken(models.Model):
    """One token. ``used_in_minute`` counts the requests of the minute ``minute``, for the limit of requests."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="api_tokens")
    name = models.CharField(max_length=NAME_MAX)
    scopes = models.JSONField(default=list)  # of Scope
    digest = models.CharField(max_length=64, unique=True)  # SHA-256 in hexadecimal
    beginning = models.CharField(max_length=12)  # of the token, so that its owner knows it again
    created_at = models.DateTimeField(default=timezone.now)
    expires_at = models.DateTimeField()
    revoked_at = models.DateTimeField(null=True)
    last_used_at = models.DateTimeField(null=True)
    last_address = models.GenericIPAddressField(null=True)
    refused_at = models.DateTimeField(null=True)  # the last refusal that the audit log has
    minute = models.BigIntegerField(default=0)  # since 1970
    used_in_minute = models.PositiveIntegerField(default=0)

    class Meta:
        """Sorts tokens newest first."""

        ordering = ("-pk",)

    def __str__(self) -> str:
        return f"{self.name} ({self.beginning}…)"

    @property
    def is_valid(self) -> bool:
        """Returns whether it is neither revoked nor expired."""
        return self.revoked_at is None and self.expires_at > timezone.now()

    @property
    def state(self) -> str:
        """Returns its state in one word."""
        if self.revoked_at is not None:
            return "revoked"
        return "in use" if self.is_valid else "expired"

    def has(self, scope: Scope) -> bool:
        """Returns whether it was made for this scope."""
        return scope.value in self.scopes

    def described(self) -> dict[str, Any]:
        """Returns the token as the audit log keeps it."""
        return {
            "token": self.name,
            "beginning": self.beginning,
            "scopes": list(self.scopes),
            "expires": self.expires_at.isoformat(timespec="seconds"),
        }


class KeptAnswer(models.Model):
    """The answer to a request with an Idempotency-Key. ``status`` 0: the request is being worked on, or was interrupted."""

    token = models.ForeignKey(ApiToken, on_delete=models.CASCADE, related_name="+")
    key = models.CharField(max_length=KEY_MAX)
    digest = models.CharField(max_length=64)  # of method, address and body
    begun_at = models.DateTimeField(default=timezone.now, db_index=True)
    worker = models.CharField(max_length=WORKER_MAX)  # the process that works on it
    status = models.PositiveSmallIntegerField(default=0)
    body = models.TextField(default="")

    class Meta:
        """Allows each key once a token: the database decides which of two requests is first."""

        constraints = (models.UniqueConstraint(fields=("token", "key"), name="api_key_once"),)
        ordering = ("pk",)

    def __str__(self) -> str:
        return f"{self.key}: {self.status or 'under way'}"
