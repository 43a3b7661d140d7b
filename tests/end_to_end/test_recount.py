"""Two days with every fate of mail and 20 kills: DuckDB counts every table of each day's report again, and a ledger agrees.

Three sides are compared. The report is the pipeline's. The recount reads the same event files without any code of the
pipeline; each table, row and column must be equal. The ledger of client, operator and next hops knows no events: what got its
250 is accepted once, each recipient ends with its fate and no other, the next hops got what the events say was delivered, and
the totals of the reports are the ledger's. After a kill a next hop may get a message again (at most what was in delivery);
events count it once.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import pairwise
from typing import Any

import duckdb
import pytest

from appliance.pipeline.build_day import ReportBuilder
from appliance.pipeline.days import Day, month_of, week_of
from appliance.pipeline.run import make
from appliance.pipeline.session import QUICK, end, start
from appliance.pipeline.store import Store
from tests.end_to_end.recount import KEYS, Tables, differences, recount, tables_of
from tests.end_to_end.recount_periods import PERIOD_KEYS, kept_of, recount_period
from tests.end_to_end.reporting import Gold, gold_of
from tests.end_to_end.two_days import DAYS, HOPS, VICTIMS, WINDOW, ZONE, Ledger, live

pytestmark = [pytest.mark.long, pytest.mark.timeout(3_600)]
KILLS = 20
MESSAGES = 12  # around each kill
ALL_DAYS = [*DAYS, DAYS[-1] + timedelta(days=1)]  # what is left ends in the morning after
PERIODS = [week_of(ALL_DAYS[0]).name, month_of(ALL_DAYS[0]).name]  # all days are in the same
REPEATING = {"manager", "deliverer.0", "deliverer.1", "supervisor", "everything"}  # kills that may repeat deliveries


@dataclass
class Lived:
    ledger: Ledger
    reports: dict[date, Gold]
    counted: dict[date, Tables]
    periods: dict[str, Tables]  # the week and the month of these days, as the pipeline made them

    def total(self, name: str) -> int:
        """Of all days' reports."""
        return sum(int(report.total[name]) for report in self.reports.values())


def make_reports(ledger: Ledger) -> None:
    store = Store(ledger.home / "reports")
    with store.locked():
        session = start("local[2]", store.root / "scratch", QUICK)
        try:
            for day in ALL_DAYS:
                builder = ReportBuilder(session, store, ledger.home / "events", lambda stage, share: None)
                print(day, make(builder, Day(day, ZONE)).words)
        finally:
            end(session)


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Lived:
    directory = tmp_path_factory.mktemp("days")
    (directory / "core").mkdir()
    ledger = asyncio.run(live(directory, KILLS, MESSAGES))
    make_reports(ledger)
    reports = {day: gold_of(ledger.home, f"day={day}") for day in ALL_DAYS}
    counted: dict[date, Tables] = {}
    for day, report in reports.items():
        until = report.balance["end"] if day == ALL_DAYS[-1] else None  # nothing was counted at its midnight
        counted[day] = recount(ledger.home / "events", day, ZONE, before=dict(counted), end=until)
    periods = {name: tables_of(gold_of(ledger.home, name)) for name in PERIODS}
    return Lived(ledger, reports, counted, periods)


def test_every_fate_and_every_kill_happened(lived: Lived) -> None:
    assert len(lived.ledger.kills) == KILLS
    assert set(lived.ledger.kills) == set(VICTIMS)
    for name in (
        "delivered",
        "deferred",
        "bounced",
        "put_off",
        "returned",
        "expired",
        "deleted",
        "refused",
        "recipients_added",
    ):
        assert lived.total(name) > 0, name
    for day in DAYS:
        assert lived.reports[day].total["delivered"] > 100, day


def test_each_day_balances_and_ends_where_the_next_begins(lived: Lived) -> None:
    for day, report in lived.reports.items():
        assert report.balance["balances"] is True, f"{day}: {report.told['words']}"
    for before, after in pairwise(lived.reports.values()):
        assert before.balance["queued_at_end"] == after.balance["queued_at_start"]
    assert lived.reports[ALL_DAYS[-1]].balance["queued_at_end"] == lived.ledger.queued


@pytest.mark.parametrize("day", ALL_DAYS, ids=str)
def test_duckdb_counts_what_every_table_of_the_day_says(day: date, lived: Lived) -> None:
    assert differences(tables_of(lived.reports[day]), lived.counted[day]) == []


def recounted(lived: Lived) -> Tables:
    return recount_period([kept_of(counted, tables_of(lived.reports[day])) for day, counted in lived.counted.items()])


@pytest.mark.parametrize("period", PERIODS)
def test_the_days_add_up_to_the_week_and_the_month(period: str, lived: Lived) -> None:
    assert differences(lived.periods[period], recounted(lived), PERIOD_KEYS) == []


def test_no_number_of_a_report_can_be_altered_unseen(lived: Lived) -> None:
    """Each column of each table once, in the row that comes first."""
    day = DAYS[-1]
    assert altered_and_seen(tables_of(lived.reports[day]), lived.counted[day], KEYS) > 150
    counted = recounted(lived)
    assert altered_and_seen(lived.periods[PERIODS[0]], counted, PERIOD_KEYS) > 100


def altered_and_seen(said: Tables, counted: Tables, keys: Mapping[str, tuple[str, ...]]) -> int:
    """How many columns were altered; the recount has found each."""
    seen = 0
    for table, rows in said.items():
        for name, value in rows[0].items() if rows else ():
            altered = {**said, table: [{**rows[0], name: _altered(value)}, *rows[1:]]}
            assert differences(altered, counted, keys), f"{table}.{name}"
            seen += 1
    return seen


def _altered(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1 if isinstance(value, int) else value + 1e-4
    return "x" if value is None or isinstance(value, str) else [*value, value[0]]


# --- the ledger


@dataclass
class Told:
    """What the events say of one message of the client."""

    queue_id: str
    fates: dict[str, str]


@pytest.fixture(scope="module")
def events(lived: Lived) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute(
        """create table event as select distinct on (lane, "offset", part) *
        from read_parquet($files, union_by_name = true, hive_partitioning = false)""",
        {"files": [str(file) for file in sorted((lived.ledger.home / "events").glob("dt=*/[!._]*.parquet"))]},
    )
    connection.execute(
        """create table address as
        select queue_id, first_number + index - 1 as number, recipients[index] as recipient
        from (select *, unnest(generate_series(1, len(recipients))) as index from event where kind = 'accepted');
        create table fate as select queue_id, number, status, sender_domain from event
        where kind = 'attempt' and status <> 'deferred'"""
    )
    return connection


@pytest.fixture(scope="module")
def told(events: duckdb.DuckDBPyConnection) -> dict[str, Told]:
    """By the id of the ledger."""
    found: dict[str, Told] = {}
    for ledger_id, queue_id, recipient, status in events.execute(
        """select split_part(ltrim(m.message_id, '<'), '@', 1), queue_id, recipient, coalesce(status, '')
        from (select queue_id, message_id from event where kind = 'accepted' and part = 0 and origin = 'smtp') as m
        join address using (queue_id) left join fate using (queue_id, number)"""
    ).fetchall():
        message = found.setdefault(ledger_id, Told(queue_id, {}))
        assert message.queue_id == queue_id, f"{ledger_id} was accepted twice"
        assert recipient not in message.fates, f"{recipient} of {ledger_id} ended twice"
        message.fates[recipient] = status
    return found


def test_what_got_its_250_is_accepted_once_with_all_recipients(lived: Lived, told: dict[str, Told]) -> None:
    sent = lived.ledger.sent
    acknowledged = {each.id for each in sent.values() if each.acknowledged}
    assert acknowledged <= told.keys() <= sent.keys(), "in doubt is what was sent whole and not answered"
    assert {name: told[name].queue_id for name in acknowledged} == {name: sent[name].queue_id for name in acknowledged}
    assert {name: set(told[name].fates) for name in told} == {name: set(sent[name].fates) for name in told}


def test_each_recipient_has_the_fate_that_the_ledger_says(lived: Lived, told: dict[str, Told]) -> None:
    wrong = [
        f"{name} {recipient}: {status}, not {lived.ledger.sent[name].fates[recipient]}"
        for name, message in told.items()
        for recipient, status in message.fates.items()
        if status != lived.ledger.sent[name].fates[recipient]
    ]
    assert wrong == []


def test_the_next_hops_got_what_was_delivered_and_little_of_it_twice(lived: Lived, told: dict[str, Told]) -> None:
    delivered = {
        (name, each)
        for name, message in told.items()
        for each, status in message.fates.items()
        if status == "delivered"
    }
    got = Counter((name, recipient) for name, recipient, _ in lived.ledger.got if recipient not in lived.ledger.added)
    assert set(got) == delivered
    repeated = {name for (name, _), times in got.items() if times > 1}
    assert len(repeated) <= sum(each in REPEATING for each in lived.ledger.kills) * WINDOW * len(HOPS)


def test_the_totals_of_the_reports_are_the_ledgers(
    lived: Lived, told: dict[str, Told], events: duckdb.DuckDBPyConnection
) -> None:
    ledger = lived.ledger
    fates = Counter(status for message in told.values() for status in message.fates.values())
    bounces = Counter(recipient for _, recipient in set(ledger.bounces))
    assert set(bounces) == {"author@sender.example"}, "a bounce that bounces is dropped"
    unreturned = events.execute(
        """select count(*) from event join fate using (queue_id)
        where kind = 'accepted' and part = 0 and origin = 'bounce' and fate.status = 'bounced'"""
    ).fetchall()[0][0]
    assert unreturned > 0
    wanted = {
        "messages_smtp": len(told),
        "messages_local": ledger.injected + ledger.scheduled,
        "messages_bounce": bounces.total() + unreturned,
        "recipients_added": len(ledger.added),
        "delivered": fates["delivered"] + ledger.injected + len(ledger.added) + bounces.total(),
        "expired": fates["expired"],
        "deleted": fates["deleted"],
        "refused": ledger.refused,
    }
    assert {name: lived.total(name) for name in wanted} == wanted
    assert lived.total("bounced") + lived.total("returned") == fates["bounced"] + unreturned
    assert lived.total("returned") == len(DAYS)
    assert fates[""] + ledger.scheduled == ledger.queued
    assert (
        lived.total("recipients")
        == sum(fates.values()) + len(ledger.added) + wanted["messages_local"] + wanted["messages_bounce"]
    )
