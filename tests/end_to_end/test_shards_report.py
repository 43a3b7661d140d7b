"""A day of a node with two shards, with mail of all kinds, and its report by the real pipeline: a recount of our own agrees to
the last recipient, for all shards and for each; without one event file of one shard it is red.

law: shards-balance-together.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mailcore.lab.lab import Lab
from tests.end_to_end.appliance import Appliance
from tests.end_to_end.recount import differences, recount, tables_of
from tests.end_to_end.reporting import Gold, Told, delivered, gold_of, waypost_report
from tests.end_to_end.test_report_day import HOPS, quick, zone_of_noon
from tests.running.running_core import route_to
from tests.running.running_shards import RunningShards

pytestmark = [pytest.mark.timeout(1800), pytest.mark.django_db]
ENDS = ("delivered", "bounced", "expired", "deleted")
SHARDS = (0, 1)


@dataclass
class Lived:
    home: Path
    day: date
    zone: str
    config: Path
    told: Told
    report: Gold
    sizes: dict[int, int]  # recipients that each shard says it has, those deleted included
    got: int  # recipients that the next hops took


def events_of(home: Path, shard: int) -> Path:
    return home / "shards" / "01" / "events" if shard else home / "events"


async def _mail(core: RunningShards, lab: Lab) -> None:
    ends: list[str] = []
    await core.send_many(20, domain="good.example")
    for shard in SHARDS:
        ends.append(await core.send_to(shard, "a@never.example", "a@good.example"))
        ends.append(await core.send_to(shard, f"bad{shard}@bad.example", "fine@bad.example"))
        ends.append(await core.send_to(shard, "a@grey.example", "b@grey.example"))
        held = await core.send_to(shard, "held@slow.example")
        await core.until_in(held, "retry")
        await core.order("hold", held)
        gone = await core.send_to(shard, "c@slow.example", "d@slow.example")
        await core.until_in(gone, "retry")
        await core.order("delete", gone)
        back = await core.send_to(shard, "e@slow.example")
        await core.until_in(back, "retry")
        await core.order("delete", back)
        await core.order("undelete", back)
        await core.ask("add_recipients", queue_id=back, recipients=["added@good.example", "more@slow.example"])
        returned = await core.send_to(shard, "f@slow.example")
        await core.until_in(returned, "retry")
        await core.order("bounce", returned)
        ends.append(returned)
    await core.until_removed(*ends)


async def live(directory: Path) -> Lived:
    zone = zone_of_noon()
    async with Lab([f"{name}={behaviour}:127.0.0.1:0" for name, behaviour in HOPS.items()]) as lab:
        routes = {f"{hop.name}.example": route_to(lab, number) for number, hop in enumerate(lab.hops)}
        core = RunningShards(directory, routes | {"*": route_to(lab, 0)}, quick(zone))
        await core.start()
        try:
            await Appliance.ask(core, "export", "--cut")
            await _mail(core, lab)
            core_config, day = core.config, datetime.now(ZoneInfo(zone)).date()

            async def rest() -> bool:  # what is deferred expires
                return [(await core.ask_shard(shard, "size"))["recipients"] for shard in SHARDS] == [1, 1]

            await core.eventually(rest, "all but held mail to be over")
            sizes = {}
            for shard in SHARDS:
                deleted = (await core.ask_shard(shard, "list", filter={"lane": "deleted"}))["items"]
                size = await core.ask_shard(shard, "size")
                sizes[shard] = size["recipients"] + sum(item["recipient_count"] for item in deleted)
            told = await waypost_report(core_config, day)
        finally:
            await core.control.close()
            core.stop()
        got = sum(got.total() for got in delivered(lab).values())
        return Lived(core.home, day, zone, core_config, told, gold_of(core.home, f"day={day}"), sizes, got)


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Lived:
    return asyncio.run(live(tmp_path_factory.mktemp("shards")))


def rows_of(home: Path, shard: int) -> list[dict[str, Any]]:
    files = sorted(events_of(home, shard).glob("dt=*/[!._]*.parquet"))
    return [row for file in files for row in pq.read_table(file, partitioning=None).to_pylist()]


def counted(home: Path, shard: int) -> Counter[str]:
    """The recipients of a shard, once more: from the rows alone, without any code of the pipeline."""
    found: Counter[str] = Counter()
    for row in rows_of(home, shard):
        if row["kind"] == "accepted":
            found["accepted"] += len(row["recipients"])
        elif row["kind"] == "order" and row["operation"] == "add_recipients":
            found["accepted"] += row["arguments"].count("@")
        elif row["kind"] == "attempt" and row["status"] in ENDS:
            asked = row["relay"] != "none" or row["delay_c"] > 0 or row["delay_d"] > 0
            found["returned" if row["status"] == "bounced" and not asked else row["status"]] += 1
    return found


def test_it_balances_over_all_shards_and_for_each_to_the_last_recipient(lived: Lived) -> None:
    assert lived.told.status == 0, lived.told
    balance = lived.report.balance
    rows = {row["shard"]: row for row in balance["shards"]}
    assert set(rows) == set(SHARDS)
    assert balance["balances"] is True
    assert (balance["difference"], balance["message_by_message"], balance["altered"]) == (0, True, [])
    for shard, row in rows.items():
        own = counted(lived.home, shard)
        for name in ("accepted", "delivered", "bounced", "returned", "expired", "deleted"):
            assert row[name] == own[name], (shard, name)
        assert own["accepted"] - sum(own[name] for name in (*ENDS, "returned")) == lived.sizes[shard]
        assert (row["queued_at_start"], row["queued_at_end"], row["balances"]) == (0, lived.sizes[shard], True)
        assert own["delivered"] > 3
        assert own["expired"] >= 1
        assert own["returned"] == 1
        assert lived.sizes[shard] == 3  # one is held, two are deleted and could be undeleted
    assert balance["queued_at_end"] == sum(lived.sizes.values())
    assert balance["delivered"] == lived.report.total["delivered"] == lived.got


def test_all_tables_are_those_of_another_program_over_the_files_of_all_shards(lived: Lived, tmp_path: Path) -> None:
    """The files of all shards in one directory, with lanes that are there once."""
    for shard in SHARDS:
        for file in events_of(lived.home, shard).glob("dt=*/[!._]*.parquet"):
            table = pq.read_table(file, partitioning=None)
            lanes = pa.array([f"{lane}@{shard}" for lane in table["lane"].to_pylist()], pa.string())
            table = table.set_column(table.column_names.index("lane"), "lane", lanes)
            place = tmp_path / file.parent.name
            place.mkdir(exist_ok=True)
            pq.write_table(table, place / f"{shard}.{file.name}")
    own = recount(tmp_path, lived.day, lived.zone, end=lived.report.balance["end"])
    assert differences(tables_of(lived.report), own) == []


def test_the_command_prints_the_balance(lived: Lived) -> None:
    assert "It balances." in lived.told.output


@pytest.mark.long
def test_without_an_event_file_of_one_shard_it_is_red_and_names_the_shard(lived: Lived) -> None:
    events = events_of(lived.home, 1)
    files = sorted(events.glob("dt=*/journal.*.parquet"), key=lambda path: int(path.name.split(".")[1]))
    lost = files[len(files) // 2]
    kept = lived.home / lost.name
    lost.rename(kept)
    try:
        told = asyncio.run(waypost_report(lived.config, lived.day))
        report = gold_of(lived.home, f"day={lived.day}")
        rows = {row["shard"]: row for row in report.balance["shards"]}
        assert told.status == 1, told
        assert "Not balanced: shard 1" in told.output
        assert (rows[0]["balances"], rows[1]["balances"]) == (True, False)
        assert {gap["lane"] for gap in report.balance["gaps"]} == {"journal@1"}
    finally:
        kept.rename(lost)
