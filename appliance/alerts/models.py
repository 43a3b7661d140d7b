"""The data of alerts: causes, what is sent about them, silences, and when each rule was last checked.

Times are wall clock. How long a cause has been true or gone is counted in seconds of a monotonic clock, so that a clock that is
set neither opens nor ends an alert.
"""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from appliance.common.node import NODE_MAX, OfThisNode, named, node_field, own_node

__all__ = ["Alert", "Kind", "Lead", "Notice", "RuleCheck", "Silence", "Watch", "check_key"]

TEXT_MAX = 2_000


class Alert(models.Model):
    """Holds a cause from its first sight on. It opens when it has been true for long enough, and ends when it has been gone for
    long enough; a cause that is gone before it opens is deleted.

    ``node``: the node that it is about, whose watch keeps it; ALL_NODES: the mail of all, which one watch keeps (``Lead``)."""

    node = node_field()
    cause = models.CharField(max_length=200)
    rule = models.CharField(max_length=40)
    severity = models.CharField(max_length=10)
    summary = models.CharField(max_length=TEXT_MAX)
    detail = models.CharField(max_length=TEXT_MAX, blank=True)
    link = models.CharField(max_length=1_000)
    began_at = models.DateTimeField(help_text="first seen")
    opened_at = models.DateTimeField(null=True, db_index=True, help_text="empty: not long enough yet")
    seen_at = models.DateTimeField(help_text="last seen")
    ended_at = models.DateTimeField(null=True, db_index=True)
    ended_because = models.CharField(max_length=200, blank=True)
    unknown = models.CharField(max_length=TEXT_MAX, blank=True, help_text="why nothing is known about it now")
    true_s = models.FloatField(default=0.0)
    gone_s = models.FloatField(default=0.0)
    noticed_at = models.DateTimeField(null=True, help_text="when its notices were made; empty: none were")
    acknowledged_at = models.DateTimeField(null=True)
    acknowledged_by = models.CharField(max_length=150, blank=True)
    acknowledged_why = models.CharField(max_length=1_000, blank=True)

    class Meta:
        """Sorts alerts newest first, and keeps a cause from being open twice."""

        ordering = ("-id",)
        constraints = (
            models.UniqueConstraint(
                fields=("node", "cause"), condition=Q(ended_at__isnull=True), name="one_alert_per_cause"
            ),
        )
        indexes = (models.Index(fields=("cause", "-id"), name="alert_cause"),)

    def __str__(self) -> str:
        return self.cause

    @property
    def place(self) -> str:
        """Returns the node that it is about, for people; "" without [nodes]."""
        return named(self.node)


class Kind(models.TextChoices):
    """Tells what a notice is about."""

    OPENED = "opened", "opened"
    ENDED = "ended", "ended"
    TEST = "test", "test"


class Notice(models.Model):
    """Holds what is to be sent to one target. It is made in the transaction that opens or ends its alert, and stays until it
    is sent: no kill between two steps loses it.

    ``node``: whose watch sends it, as of ``Alert``."""

    node = node_field()
    alert = models.ForeignKey(Alert, null=True, on_delete=models.CASCADE, related_name="notices")  # null: a test
    kind = models.CharField(max_length=10, choices=Kind.choices)
    channel = models.CharField(max_length=10)  # mail or webhook
    target = models.CharField(max_length=400, blank=True)  # the address; empty for the webhook
    made_at = models.DateTimeField()
    made_by = models.CharField(max_length=150, blank=True)  # of a test
    attempts = models.PositiveIntegerField(default=0)
    next_try_at = models.DateTimeField()
    sent_at = models.DateTimeField(null=True, db_index=True)
    dropped_at = models.DateTimeField(null=True, help_text="its target is not configured any more")
    words = models.CharField(max_length=TEXT_MAX, blank=True)  # the last answer

    class Meta:
        """Sorts notices newest first."""

        ordering = ("-id",)

    def __str__(self) -> str:
        return f"{self.kind} by {self.channel}"

    @property
    def waits(self) -> bool:
        """Returns whether it is still to be sent."""
        return self.sent_at is None and self.dropped_at is None


class Silence(models.Model):
    """Keeps notices of one cause, or of a whole rule, from being made until a time. Alerts open and end all the same.

    ``node``: of the alert whose cause it is about; "": of any node."""

    node = models.CharField(max_length=NODE_MAX, blank=True, default="", db_default="", editable=False)
    rule = models.CharField(max_length=40)
    cause = models.CharField(max_length=200, blank=True)  # empty: each cause of the rule
    until = models.DateTimeField()
    made_at = models.DateTimeField()
    made_by = models.CharField(max_length=150)
    why = models.CharField(max_length=1_000)
    ended_at = models.DateTimeField(null=True, help_text="when an operator ended it")

    class Meta:
        """Sorts silences newest first."""

        ordering = ("-id",)

    def __str__(self) -> str:
        return self.cause or self.rule

    def covers(self, alert: Alert) -> bool:
        """Returns whether the alert is of its cause, or of its rule."""
        if self.node not in ("", alert.node):
            return False
        return self.cause == alert.cause if self.cause else self.rule == alert.rule


class RuleCheck(models.Model):
    """Holds when a node last checked a rule, and what it found then."""

    # The column has the name of the rule alone without [nodes], as an earlier release writes it.
    key = models.CharField(max_length=41 + NODE_MAX, primary_key=True, db_column="rule")
    node = node_field()
    checked_at = models.DateTimeField(null=True)  # the last time that its facts were known
    tried_at = models.DateTimeField()
    causes = models.PositiveIntegerField(default=0)
    unknown = models.CharField(max_length=TEXT_MAX, blank=True)  # why it could not be checked

    objects = OfThisNode["RuleCheck"]()
    everywhere = models.Manager["RuleCheck"]()

    def __str__(self) -> str:
        return self.key

    @property
    def rule(self) -> str:
        """Returns the name of the rule."""
        return self.key.partition("@")[0]


def check_key(rule: str) -> str:
    """Returns the key of the check of a rule at this node."""
    return f"{rule}@{own_node()}" if own_node() else rule


class Watch(models.Model):
    """Holds one row for each node: the process that checks the rules, and when it last did."""

    node = node_field()
    pid = models.IntegerField()
    started_at = models.DateTimeField()
    seen_at = models.DateTimeField()

    objects = OfThisNode["Watch"]()
    everywhere = models.Manager["Watch"]()

    class Meta:
        """Names the table in the administration, and allows one row for each node."""

        verbose_name_plural = "watch"
        constraints = (models.UniqueConstraint(fields=("node",), name="one_watch_a_node"),)

    def __str__(self) -> str:
        return f"process {self.pid}"


class Lead(models.Model):
    """Holds one row, a lease with an end: which node's watch keeps the alerts about the mail of all nodes, and sends them.

    Times are the database's, so that clocks of nodes which differ give it to no two."""

    id = models.SmallIntegerField(primary_key=True, default=1)
    node = models.CharField(max_length=NODE_MAX)
    until = models.DateTimeField()

    def __str__(self) -> str:
        return self.node
