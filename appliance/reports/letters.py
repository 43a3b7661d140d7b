"""The report by mail: HTML with its charts, and plain text, handed to the core for delivery.

Laws: the mail is made from the page's content. Untrusted text is escaped, and the mail loads nothing from the network. A mail
is due when its run has ended for good, and is retried each minute for a day. One process sends at a time (a lock), and stores
the queue id. Of several nodes one mails it, and tells the others until their database has it (``handed_in``).
"""

from __future__ import annotations

import contextlib
import email.policy
import email.utils
import fcntl
from collections.abc import Iterator
from dataclasses import replace
from datetime import date, timedelta
from email.message import EmailMessage

from django.conf import settings
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import timezone

from appliance.common.current_settings import current_settings
from appliance.common.door import door_of
from appliance.common.own_names import sender_or_own, site
from appliance.reports import exporter, handed_in, report_store
from appliance.reports.content import Content, Lines, content_of
from appliance.reports.models import Run, State
from appliance.reports.preferences import InForce, in_force
from appliance.reports.report_store import Period, Report
from appliance.reports.runs import letters_due, made_by
from appliance.reports.shard_events import nodes_events
from appliance.reports.tables import Kind, Shown
from appliance.reports.text import as_text
from appliance.reports.writing import Writing
from mailcore.control.client import ControlError
from mailcore.extras import missing
from mailcore.faults import Code

HAS_CHARTS = not missing("charts")
if HAS_CHARTS:
    from appliance.reports import charts

__all__ = ["failure_letter", "letter", "send_due", "sender"]

WHO = "the nightly report"
UNKNOWN_WAITS = timedelta(minutes=20)  # the other nodes begin at the same time, and need some minutes
POLICY = email.policy.SMTP.clone(cte_type="7bit")  # so that any next hop takes it


def send_due() -> int:
    """Sends what is due; how many were."""
    sent = 0
    with _alone() as alone:
        if not alone:
            return 0
        for day, queue_id in handed_in.noted().items():  # first, so that no other node takes the turn of this one
            if not exporter.letter_sent(day, queue_id, tries=1):
                handed_in.forget(day)
        for it in letters_due():
            sent += _send(it)
    return sent


def _send(it: Run) -> bool:
    now = in_force()
    if not now.recipients or it.state == State.STOPPED:
        Run.objects.filter(pk=it.pk).update(
            mail=False, mail_words="no recipients configured" if not now.recipients else ""
        )
        return False
    report = report_store.report_of(Period.DAY, it.day) if it.state != State.FAILED else None
    message = failure_letter(it, now) if report is None else letter(report, now)
    is_for_one = report is not None and nodes_events() is not None  # a failure is each node's own
    if is_for_one and report is not None:
        queue_id = handed_in.noted().get(it.day, "")
        if queue_id:  # this process ended behind it
            Run.objects.filter(pk=it.pk).update(mailed_at=timezone.now(), mail_words=queue_id)
            return False
        if not _is_our_turn(it, report):
            return False
    try:
        queue_id = door_of(WHO).inject(
            sender(), list(now.recipients), message.as_bytes(), why=f"the report of {it.day}"
        )
    except ControlError as error:
        Run.objects.filter(pk=it.pk).update(mail_words=f"not sent yet: {error}"[:1000])
        if is_for_one and error.code is not Code.OUTCOME_UNKNOWN:
            exporter.release_letter(it.day)
        return False
    if is_for_one:
        with contextlib.suppress(OSError):  # a disk without room: it tells the others for a minute
            handed_in.note(it.day, queue_id)
    Run.objects.filter(pk=it.pk).update(mailed_at=timezone.now(), mail_words=queue_id)
    if is_for_one and not exporter.letter_sent(it.day, queue_id):
        handed_in.forget(it.day)
    return True


def _is_our_turn(it: Run, report: Report) -> bool:
    """Returns whether this node hands the mail in now; of several nodes that have made the report one mails it. One that could
    not say whether the day balances lets the others go first: it may be cut off, or its disk full."""
    if report.balances is None and it.ended_at is not None and timezone.now() - it.ended_at < UNKNOWN_WAITS:
        Run.objects.filter(pk=it.pk).update(mail_words="not sent yet: another node may know whether the day balances")
        return False
    try:
        claim = exporter.claim_letter(it.day)
    except exporter.NotAnswered as error:
        Run.objects.filter(pk=it.pk).update(mail_words=f"not sent yet: {error}"[:1000])
        return False
    if claim["sent"]:
        Run.objects.filter(pk=it.pk).update(mail=False, mail_words=f"mailed by node {claim['node']}: {claim['sent']}")
    elif not claim["ours"]:
        Run.objects.filter(pk=it.pk).update(mail_words=f"not sent yet: node {claim['node']} is about to send it")
    return bool(claim["ours"])


def letter(report: Report, now: InForce) -> EmailMessage:
    """Returns the mail of a report, with text, HTML and charts."""
    writing = now.writing
    content = content_of(report, writing)
    tables = [each for each in map(_shortened, content.tables) if each is not None]
    images = _charts(content, writing)
    url = url_of(report.period, report.start)
    context = {
        "content": content, "writing": writing, "tables": tables, "url": url,
        "images": [(cid[1:-1], what) for cid, what, _ in images], "number_kind": Kind.NUMBER,
    }  # fmt: skip
    # The same from each node: should it come twice, programs see that it is the same mail.
    domain = now.recipients[0].rpartition("@")[2] if now.recipients else "waypost"
    same = f"<waypost-report-of-{report.start}@{domain}>" if nodes_events() is not None else ""
    message = _envelope(_subject(content), now, same)
    message.set_content(as_text(content, tables, writing, url))
    message.add_alternative(render_to_string("mail/report.html", context), subtype="html")
    html = message.get_payload()[1]  # type: ignore[index]  # the second of the two that were just put in
    assert isinstance(html, EmailMessage)
    for cid, what, png in images:
        html.add_related(
            png,
            "image",
            "png",
            cid=cid,
            filename=f"{what.replace(',', '').replace(' ', '-')}.png",
            disposition="inline",
        )
    return message


def failure_letter(it: Run, now: InForce) -> EmailMessage:
    """Returns the mail about a failed run: the report of the day, or only its weeks and months."""
    report = report_store.report_of(Period.DAY, it.day)
    made = report is not None and made_by(it, report)
    context = {
        "run": it, "made": made, "day": now.writing.day(it.day), "url": site() + reverse("reports:run", args=(it.pk,)),
        "tail": it.log.splitlines()[-20:],
    }  # fmt: skip
    words = "was made, but not all of its weeks and months" if made else "failed"
    message = _envelope(f"Waypost: report of {it.day} {words}", now)
    message["X-Priority"] = "1"
    message.set_content(render_to_string("mail/failure.txt", context))
    message.add_alternative(render_to_string("mail/failure.html", context), subtype="html")
    return message


def _envelope(subject: str, now: InForce, message_id: str = "") -> EmailMessage:
    message = EmailMessage(policy=POLICY)
    own = sender()
    message["From"] = f"Waypost <{own}>"
    message["To"] = ", ".join(now.recipients)
    message["Subject"] = subject
    message["Date"] = email.utils.localtime()
    message["Message-ID"] = message_id or email.utils.make_msgid(domain=own.rpartition("@")[2])
    message["Auto-Submitted"] = "auto-generated"  # RFC 3834: no vacation notice answers it
    return message


def _subject(content: Content) -> str:
    words = "DOES NOT BALANCE" if content.balance.red else "no mail" if content.empty else ""
    so_far = " so far" if content.report.so_far else ""
    return f"Waypost: report of {content.title}{so_far}" + (f": {words}" if words else "")


def _charts(content: Content, writing: Writing) -> list[tuple[str, str, bytes]]:
    """Returns (Content-ID, what it shows, PNG) of each chart; nothing where the extra 'charts' is not installed."""
    if not HAS_CHARTS:
        return []
    inside = "recipients per hour" if content.report.period is Period.DAY else "recipients per day"
    wanted: list[tuple[str, Lines]] = [(inside, content.inside), ("recipients per day, last 30 days", content.trend)]
    domain = sender().rpartition("@")[2]
    return [
        (email.utils.make_msgid(domain=domain), what, charts.bars(lines, writing)) for what, lines in wanted if lines
    ]


def _shortened(table: Shown) -> Shown | None:
    """Returns the part of the table that the mail shows; None if it shows nothing."""
    spec = table.spec
    if table.fault or table.gone:
        return table
    if not spec.in_mail:
        return None
    columns = [each for each in table.columns if each.name in spec.in_mail or spec.in_mail == ("*",)]
    return replace(table, columns=columns, rows=table.rows[: spec.mail_rows])


def sender() -> str:
    """Returns the sender address of the mail."""
    return sender_or_own(current_settings().reports.sender)


def url_of(period: Period, start: date) -> str:
    """Returns the address of a report's page."""
    return site() + reverse("reports:report", args=(period.value, start.isoformat()))


@contextlib.contextmanager
def _alone() -> Iterator[bool]:
    settings.REPORTS_DIRECTORY.mkdir(parents=True, exist_ok=True)
    with (settings.REPORTS_DIRECTORY / "mail.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True
