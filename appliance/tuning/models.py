"""Changes made in the portal: value, reason, prediction and result.

Only the core knows the value in force; a row records what was requested and answered. A prediction without an applied change
is deleted after a while.
"""

from __future__ import annotations

import uuid

from django.conf import settings
from django.db import models

__all__ = ["Change", "Outcome", "Prediction"]


class Outcome(models.TextChoices):
    """The result of a change."""

    NOT_SENT = "not_sent", "not applied"  # an earlier one failed, or the core was down
    APPLIED = "applied", "applied"
    REFUSED = "refused", "refused"  # in the core's words
    UNKNOWN = "unknown", "unknown"  # asked for, and no answer came


class Prediction(models.Model):
    """A what-if: what was asked, and what the simulation answered (``before`` and ``after`` as ``simulate`` has them)."""

    at = models.DateTimeField(auto_now_add=True, db_index=True)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    changes = models.JSONField()  # [{scope, parameter, value}]
    asked = models.JSONField()  # duration_s, arrivals, since_s
    before = models.JSONField()
    after = models.JSONField()
    assumptions = models.JSONField()
    unknown = models.JSONField(null=True, default=list)  # [{code, message, names}]; None: stored by an earlier version
    # Files of events that could not be read: what was measured lacks them. The default also in the database: a portal that was
    # rolled back knows nothing of it.
    unread_files = models.PositiveIntegerField(default=0, db_default=0)

    class Meta:
        """Sorts predictions newest first."""

        ordering = ("-id",)

    def __str__(self) -> str:
        return f"prediction {self.pk}"


class Change(models.Model):
    """One value set or removed. Changes applied together have the same ``batch``."""

    at = models.DateTimeField(auto_now_add=True, db_index=True)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    who = models.CharField(max_length=150)  # stays when the user is gone
    batch = models.UUIDField(default=uuid.uuid4, db_index=True)
    scope = models.CharField(max_length=400, blank=True, db_index=True)
    parameter = models.CharField(max_length=100, db_index=True)
    before = models.JSONField()  # as the core showed it: value, origin, until, scope
    value = models.JSONField(null=True)  # as it was asked for; None: back to the configured one
    after = models.JSONField(null=True)  # as the core showed it afterwards
    until = models.FloatField(null=True)  # wall clock; None: for good
    why = models.CharField(max_length=1000)
    outcome = models.CharField(max_length=10, choices=Outcome.choices, default=Outcome.NOT_SENT)
    words = models.CharField(max_length=1000, blank=True)
    returns = models.ForeignKey("self", null=True, on_delete=models.SET_NULL, related_name="returned_by")
    prediction = models.ForeignKey(Prediction, null=True, on_delete=models.SET_NULL, related_name="taken")

    class Meta:
        """Sorts changes newest first and names their index."""

        ordering = ("-id",)
        indexes = (models.Index(fields=("scope", "parameter", "-id"), name="tuning_change_key"),)

    def __str__(self) -> str:
        return f"{self.who}: {self.scope or 'global'} {self.parameter}"
