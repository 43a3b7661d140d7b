"""``manage.py tidy``: deletes expired entries (audit_days, sample_days, sessions, locks)."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand

from appliance.audit.retention import tidy


class Command(BaseCommand):
    """Deletes old entries and samples: ``manage.py tidy``."""

    help = "Delete audit entries and samples older than [portal] audit_days and sample_days, and expired sessions and locks."

    def handle(self, *_: Any, **__: Any) -> None:
        """Deletes and prints how many of each kind."""
        self.stdout.write(f"deleted {tidy()}")
