"""Every page of the portal, with something on it: the list for tests that look at all of them (test_access.py).

Pages whose address has no arguments are found in Django's resolver. The others are in PAGES: one that is in the table of roles
(tests/appliance/accounts/access.py) and neither there nor in NOT_PAGES fails a test, so that a new page is not forgotten.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from django.urls import resolve
from playwright.async_api import Page

from appliance.reports.report_store import Period
from mailcore.lab.lab import Lab
from tests.appliance.accounts.access import TABLE, Least
from tests.appliance.accounts.test_access import pages
from tests.appliance.reports.made import make_report
from tests.appliance.tuning.test_pages import RESULT
from tests.browser.queue_steps import send_deferred
from tests.browser.site import PASSWORD, Site, _environment
from tests.browser.totp import fresh_code
from tests.eventually import eventually
from tests.running.running_core import route_to
from tests.test_tidy import ROOT

__all__ = [
    "NOT_PAGES",
    "PAGES",
    "SAME_WITHOUT_ANYTHING",
    "Places",
    "covered",
    "listing",
    "plain",
    "prepare",
    "rows_of",
    "sign_in_with_code",
    "wanted",
]

LIMIT = "destination_concurrency_limit"
# Paths by the role that looks at them; the names in braces are of Places.
PAGES: dict[str, tuple[str, ...]] = {
    "administrator": (
        "/?at=1795219200", "/queue/?at=1795219200", "/queue/?at=soon", "/queue/{queue_id}/?at=1795219200",
        "/queue/?lane=hold", "/queue/?lane=deleted", "/queue/?sender=not-there@*", "/queue/?older_than=soon",
        "/queue/search/?q=not-there", "/queue/search/?q=from@example.net&in=sender", "/queue/changes/{change}/",
        "/queue/{queue_id}/", "/queue/{queue_id}/body/", "/queue/{queue_id}/raw/", "/destinations/?q=not-there",
        "/destinations/{destination}/", "/destinations/{destination}/suspend/", "/destinations/{destination}/resume/",
        "/destinations/{destination}/set/", f"/destinations/{{destination}}/take-back/{LIMIT}/",
        "/destinations/smtp:not-there.example/", "/tuning/?scope=smtp",
        "/tuning/history/?scope=smtp&parameter=process_limit", "/tuning/changes/{batch}/",
        "/nodes/shards/north/move/", "/nodes/mx1/drain/", "/nodes/mx1/resume/",
        "/routes/?address=a@example.org", "/reports/day/2026-11-18/", "/reports/day/2026-11-01/", "/reports/runs/{run}/",
        "/reports/schedules/{task}/", "/alerts/{alert}/", "/alerts/rules/disk/", "/alerts/rules/watch_away/",
        "/webhooks/1/", "/webhooks/1/edit/", "/audit/1/",
        "/audit/{tuned}/", "/audit/?since=yesterday",
        "/audit/?since=2026-13-01T00:00", "/audit/?who=not-there", "/admin/auth/user/{user}/change/",
        "/admin/auth/user/{user}/delete/", "/admin/auth/user/{user}/password/", "/admin/auth/user/{user}/two-factor/",
        "/admin/auth/user/{user}/identity/",
        "/admin/auth/user/{user}/sessions/",
        "/admin/auth/user/{user}/history/", "/admin/auth/group/1/change/", "/admin/auth/group/1/history/",
        "/admin/axes/accessattempt/{attempt}/change/", "/admin/axes/accessattempt/{attempt}/delete/",
        "/admin/axes/accessattempt/{attempt}/history/", "/admin/audit/entry/1/change/", "/admin/audit/entry/1/history/",
        "/admin/django_celery_beat/periodictask/{task}/change/", "/admin/django_celery_beat/periodictask/{task}/history/",
        "/no/such/page", "/tuning/diff/", "/settings/kinds/relay/", "/settings/kinds/routes/", "/settings/kinds/transports/",
        "/settings/kinds/listeners/", "/settings/kinds/tls/", "/settings/kinds/milters/",
        "/settings/kinds/alerts/",
        "/settings/kinds/reports/",
        "/settings/kinds/section-bounce/",
        "/settings/kinds/routes/rows/routes/", "/settings/kinds/listeners/rows/listener/",
    ),
    "viewer": ("/tuning/", "/queue/", "/audit/"),  # the last is refused
    "": ("/accounts/login/", "/accounts/login/?next=/queue/", "/accounts/inactive/"),
    # Of a user with a code, in this order.
    "coded": (
        "/accounts/two-factor/", "/accounts/two-factor/recovery-codes/", "/accounts/two-factor/recovery-codes/generate/",
        "/accounts/two-factor/deactivate/", "/accounts/two-factor/reauthenticate/",
    ),
}  # fmt: skip
# Forms and lists that the migrations filled: they look the same before the first mail and after it.
SAME_WITHOUT_ANYTHING = frozenset(
    (
        "/queue/search/", "/admin/", "/admin/auth/user/", "/admin/auth/user/add/",
        "/admin/auth/group/", "/admin/django_celery_beat/periodictask/", "/api/v1/",
        "/webhooks/new/",
    )
)  # fmt: skip
# Reached by steps of a test: the page that asks for the code.
BY_STEPS = {"mfa_authenticate"}
# Not a page: a stream, a file, or a piece that a page puts in its place. Dialogs are opened by the test itself.
NOT_PAGES = {
    "status:overview_stream", "live:stream", "live:numbers", "live:history", "queue:rows", "queue:names", "queue:csv",
    "queue:found", "queue:then", "status:overview_then", "queue:chosen",
    "queue:recipients", "queue:waiting", "queue:eml", "destinations:list_stream",
    "destinations:one_stream", "tuning:prediction", "tuning:windows", "tuning:return_batch", "tuning:return_change",
    "routes:resolve", "reports:csv", "reports:parquet", "audit:csv", "admin:login",
    "api:openapi", "api:nothing", "palette:found", "managed:export", "maillog:newer",
    "mfa_remove_webauthn", "mfa_login_webauthn", "mfa_reauthenticate_webauthn",
    "account_oidc", "account_oidc_callback",
}  # fmt: skip

PREPARE = """
import json, sys, uuid
from datetime import date, timedelta
from django.contrib.auth.models import Group, User
from django.utils import timezone
from allauth.mfa.recovery_codes.internal.auth import RecoveryCodes
from allauth.mfa.totp.internal.auth import TOTP
from axes.models import AccessAttempt
from django_celery_beat.models import PeriodicTask
from appliance.alerts.models import Alert, Notice, RuleCheck, Silence, Watch
from appliance.api.scopes import Scope
from appliance.api.tokens import make
from appliance.audit.models import Entry, Outcome as Ended
from appliance.queue.models import Change as QueueChange, Phase
from appliance.reports.models import Run, State
from appliance.tuning.models import Change, Outcome, Prediction
from appliance.webhooks.models import Failure, Webhook

coded = User.objects.create_user("coded", password=PASSWORD)
coded.groups.add(Group.objects.get(name="administrator"))
TOTP.activate(coded, SECRET)
RecoveryCodes.activate(coded)
for name in ("administrator", "operator"):
    make(User.objects.get(username=name), "nightly script", list(Scope), 30)
result = json.loads(RESULT)
prediction = Prediction.objects.create(
    changes=[], asked={"duration_s": 86400.0, "since_s": 3600.0}, before=result, after=result, assumptions=["none"]
)
batch = uuid.uuid4()
for scope, parameter, before, value in (
    ("", "maximal_queue_lifetime", 432000.0, 86400.0), ("smtp", "process_limit", 100, 20000),
):
    Change.objects.create(
        who="operator", batch=batch, scope=scope, parameter=parameter, before={"value": before, "origin": "configuration"},
        value=value, after={"value": value, "origin": "tuned"}, why="a test", outcome=Outcome.APPLIED, prediction=prediction,
    )
tuned = Entry.objects.create(
    who="operator", action="tuning.set", subject="global maximal_queue_lifetime", outcome=Ended.DONE, why="a test",
    before={"value": 432000.0, "origin": "configuration"}, after={"value": 86400.0, "until": 1763900000.5},
)
change = QueueChange.objects.create(
    who="operator", operation="delete", words="sender from@*", why="a test", phase=Phase.DONE, matched=3, changed=3,
    matched_recipients=5, changed_recipients=5, ended_at=timezone.now(),
)
run = Run.objects.create(
    day=date(2026, 11, 18), state=State.FAILED, who="operator", begun_at=timezone.now(), words="no Java", log="some words"
)
attempt = AccessAttempt.objects.create(
    username="somebody", ip_address="192.0.2.1", user_agent="a browser", failures_since_start=3, get_data="", post_data="",
    http_accept="", path_info="/accounts/login/",
)
now = timezone.now()
Watch.objects.create(pid=1, started_at=now, seen_at=now)
RuleCheck.objects.create(key="disk", checked_at=now, tried_at=now, causes=2)
RuleCheck.objects.create(key="balance", tried_at=now, unknown="no answer to state in time")
RuleCheck.objects.create(key="queue_age", checked_at=now, tried_at=now)
seen = {"rule": "disk", "link": "/positions/", "began_at": now, "seen_at": now}
alert = Alert.objects.create(
    cause="disk:space:queue", severity="critical", summary="The disk of queue, spool has 2 GB free; new mail is refused.",
    detail="/var/lib/waypost/queue; new mail gets 452 below 3 GB.", opened_at=now, acknowledged_at=now, **seen,
    acknowledged_by="operator", acknowledged_why="a bigger disk comes",
)
Alert.objects.create(cause="disk:inodes:log", severity="warning", summary="The disk of log is short.", opened_at=now, **seen)
Alert.objects.create(cause="disk:stalled", severity="warning", summary="Seen a moment ago.", **seen)
Alert.objects.create(cause="disk:old", severity="warning", summary="Short until noon.", opened_at=now, ended_at=now, **seen)
for attempts, sent_at, words in ((3, None, "mail.example.net: 451 4.7.1 try again later"), (1, now, "250 ok")):
    Notice.objects.create(alert=alert, kind="opened", channel="mail", target="on-call@example.net", made_at=now,
                          next_try_at=now, attempts=attempts, sent_at=sent_at, words=words)
Silence.objects.create(rule="disk", cause="disk:inodes:log", until=now + timedelta(hours=4), made_at=now, made_by="operator",
                       why="it is known")
hook = Webhook.objects.create(
    name="crm", url="https://crm.example/in", kinds=["bounced", "expired"], sender_domain="sender.example",
    made_by="administrator", failing_since=now, words="503 Service Unavailable", sending="01234567",
    attempt=4, next_event_at=now, enabled=False,
    sent_events=12_345, sent_requests=99, failed_requests=4, sent_at=now,
)
Failure.objects.create(webhook=hook, delivery="01234567", attempt=4, status=503, duration_s=0.2, words="503 Unavailable")
print("PLACES" + json.dumps({
    "batch": str(batch), "tuned": tuned.pk, "change": change.tag, "run": run.pk, "attempt": attempt.pk,
    "alert": alert.pk,
    "task": PeriodicTask.objects.get(name="nightly report").pk, "user": User.objects.get(username="operator").pk,
}))
"""
SECRET = "JBSWY3DPEHPK3PXP"  # of the user with a code


@dataclass(frozen=True)
class Places:
    """What the names in braces stand for."""

    queue_id: str
    destination: str
    batch: str
    tuned: int
    change: str
    run: int
    attempt: int
    task: int
    user: int
    alert: int

    def paths(self, role: str) -> list[str]:
        return [path.format(**self.__dict__) for path in PAGES[role]]


SAMPLE = Places("0123456789ABCDEF", "smtp:x.example", "6f2c1f5e-0f6e-4a51-9d5d-0d1f4a2d7c11", 1, "abc", 1, 1, 1, 1, 1)


def plain() -> list[str]:
    """The addresses of all pages that an administrator may ask for and whose address has no arguments."""
    return [f"/{route}" for name, route in pages().items() if name in wanted() - BY_STEPS and "<" not in route]


def listing() -> list[str]:
    """Returns those of plain() that show what there is, and look otherwise while there is nothing."""
    return [path for path in plain() if not path.startswith("/accounts/") and path not in SAME_WITHOUT_ANYTHING]


def covered() -> set[str]:
    """The names of the pages that are looked at, as Django resolves them."""
    paths = [path.partition("?")[0] for role in PAGES for path in SAMPLE.paths(role)] + plain()
    return {resolve(path).view_name for path in paths if path != "/no/such/page"} | BY_STEPS


def wanted() -> set[str]:
    """The names of all pages that have an address."""
    return {name for name, (get, _) in TABLE.items() if get not in (Least.NEVER, Least.TOKEN)} - NOT_PAGES


async def prepare(it: Site, lab: Lab) -> Places:
    """Mail that is deferred and held, a destination with an override, reports, and rows of each kind in the database."""
    queue_ids = await send_deferred(it, 3, "from@example.net")
    await it.core.order("hold", queue_ids[0], why="a test")
    await it.core.until_in(queue_ids[0], "hold")
    await it.core.order("delete", queue_ids[2], why="a test")
    destination = route_to(lab, 0)
    await it.core.ask("set", "a test", scope=destination, parameter=LIMIT, value=3)
    await it.core.ask("set", "a test", scope="smtp", parameter="destination_rate_delay", value=90)
    await asyncio.to_thread(make_report, it.core.home / "reports", Period.DAY, date(2026, 11, 18))
    rows = await asyncio.to_thread(rows_of, it.core.directory / "waypost.toml")
    return Places(queue_ids[1], destination, **rows)


def rows_of(config: Path) -> dict[str, Any]:
    """Makes rows of each kind in the database of the portal; returns their keys."""
    code = f"PASSWORD, SECRET, RESULT = {PASSWORD!r}, {SECRET!r}, {json.dumps(RESULT)!r}\n{PREPARE}"
    done = subprocess.run(
        [sys.executable, "manage.py", "shell", "--no-imports", "--command", code], cwd=ROOT, check=False,
        env=_environment(config), capture_output=True, timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    found: dict[str, Any] = json.loads(done.stdout.decode().partition("PLACES")[2])
    return found


async def sign_in_with_code(it: Site, page: Page) -> None:
    """Fills the page that asks for the code, which is open."""
    await page.fill("input[name=code]", await fresh_code(SECRET))
    await page.click("main button[type=submit]")
    await eventually(lambda: page.url == it.url("/"))
