"""Runs of reports: requested, started, retried, and recovered after a kill. The database holds their state; Redis only
wakes the worker.

Laws: a run starts under the lock of ``running``, and only in the process that changes it from waiting to running in the
database, so that waking twice makes one report. A run marked as running without the lock was killed, and counts as failed. A
failure is retried ``retries`` times; a report that does not balance is a result and is not retried, nor is a report made in a
terminal.

Keeps law: one-report-at-a-time (docs/laws.md).
"""

from __future__ import annotations

import contextlib
import logging
import re
import subprocess
import sys
from datetime import date, timedelta

from django.conf import settings
from django.db.models import QuerySet
from django.utils import timezone

from appliance.celery import app
from appliance.common.current_settings import current_settings
from appliance.reports import exporter, handed_in, report_store
from appliance.reports.models import ENDED, LOG_MAX, NOT_EXPORTED_MAX, Run, State
from appliance.reports.preferences import in_force, yesterday
from appliance.reports.running import Busy, Ended, Heard, command_of, held, run
from appliance.reports.shard_events import nodes_events, shard_events

__all__ = [
    "FETCHING",
    "SCHEDULE",
    "ask",
    "ask_for_the_night",
    "ended",
    "export_failed",
    "heard",
    "letters_due",
    "made_by",
    "make",
    "ring",
    "send_letters",
    "stop",
    "take_up",
]

SCHEDULE = "the schedule"
MAKE = "appliance.reports.tasks.make"
RING_EXPIRES_S = 55.0  # rung again each minute; so what waits never piles up
TRIED_FOR = timedelta(days=1)
LETTERS_S = 300.0  # drawing some charts takes seconds
MADE = (0, 1)  # the pipeline's word for it: all of it; 1 when the day does not balance
BUSY, BUSY_WAIT_S = 75, 60.0  # the same (EX_TEMPFAIL of sysexits.h)
# Output of Spark and Java at each start, never the cause of a failure.
CHATTER = re.compile(
    r"^Setting (default |Spark )?log level|^To adjust logging level|^Using Spark's default log4j|^WARNING: "
    r"|^\d\d/\d\d/\d\d \d\d:\d\d:\d\d (WARN|INFO) "
)
KILLED = "the process was killed"
FETCHING = Heard("fetching the events of all nodes", 0.0, "")
log = logging.getLogger(__name__)


def ask(day: date, who: str, *, mail: bool = False, attempt: int = 1, wait_s: float = 0.0) -> Run:
    """Notes that a report is wanted, and rings. One that is waiting for that day already is enough."""
    there = Run.objects.filter(day=day, state=State.ASKED).first()
    if there is not None:
        there.mail, there.who = there.mail or mail, who
        there.due_at = min(there.due_at, timezone.now() + timedelta(seconds=wait_s))
        there.save(update_fields=("mail", "who", "due_at"))
    else:
        due = timezone.now() + timedelta(seconds=wait_s)
        there = Run.objects.create(day=day, who=who, mail=mail, attempt=attempt, due_at=due)
    if there.due_at <= timezone.now():
        ring(there)
    return there


def ring(asked: Run) -> bool:
    """Wakes the worker. Returns False if Redis does not answer; the check each minute will then find the run."""
    try:
        app.send_task(MAKE, (asked.pk,), expires=RING_EXPIRES_S, retry=False, ignore_result=True)
    except Exception as error:  # kombu's, redis' and the system's have no common ancestor
        log.warning("Redis does not answer: %s", error)
        return False
    return True


def ask_for_the_night() -> list[Run]:
    """Requests the report of yesterday, to be mailed, and those of earlier days that have events but no report, or only
    one made before the day was over."""
    last = yesterday(in_force().zone)
    oldest_first = [last - timedelta(days=back) for back in range(current_settings().reports.catch_up_days - 1, 0, -1)]
    missing = [day for day in oldest_first if report_store.has_events(day) and not report_store.is_whole(day)]
    return [*(ask(day, SCHEDULE) for day in missing), ask(last, SCHEDULE, mail=True)]


def stop(pk: int) -> None:
    """Stops a run: a waiting one at once, a running one within some seconds."""
    stopped = Run.objects.filter(pk=pk, state=State.ASKED).update(state=State.STOPPED, ended_at=timezone.now())
    if not stopped:
        Run.objects.filter(pk=pk, state=State.RUNNING).update(stop_wanted=True)


def make(pk: int) -> Run | None:
    """Makes the report that is waiting; None when there is nothing to do, or another is being made."""
    try:
        with held(settings.REPORTS_DIRECTORY) as hold:
            mine = Run.objects.filter(pk=pk, state=State.ASKED, due_at__lte=timezone.now())
            if not mine.update(state=State.RUNNING, begun_at=timezone.now(), stage="starting"):
                return None
            it = Run.objects.get(pk=pk)
            zone = in_force().zone
            not_cut, nodes, gathered = exporter.cut(SCHEDULE, zone), nodes_events(), exporter.Gathered()
            if nodes is not None:
                gathered = exporter.gather(it.day, lambda: heard(pk, FETCHING))
            export_failed(pk, "; ".join(filter(None, (not_cut, *gathered))))
            command = command_of(
                it.day,
                settings.EVENTS_DIRECTORY,
                settings.REPORTS_DIRECTORY,
                zone,
                settings.REPORTS.spark_master,
                True,
                shard_events(),
                nodes,
                gathered.fault,
            )
            came = run(
                command, hold, timeout_s=current_settings().reports.timeout_s, listen=lambda each: heard(pk, each)
            )
            it = ended(it, came)
    except Busy:
        return None
    _try_again(it)
    return it


def export_failed(pk: int, why: str) -> None:
    """Stores why the core could not export the latest events; "" when it could."""
    Run.objects.filter(pk=pk).update(not_exported=why[:NOT_EXPORTED_MAX])


def heard(pk: int, told: Heard) -> bool:
    """Stores the progress. Returns False if a user stopped the run."""
    Run.objects.filter(pk=pk).update(stage=told.stage, share=told.share, log=told.log[-LOG_MAX:])
    return not Run.objects.filter(pk=pk, stop_wanted=True).exists()


def ended(it: Run, came: Ended) -> Run:
    """Stores the result of the run and the summary of its report."""
    report = report_store.report_of(report_store.Period.DAY, it.day)
    if came.why == "stopped":
        state, words = State.STOPPED, "stopped"
    elif came.status in MADE and report is not None and made_by(it, report):
        state, words = (State.RED if report.balances is False else State.DONE), report.summary
    else:
        state, words = State.FAILED, ""
    it.refresh_from_db()
    if state == State.FAILED:
        words = came.why or _last_words(came, it.stage)
    if came.status == BUSY and not came.why and not it.by_hand:  # by hand, somewhere else: it is this one's turn later
        it.state, it.stage, it.due_at = State.ASKED, "", timezone.now() + timedelta(seconds=BUSY_WAIT_S)
        it.save(update_fields=("state", "stage", "due_at"))
        return it
    it.state, it.words, it.log, it.ended_at = state, words[:2000], came.log[-LOG_MAX:], timezone.now()
    if state in (State.DONE, State.RED):
        it.share = 1.0
    it.save()
    return it


def made_by(it: Run, report: report_store.Report) -> bool:
    """Returns whether this run made the report. The run may have failed later, in weeks and months."""
    return it.begun_at is not None and report.made_at >= it.begun_at.timestamp() - 1


def _last_words(came: Ended, stage: str) -> str:
    how = f"ended with status {came.status}"
    if came.status < 0:
        how = f"killed by signal {-came.status}" + (f" during “{stage}”" if stage else "")
    last = next((line for line in reversed(came.log.splitlines()) if line.strip() and not CHATTER.search(line)), "")
    return f"{how}: {last}" if last else how


def _try_again(it: Run) -> None:
    """Requests another run after a failure, while there are tries left; that run then sends the mail."""
    retries, wait_s = current_settings().reports.retries, current_settings().reports.retry_wait_s
    if it.state == State.FAILED and it.attempt <= retries and not it.by_hand:
        ask(it.day, it.who, mail=it.mail, attempt=it.attempt + 1, wait_s=wait_s * 2 ** (it.attempt - 1))
        Run.objects.filter(pk=it.pk).update(mail=False)


def take_up() -> None:
    """Marks killed runs as failed and tries them again; wakes the worker if a run is due. Called each minute."""
    killed: list[Run] = []
    with contextlib.suppress(Busy), held(settings.REPORTS_DIRECTORY):
        killed += Run.objects.filter(state=State.RUNNING)
        for it in killed:
            it.state, it.words, it.ended_at = State.FAILED, KILLED, timezone.now()
            it.save(update_fields=("state", "words", "ended_at"))
    for it in killed:
        _try_again(it)
    for due in Run.objects.filter(state=State.ASKED, due_at__lte=timezone.now()).order_by("pk")[:1]:
        ring(due)


def letters_due() -> QuerySet[Run]:
    """Returns the runs that ended during the last day and whose mail is not sent yet."""
    since = timezone.now() - TRIED_FOR
    return Run.objects.filter(mail=True, mailed_at=None, state__in=ENDED, ended_at__gt=since).order_by("pk")


def send_letters() -> None:
    """Sends mail in a process of its own, so that the memory for charts is freed."""
    if letters_due().exists() or handed_in.noted():
        command = [sys.executable, "-m", "django", "mail_reports"]
        try:
            subprocess.run(command, cwd=settings.BASE_DIR, check=True, timeout=LETTERS_S)  # noqa: S603  # our own
        except (subprocess.SubprocessError, OSError) as error:
            log.warning("could not send report mail: %s", error)
