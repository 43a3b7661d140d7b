"""``manage.py portal_key``: says whether this portal has the key of the others that share its database.

``--accept`` makes this key the right one: portals of other nodes that have another one do not start until they have it.
"""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from appliance.common.shared_database import OtherKey, check_key


class Command(BaseCommand):
    """Checks the key of this portal against those of the others."""

    help = "Check that this portal has the key of the others that share its database."
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Adds the option of the command."""
        parser.add_argument("--accept", action="store_true", help="this key is the right one, also for the others")

    def handle(self, *_: Any, **options: Any) -> None:
        """Prints that the key is right, or exits with what to do."""
        try:
            check_key(accept=options["accept"])
        except OtherKey as error:
            raise CommandError(str(error)) from None
        self.stdout.write("the portals that share this database have one key")
