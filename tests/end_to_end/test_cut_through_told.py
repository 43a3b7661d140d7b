"""What became of a message that was passed on, told afterwards: history, search, log dump, events, and the cut of a report."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow.parquet
import pytest

from tests.deliverer.scripted_server import ScriptedServer, serving
from tests.end_to_end.reporting import gold_of, waypost_report
from tests.end_to_end.test_cut_through import TO, balance, cutting, queue_id_of, sent
from tests.end_to_end.test_report_day import zone_of_noon
from tests.running.exported_only import EXPORTING
from tests.running.running_core import RunningCore, Sections

OTHER = "and@passed.example"


async def told(core: RunningCore, queue_id: str) -> list[dict[str, Any]]:
    """The history, which must be complete."""
    history = await core.ask("history", queue_id=queue_id)
    assert history["complete"], history
    events: list[dict[str, Any]] = history["events"]
    return events


def assert_history(events: list[dict[str, Any]]) -> None:
    accepted, attempt, finished = events
    assert (accepted["event"], accepted["recipients"]) == ("accepted", 2)
    assert accepted["message_id"] == "<one@sender.example>"
    assert attempt["event"] == "attempt"
    assert [(each["address"], each["status"]) for each in attempt["verdicts"]] == [
        (TO, "delivered"), (OTHER, "delivered"),
    ]  # fmt: skip
    assert finished["event"] == "finished"


async def test_its_history_and_a_search_know_it(tmp_path: Path) -> None:
    async with serving(ScriptedServer()) as server, cutting(tmp_path, server) as core:
        _, reply = await sent(core, TO, OTHER)
        queue_id = queue_id_of(reply)

        async def is_written() -> bool:
            return bool((await core.ask("history", queue_id=queue_id))["events"])

        await core.eventually(is_written, "the next checkpoint")
        assert_history(await told(core, queue_id))
        for asked in ({"queue_id": queue_id}, {"recipient": OTHER}, {"message_id": "<one@sender.example>"}):
            found = await core.ask("search", **asked)
            assert [(hit["queue_id"], hit["state"]) for hit in found["items"]] == [(queue_id, "delivered")], asked
            assert found["items"][0]["finished_at"]
        dumped = await core._run("log", "dump", str(core.home / "queue" / "journal"), "--type", "passed")
        assert queue_id in dumped[1]
        times = await core.ask("service_times", since_s=3600.0, records_max=1000)
        assert [each["recipients"] for each in times["times"]["destinations"].values()] == [2]


async def test_its_events_are_told_when_the_log_has_gone_and_a_report_balances(tmp_path: Path) -> None:
    sections: Sections = dict(EXPORTING)
    async with serving(ScriptedServer()) as server, cutting(tmp_path, server, sections=sections) as core:
        first = await cut(core)
        _, reply = await sent(core, TO, OTHER)
        queue_id = queue_id_of(reply)
        second = await cut(core)
        rows = [
            row
            for path in sorted((core.home / "events").glob("dt=*/journal.*.parquet"))
            for row in pyarrow.parquet.read_table(path).to_pylist()
        ]
        assert [(row["kind"], row["part"]) for row in rows] == [
            ("accepted", 0), ("attempt", 0), ("attempt", 1), ("finished", 0),
        ]  # fmt: skip
        assert {row["queue_id"] for row in rows} == {queue_id}
        counted = second["counted"]["journal"]["counts"]
        assert (counted["messages"], counted["accepted"], counted["delivered"]) == (1, 2, 2)
        assert first["recipients"] == second["recipients"] == 0
        # The segment goes when others follow: a start opens a new one.
        await core.again()

        async def is_forgotten() -> bool:
            if not any(queue_id.encode() in path.read_bytes() for path in (core.home / "queue").glob("*/*.seg")):
                return True
            await sent(core, "others@passed.example")
            return False

        await core.eventually(is_forgotten, "its segment to go")
        assert_history(await told(core, queue_id))
        for asked in ({"queue_id": queue_id}, {"recipient": OTHER}):
            found = await core.ask("search", **asked)
            assert [(hit["queue_id"], hit["state"]) for hit in found["items"]] == [(queue_id, "delivered")], asked
        await balance(core)


async def cut(core: RunningCore) -> dict[str, Any]:
    """A count of the queue, as a report begins and ends with."""
    answer = json.loads((await core._run("export", "--cut"))[1])
    found: dict[str, Any] = json.loads((core.home / "events" / answer["file"]).read_text())
    return found


@pytest.mark.long
@pytest.mark.timeout(1800)
async def test_a_report_of_the_day_counts_it_and_balances(tmp_path: Path) -> None:
    zone = zone_of_noon()
    sections: Sections = {
        "export": {"enabled": True, "interval_s": 0.2},
        "reports": {"zone": zone, "spark_master": "local[2]"},
    }
    async with serving(ScriptedServer()) as server, cutting(tmp_path, server, sections=sections) as core:
        await cut(core)
        assert (await sent(core, TO, OTHER))[1].split()[2] == "passed"
        assert (await sent(core, rcpt=("NOTIFY=SUCCESS",)))[1].split()[2] == "queued"
        await core.until_empty()
        await cut(core)
        day = datetime.now(ZoneInfo(zone)).date()
        good = await waypost_report(core.config, day)
        assert good.status == 0, good
        report = gold_of(core.home, f"day={day}")
        counters = (await core.ask("state"))["counters"]
    assert counters["passed_on"] == 1
    assert report.total["messages"] == counters["accepted"] == 3  # one is the notice of success
    assert report.total["recipients"] == report.total["delivered"] == counters["recipients_accepted"] == 4
    assert (report.balance["accepted"], report.balance["queued_at_end"], report.balance["difference"]) == (4, 0, 0)
    assert report.by("recipients", "recipient", "messages")[OTHER] == 1
