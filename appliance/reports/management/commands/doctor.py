"""``manage.py doctor``: the portal's part of ``waypost doctor``, as one JSON document."""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import BaseCommand

from appliance.reports.doctor import run_checks


class Command(BaseCommand):
    """Runs the portal's checks for ``waypost doctor``."""

    help = "Check database, Redis, Celery, Java and the last report, for waypost doctor."
    requires_system_checks = ()

    def handle(self, *_: Any, **options: Any) -> None:
        """Prints the findings as JSON."""
        self.stdout.write(json.dumps(run_checks()))
