"""Each recipient counts once, whatever the manager's kills wrote of it twice; attempts are what a next hop was asked; one day's
numbers are the same in every table and in the balance."""

from __future__ import annotations

import json
import re
from datetime import date
from email.message import EmailMessage
from pathlib import Path
from typing import Any, cast

import pyarrow.parquet as pq
import pytest

from appliance.pipeline.build_day import ReportBuilder, Told
from appliance.pipeline.daily_tables.periods import ADDED
from appliance.pipeline.days import Day, week_of
from appliance.pipeline.store import VERSION
from appliance.pipeline.tables import read_table
from appliance.pipeline.weeks import make_period
from appliance.reports.letters import letter
from appliance.reports.preferences import in_force
from appliance.reports.report_store import Period, report_of
from tests.appliance.pipeline.sample_events import BOUNCED, DEFERRED, DELIVERED, SampleMail
from tests.appliance.pipeline.test_labels import NOTHING, PUT_OFF, RETURNED
from tests.appliance.reports.reading import chart, equation, figures, page
from tests.appliance.reports.reading import table as shown_table

DAY = Day(date(2026, 11, 20), "UTC")
WEEK = "week=2026-W47"
NOON = DAY.begin + 43_200
EXPIRED = ("expired", "4.4.7", "message has been in the queue too long")
DELETED = ("deleted", "2.0.0", "deleted")
OTHER: dict[str, Any] = {"destination": "smtp:other.example", "relay": "mx.other.example[192.0.2.8]:25"}


def rows(builder: ReportBuilder, table: str, name: str = DAY.name) -> list[dict[str, Any]]:
    version = builder.store.current(f"gold/{name}")
    assert version is not None
    read = read_table(version / table)
    assert read is not None
    found: list[dict[str, Any]] = read.to_pylist()
    return found


def over_kills(sample: SampleMail) -> None:
    """Two recipients of three are deferred; the manager is killed before it puts the message back, so the same pass begins
    again: one is delivered, and one deferred once more, then delivered in the next pass. The third was done before."""
    queue_id = sample.accept(NOON, ["a@net.example", "b@net.example", "c@net.example"])
    sample.attempt(queue_id, NOON + 1, {0: DEFERRED, 1: DEFERRED, 2: DELIVERED})
    sample.attempt(queue_id, NOON + 5, {0: DELIVERED, 1: DEFERRED})
    sample.replaced(queue_id, NOON + 5)
    sample.attempt(queue_id, NOON + 305, {1: DELIVERED}, generation=1)
    sample.finish(queue_id, NOON + 305)


def of_our_own(sample: SampleMail) -> None:
    """Put off twice, then returned, deleted or expired without an attempt."""
    queue_id = sample.accept(NOON, ["d@net.example", "e@net.example", "f@net.example"])
    sample.attempt(queue_id, NOON + 1, {0: PUT_OFF, 1: PUT_OFF, 2: PUT_OFF}, **NOTHING)
    sample.attempt(queue_id, NOON + 2, {0: PUT_OFF}, **NOTHING)
    sample.attempt(
        queue_id, NOON + 3, {0: RETURNED, 1: DELETED}, **(NOTHING | {"destination": "", "delays": (0.0,) * 4})
    )
    sample.attempt(queue_id, NOON + 4, {2: EXPIRED}, **NOTHING)
    sample.finish(queue_id, NOON + 4)


COUNTED = ("attempts", "delivered", "deferred", "bounced", "put_off", "returned", "expired", "deleted")


def agree(builder: ReportBuilder, report: Told, name: str = DAY.name) -> dict[str, Any]:
    """Compares all tables of a report, and the balance; returns the totals."""
    (total,) = rows(builder, "totals", name)
    for table in ("destinations", "providers", "hours"):
        found = rows(builder, table, name)
        assert {each: sum(row[each] for row in found) for each in COUNTED} == {each: total[each] for each in COUNTED}, (
            table
        )
    hours = rows(builder, "hours", name)
    for each in ("messages", "recipients", "size_bytes", "refused"):
        assert sum(row[each] for row in hours) == total[each], each
    by_destination = {row["destination"]: row for row in rows(builder, "by_destination", name)}
    for row in rows(builder, "destinations", name):
        for each in ("attempts", "delivered", "deferred", "bounced", "put_off"):
            assert by_destination.get(row["destination"], {}).get(each, 0) == row[each], (row["destination"], each)
    reasons = rows(builder, "reasons", name)
    for each in ("deferred", "bounced", "put_off", "returned", "expired"):
        told = sum(row["recipients"] for row in reasons if row["status"] == each.replace("_", " "))
        assert told == total[each], each
    out = [row["count"] for row in rows(builder, "encryption", name) if row["direction"] == "out"]
    assert sum(out) == total["delivered"]
    assert sum(step["count"] for step in total["delays"] or ()) == total["delivered"]
    balance = report.content["balance"]
    if name == DAY.name:
        assert balance["accepted"] == total["recipients"]
        assert {each: balance[each] for each in COUNTED[1:] if each in balance} == {
            each: total[each] for each in ("delivered", "bounced", "returned", "expired", "deleted")
        }
    return total


@pytest.fixture
def sample(events: Path) -> SampleMail:
    """Mail of the day before is queued at midnight, and changes in the seconds in which the queue is counted."""
    sample = SampleMail()
    old = sample.accept(DAY.begin - 3_600, ["old@net.example", "older@net.example"])
    sample.attempt(old, DAY.begin - 3_000, {0: DEFERRED, 1: DEFERRED})
    sample.attempt(old, DAY.begin + 1, {0: DELIVERED}, generation=1)
    sample.accept(DAY.begin + 2)
    sample.cut(events, DAY.begin + 3)
    sample.attempt(old, DAY.begin + 4, {1: BOUNCED}, generation=1)
    sample.finish(old, DAY.begin + 4)
    return sample


@pytest.mark.django_db
def test_a_recipient_counts_once_and_what_was_not_tried_is_no_attempt_wherever_it_is_said(
    builder: ReportBuilder, events: Path, sample: SampleMail, settings: Any
) -> None:
    over_kills(sample)
    of_our_own(sample)
    added = sample.accept(NOON + 9)
    sample.order(added, NOON + 10, "add_recipients", recipients=["x@z.example", "y@z.example"])
    sample.accept(DAY.end + 1)
    sample.write(events)
    sample.cut(events, DAY.end + 2)
    builder.day(DAY.before(1))
    report = builder.day(DAY)
    assert report.words == "It balances."
    total = agree(builder, report)
    assert {each: total[each] for each in COUNTED} == {
        "attempts": 8, "delivered": 4, "deferred": 3, "bounced": 1, "put_off": 4, "returned": 1, "expired": 1, "deleted": 1,
    }  # fmt: skip
    assert (total["messages"], total["recipients"], total["recipients_added"]) == (4, 10, 2)
    assert (total["delivered_share"], total["deferred_share"], total["bounced_share"]) == (0.5, 0.375, 0.125)
    (net,) = [row for row in rows(builder, "destinations") if row["destination"] == "smtp:example.net"]
    assert (net["messages"], net["recipients"], net["attempts"]) == (2, 5, 8), "a, b, c, and two of the day before"
    (provider,) = [row for row in rows(builder, "providers") if row["provider"] == "example.net"]
    assert (provider["messages"], provider["recipients"]) == (2, 5)
    (label,) = [row for row in rows(builder, "by_destination") if row["destination"] == "smtp:example.net"]
    assert (label["first_attempts"], label["first_delivered"], label["messages_deferred"]) == (3, 1, 2)
    balance = report.content["balance"]
    assert (balance["queued_at_start"], balance["queued_at_end"]) == (2, 4), "at midnight, not when it was counted"
    assert (balance["counted_at_start"], balance["counted_at_end"]) == (2, 5)
    assert balance["repeated"] == 0
    named = sum(row["messages"] for row in rows(builder, "recipients"))
    assert named == total["recipients"] - total["recipients_added"]
    settings.REPORTS_DIRECTORY = builder.store.root
    said_everywhere(total, balance)


def said_everywhere(total: dict[str, Any], balance: dict[str, Any]) -> None:
    """Compares figures, equation, tables and charts of the page, and both parts of the mail, with the totals."""
    text = page("/reports/day/2026-11-20/")
    report = report_of(Period.DAY, DAY.date)
    assert report is not None
    message = letter(report, in_force())
    plain, html = (str(cast(EmailMessage, message.get_body((kind,))).get_content()) for kind in ("plain", "html"))
    assert figures(text) == figures(html)
    for label, value in figures(text).items():
        assert re.search(rf"^{re.escape(label)} +{re.escape(value)}( |$)", plain, re.MULTILINE), label
    said = figures(text)
    labels = {"messages": "messages accepted", "recipients": "recipients accepted", "deferred": "attempts deferred",
              "put_off": "put off without attempt", "returned": "returned without attempt"}  # fmt: skip
    for name in ("messages", "recipients", *COUNTED):
        assert said[labels.get(name, name)] == str(total[name]), name
    terms = {label: str(balance[name]) for name, label in (
        ("queued_at_start", "queued at the start"), ("accepted", "accepted"), ("delivered", "delivered"),
        ("bounced", "bounced"), ("returned", "returned without attempt"), ("expired", "expired"), ("deleted", "deleted"),
        ("queued_at_end", "queued at the end"),
    )}  # fmt: skip
    assert equation(text) == equation(html) == terms
    for label, value in terms.items():
        assert f"{label} {value}" in plain
    assert {label: said[label] for label in terms if label in said} == {
        label: terms[label] for label in terms if label in said
    }
    assert terms["accepted"] == said["recipients accepted"]
    for name in ("destinations", "providers", "hours"):
        found = shown_table(text, name)
        for each in COUNTED:
            shown = sum(int(row[each.replace("_", " ")]) for row in found)
            assert shown == total[each], (name, each)
    lines = {"accepted": "recipients", "delivered": "delivered", "deferred": "deferred", "bounced": "bounced"}
    inside, trend = chart(text, "inside"), chart(text, "trend")
    for line, each in lines.items():
        assert sum(inside[line]) == trend[line][-1] == total[each], line
    for part in (text, html, plain):
        for words in ("+50.0 points", "\u221262.5 points", "+12.5 points", "compared with the day before, Thu 19 Nov."):
            assert words in " ".join(part.split()), words


@pytest.mark.long
@pytest.mark.django_db
def test_of_two_outcomes_of_a_recipient_the_first_counts_and_the_report_is_red(
    builder: ReportBuilder, events: Path, sample: SampleMail, settings: Any
) -> None:
    first = sample.accept(NOON, ["a@net.example", "b@net.example"])
    sample.attempt(first, NOON + 1, {0: DELIVERED, 1: BOUNCED})
    sample.attempt(first, NOON + 2, {0: BOUNCED, 1: DELIVERED}, **OTHER)
    sample.finish(first, NOON + 2)
    second = sample.accept(NOON + 3)
    sample.attempt(second, NOON + 4, {0: DELIVERED})
    sample.attempt(second, NOON + 5, {0: DELIVERED}, tls="", generation=1)
    sample.finish(second, NOON + 5)
    sample.write(events)
    sample.cut(events, DAY.end)
    report = builder.day(DAY)
    assert report.balances is False
    total = agree(builder, report)
    assert (total["attempts"], total["delivered"], total["bounced"]) == (5, 3, 2)
    assert "smtp:other.example" not in {row["destination"] for row in rows(builder, "destinations")}
    assert {row["version"] for row in rows(builder, "encryption") if row["direction"] == "out"} == {"TLSv1.3"}
    balance = report.content["balance"]
    assert (balance["repeated"], balance["difference"]) == (3, -3)
    assert {each["why"] for each in balance["suspects"]} == {"a recipient has two outcomes"}
    assert {each["queue_id"] for each in balance["suspects"]} == {first, second}
    settings.REPORTS_DIRECTORY = builder.store.root
    said = equation(page("/reports/day/2026-11-20/"))
    assert (said["delivered"], said["recorded a second time"]) == ("3", "3")


@pytest.mark.long
def test_a_week_of_an_older_day_and_a_new_one(builder: ReportBuilder, events: Path, sample: SampleMail) -> None:
    """The older day comes first, and its tables lack the columns that came later."""
    of_our_own(sample)
    sample.delivered(DAY.end + 60)
    sample.write(events)
    after = DAY.before(-1)
    for day in (DAY, after):
        builder.day(day)
    week = older(builder, DAY, by_tag=("delivered_tls",))
    assert json.loads((week / "report.json").read_text())["older"] == [DAY.date.isoformat()]
    (total,) = rows(builder, "totals", WEEK)
    assert (total["attempts"], total["put_off"]) == (3, 0), "of the days that tell"
    assert {row["level"] for row in rows(builder, "encryption", WEEK)} == {""}
    older(builder, after)
    (total,) = rows(builder, "totals", WEEK)
    assert (total["attempts"], total["put_off"]) == (3, None)


def older(builder: ReportBuilder, day: Day, **more: tuple[str, ...]) -> Path:
    """Makes a day's report one of the version before, and then its week. ``more``: tables and columns that it lacks, too."""
    version = builder.store.current(f"gold/{day.name}")
    assert version is not None
    for table, columns in {**ADDED, **more}.items():
        (file,) = (version / table).glob("*.parquet")
        pq.write_table(pq.read_table(file).drop_columns(list(columns)), file)
    path = version / "report.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"version": VERSION - 1}))
    week = make_period(builder, week_of(DAY.date), "UTC")
    assert week is not None
    return week
