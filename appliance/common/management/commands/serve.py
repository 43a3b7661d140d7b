"""``manage.py serve``: prepares the database and the static files, prints the first password, and serves the portal.

The first run creates an administrator and prints the password once. With ``--with-parent`` the portal ends with its parent, as
the core's children do.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import socket
import sys
import time
from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from appliance.common.first_administrator import ADMINISTRATOR, first_administrator, prepare
from appliance.common.own_names import site
from appliance.common.serving import certificate_fault, passed_socket, serve

_PR_SET_PDEATHSIG = 1  # prctl(2)
PORT_WAIT_S = 5.0  # longer than a portal needs to end
NICER = 5  # mail delivery has priority if the CPU is busy


class Command(BaseCommand):
    """Serves the portal, or prepares its home for it."""

    help = "Serve the portal."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Adds the options of the command."""
        parser.add_argument("--with-parent", type=int, default=0, metavar="PID", help="end when this process ends")
        parser.add_argument("--demo", action="store_true", help="the first password need not be changed")
        parser.add_argument("--prepare", action="store_true", help="prepare the database and static files, and exit")

    def handle(self, *_: Any, **options: Any) -> None:
        """Runs the command until its server ends."""
        if options["with_parent"]:
            ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
            if os.getppid() != options["with_parent"]:  # the parent ended before the call
                return
        prepare()
        password = first_administrator(is_demo=options["demo"])
        if password:
            end = "" if options["demo"] else "; you change it when you sign in"
            self.say(f"portal: sign in as {ADMINISTRATOR} with {password} (shown once{end})")
        if options["prepare"]:
            return
        listener = passed_socket()
        if listener is None and (fault := taken(settings.LISTEN_HOST.strip("[]"), settings.LISTEN_PORT)):
            self.say(
                f"portal: cannot listen on {settings.PORTAL.listen}: {fault}. The portal is not started; mail delivery "
                "continues. Stop the other process, or set another [portal] listen."
            )
            sys.exit(1)
        if fault := certificate_fault():
            self.say(f"portal: {fault}. The portal is not started; mail delivery continues.")
            sys.exit(1)
        for old in settings.METRICS_DIRECTORY.glob("*.db"):  # numbers of processes that have ended
            old.unlink(missing_ok=True)
        self.say(f"portal: {site()}/")
        os.nice(NICER)
        serve(listener)

    def say(self, words: str) -> None:
        """Writes a line to standard error."""
        print(words, file=sys.stderr, flush=True)


def taken(host: str, port: int) -> str:
    """Returns why the portal cannot listen; "" if it can. Waits for an old portal that is ending, as after a kill -9."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    end = time.monotonic() + PORT_WAIT_S
    while True:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
                return ""
            except OSError as error:
                if error.errno != errno.EADDRINUSE or time.monotonic() > end:
                    return error.strerror or str(error)
        time.sleep(0.2)
