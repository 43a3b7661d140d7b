"""Samples and what is made from them: the lines of a day, the balance of today."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.conf import settings
from django.utils import timezone

from appliance.live import balance
from appliance.live.balance import balance_of
from appliance.live.models import LastSnapshot, Sample
from appliance.live.samples import DatabaseKeeper, day_lines
from appliance.live.snapshot import COUNTS

pytestmark = pytest.mark.django_db

NOW = 1_800_000_000.0  # a whole minute
STARTED_AT = NOW - 86_400 * 3


@pytest.fixture(autouse=True)
def nothing_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(balance, "_remembered_days", {})


def sample(at: float, started_at: float = STARTED_AT, recipients: int = 0, **counts: int) -> Sample:
    values = dict.fromkeys(COUNTS, 0) | counts
    return Sample.objects.create(
        minute=int(at // 60), at=at, started_at=started_at, messages=0, recipients=recipients, **values
    )


def snapshot(
    at: float, started_at: float = STARTED_AT, queued: int = 0, at_start: int = 0, **counts: int
) -> dict[str, Any]:
    totals = (
        dict.fromkeys(COUNTS, 0) | counts | {"queued_at_start": at_start, "queued": queued, "started_at": started_at}
    )
    names = ("destinations", "trouble", "oldest", "oldest_as_of", "disks")
    core = {"as_of": at, "running": True}
    return {"at": at, "core": core, "totals": totals, "queue": {"messages": 1}, **dict.fromkeys(names)}


def test_two_portal_processes_do_not_double_a_minute() -> None:
    for accepted in (5, 6):
        DatabaseKeeper().keep(snapshot(NOW + accepted, accepted=accepted))
    assert [each.accepted for each in Sample.objects.all()] == [5]
    assert LastSnapshot.objects.get().at == NOW + 6
    known = DatabaseKeeper().load()
    assert known is not None
    assert known["totals"]["accepted"] == 6


def test_a_part_of_the_queue_is_neither_kept_nor_balanced() -> None:
    """With a shard that does not answer."""
    told = snapshot(NOW, queued=3, accepted=5)
    told["core"]["unanswered"] = "shard 1 does not answer, and nothing of it is counted: <b>away</b>"
    DatabaseKeeper().keep(told)
    assert not Sample.objects.exists()
    today = balance_of(told)
    assert {amount for _, _, amount in today.rows} == {None}
    assert today.verdict.startswith("It is not known whether it balances: shard 1 does not answer")
    assert today.difference == 0


def test_samples_are_kept_for_so_many_days() -> None:
    hour = NOW - NOW % 3600
    sample(hour - settings.PORTAL.sample_days * 86_400 - 60)
    kept = sample(hour - settings.PORTAL.sample_days * 86_400 + 60)
    DatabaseKeeper().keep(snapshot(hour))
    assert list(Sample.objects.values_list("minute", flat=True)) == [kept.minute, hour // 60]


def test_nothing_is_known_of_a_portal_that_never_ran() -> None:
    assert DatabaseKeeper().load() is None
    assert day_lines(NOW)["t"] == []


def test_the_lines_of_a_day_are_differences_of_counts() -> None:
    sample(NOW - 86_400 - 120, accepted=1)  # more than a day ago
    for minute, accepted in ((3, 100), (2, 160), (1, 160)):
        sample(NOW - minute * 60, accepted=accepted, recipients=7)
    lines = day_lines(NOW)
    assert lines["t"] == [NOW - 120, NOW - 60]
    assert lines["accepted"] == [60.0, 0.0]
    assert lines["recipients"] == [7, 7]


def test_a_manager_that_began_in_between_counts_from_nothing() -> None:
    sample(NOW - 120, accepted=1_000)
    sample(NOW - 60, started_at=NOW - 90, accepted=10)
    assert day_lines(NOW)["accepted"] == [20.0]  # 10 in half a minute


def test_a_line_is_interrupted_where_nobody_took_samples_and_goes_on_with_the_mean() -> None:
    sample(NOW - 1_200, accepted=0)
    sample(NOW - 600, accepted=100)
    lines = day_lines(NOW)
    assert lines["t"] == [NOW - 1_199, NOW - 600]
    assert lines["accepted"] == [None, 10.0]


# -- the balance


def midnight() -> float:
    return timezone.localtime().replace(hour=0, minute=0, second=0, microsecond=0).timestamp()


def amounts(told: dict[str, Any]) -> dict[str, int | None]:
    return {name: amount for name, _, amount in balance_of(told).rows}


def test_the_balance_begins_at_midnight_when_the_counts_began_before() -> None:
    began = midnight()
    sample(began - 30, began - 9_000, recipients=4, accepted=100, delivered=90, deleted=6)
    sample(began + 30, began - 9_000, recipients=5, accepted=101)
    told = snapshot(began + 60, began - 9_000, queued=11, accepted=120, delivered=102, deleted=7)
    today = balance_of(told)
    assert today.since == "since midnight"
    there = {name: amount for name, amount in amounts(told).items() if amount}
    assert there == {"queued_at_start": 4, "accepted": 20, "delivered": 12, "deleted": 1, "queued": 11}
    assert today.difference == 0
    assert today.verdict == "It balances."


@pytest.mark.parametrize("note", ["", "the queue was restored from a backup"])
def test_when_the_counts_began_again_today_the_balance_begins_there_and_says_why(note: str) -> None:
    began = midnight()
    sample(began - 30, began - 9_000, recipients=4, accepted=100)
    told = snapshot(began + 60, began + 50, queued=3, at_start=2, accepted=5, delivered=4)
    told["totals"]["note"] = note
    today = balance_of(told)
    assert today.since == "since 00:00:50, when the counts began" + (f": {note}" if note else "")
    assert (amounts(told)["queued_at_start"], amounts(told)["accepted"], today.difference) == (2, 5, 0)


def test_a_rate_is_never_below_zero() -> None:
    """A bounce that was counted before the manager was killed counts again when it is written again."""
    sample(NOW - 120, accepted=10)
    sample(NOW - 60, accepted=9)
    assert [rate for rate in day_lines(NOW)["accepted"] if rate is not None] == [0.0]


def test_without_a_sample_at_midnight_the_first_of_today_counts() -> None:
    began = midnight()
    sample(began - 3_600, began - 9_000, recipients=1)
    sample(began + 3_600, began - 9_000, recipients=8, accepted=10)
    sample(began + 3_660, began - 9_000, recipients=9, accepted=11)
    today = balance_of(snapshot(began + 4_000, began - 9_000, queued=9, accepted=11))
    assert today.since == "since 01:00:00, the first sample of today"
    assert today.difference == 0


def test_a_day_begins_where_the_reader_is() -> None:
    with timezone.override(ZoneInfo("Pacific/Kiritimati")):
        began = midnight()
        assert datetime.fromtimestamp(began, ZoneInfo("Pacific/Kiritimati")).hour == 0
        sample(began, began - 9_000, recipients=8)
        assert balance_of(snapshot(began + 60, began - 9_000, queued=8)).since == "since midnight"


def test_what_does_not_balance_is_told() -> None:
    today = balance_of(snapshot(midnight() + 60, midnight() + 1, queued=3, accepted=5, delivered=4))
    assert today.difference == -2
    assert today.verdict == "It does not balance: a difference of -2."
