"""``manage.py nights``: runs the report worker beside the portal. ``./run`` starts it; it ends with its parent."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand
from django.db import connection

from appliance.common.migrated import all_migrations_applied
from appliance.reports import nights

_PR_SET_PDEATHSIG = 1  # prctl(2)
LOOK_S = 0.5


class Command(BaseCommand):
    """Runs Redis, the Celery worker and the scheduler: ``manage.py nights``."""

    requires_system_checks = ()  # they would read all pages first
    help = "Run the report worker: Celery, and Redis unless the configuration names one."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Adds the option of the parent process."""
        parser.add_argument("--with-parent", type=int, default=0, metavar="PID", help="end when this process ends")

    def handle(self, *_: Any, **options: Any) -> None:
        """Starts the processes and restarts any that exit, until it is stopped."""
        if options["with_parent"]:
            ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
            if os.getppid() != options["with_parent"]:  # it ended before we could say so
                return
        while not (settings.REDIS_SOCKET.parent.is_dir() and all_migrations_applied()):
            time.sleep(LOOK_S)  # the core makes its directories, the portal its database
        connection.close()
        own = settings.CELERY_BROKER_URL.endswith(str(settings.REDIS_SOCKET))
        socket = str(settings.REDIS_SOCKET) if own else ""
        command = [sys.executable, "-m", nights.__name__, str(settings.WAYPOST.run_directory / "nights.lock"),
                   str(settings.WAYPOST.log_directory), socket]  # fmt: skip
        os.execv(command[0], command)  # noqa: S606  # what waits all day needs no Django
