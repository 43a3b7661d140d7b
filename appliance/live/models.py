"""The tables that live pages need after a restart of the portal: a sample a minute, and the last snapshot."""

from __future__ import annotations

from django.db import models

__all__ = ["LastSnapshot", "Sample"]


class Sample(models.Model):
    """Holds the core's first answer in a minute. Counts are recipients since ``started_at``; a rate is the difference of two
    samples with the same ``started_at``.

    A sample holds counts and not rates: so recipients are counted once by any number of portal processes, and none is lost
    while no portal runs.
    """

    minute = models.BigIntegerField(primary_key=True, help_text="wall clock, in minutes since 1970")
    at = models.FloatField()
    started_at = models.FloatField(help_text="when the counts began; they continue over restarts of the manager")
    accepted = models.BigIntegerField()
    delivered = models.BigIntegerField()
    deferred = models.BigIntegerField()
    bounced = models.BigIntegerField()
    expired = models.BigIntegerField()
    deleted = models.BigIntegerField()
    undeleted = models.BigIntegerField()
    lost = models.BigIntegerField(default=0, help_text="to damage")
    messages = models.BigIntegerField(help_text="queued")
    recipients = models.BigIntegerField(help_text="queued")

    class Meta:
        """Orders samples by their minute."""

        ordering = ("minute",)

    def __str__(self) -> str:
        return f"minute {self.minute}"


class LastSnapshot(models.Model):
    """Holds the last snapshot in one row, for a portal that starts while the core is down."""

    id = models.SmallIntegerField(primary_key=True, default=1)
    at = models.FloatField()
    snapshot = models.JSONField()

    def __str__(self) -> str:
        return f"snapshot of {self.at:.0f}"
