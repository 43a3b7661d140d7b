"""``manage.py mail_reports``: sends report mail that is due."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand

from appliance.reports.letters import send_due


class Command(BaseCommand):
    """Sends report mail that is due: ``manage.py mail_reports``."""

    help = "Send report mail that is due."

    def handle(self, *_: Any, **__: Any) -> None:
        """Sends and prints how many mails were sent."""
        self.stdout.write(f"sent {send_due()}")
