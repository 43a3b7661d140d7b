"""``manage.py watch``: checks the rules of the alerts, and sends them. ``./run`` starts it; it ends with its parent."""

from __future__ import annotations

import os
from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from appliance.alerts.emergency import Emergency
from appliance.alerts.gathering import Gatherer
from appliance.alerts.outbox import Outbox
from appliance.alerts.sending import targets_of
from appliance.alerts.watching import Watcher
from appliance.common.beside import alone, end_with_parent
from appliance.common.current_settings import current_settings
from appliance.common.migrated import all_migrations_applied


class Command(BaseCommand):
    """Checks the rules of the alerts until it is stopped: ``manage.py watch``."""

    requires_system_checks = ()  # they would read all pages first
    help = "Check the rules of the alerts, and send alerts."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Adds the option of the parent process."""
        parser.add_argument("--with-parent", type=int, default=0, metavar="PID", help="end when this process ends")

    def handle(self, *_: Any, **options: Any) -> None:
        """Waits until no other watch runs, then checks the rules until it is stopped."""
        if options["with_parent"] and not end_with_parent(options["with_parent"]):
            return
        hold = alone(settings.PORTAL_DIRECTORY / "watch.lock")
        alerts = current_settings().alerts
        targets = targets_of(alerts)
        emergency = Emergency(settings.PORTAL_DIRECTORY, alerts, targets)
        watcher = Watcher(
            alerts, targets, Gatherer(), Outbox(alerts, targets), emergency,
            ready=all_migrations_applied, renewed=lambda: current_settings().alerts,
        )  # fmt: skip
        try:
            watcher.run()
        finally:
            os.close(hold)
