"""Deletes what has expired: audit entries after audit_days, samples after sample_days, sessions, and old locks.

Deletes in pieces, so that no other transaction waits for long; an interrupted run is continued by the next.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import timedelta

from axes.models import AccessAttempt
from django.conf import settings
from django.db.models import Model, QuerySet
from django.utils import timezone

from appliance.accounts.session_store import Session
from appliance.audit.models import Entry
from appliance.live.models import Sample
from mailcore.counted import counted

__all__ = ["Tidied", "tidy"]

PIECE = 1_000


@dataclass(frozen=True)
class Tidied:
    """Counts what ``tidy`` deleted."""

    entries: int
    samples: int
    sessions: int
    locks: int

    def __str__(self) -> str:
        rows = ("audit entry", self.entries), ("sample", self.samples), ("session", self.sessions), ("lock", self.locks)
        return ", ".join(counted(count, noun) for noun, count in rows)


def tidy() -> Tidied:
    """Deletes entries, samples, sessions and locks that are older than the settings keep them. Returns how many."""
    now = timezone.now()
    portal = settings.PORTAL
    oldest_minute = int((time.time() - portal.sample_days * 86_400) // 60)
    return Tidied(
        entries=_delete(QuerySet(Entry).filter(at__lt=now - timedelta(days=portal.audit_days))),
        samples=_delete(QuerySet(Sample).filter(minute__lt=oldest_minute)),
        sessions=_delete(QuerySet(Session).filter(expire_date__lt=now)),
        locks=_delete(QuerySet(AccessAttempt).filter(attempt_time__lt=now - timedelta(seconds=portal.lockout_s))),
    )


def _delete(old: QuerySet[Model]) -> int:
    """Deletes with a plain QuerySet, because the audit's own refuses to; returns how many."""
    deleted = 0
    while piece := list(old.order_by("pk").values_list("pk", flat=True)[:PIECE]):
        deleted += QuerySet(old.model).filter(pk__in=piece).delete()[0]
    return deleted
