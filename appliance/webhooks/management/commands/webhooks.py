"""``manage.py webhooks``: sends events to the webhooks. ``./run`` starts it; it ends with its parent."""

from __future__ import annotations

import os
import time
from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from appliance.common.beside import alone, end_with_parent
from appliance.common.door import door_of
from appliance.common.migrated import all_migrations_applied
from appliance.common.shared_database import WEBHOOKS, Waits, key_fault, take_turn
from appliance.webhooks.running import Runner
from mailcore.control.client import ControlError
from mailcore.control.protocol.state import Ping

READY_S = 1.0


class Command(BaseCommand):
    """Sends events to the webhooks until it is stopped: ``manage.py webhooks``."""

    requires_system_checks = ()  # they would read all pages first
    help = "Send events of messages to the webhooks."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Adds the option of the parent process."""
        parser.add_argument("--with-parent", type=int, default=0, metavar="PID", help="end when this process ends")

    def handle(self, *_: Any, **options: Any) -> None:
        """Waits until no other process sends, at any node that shares the database, and this has its tables; then sends until
        it is stopped."""
        if options["with_parent"] and not end_with_parent(options["with_parent"]):
            return
        hold = alone(settings.PORTAL_DIRECTORY / "webhooks.lock")
        try:
            _wait_until_ready()
            take_turn(WEBHOOKS, _core_answers)
            Runner().run()
        finally:
            os.close(hold)


def _core_answers() -> bool:
    try:
        door_of("webhooks").ask("ping", Ping)
    except ControlError:
        return False
    return True


def _wait_until_ready() -> None:
    """Waits until the database has all its tables, which the portal makes when it starts, and this node the key of the others:
    with another one the receivers would refuse what it signs. Logs why it waits."""
    waits = Waits("the portal's database, to send to webhooks")
    while True:
        try:
            if not all_migrations_applied():
                waits.say("tables", "it has not all its tables; the portal makes them when it starts")
            elif fault := key_fault():
                waits.say("key", fault)
            else:
                waits.end()
                return
        except Exception as error:  # it is away
            waits.say("away", f"it cannot be used: {' '.join(str(error).split())}")
        time.sleep(READY_S)
