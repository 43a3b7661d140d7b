"""Changes to many messages: what was asked for, how far it is, what came of it. It survives the browser that asked.

The audit has who, what and why for ever; this is for watching and undoing, and is forgotten after ``KEPT_DAYS``.
"""

from __future__ import annotations

import secrets
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db import models
from django.utils import timezone

from appliance.queue.owner_process import WORKER_MAX, is_gone

__all__ = ["Change", "Phase"]

_LETTERS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # as queue ids: survives being read over a telephone
TAG_CHARACTERS = 10  # 50 bits: nobody who writes replies or addresses guesses one
KEPT_DAYS = 30
SILENT_S = 15.0  # beyond the patience with the core: then whoever made the change is gone, also from another host


def new_tag() -> str:
    """Returns a random tag of ``TAG_CHARACTERS`` letters and digits."""
    return "".join(secrets.choice(_LETTERS) for _ in range(TAG_CHARACTERS))


class Phase(models.TextChoices):
    """How far a change is."""

    COUNTING = "counting", "counting"
    COUNTED = "counted", "counted"
    RUNNING = "running", "under way"
    DONE = "done", "done"
    STOPPED = "stopped", "stopped"  # by somebody, between two steps
    REFUSED = "refused", "refused"  # the core said no
    UNKNOWN = "unknown", "not known"  # no answer came: the last step may have been made


UNDER_WAY = (Phase.COUNTING, Phase.RUNNING)


class Change(models.Model):
    """``tag`` stands in the reason that goes into the journal, so that exactly these messages are found again."""

    tag = models.CharField(primary_key=True, max_length=TAG_CHARACTERS, default=new_tag, editable=False)
    who = models.CharField(max_length=150)
    operation = models.CharField(max_length=20)
    route = models.CharField(max_length=400, blank=True)
    filter = models.JSONField(default=dict)  # as the core takes it
    query = models.CharField(max_length=8_000, blank=True)  # as the URL has it
    words = models.CharField(max_length=8_000)  # which messages, for people
    messages = models.JSONField(null=True)  # [queue id] or [queue id, lane, offset]; null: those that match the filter
    cut = models.CharField(max_length=4_000, blank=True)  # of the count: nothing newer is touched
    why = models.CharField(max_length=1000, blank=True)
    phase = models.CharField(max_length=10, choices=Phase.choices)
    matched = models.PositiveBigIntegerField(default=0)
    matched_recipients = models.PositiveBigIntegerField(default=0)
    changed = models.PositiveBigIntegerField(default=0)
    failed = models.PositiveBigIntegerField(default=0)
    errors = models.JSONField(default=dict)  # queue id -> why not; the first hundred
    error = models.CharField(max_length=1000, blank=True)
    begun_at = models.DateTimeField(auto_now_add=True, db_index=True)
    heard_at = models.DateTimeField(auto_now_add=True)
    ended_at = models.DateTimeField(null=True)
    stop_wanted = models.BooleanField(default=False)
    worker = models.CharField(max_length=WORKER_MAX, blank=True, default="")  # the process that makes it
    undoes = models.ForeignKey("self", null=True, on_delete=models.CASCADE, related_name="undone_by")

    class Meta:
        """Orders changes by their beginning, the newest first."""

        ordering = ("-begun_at",)

    def __str__(self) -> str:
        return f"{self.operation} {self.tag}"

    def save(self, *arguments: Any, **named: Any) -> None:
        """Saves the change; a new one first deletes those older than ``KEPT_DAYS``."""
        if self._state.adding:
            Change.objects.filter(begun_at__lt=timezone.now() - timedelta(days=KEPT_DAYS)).delete()
        super().save(*arguments, **named)

    @property
    def mark(self) -> str:
        """How the reason in the journal names this change."""
        return f"(change {self.tag})"

    @property
    def told_why(self) -> str:
        """The reason as the journal gets it."""
        return f"{self.why} {self.mark}"

    @property
    def under_way(self) -> bool:
        """Returns whether it is counting or running."""
        return self.phase in UNDER_WAY

    @property
    def abandoned(self) -> bool:
        """Nobody is working on it any more: the portal ended in the middle of it. The core, whose asker is gone, stops then."""
        if self.under_way and is_gone(self.worker):
            return True
        patience = timedelta(seconds=settings.PORTAL.change_timeout_s + SILENT_S)
        return self.under_way and timezone.now() - self.heard_at > patience

    @property
    def undo_until(self) -> float | None:
        """Wall clock; None for what cannot be undone."""
        if self.operation != "delete" or self.phase == Phase.COUNTING:
            return None
        if not self.abandoned and (self.ended_at is None or not (self.changed or self.phase == Phase.UNKNOWN)):
            return None
        # What was deleted first is also the first that is gone for good.
        ended_at = self.begun_at if self.messages is None or self.ended_at is None else self.ended_at
        return ended_at.timestamp() + float(settings.WAYPOST.queue.undo_time_s)

    @property
    def can_be_undone(self) -> bool:
        """Returns whether it is a deletion that can still be undone."""
        until = self.undo_until
        return until is not None and until > timezone.now().timestamp()

    @property
    def undos(self) -> list[Change]:
        """Returns the changes that undid this one."""
        return list(self.undone_by.all())
