"""The report of a day as a whole: its numbers beside the ledger's, day for day, zone for zone."""

from __future__ import annotations

from collections import Counter
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from appliance.pipeline.build_day import ReportBuilder, read_table
from appliance.pipeline.daily_tables.encryption import KEYS
from appliance.pipeline.days import Day
from appliance.pipeline.run import make
from tests.appliance.pipeline.sample_events import DELIVERED, SampleMail, write_file

DAY = Day(date(2026, 11, 20), "UTC")


def rows(builder: ReportBuilder, table: str, name: str = DAY.name) -> list[dict[str, Any]]:
    version = builder.store.current(f"gold/{name}")
    assert version is not None
    read = read_table(version / table)
    assert read is not None
    found: list[dict[str, Any]] = read.to_pylist()
    return found


def test_a_day_of_mixed_mail_balances_and_is_counted_as_in_the_ledger(builder: ReportBuilder, events: Path) -> None:
    sample = SampleMail()
    sample.cut(events, DAY.begin)
    sample.traffic(DAY.begin, DAY.end, 300)
    told = [row for row in sample.rows if row["kind"] == "attempt"]
    accepted = [row for row in sample.rows if row["kind"] == "accepted"]
    sample.write(events, rows_max=200)
    sample.cut(events, DAY.end)
    report = builder.day(DAY)
    assert report.balances, report.words
    assert (report.content["damaged"], report.content["unsigned"]) == ([], [])
    (total,) = rows(builder, "totals")
    assert total["messages"] == 300
    assert total["recipients"] == sum(row["recipient_count"] for row in accepted)
    assert total["attempts"] == len(told)
    for status in ("delivered", "deferred", "bounced"):
        assert total[status] == sum(row["status"] == status for row in told)
    destinations = {row["destination"]: row for row in rows(builder, "destinations")}
    assert set(destinations) == {row["destination"] for row in told}
    for name, row in destinations.items():
        own = [each for each in told if each["destination"] == name]
        assert row["messages"] == len({each["queue_id"] for each in own})
        assert row["recipients"] == len({(each["queue_id"], each["number"]) for each in own})
        assert row["attempts"] == len(own)
        delays = sorted(
            sum(each[f"delay_{letter}"] for letter in "abcd") for each in own if each["status"] == "delivered"
        )
        assert sum(step["count"] for step in row["delays"] or ()) == row["delivered"] == len(delays)
        if delays:
            exact = delays[-(-len(delays) // 2) - 1]
            assert row["delay_p50_s"] == pytest.approx(exact, rel=0.011, abs=0.001)
    hours = rows(builder, "hours")
    assert len(hours) == 24
    assert sum(row["attempts"] for row in hours) == len(told)
    addresses = [address for row in accepted for address in row["recipients"]]
    assert {row["recipient"]: row["messages"] for row in rows(builder, "recipients")} == {
        address: addresses.count(address) for address in set(addresses)
    }
    assert sum(row["messages"] for row in rows(builder, "senders")) == 300
    assert sum(row["messages"] for row in rows(builder, "ages")) == len(sample.left)
    assert report.content["balance"]["queued_at_end"] == sum(map(len, sample.left.values()))


@pytest.mark.parametrize(
    ("on", "count", "clocks"),
    [
        pytest.param(date(2026, 10, 25), 50, ["02:00 +0200", "02:00 +0100"], marks=pytest.mark.long),
        pytest.param(date(2027, 3, 28), 46, ["03:00 +0200", "04:00 +0200"], marks=pytest.mark.long),
    ],
)
def test_each_day_of_a_zone_has_its_own_events_also_when_the_clock_moves(
    builder: ReportBuilder, events: Path, on: date, count: int, clocks: list[str]
) -> None:
    """A delivery each half hour around the days of 25 and of 23 hours: none is lost, none is counted twice."""
    sample = SampleMail()
    day = Day(on, "Europe/Berlin")
    for half in range(-4, 54):
        sample.delivered(day.begin + 1_800 * half)
    sample.write(events)
    report = builder.day(day)
    assert report.balances is None
    (total,) = rows(builder, "totals", day.name)
    assert (total["messages"], report.content["hours"]) == (count, count // 2)
    hours = rows(builder, "hours", day.name)
    assert [row["messages"] for row in hours] == [2] * (count // 2)
    assert [row["clock"] for row in hours][2:4] == clocks


@pytest.mark.long
def test_a_day_without_events_gives_a_report_that_says_so(builder: ReportBuilder) -> None:
    report = builder.day(DAY)
    assert "no events" in report.words
    assert report.content["empty"]
    assert rows(builder, "destinations") == []
    (total,) = rows(builder, "totals")
    assert total["messages"] == total["attempts"] == 0


# level and reason of the delivery of each message, and what the report makes of them
LEVELS = (
    ("TLSv1.3 AES", "dane: TLSA 3 1 1 of mx1.big.example"),
    ("TLSv1.3 AES", "dane: TLSA 3 1 1 of mx2.big.example"),
    ("", "may: sent in the clear: mx.old.example refused to start TLS: 454 4.7.0 not now, id 4XyZ123456"),
    ("TLSv1.3 AES", None),  # an earlier version exported it
)
DANE = ("out", "TLSv1.3", "dane", "TLSA 3 1 1 of <host>", "AES")
IN_THE_CLEAR = "sent in the clear: <host> refused to start TLS: <n> 4.7.0 not now, id <id>"


def test_the_other_tables_say_what_happened(builder: ReportBuilder, events: Path) -> None:
    sample = SampleMail()
    noon = DAY.begin + 43_200
    for minute in range(4):
        at = noon + 60 * minute
        sample.refuse(at, reply=f"554 5.7.1 <user{minute}@x.example>: Relay access denied")
        sample.window(
            at, "smtp:slow.example", 2.0 + minute, minute, 10 * minute, dead_until=at + 10 if minute < 3 else 0.0
        )
        queue_id = sample.accept(at, ["b@slow.example", "c@slow.example"], tls="TLSv1.2 ECDHE")
        reply = f"451 4.3.0 <b@slow.example>: try again, request 4XyZ12345{minute} from 192.0.2.{minute}"
        relay = f"mx{minute}.mail.big.co.uk[192.0.2.{minute}]:25"
        tls, level = LEVELS[minute]
        verdicts = {0: ("deferred", "4.3.0", reply), 1: DELIVERED}
        sample.attempt(queue_id, at, verdicts, "smtp:slow.example", relay, tls=tls, tls_level=level)
        sample.replaced(queue_id, at)
    sample.write(events)
    builder.day(DAY)
    (reason,) = rows(builder, "reasons")
    assert (reason["status"], reason["dsn"], reason["recipients"], reason["destinations"]) == (
        "deferred",
        "4.3.0",
        4,
        1,
    )
    assert reason["reason"] == "451 4.3.0 <address>: try again, request <id> from <ip>"
    (provider,) = rows(builder, "providers")
    assert (provider["provider"], provider["messages"], provider["recipients"], provider["attempts"]) == (
        "big.co.uk",
        4,
        8,
        8,
    )
    (refused,) = rows(builder, "refused")
    assert (refused["reason"], refused["count"], refused["clients"]) == (
        "554 5.7.1 <address>: Relay access denied",
        4,
        1,
    )
    (window,) = rows(builder, "windows")
    assert (window["samples"], window["window_min"], window["window_max"], window["dead_minutes"]) == (4, 2.0, 5.0, 3)
    encryption = {tuple(row[each] for each in KEYS): row["count"] for row in rows(builder, "encryption")}
    assert encryption == {
        ("in", "TLSv1.2", "", "", "ECDHE"): 4, DANE: 2, ("out", "", "may", IN_THE_CLEAR, ""): 1,
        ("out", "TLSv1.3", "", "", "AES"): 1,
    }  # fmt: skip
    clients = {row["client_address"]: (row["messages"], row["refused"]) for row in rows(builder, "clients")}
    assert clients == {"192.0.2.7": (4, 0), "198.51.100.1": (0, 4)}
    assert sum(row["messages"] for row in rows(builder, "ages")) == 4


@pytest.mark.long
def test_weeks_add_up_and_late_events_make_days_and_weeks_anew(builder: ReportBuilder, events: Path) -> None:
    sample = SampleMail()
    before = DAY.before(1)
    for day, messages in ((before, 30), (DAY, 60)):
        sample.cut(events, day.begin)
        sample.traffic(day.begin + 3_600, day.end - 3_600, messages, seed=messages)
    sample.cut(events, DAY.end)
    late = [row for row in sample.rows if row["lane"] == "journal" and before.begin <= row["at"] < before.end][-10:]
    lost = {(row["offset"], row["part"]) for row in late}
    kept = list(sample.rows)
    sample.write(events, without=lambda row: row["lane"] == "journal" and (row["offset"], row["part"]) in lost)
    builder.day(before)
    make(builder, DAY)
    attempts = sum(row["kind"] == "attempt" for row in kept)
    missing = sum(row["kind"] == "attempt" for row in late)
    (week,) = rows(builder, "totals", "week=2026-W47")
    assert week["attempts"] == attempts - missing
    file = events / f"dt={before.date.isoformat()}" / f"journal.{late[0]['offset']}.parquet"
    write_file(file, late, "journal", late[0]["offset"], late[-1]["offset"] + 100)
    stages: list[str] = []
    make(ReportBuilder(builder.session, builder.store, events, lambda stage, share: stages.append(stage)), DAY)
    assert f"events that came late for {before.date}" in stages
    (week,) = rows(builder, "totals", "week=2026-W47")
    assert week["attempts"] == attempts
    days = [{row["destination"]: row for row in rows(builder, "destinations", day.name)} for day in (before, DAY)]
    for row in rows(builder, "destinations", "week=2026-W47"):
        own = [day[row["destination"]] for day in days if row["destination"] in day]
        assert row["delivered"] == sum(each["delivered"] for each in own)
        steps: Counter[int] = Counter()
        for each in own:
            steps.update({step["bucket"]: step["count"] for step in each["delays"] or ()})
        assert {step["bucket"]: step["count"] for step in row["delays"] or ()} == dict(steps)
    versions = [builder.store.current(f"gold/{name}") for name in (DAY.name, "month=2026-11")]
    make(ReportBuilder(builder.session, builder.store, events, lambda stage, share: None), DAY)
    for old, name in zip(versions, (DAY.name, "month=2026-11"), strict=True):
        new = builder.store.current(f"gold/{name}")
        assert old is not None
        assert new is not None
        assert new != old
        for path in sorted(each.relative_to(old) for each in old.rglob("*") if each.is_file()):
            assert (new / path).read_bytes() == (old / path).read_bytes(), f"{name} {path} differs"


@pytest.mark.long
def test_on_a_day_that_is_not_over_what_is_queued_is_as_old_as_the_last_cut_finds_it(
    builder: ReportBuilder, events: Path
) -> None:
    sample = SampleMail()
    sample.cut(events, DAY.begin)
    sample.accept(DAY.begin + 6 * 3_600)
    sample.accept(DAY.begin + 12 * 3_600 - 120)
    sample.write(events)
    sample.cut(events, DAY.begin + 12 * 3_600)
    builder.day(DAY)
    ages = {row["from_s"]: row["messages"] for row in rows(builder, "ages") if row["messages"]}
    assert ages == {0: 1, 19_200: 1}
