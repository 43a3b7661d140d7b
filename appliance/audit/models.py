"""The audit: who did what to what, when, why, and what was before and after. Only ever appended to."""

from __future__ import annotations

from typing import Any, NoReturn

from django.conf import settings
from django.db import models

__all__ = ["Entry", "Outcome"]


class Outcome(models.TextChoices):
    DONE = "done", "done"
    REFUSED = "refused", "refused"  # the core, or the portal, said no: nothing was changed
    UNKNOWN = "unknown", "not known"  # no answer came: it may have been done


class Entries(models.QuerySet["Entry"]):
    """What would change or delete entries is not there; retention goes past it (``retention``)."""

    def delete(self) -> NoReturn:
        raise TypeError("entries of the audit are never deleted by hand; audit_days says when they end")

    def update(self, **_: Any) -> NoReturn:
        raise TypeError("an entry of the audit is never changed")


class Entry(models.Model):
    """One deed. ``action`` is a short name (queue.delete, tuning.set, message.read_body, user.change, sign_in.failed)."""

    at = models.DateTimeField(auto_now_add=True, db_index=True)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    who = models.CharField(max_length=150)  # stays when the user is gone
    address = models.GenericIPAddressField(null=True)
    action = models.CharField(max_length=60)
    subject = models.CharField(max_length=400)  # queue id, filter, scope, user, ...
    before = models.JSONField(null=True)
    after = models.JSONField(null=True)
    why = models.CharField(max_length=1000, blank=True)
    outcome = models.CharField(max_length=10, choices=Outcome.choices, default=Outcome.DONE)
    words = models.CharField(max_length=1000, blank=True)  # of a refusal, or the count of a change

    objects = Entries.as_manager()

    class Meta:
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
        if self.pk is not None and not self._state.adding:
            raise TypeError("an entry of the audit is never changed")
        super().save(*arguments, **named)

    def delete(self, *arguments: Any, **named: Any) -> tuple[int, dict[str, int]]:
        raise TypeError("an entry of the audit is never deleted by hand; audit_days says when it ends")
