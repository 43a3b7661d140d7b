"""``manage.py first_password``: prepares the database and prints the password of the first administrator, if it made one.

``waypost setup`` runs it as the portal's user. Standard output has the password and nothing else; nothing if there are users.
"""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from appliance.common.first_administrator import first_administrator, new_password, prepare


class Command(BaseCommand):
    """Makes the first administrator, or gives this account a new password."""

    help = "Prepare the database; make the first administrator and print its password."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Adds the options of the command."""
        parser.add_argument("--new", action="store_true", help="give the first administrator a new password")
        parser.add_argument("--by", default="root", metavar="USER", help="user who asked for it, for the audit log")

    def handle(self, *_: Any, **options: Any) -> None:
        """Prints the password, if there is a new one."""
        prepare()
        password = new_password(options["by"]) if options["new"] else first_administrator()
        if password:
            self.stdout.write(password)
