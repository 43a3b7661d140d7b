"""What is in a kept portal: something in every table of ours. For ``make_portal``, where Django is set up, of whatever release.

Must not know: anything of this checkout's.
"""

from __future__ import annotations

import time
from datetime import date

from allauth.mfa.totp.internal.auth import TOTP
from django.contrib.auth.models import Group, User
from django.test import Client
from django.utils import timezone

from appliance.audit.models import Entry
from appliance.live.models import LastSnapshot, Sample
from appliance.queue.models import Change as QueueChange
from appliance.queue.models import Phase
from appliance.reports.models import Preferences, Run, State
from appliance.tuning.models import Change, Outcome, Prediction

__all__ = ["PASSWORD", "TAG", "TOTP_SECRET", "USERS", "WHY", "fill"]

PASSWORD = "a long enough password"  # everybody's
TOTP_SECRET = "TOTPTOTPTOTPTOTPTOTPTOTPTOTPTOTP"  # the administrator's
TAG = "KEPTCHANGE"  # of a change of many messages
WHY = "because the release wanted it <b>so</b>"
USERS = {"ina": "administrator", "olga": "operator", "vic": "viewer"}
HOLD = {
    "operation": "hold", "filter": {"sender": "*@example.org"}, "query": "sender=%2A%40example.org",
    "words": "from *@example.org", "matched": 3, "matched_recipients": 4, "changed": 2, "failed": 1,
    "errors": {"1K0RDGV4BE900": "it has just been delivered"},
}  # fmt: skip


def fill() -> None:
    for name, role in USERS.items():
        User.objects.create_user(name, password=PASSWORD).groups.add(Group.objects.get(name=role))
    client = Client(headers={"host": "127.0.0.1"})
    for password in ("wrong", PASSWORD):  # the audit, attempts, a session
        client.post("/accounts/login/", {"login": "olga", "password": password})
    TOTP.activate(User.objects.get(username="ina"), TOTP_SECRET)
    of_the_rooms()


def of_the_rooms() -> None:
    olga = User.objects.get(username="olga")
    Entry.objects.create(user=olga, who="olga", action="queue.hold", subject="a filter", after={"changed": 3}, why=WHY)
    limit = {"scope": "smtp", "parameter": "process_limit"}
    result = {
        "drain_s": 5.0, "delivered": 10, "bounced": 0, "waiting": 0, "deferred": 0, "messages": 10, "truncated": False,
        "series": {"t": [1, 2], "backlog": [5, 0], "window": {"smtp:a.example": [5, 7]}},
        "delay": {"small": {"recipients": "1", "messages": 10, "p50": 1.0, "p90": 2.0, "p99": 3.0}, "big": {"messages": 0}},
    }  # fmt: skip
    prediction = Prediction.objects.create(
        user=olga,
        changes=[{**limit, "value": 7}],
        asked={"duration_s": 86_400.0, "since_s": 3_600.0, "arrivals": True},
        before=result,
        after=result | {"drain_s": None},
        assumptions=["All is as it was."],
    )
    by = {"user": olga, "who": "olga", "why": WHY, **limit}
    default, tuned = {"value": 100, "origin": "default"}, {"value": 7, "origin": "tuned"}
    changed = Change.objects.create(
        **by, before=default, value=7, after=tuned, outcome=Outcome.APPLIED, prediction=prediction
    )
    Change.objects.create(**by, before=tuned, value=None, returns=changed, outcome=Outcome.UNKNOWN)
    QueueChange.objects.create(tag=TAG, who="olga", why=WHY, phase=Phase.DONE, ended_at=timezone.now(), **HOLD)
    now = time.time()
    for minute in range(3):
        counts = dict.fromkeys(("delivered", "deferred", "bounced", "expired", "deleted", "undeleted"), minute)
        Sample.objects.create(
            minute=int(now // 60) - minute, at=now, started_at=now - 600, accepted=9, messages=5, recipients=6, **counts
        )
    LastSnapshot.objects.create(at=now, snapshot={})
    Preferences.objects.create(zone="Europe/Berlin", recipients=["ops@example.org"], numbers="1.000")
    for number, state in enumerate((State.DONE, State.RED, State.FAILED), 18):
        run = Run(
            day=date(2026, 11, number), state=state, who="olga", words=WHY, log="a line\n", mail_words="1K0RDGV4BE900"
        )
        run.begun_at = run.ended_at = run.mailed_at = timezone.now()
        run.save()


if __name__ == "__main__":
    fill()
