"""``manage.py mail_reports``: sends the reports that are to be mailed and have not been."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand

from appliance.reports.letters import send_due


class Command(BaseCommand):
    help = "Send the reports that are to be mailed and have not been."

    def handle(self, *_: Any, **__: Any) -> None:
        self.stdout.write(f"sent {send_due()}")
