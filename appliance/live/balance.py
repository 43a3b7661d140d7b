"""The balance of today: recipients queued at its start plus those accepted since = those that left plus those queued now.

The balance is exact, also over restarts of the manager: the core continues its counts. It begins at midnight if the counts
began before, and otherwise when they began, or at the first sample of today.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.utils import timezone

from appliance.live.models import Sample
from appliance.live.snapshot import COUNTS
from mailcore.balance import Scope, difference, terms

__all__ = ["Balance", "balance_of"]

REMEMBERED_S = 60.0  # of the day's beginning: a sample is kept once a minute
REMEMBERED_MAX = 100  # the day begins at another time in each time zone
SLACK_MINUTES = 3  # a sample up to this long before midnight counts as midnight


@dataclass(frozen=True, slots=True)
class Balance:
    """Holds the balance of today, in recipients. An amount is None while nothing is known."""

    rows: list[tuple[str, str, int | None]]  # name, words, amount
    since: str
    difference: int
    unanswered: str = ""  # which shards did not answer: a part of them does not balance

    @property
    def verdict(self) -> str:
        """Returns whether it balances, as a sentence."""
        if self.unanswered:
            return f"It is not known whether it balances: {self.unanswered}."
        if self.rows[-1][2] is None:
            return "No data yet."
        return "It balances." if not self.difference else f"It does not balance: a difference of {self.difference}."


def balance_of(snapshot: Mapping[str, Any]) -> Balance:
    """Returns the balance of today as of a snapshot, with times in the active time zone."""
    totals = snapshot["totals"]
    labels = _labels()
    unanswered = snapshot["core"].get("unanswered", "")  # an older snapshot lacks it
    if totals is None or unanswered:
        return Balance([(name, label, None) for name, label in labels.items()], "–", 0, unanswered)
    day_began = timezone.localtime().replace(hour=0, minute=0, second=0, microsecond=0)
    began = _remembered(day_began.timestamp(), totals["started_at"], totals["queued_at_start"])
    amounts = {name: totals.get(name, 0) - int(began[name]) for name in COUNTS}  # an older snapshot lacks "lost"
    amounts |= {"queued_at_start": int(began["queued"]), "queued": totals["queued"]}
    at = timezone.localtime(datetime.fromtimestamp(began["at"], timezone.get_current_timezone()))
    moment = f"{at:%H:%M:%S}" if at >= day_began else f"{at:%Y-%m-%d %H:%M:%S}"
    if began["at"] == totals["started_at"]:
        note = totals.get("note", "")  # missing in a snapshot of an earlier version
        since = f"since {moment}, when the counts began" + (f": {note}" if note else "")
    elif abs((at - day_began).total_seconds()) < SLACK_MINUTES * 60:
        since = "since midnight"
    else:
        since = f"since {moment}, the first sample of today"
    rows = [(name, label, amounts[name]) for name, label in labels.items()]
    return Balance(rows, since, difference(Scope.RECIPIENTS, amounts))


def _labels() -> dict[str, str]:
    """Returns the label of each term by its name, each with the operator before it."""
    labels: dict[str, str] = {}
    sign_before = 0
    for term in terms(Scope.RECIPIENTS):
        operator = "+ " if term.sign == sign_before else "= " if sign_before else ""
        labels[term.name] = operator + (term.label if operator else term.label.capitalize())
        sign_before = term.sign
    return labels


_remembered_days: dict[tuple[float, float, int], tuple[float, dict[str, float]]] = {}


def _remembered(*key: Any) -> dict[str, float]:
    """Returns the result of ``_began``, computed once a minute for each day and beginning: live pages show the balance
    once a second."""
    known = _remembered_days.get(key)
    if known is None or time.monotonic() - known[0] > REMEMBERED_S:
        if len(_remembered_days) > REMEMBERED_MAX:
            _remembered_days.clear()
        known = _remembered_days[key] = (time.monotonic(), _began(*key))
    return known[1]


def _began(day_began: float, started_at: float, queued_at_start: int) -> dict[str, float]:
    """Returns when the balance begins, and the counts at that time.

    It begins when the counts did if that is later than midnight or if there is no sample with them; otherwise at the sample
    nearest to midnight.
    """
    nothing = {"at": started_at, "started_at": started_at, "queued": queued_at_start, **dict.fromkeys(COUNTS, 0)}
    if started_at >= day_began:
        return nothing
    same = Sample.objects.filter(started_at=started_at)
    last = same.filter(at__lte=day_began, minute__gte=int(day_began // 60) - SLACK_MINUTES).order_by("-minute").first()
    sample = last or same.filter(at__gt=day_began).order_by("minute").first()
    if sample is None:
        return nothing
    counted = {name: getattr(sample, name) for name in COUNTS}
    return {"at": sample.at, "started_at": started_at, "queued": sample.recipients, **counted}
