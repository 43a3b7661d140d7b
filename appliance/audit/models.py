"""The audit log: user, action, subject, time, reason, and the values before and after. Append-only.

An entry is written before the change, with the outcome unknown; setting the outcome is its only update.
"""

from __future__ import annotations

from typing import Any, NoReturn

from django.conf import settings
from django.db import DatabaseError, models

from appliance.common.node import node_field

__all__ = ["Entry", "Outcome"]


UNDER_WAY = "in progress, or interrupted by the end of the portal"


class Outcome(models.TextChoices):
    """The result of an audited change."""

    DONE = "done", "done"
    REFUSED = "refused", "refused"  # the core, or the portal, said no: nothing was changed
    UNKNOWN = "unknown", "unknown"  # no answer came: it may have been done


class Entries(models.QuerySet["Entry"]):
    """A query set without changes and deletions; ``retention`` bypasses it."""

    def delete(self) -> NoReturn:
        """Raises TypeError: entries are deleted by the retention only."""
        raise TypeError("audit entries cannot be deleted; they expire after audit_days")

    def update(self, **_: Any) -> NoReturn:
        """Raises TypeError: entries do not change."""
        raise TypeError("audit entries cannot be changed")


class Entry(models.Model):
    """One audited change. ``action`` is a short name (queue.delete, tuning.set, message.read_body, user.change,
    sign_in.failed)."""

    at = models.DateTimeField(auto_now_add=True, db_index=True)
    node = node_field()  # of the portal that was asked
    user = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    who = models.CharField(max_length=150)  # stays when the user is gone
    address = models.GenericIPAddressField(null=True)
    # Of the HTTP API, by which it was asked; "" in the portal. The default also in the database, for a rolled-back portal.
    token = models.CharField(max_length=100, blank=True, default="", db_default="")
    action = models.CharField(max_length=60)
    subject = models.CharField(max_length=400)  # queue id, filter, scope, user, ...
    before = models.JSONField(null=True)
    after = models.JSONField(null=True)
    why = models.CharField(max_length=1000, blank=True)
    outcome = models.CharField(max_length=10, choices=Outcome.choices, default=Outcome.DONE)
    words = models.CharField(max_length=1000, blank=True)  # of a refusal, or the count of a change

    objects = Entries.as_manager()
    _under_way = False  # between begin() and end()

    class Meta:
        """Sorts entries newest first and names their indexes."""

        ordering = ("-id",)
        # A page is found without a sort: by what is filtered, in the order of the ids.
        indexes = (
            models.Index(fields=("who", "-id"), name="audit_who"),
            models.Index(fields=("action", "-id"), name="audit_action"),
            models.Index(fields=("subject", "-id"), name="audit_subject"),
            models.Index(fields=("outcome", "-id"), name="audit_outcome"),
        )
        verbose_name_plural = "entries"

    def __str__(self) -> str:
        return f"{self.who}: {self.action} {self.subject}"

    def save(self, *arguments: Any, **named: Any) -> None:
        """Stores a new entry. Raises TypeError for one that is stored already."""
        if self.pk is not None and not self._state.adding:
            raise TypeError("audit entries cannot be changed")
        super().save(*arguments, **named)

    def begin(self) -> None:
        """Stores the entry before the change is made, so that a crash of the portal leaves it with an unknown outcome."""
        self.outcome, self.words = Outcome.UNKNOWN, UNDER_WAY
        self.save()
        self.outcome, self.words = Outcome.DONE, ""
        self._under_way = True

    def end(self) -> None:
        """Stores the outcome, once: ``outcome``, ``words`` and ``after``.

        The entry may have another number by now (``manage.py move_in``). It is found by what was entered.
        """
        if not self._under_way:
            raise TypeError("audit entries cannot be changed")
        self._under_way = False
        entered: models.QuerySet[Entry] = models.QuerySet(Entry).filter(outcome=Outcome.UNKNOWN, words=UNDER_WAY)
        for name in ("at", "node", "who", "action", "subject"):
            entered = entered.filter(**{name: getattr(self, name)})
        result = {"outcome": self.outcome, "words": self.words, "after": self.after}
        if not entered.filter(pk=self.pk).update(**result) and not entered.update(**result):
            raise DatabaseError("the entry of the audit log is gone, and has no outcome")

    def delete(self, *arguments: Any, **named: Any) -> tuple[int, dict[str, int]]:
        """Raises TypeError: entries are deleted by the retention only."""
        raise TypeError("audit entries cannot be deleted; they expire after audit_days")
