"""A watch that is killed at each of its steps, one after another, and started again: prints what was sent, as JSON.

    python -m tests.appliance.alerts.killed_watch DIRECTORY

A step is each statement and each commit of the database, and each sending, before it and after it. The process is a copy of
this one (fork) that ends itself with SIGKILL; the database is a file. In both lives the disk is short until an alert is open.
"""

from __future__ import annotations

import gc
import itertools
import json
import os
import shutil
import signal
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import django

if __name__ == "__main__":
    django.setup()  # before the models are imported

from django.conf import settings as django_settings
from django.core.management import call_command
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from appliance.alerts.book import Target
from appliance.alerts.emergency import Emergency
from appliance.alerts.facts import DiskSpace, Facts
from appliance.alerts.models import Alert, Notice
from appliance.alerts.outbox import Outbox
from appliance.alerts.watching import Watcher
from mailcore.config.alerts import Alerts
from tests.appliance.alerts.sample_facts import facts

__all__ = ["main"]

STEPS_MAX = 2_000
CHECKS = 3
SETTINGS, TARGETS = Alerts(clear_s=30, again_s=0), (Target("mail", "a@example.org"), Target("webhook"))


class Killer:
    """Ends the process at a step; never, if it is 0."""

    def __init__(self, at: int) -> None:
        self._left = at
        self._lock = threading.Lock()

    def step(self) -> None:
        with self._lock:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    def around(self, execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        """Wraps each statement, as Django's execute_wrapper wants it."""
        self.step()
        return execute(sql, params, many, context)

    def watch_database(self) -> None:
        """Makes a step of each statement and each commit of this process."""
        commit: Callable[[Any], None] = BaseDatabaseWrapper._commit  # type: ignore[attr-defined]
        connect = BaseDatabaseWrapper.connect

        def committed(connection: Any) -> None:
            self.step()
            commit(connection)
            self.step()

        def connected(connection: Any) -> None:
            connect(connection)
            connection.execute_wrappers[:] = [self.around]

        BaseDatabaseWrapper._commit = committed  # type: ignore[attr-defined]
        BaseDatabaseWrapper.connect = connected  # type: ignore[method-assign,assignment]


class Gatherer:
    """The disk is short until there is an alert."""

    def gather(self) -> Facts:
        free = 1 << 40 if Alert.objects.filter(opened_at__isnull=False).exists() else 10
        return facts(disks=(DiskSpace(what="queue", path="/q", device=1, free_bytes=free, reserve_bytes=100),))


def life(database: Path, sent: Path, killer: Killer) -> None:
    """Lets a watch check its rules some times."""
    connections.settings["default"]["NAME"] = str(database)
    quick = {"init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=OFF;"}  # a kill of a process loses no write
    connections.settings["default"]["OPTIONS"] |= quick
    killer.watch_database()

    def send(target: Target, notices: Sequence[Notice], settings: Alerts, now: datetime) -> str:
        killer.step()
        with sent.open("a") as file:
            for notice in notices:
                file.write(json.dumps([target.channel, notice.kind]) + "\n")
            file.flush()
        killer.step()
        return "250 ok"

    seconds: Iterator[float] = itertools.count(0.0, 30.0)
    emergency = Emergency(database.parent, SETTINGS, TARGETS, send)
    outbox = Outbox(SETTINGS, TARGETS, send)
    watcher = Watcher(SETTINGS, TARGETS, Gatherer(), outbox, emergency, monotonic=lambda: next(seconds))
    for _ in range(CHECKS):
        watcher.check()
        if watcher._sending is not None:
            watcher._sending.join()


def in_copy(work: Callable[[], None]) -> int:
    """Runs ``work`` in a copy of this process; returns how it ended."""
    pid = os.fork()
    if not pid:
        try:
            work()
        except BaseException as error:
            print(repr(error), file=sys.stderr)
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def rows(database: Path, query: str) -> list[list[Any]]:
    connection = sqlite3.connect(database)
    try:
        return [list(row) for row in connection.execute(query)]
    finally:
        connection.close()


def main(directory: Path) -> None:
    """Kills a watch at each step of its first life; then another one lives to the end."""
    call_command("migrate", verbosity=0, interactive=False)
    connections.close_all()
    template = Path(django_settings.PORTAL_DIRECTORY) / "portal.sqlite3"
    database, sent = directory / "case.sqlite3", directory / "sent"
    noted = "SELECT channel, kind FROM alerts_notice WHERE sent_at IS NOT NULL"
    results = []
    gc.collect()
    gc.freeze()  # no copy looks for garbage in what they share
    for step in range(1, STEPS_MAX):
        for old in directory.glob("case.sqlite3*"):
            old.unlink()
        shutil.copyfile(template, database)
        sent.write_text("")

        def lives(step: int) -> int:
            return in_copy(lambda: life(database, sent, Killer(step)))

        first = lives(step)
        sent_first = [json.loads(line) for line in sent.read_text().splitlines()]
        noted_first = rows(database, noted)
        second = lives(0)
        results.append(
            {
                "first": first,
                "sent_first": sent_first,
                "noted_first": noted_first,
                "second": second,
                "sent": [json.loads(line) for line in sent.read_text().splitlines()],
                "noted": rows(database, noted),
                "alerts": rows(database, "SELECT cause, ended_at IS NULL FROM alerts_alert"),
            }
        )
        if first == 0:
            break
    print(json.dumps(results))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
