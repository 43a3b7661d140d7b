"""Delivery by destination, domains, source address and tag: what was tried, apart from what was put off or ended by us."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest

from appliance.pipeline.build_day import ReportBuilder
from appliance.pipeline.daily_tables.labels import LABELS
from appliance.pipeline.days import Day, week_of
from appliance.pipeline.tables import read_table
from appliance.pipeline.weeks import make_period
from tests.appliance.pipeline.sample_events import BOUNCED, DEFERRED, DELIVERED, SampleMail

DAY = Day(date(2026, 11, 20), "UTC")
PUT_OFF = ("deferred", "4.4.1", "delivery temporarily suspended: Connection refused")
RETURNED = ("bounced", "5.7.0", "returned by the operator")
NOTHING: dict[str, Any] = {"relay": "none", "delays": (1.0, 2.0, 0.0, 0.0), "tls": ""}


def some_mail(sample: SampleMail, at: float) -> None:
    ours: dict[str, Any] = {
        "recipient_domain": "net.example", "sender_domain": "shop.example", "source_address": "198.51.100.7", "tag": "spring",
        "size_bytes": 1_000,
    }  # fmt: skip
    one = sample.accept(at, ["a@net.example", "b@net.example", "c@net.example"])
    sample.attempt(one, at, {0: DELIVERED, 1: DEFERRED, 2: BOUNCED}, **ours)
    sample.attempt(one, at + 9, {1: DELIVERED}, generation=1, tls="", **ours)
    two = sample.accept(at, ["d@net.example", "e@net.example"])
    sample.attempt(two, at, {0: PUT_OFF, 1: PUT_OFF}, **NOTHING, **(ours | {"source_address": ""}))
    sample.attempt(two, at + 9, {0: RETURNED, 1: ("deleted", "", "")}, **NOTHING, **(ours | {"source_address": ""}))


def row(directory: Path, table: str, key: str, name: str) -> dict[str, Any]:
    there = read_table(directory / table)
    assert there is not None
    (found,) = [each for each in there.to_pylist() if each[key] == name]
    return dict(found)


@pytest.fixture
def report(builder: ReportBuilder, events: Path) -> Path:
    sample = SampleMail()
    for day in (DAY.before(1), DAY):
        some_mail(sample, day.begin + 3_600)
    sample.delivered(DAY.begin + 60, destination="smtp:earlier.example")
    sample.write(events)
    for day in (DAY.before(1), DAY):
        builder.day(day)
    week = make_period(builder, week_of(DAY.date), "UTC")
    assert week is not None
    day_version = builder.store.current(f"gold/{DAY.name}")
    assert day_version is not None
    (day_version / "week").symlink_to(week)
    return day_version


@pytest.mark.long
def test_what_was_tried_is_apart_from_what_was_put_off_and_an_event_of_an_earlier_version_has_the_label_nothing(
    report: Path,
) -> None:
    names = {
        "by_destination": "smtp:example.net", "by_recipient_domain": "net.example", "by_sender_domain": "shop.example",
        "by_source_address": "198.51.100.7", "by_tag": "spring",
    }  # fmt: skip
    for times, directory in ((1, report), (2, report / "week")):
        for table, key in LABELS.items():
            found = row(directory, table, key, names[table])
            put_off = 0 if table == "by_source_address" else 2  # nothing was connected
            counts = {
                "attempts": 4,
                "delivered": 2,
                "deferred": 1,
                "bounced": 1,
                "put_off": put_off,
                "delivered_bytes": 2_000,
            }
            counts["messages_deferred"] = 1 if table == "by_source_address" else 2
            assert {name: found[name] for name in counts} == {
                name: times * number for name, number in counts.items()
            }, table
            assert (found["first_attempt_share"], found["tls_share"]) == (round(1 / 3, 6), 0.5), table
    found = row(report, "by_tag", "tag", "")
    assert (found["attempts"], found["delivered"], found["delivered_bytes"]) == (1, 1, 0)
