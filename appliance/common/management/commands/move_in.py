"""``manage.py move_in FILE``: takes users, tokens and audit log of a former SQLite database into the one of all nodes."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from appliance.common.moving_in import NotMovedIn, move_in
from appliance.common.shared_database import one_at_a_time
from appliance.common.templatetags.waypost import visible
from mailcore.counted import counted


class Command(BaseCommand):
    """Takes the data of a former database into the one that the portal has now."""

    help = "Take the users, API tokens and audit log of a former SQLite database into the present one."
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Adds the file."""
        parser.add_argument("file", type=Path, help="such as /var/lib/waypost/portal/portal.sqlite3")

    def handle(self, *_: Any, **options: Any) -> None:
        """Prints what was taken, or exits with why nothing was."""
        try:
            with one_at_a_time():
                moved = move_in(options["file"])
        except NotMovedIn as error:
            raise CommandError(f"nothing was taken: {error}") from None
        users, tokens = counted(moved.users, "user"), counted(moved.tokens, "token")
        self.stdout.write(f"taken: {users}, {tokens}, {counted(moved.entries, 'audit entry')}")
        if moved.disabled:
            names = ", ".join(visible(name) for name in moved.disabled)
            self.stdout.write(f"disabled, because their second factor needs the key of before: {names}")
        if moved.known:
            names = ", ".join(visible(name) for name in moved.known)
            self.stdout.write(f"there already, and left as they are, without the tokens of here: {names}")
