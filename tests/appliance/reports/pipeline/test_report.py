"""The report of a day as a whole: its numbers beside the ledger's, day for day, zone for zone."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest

from appliance.reports.pipeline.days import Day
from appliance.reports.pipeline.making import Maker, read_table
from tests.appliance.reports.pipeline.world import World

DAY = Day(date(2026, 11, 20), "UTC")


def rows(maker: Maker, table: str, name: str = DAY.name) -> list[dict[str, Any]]:
    version = maker.store.current(f"gold/{name}")
    assert version is not None
    read = read_table(version / table)
    assert read is not None
    found: list[dict[str, Any]] = read.to_pylist()
    return found


def test_a_day_of_mixed_mail_balances_and_is_counted_as_in_the_ledger(maker: Maker, events: Path) -> None:
    world = World()
    world.cut(events, DAY.begin)
    world.traffic(DAY.begin, DAY.end, 300)
    told = [row for row in world.rows if row["kind"] == "attempt"]
    accepted = [row for row in world.rows if row["kind"] == "accepted"]
    world.write(events, rows_max=200)
    world.cut(events, DAY.end)
    report = maker.day(DAY)
    assert report.balances, report.words
    (total,) = rows(maker, "totals")
    assert total["messages"] == 300
    assert total["recipients"] == sum(row["recipient_count"] for row in accepted)
    assert total["attempts"] == len(told)
    for status in ("delivered", "deferred", "bounced"):
        assert total[status] == sum(row["status"] == status for row in told)
    destinations = {row["destination"]: row for row in rows(maker, "destinations")}
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
    hours = rows(maker, "hours")
    assert len(hours) == 24
    assert sum(row["attempts"] for row in hours) == len(told)
    addresses = [address for row in accepted for address in row["recipients"]]
    assert {row["recipient"]: row["messages"] for row in rows(maker, "recipients")} == {
        address: addresses.count(address) for address in set(addresses)
    }
    assert sum(row["messages"] for row in rows(maker, "senders")) == 300
    assert sum(row["messages"] for row in rows(maker, "ages")) == len(world.left)
    assert report.content["balance"]["queued_at_end"] == sum(map(len, world.left.values()))
