"""The data of webhooks: where events go, how far each was sent, and the last failures.

Law: ``cursor`` moves only behind events that the receiver has taken, or because an operator set it.

Keeps law: webhooks-miss-nothing (docs/laws.md).
"""

from __future__ import annotations

import base64
import secrets
from typing import Any
from urllib.parse import urlsplit

from django.db import models
from django.utils import timezone
from django.utils.crypto import salted_hmac

from mailcore.control.protocol.events import NOW
from mailcore.tag import TAG_CHARACTERS

__all__ = ["TEXT_MAX", "Failure", "Webhook"]

NAME_MAX = 60
URL_MAX = 1_000
DOMAIN_MAX = 253
LOGIN_MAX = 256
TEXT_MAX = 1_000
SALT = "the secret of a webhook"


def new_salt() -> str:
    """Returns a random text of which the secret is made."""
    return secrets.token_hex(16)


class Webhook(models.Model):
    """One receiver of events. Times are wall clock.

    ``cursor`` is the position behind the last event that the receiver took. ``sending_…`` say what is being sent: from
    ``sending_from`` on, ``sending_count`` events, whose delivery has the id ``sending``; ``attempt`` counts its requests. They
    are saved before the first request, so that after a kill the same events are sent under the same id, marked as sent again.
    ``moves`` counts how often an operator set the cursor: a request that is under way then moves it no more.
    """

    name = models.CharField(max_length=NAME_MAX, unique=True)
    url = models.CharField(max_length=URL_MAX)
    salt = models.CharField(
        max_length=64, default=new_salt, help_text="the secret is made of it and of the portal's key"
    )
    kinds = models.JSONField(default=list)  # empty: all
    tag = models.CharField(max_length=TAG_CHARACTERS, blank=True)
    sender_domain = models.CharField(max_length=DOMAIN_MAX, blank=True)
    recipient_domain = models.CharField(max_length=DOMAIN_MAX, blank=True)
    login = models.CharField(max_length=LOGIN_MAX, blank=True)
    enabled = models.BooleanField(default=True)
    made_at = models.DateTimeField(default=timezone.now)
    made_by = models.CharField(max_length=150, blank=True)
    cursor = models.TextField(default=NOW)
    moves = models.PositiveIntegerField(default=0)
    past_lost = models.BooleanField(default=False, help_text="an operator said to continue behind events that are gone")
    lost = models.CharField(max_length=TEXT_MAX, blank=True, help_text="why it stands still: events are gone")
    sending = models.CharField(max_length=64, blank=True)
    sending_from = models.TextField(blank=True)
    sending_count = models.PositiveIntegerField(default=0)
    attempt = models.PositiveIntegerField(default=0)
    next_event_at = models.DateTimeField(null=True, help_text="of the first event that is being sent")
    next_try_at = models.DateTimeField(default=timezone.now)
    failing_since = models.DateTimeField(null=True)
    words = models.CharField(max_length=TEXT_MAX, blank=True, help_text="the last answer")
    sent_events = models.BigIntegerField(default=0)
    sent_requests = models.BigIntegerField(default=0)
    failed_requests = models.BigIntegerField(default=0)
    sent_at = models.DateTimeField(null=True)
    test_asked_at = models.DateTimeField(null=True)
    test_asked_by = models.CharField(max_length=150, blank=True)
    test_at = models.DateTimeField(null=True)
    test_words = models.CharField(max_length=TEXT_MAX, blank=True)
    test_good = models.BooleanField(default=False)

    class Meta:
        """Sorts webhooks by name."""

        ordering = ("name",)

    def __str__(self) -> str:
        return self.name

    @property
    def host(self) -> str:
        """Returns the host of its address: the rest may be a secret."""
        return urlsplit(self.url).hostname or ""

    @property
    def secret(self) -> str:
        """Returns the secret that signs its requests. The database has not what it takes to make it: the portal's key is in a
        file."""
        digest = salted_hmac(SALT, self.salt, algorithm="sha256").digest()
        return "whs_" + base64.urlsafe_b64encode(digest).decode().rstrip("=")

    @property
    def state(self) -> str:
        """Returns its state in one word or two."""
        if not self.enabled:
            return "paused"
        if self.lost:
            return "events lost"
        return "failing" if self.failing_since is not None else "sending"

    @property
    def lag_s(self) -> float | None:
        """Returns the age of the first event that was not taken, in seconds; None if there is none."""
        if self.next_event_at is None or not self.sending:
            return None
        return max(0.0, (timezone.now() - self.next_event_at).total_seconds())

    def conditions(self) -> dict[str, Any]:
        """Returns its conditions as the core takes them."""
        return {
            "kinds": list(self.kinds),
            "tag": self.tag,
            "sender_domain": self.sender_domain,
            "recipient_domain": self.recipient_domain,
            "login": self.login,
        }

    def described(self) -> dict[str, Any]:
        """Returns the webhook as the audit log keeps it."""
        return {"name": self.name, "host": self.host, "enabled": self.enabled, **self.conditions()}


class Failure(models.Model):
    """A request that failed, or events that are gone; the last ones of each webhook are kept."""

    webhook = models.ForeignKey(Webhook, on_delete=models.CASCADE, related_name="failures")
    at = models.DateTimeField(default=timezone.now)
    delivery = models.CharField(max_length=64, blank=True)
    attempt = models.PositiveIntegerField(default=0)
    status = models.PositiveIntegerField(default=0)  # of HTTP; 0: no answer
    duration_s = models.FloatField(default=0.0)
    words = models.CharField(max_length=TEXT_MAX)

    class Meta:
        """Sorts failures newest first."""

        ordering = ("-pk",)

    def __str__(self) -> str:
        return self.words
