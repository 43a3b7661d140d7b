"""Accepted + queued at the start = ended + queued at the end; and whatever is lost or doubled turns it red, and is named."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest

import mailcore.balance
from appliance.pipeline.balance import BALANCED, UNBALANCED, UNCHECKED, Balance, balance, suspects
from appliance.pipeline.build_day import ReportBuilder
from appliance.pipeline.cuts import cuts_in, nearest
from appliance.pipeline.days import Day
from tests.appliance.pipeline.sample_events import BOUNCED, DEFERRED, DELIVERED, SampleMail, utc

DAY = Day(date(2026, 11, 20), "UTC")
DTS = ["2026-11-19", "2026-11-20"]
NOON = utc("2026-11-20 12:00")
Row = dict[str, Any]


def told(builder: ReportBuilder, events: Path) -> Balance:
    cuts, unreadable = cuts_in(events)
    assert unreadable == []
    first, last = nearest(cuts, DAY.begin), nearest(cuts, DAY.end)
    silver = builder.silver(DTS)
    found = balance(builder.session, silver, first, last)
    if found.state == UNBALANCED:
        assert first is not None
        assert last is not None
        files = [each for day in silver for each in builder._files[day.dt]]
        found.suspects, found.suspects_left_out = suspects(builder.session, silver, first, last, files)
    return found


def some_mail(events: Path) -> tuple[SampleMail, str]:
    """Mail of the day before, of which some is queued; mail of the day, with one to be looked at."""
    sample = SampleMail()
    sample.cut(events, utc("2026-11-19 00:00"))
    old = sample.accept(utc("2026-11-19 20:00"), ["a@x.example", "b@x.example", "c@x.example"])
    sample.attempt(old, utc("2026-11-19 20:00"), {0: DELIVERED, 1: DEFERRED, 2: DEFERRED})
    sample.replaced(old, utc("2026-11-19 20:00"))
    held = sample.accept(utc("2026-11-19 21:00"))
    sample.attempt(held, utc("2026-11-19 21:00"), {0: DEFERRED})
    sample.replaced(held, utc("2026-11-19 21:00"))
    sample.cut(events, DAY.begin)
    sample.delivered(NOON)
    chosen = sample.accept(NOON + 10, ["a@y.example", "b@y.example"])
    sample.attempt(chosen, NOON + 11, {0: DELIVERED, 1: BOUNCED})
    sample.finish(chosen, NOON + 11)
    sample.attempt(old, NOON + 20, {1: DELIVERED, 2: ("expired", "4.4.7", "too old")}, generation=1)
    sample.finish(old, NOON + 20)
    gone = sample.accept(NOON + 30)
    sample.attempt(gone, NOON + 31, {0: ("deleted", "", "")}, relay="")
    sample.finish(gone, NOON + 31, "deleted")
    late = sample.accept(NOON + 40, ["c@y.example"])
    sample.attempt(late, NOON + 41, {0: DEFERRED})
    sample.replaced(late, NOON + 41)
    return sample, chosen


def test_what_came_in_went_out_or_is_queued(builder: ReportBuilder, events: Path) -> None:
    sample, _ = some_mail(events)
    sample.write(events)
    sample.cut(events, DAY.end)
    found = told(builder, events)
    assert found.state == BALANCED
    assert (found.queued_at_start, found.accepted, found.queued_at_end) == (3, 5, 2)
    assert found.message_by_message is True
    assert (found.delivered, found.bounced, found.expired, found.deleted) == (3, 1, 1, 1)


def test_a_broken_term_of_the_equation_turns_it_red(
    builder: ReportBuilder, events: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sample, _ = some_mail(events)
    sample.write(events)
    sample.cut(events, DAY.end)
    broken = [replace(term, sign=+1) if term.name == "queued_at_end" else term for term in mailcore.balance.TERMS]
    monkeypatch.setattr(mailcore.balance, "TERMS", tuple(broken))
    found = told(builder, events)
    assert (found.state, found.difference, found.message_by_message) == (UNBALANCED, 4, False)


Lost = Callable[[Row, str], bool]
LOSSES: dict[str, tuple[Lost, str]] = {
    "an acceptance": (
        lambda row, chosen: row["kind"] == "accepted" and row["queue_id"] == chosen,
        "no event of its acceptance",
    ),
    "an attempt": (
        lambda row, chosen: row["kind"] == "attempt" and row["queue_id"] == chosen and row["part"] == 1,
        "finished, but not all recipients have an outcome",
    ),
    "all but the acceptance": (
        lambda row, chosen: row["kind"] in ("attempt", "finished") and row["queue_id"] == chosen,
        "not finished; it may be queued",
    ),
}


@pytest.mark.parametrize(
    "loss", [each if each == "an acceptance" else pytest.param(each, marks=pytest.mark.long) for each in LOSSES]
)
def test_a_lost_event_turns_it_red_and_its_message_is_named_with_its_files(
    builder: ReportBuilder, events: Path, loss: str
) -> None:
    sample, chosen = some_mail(events)
    lost, why = LOSSES[loss]
    sample.write(events, without=lambda row: lost(row, chosen))
    sample.cut(events, DAY.end)
    found = told(builder, events)
    assert found.state == UNBALANCED
    assert found.difference != 0
    assert "does not balance" in found.words
    (suspect,) = found.suspects
    assert (suspect.queue_id, suspect.why) == (chosen, why)
    assert all(".parquet" in each for each in suspect.events)


def test_with_the_ids_of_the_cut_the_message_is_named_for_sure(builder: ReportBuilder, events: Path) -> None:
    sample, chosen = some_mail(events)
    sample.accept(NOON + 50)  # is queued, and was never tried
    sample.write(events, without=lambda row: row["kind"] in ("attempt", "finished") and row["queue_id"] == chosen)
    sample.cut(events, DAY.end, ids=True)
    (suspect,) = told(builder, events).suspects
    assert (suspect.queue_id, suspect.why) == (chosen, "neither finished nor queued")


def two_losses(row: Row, came: str, went: str) -> bool:
    """The acceptance of one message and the ends of another: as many recipients are missing on both sides."""
    ended = row["kind"] == "attempt" and row["status"] != "deferred"
    return bool(row["queue_id"] == (came if row["kind"] == "accepted" else went if ended else None))


@pytest.mark.long
def test_a_lost_acceptance_and_the_lost_end_of_another_message_do_not_make_up_for_each_other(
    builder: ReportBuilder, events: Path
) -> None:
    sample, came = some_mail(events)
    went = sample.accept(NOON + 50, ["d@y.example", "e@y.example"])
    sample.attempt(went, NOON + 51, {0: DELIVERED, 1: DELIVERED})
    sample.finish(went, NOON + 51)
    sample.write(events, without=lambda row: two_losses(row, came, went))
    sample.cut(events, DAY.end)
    found = told(builder, events)
    assert (found.state, found.difference, found.message_by_message) == (UNBALANCED, 0, False)
    assert found.words == ("It does not balance: the totals agree, but not for the same messages.")
    assert [(each.queue_id, each.why) for each in found.suspects] == [
        (came, "no event of its acceptance"),
        (went, "finished, but not all recipients have an outcome"),
    ]


@pytest.mark.long
def test_a_count_that_has_no_checksum_compares_numbers_only_and_says_so(builder: ReportBuilder, events: Path) -> None:
    """Also: checksums beyond what eight bytes hold, on both sides, are compared as they wrap."""
    sample, _ = some_mail(events)
    sample.write(events)
    sample.cut(events, DAY.end)
    paths = [next((events / "cuts").glob(f"{day}*.json")) for day in ("2026-11-20", "2026-11-21")]
    whole = [json.loads(path.read_text()) for path in paths]

    def changed(*without: int, more: int = 0) -> Balance:
        for number, (path, said) in enumerate(zip(paths, whole, strict=True)):
            checksum = None if number in without else (said["checksum"] + more) % (1 << 64)
            path.write_text(json.dumps(said | {"checksum": checksum}))
        return told(builder, events)

    for without in ((0,), (1,)):
        found = changed(*without)
        assert (found.state, found.difference, found.message_by_message) == (BALANCED, 0, None)
        assert found.words == (
            "The totals balance. A check by message is not possible: the queue was counted by an older version."
        )
    only_one_wraps = (1 << 64) - max(said["checksum"] for said in whole)
    assert changed(more=only_one_wraps).message_by_message is True


def test_amounts_of_the_day_keep_the_difference_and_none_is_below_zero() -> None:
    totals = {"recipients": 7, "delivered": 4, "bounced": 1, "returned": 1, "expired": 0, "deleted": 0}
    counted = Balance(UNBALANCED, "", queued_at_start=5, queued_at_end=5, difference=2, moved=3)
    of_day = counted.of_day(totals, repeated=1)
    assert (of_day.queued_at_start, of_day.accepted, of_day.delivered, of_day.queued_at_end) == (2, 7, 4, 0)
    assert of_day.queued_at_start is not None
    assert of_day.queued_at_end is not None
    assert of_day.queued_at_start + 7 - 6 - 1 - of_day.queued_at_end == counted.difference
    assert replace(counted, moved=6).of_day(totals, repeated=1).queued_at_start == 5, "what came before is not known"
    uncounted = Balance(UNCHECKED, "").of_day(totals, repeated=0)
    assert (uncounted.accepted, uncounted.returned, uncounted.queued_at_start) == (7, 1, None)


@pytest.mark.long
def test_an_end_that_is_told_twice_turns_it_red(builder: ReportBuilder, events: Path) -> None:
    sample, chosen = some_mail(events)
    sample.attempt(chosen, NOON + 60, {0: DELIVERED})
    sample.write(events)
    sample.cut(events, DAY.end)
    found = told(builder, events)
    assert found.difference == -1
    assert [(each.queue_id, each.why) for each in found.suspects] == [(chosen, "a recipient has two outcomes")]


@pytest.mark.long
def test_recipients_that_an_operator_added_came_in(builder: ReportBuilder, events: Path) -> None:
    sample, _ = some_mail(events)
    queue_id = sample.accept(NOON + 50)
    sample.order(queue_id, NOON + 51, "hold")
    sample.order(queue_id, NOON + 52, "add_recipients", recipients=["x@z.example", "y@z.example"])
    sample.write(events)
    sample.cut(events, DAY.end)
    found = told(builder, events)
    assert (found.state, found.accepted, found.queued_at_end) == (BALANCED, 8, 5)
    assert found.message_by_message is True


@pytest.mark.long
def test_events_beyond_the_cut_are_of_the_next_day_whatever_their_time(builder: ReportBuilder, events: Path) -> None:
    sample, _ = some_mail(events)
    sample.cut(events, DAY.end - 30)
    sample.delivered(DAY.end - 40)
    sample.write(events)
    assert told(builder, events).state == BALANCED


@pytest.mark.long
def test_a_cut_without_positions_counts_by_time(builder: ReportBuilder, events: Path) -> None:
    sample, _ = some_mail(events)
    sample.write(events)
    sample.cut(events, DAY.end, by_time=True)
    assert told(builder, events).state == BALANCED


def test_without_a_count_of_the_queue_nobody_says_that_it_balances(builder: ReportBuilder, events: Path) -> None:
    sample, _ = some_mail(events)
    sample.write(events)
    found = told(builder, events)
    assert found.state == UNCHECKED
    assert "at the end of the day" in found.words
