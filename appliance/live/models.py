"""What the live pages remember beyond a restart of the portal: a sample a minute, and the last picture."""

from __future__ import annotations

from django.db import models

__all__ = ["LastPicture", "Sample"]


class Sample(models.Model):
    """What the core said first in a minute. Counts are of recipients, since ``started_at``; two with the same are subtracted.

    Counts and not rates, so that nothing is lost or doubled however many portal processes there are, or none for a while.
    """

    minute = models.BigIntegerField(primary_key=True, help_text="wall clock, in minutes since 1970")
    at = models.FloatField()
    started_at = models.FloatField(help_text="when the manager began to count")
    accepted = models.BigIntegerField()
    delivered = models.BigIntegerField()
    deferred = models.BigIntegerField()
    bounced = models.BigIntegerField()
    expired = models.BigIntegerField()
    deleted = models.BigIntegerField()
    undeleted = models.BigIntegerField()
    messages = models.BigIntegerField(help_text="queued")
    recipients = models.BigIntegerField(help_text="queued")

    class Meta:
        """Orders samples by their minute."""

        ordering = ("minute",)

    def __str__(self) -> str:
        return f"minute {self.minute}"


class LastPicture(models.Model):
    """One row: what was on the live pages at last, for a portal that starts while the core is away."""

    id = models.SmallIntegerField(primary_key=True, default=1)
    at = models.FloatField()
    picture = models.JSONField()

    def __str__(self) -> str:
        return f"picture of {self.at:.0f}"
