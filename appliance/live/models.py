"""The tables that live pages need after a restart of the portal: a sample a minute, and the last snapshot."""

from __future__ import annotations

from django.db import models

from appliance.common.node import OfThisNode, node_field

__all__ = ["LastSnapshot", "Sample"]


class Sample(models.Model):
    """Holds the core's first answer in a minute. Counts are recipients since ``started_at``; a rate is the difference of two
    samples with the same ``started_at``.

    A sample holds counts and not rates: so recipients are counted once by any number of portal processes, and none is lost
    while no portal runs.
    """

    node = node_field()  # of the portal that asked its core
    minute = models.BigIntegerField(help_text="wall clock, in minutes since 1970")
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

    objects = OfThisNode["Sample"]()
    everywhere = models.Manager["Sample"]()

    class Meta:
        """Orders samples by their minute; a node has one for each."""

        ordering = ("minute",)
        constraints = (models.UniqueConstraint(fields=("node", "minute"), name="one_sample_a_minute"),)

    def __str__(self) -> str:
        return f"minute {self.minute}"


class LastSnapshot(models.Model):
    """Holds the last snapshot in one row of each node, for a portal that starts while the core is down."""

    node = node_field()
    at = models.FloatField()
    snapshot = models.JSONField()

    objects = OfThisNode["LastSnapshot"]()
    everywhere = models.Manager["LastSnapshot"]()

    class Meta:
        """Allows one row for each node."""

        constraints = (models.UniqueConstraint(fields=("node",), name="one_snapshot_a_node"),)

    def __str__(self) -> str:
        return f"snapshot of {self.at:.0f}"
