"""The portal's data on reports: runs and preferences."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.conf import settings
from django.db import models
from django.utils import timezone

from appliance.common.node import OfThisNode, node_field
from appliance.reports.running import is_held

__all__ = ["ENDED", "LOG_MAX", "NOT_EXPORTED_MAX", "Preferences", "Run", "Started", "State"]

LOG_MAX = 40_000  # characters: the end of what a run said
NOT_EXPORTED_MAX = 1_000  # characters
WAITED = timedelta(minutes=3)  # longer, and the worker seems to be down: it checks every minute


class State(models.TextChoices):
    """The state of a run."""

    ASKED = "asked", "waiting"
    RUNNING = "running", "running"
    DONE = "done", "made"
    RED = "red", "does not balance"
    FAILED = "failed", "failed"
    STOPPED = "stopped", "stopped"  # by a user


ENDED = (State.DONE, State.RED, State.FAILED, State.STOPPED)


class Run(models.Model):
    """One time that the report of a day was made, or tried to be: by a node, whose disk has the report."""

    node = node_field()
    day = models.DateField(db_index=True)
    state = models.CharField(max_length=10, choices=State.choices, default=State.ASKED, db_index=True)
    who = models.CharField(max_length=150)  # "the schedule", or a user
    by_hand = models.BooleanField(default=False)  # in a terminal: reported there, and not retried
    attempt = models.PositiveSmallIntegerField(default=1)
    asked_at = models.DateTimeField(auto_now_add=True)
    due_at = models.DateTimeField(default=timezone.now)  # not before
    begun_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    stage = models.CharField(max_length=200, blank=True)
    share = models.FloatField(default=0.0)  # of the work, 0 to 1
    words = models.CharField(max_length=2000, blank=True)  # why it failed, or what it found
    log = models.TextField(blank=True)
    # Why its report may lack the latest events, which the core could not export; "" when it could, or was not asked.
    not_exported = models.CharField(max_length=NOT_EXPORTED_MAX, blank=True)
    stop_wanted = models.BooleanField(default=False)
    mail = models.BooleanField(default=False)  # when it has ended, it is sent
    mailed_at = models.DateTimeField(null=True)
    mail_words = models.CharField(max_length=1000, blank=True)  # the queue id, or why it has not been sent

    objects = OfThisNode["Run"]()
    everywhere = models.Manager["Run"]()

    class Meta:
        """Sorts runs newest first."""

        ordering = ("-id",)

    def __str__(self) -> str:
        return f"{self.day} ({self.get_state_display()})"

    @property
    def under_way(self) -> bool:
        """Returns whether the run waits or is running."""
        return self.state in (State.ASKED, State.RUNNING)

    @property
    def forgotten(self) -> bool:
        """Returns whether the run is due but not started, although no other runs."""
        late = self.state == State.ASKED and timezone.now() - max(self.due_at, self.asked_at) > WAITED
        return late and self.behind is None

    @property
    def behind(self) -> Run | None:
        """Returns the run that this run waits for: the one whose report is being made. None if this run does not wait,
        or the other was killed and only its state says that it runs."""
        if self.state != State.ASKED:
            return None
        other = Run.objects.filter(state=State.RUNNING).defer("log").first()
        return other if other is not None and is_held(settings.REPORTS_DIRECTORY) else None

    @property
    def duration_s(self) -> float | None:
        """Returns the seconds since the start, up to the end if it ended; None before the start."""
        if self.begun_at is None:
            return None
        end: datetime = self.ended_at or timezone.now()
        return (end - self.begun_at).total_seconds()


class Started(models.Model):
    """When the scheduler of a node last started a task. The schedules are those of all nodes, and each node keeps to them."""

    node = node_field()
    name = models.CharField(max_length=200)  # of the PeriodicTask
    at = models.DateTimeField()

    objects = OfThisNode["Started"]()
    everywhere = models.Manager["Started"]()

    class Meta:
        """Allows one row for each node and task."""

        constraints = (models.UniqueConstraint(fields=("node", "name"), name="one_start_a_task"),)

    def __str__(self) -> str:
        return f"{self.name} at {self.node}"


class Preferences(models.Model):
    """One row: what was set in the portal. Empty fields take the value of [reports]."""

    id = models.SmallIntegerField(primary_key=True, default=1)
    zone = models.CharField(max_length=64, blank=True)
    recipients = models.JSONField(null=True)  # null: as in the file; []: no mail
    numbers = models.CharField(max_length=5, blank=True)

    class Meta:
        """Names the table in the administration."""

        verbose_name_plural = "preferences"

    def __str__(self) -> str:
        return "preferences of the reports"
