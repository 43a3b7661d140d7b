"""Changes to messages: the request, its progress and its result. A change continues when the browser is closed.

The audit log keeps permanently who changed what and why; these rows are for watching and undoing, and are deleted after
``KEPT_DAYS``.
"""

from __future__ import annotations

import secrets
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db import models
from django.utils import timezone

from appliance.common.current_settings import current_settings
from appliance.common.node import node_field, own_node
from appliance.queue.owner_process import WORKER_MAX, is_gone

__all__ = ["Change", "Phase"]

_LETTERS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # as in queue ids: can be read over a telephone
TAG_CHARACTERS = 10  # 50 bits: an untrusted reply or address cannot contain one by guessing
KEPT_DAYS = 30
SILENT_S = 15.0  # beyond the time-out of the core: then the process that made the change is gone, also on another host


def new_tag() -> str:
    """Returns a random tag of ``TAG_CHARACTERS`` letters and digits."""
    return "".join(secrets.choice(_LETTERS) for _ in range(TAG_CHARACTERS))


class Phase(models.TextChoices):
    """Lists the phases of a change."""

    COUNTING = "counting", "counting"
    COUNTED = "counted", "counted"
    RUNNING = "running", "under way"
    DONE = "done", "done"
    STOPPED = "stopped", "stopped"  # by an operator, between two steps
    REFUSED = "refused", "refused"  # by the core
    UNKNOWN = "unknown", "not known"  # no answer came: the core may have made the last step


UNDER_WAY = (Phase.COUNTING, Phase.RUNNING)


class Change(models.Model):
    """Holds one change. ``tag`` is part of the reason in the journal, so that an undo finds exactly these messages."""

    tag = models.CharField(primary_key=True, max_length=TAG_CHARACTERS, default=new_tag, editable=False)
    node = node_field()  # of the portal that makes it
    who = models.CharField(max_length=150)
    operation = models.CharField(max_length=20)
    route = models.CharField(max_length=400, blank=True)
    filter = models.JSONField(default=dict)  # as the core takes it
    scheduled = models.BooleanField(default=False)  # of a retry of all that match: also delayed recipients
    query = models.CharField(max_length=8_000, blank=True)  # as the URL has it
    words = models.CharField(max_length=8_000)  # which messages, for people
    messages = models.JSONField(null=True)  # [queue id] or [queue id, lane, offset]; null: those that match the filter
    cut = models.CharField(max_length=4_000, blank=True)  # of the count: nothing newer is touched
    why = models.CharField(max_length=1000, blank=True)
    phase = models.CharField(max_length=10, choices=Phase.choices)
    matched = models.PositiveBigIntegerField(default=0)
    matched_recipients = models.PositiveBigIntegerField(default=0)
    changed = models.PositiveBigIntegerField(default=0)
    changed_recipients = models.PositiveBigIntegerField(default=0)  # 0 also of changes before they were counted
    in_flight = models.PositiveBigIntegerField(default=0)  # of these: being delivered when the change was made
    too_late = models.PositiveBigIntegerField(
        default=0
    )  # of those being delivered: delivered or refused before the change
    undecided = models.PositiveBigIntegerField(default=0)  # of those being delivered: their end was not known
    failed = models.PositiveBigIntegerField(default=0)
    failures = models.JSONField(default=dict)  # error code -> how many of ``failed``
    dead = models.JSONField(default=list)  # of a retry: destinations of its recipients that are dead
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
        """Returns the name of this change in the reason in the journal."""
        return f"(change {self.tag})"

    @property
    def told_why(self) -> str:
        """Returns the reason as it is written to the journal."""
        return f"{self.why} {self.mark}"

    @property
    def under_way(self) -> bool:
        """Returns whether it is counting or running."""
        return self.phase in UNDER_WAY

    @property
    def abandoned(self) -> bool:
        """Returns whether the portal ended during the change. The core stops then, because its client is gone."""
        if self.under_way and self.node == own_node() and is_gone(self.worker):
            return True
        patience = timedelta(seconds=settings.PORTAL.change_timeout_s + SILENT_S)
        return self.under_way and timezone.now() - self.heard_at > patience

    @property
    def undo_until(self) -> float | None:
        """Returns until when the change can be undone, in wall-clock seconds; None if it cannot."""
        if self.operation != "delete" or self.phase == Phase.COUNTING:
            return None
        if not self.abandoned and (self.ended_at is None or not (self.changed or self.phase == Phase.UNKNOWN)):
            return None
        # The message that was deleted first is also removed permanently first.
        ended_at = self.begun_at if self.messages is None or self.ended_at is None else self.ended_at
        return ended_at.timestamp() + float(current_settings().queue.undo_time_s)

    @property
    def can_be_undone(self) -> bool:
        """Returns whether it is a deletion that can still be undone."""
        until = self.undo_until
        return until is not None and until > timezone.now().timestamp()

    @property
    def undos(self) -> list[Change]:
        """Returns the changes that undid this one."""
        return list(self.undone_by.all())
