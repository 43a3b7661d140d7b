"""The examples of docs/events.md, run as they are over a day of the real appliance, say what its report says.

The day has what makes a careless query wrong: manager, exporter and the whole appliance killed, a file left half written, and
exported positions that were damaged, so that the same events are in two files.
"""

from __future__ import annotations

import asyncio
import math
import re
import shutil
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest

from appliance.pipeline.build_day import ReportBuilder
from appliance.pipeline.days import Day
from appliance.pipeline.tables import read_table
from bench.faked_clock import Clock, TimedCore
from mailcore.lab.lab import Lab
from tests.deliverer.scripted_server import server_tls
from tests.end_to_end.appliance import Appliance
from tests.end_to_end.recount import differences, recount, tables_of
from tests.end_to_end.reporting import Gold
from tests.eventually import eventually
from tests.running.catcher import Catcher
from tests.running.running_core import SENDER, Sections, route_to
from tests.test_tidy import read

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
DAY = date(2026, 11, 21)  # of the examples
HOPS = {
    "good": "accept",
    "grey": "greylist(1)",
    "bad": "reject(bad*@bad.example, 550)",
    "slow": "slow(3)",
    "dead": "dead_for(9999)",
}
SECTIONS: Sections = {
    "scheduler": {"maximal_queue_lifetime": 600.0},
    "export": {"enabled": True, "interval_s": 0.2, "window_interval_s": 1},
}
BLOCK = re.compile(r"^```(?P<language>sql|python)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)


def examples() -> dict[str, str]:
    """By the title in its first line; Python's is "pandas"."""
    found = {}
    for match in BLOCK.finditer(read("docs/events.md")):
        title = match["text"].splitlines()[0].removeprefix("-- ") if match["language"] == "sql" else "pandas"
        assert title not in found, title
        found[title] = match["text"]
    return found


EXAMPLES = examples()
ATTEMPTS, *OTHERS = EXAMPLES
WHOLE = "Rows exported between the counts nearest to both ends of the day, and rows in the files"
CALM = "before the damage"


async def live(directory: Path) -> Path:
    """The events of the day."""
    clock = Clock(directory / "clock" / "now")
    clock.set(datetime(DAY.year, DAY.month, DAY.day, 12, tzinfo=UTC).timestamp())
    (directory / "core").mkdir()
    async with (
        Lab([f"{name}={behaviour}:127.0.0.1:0" for name, behaviour in HOPS.items()]) as lab,
        Catcher(server_tls(directory)) as private,
    ):
        routes = {f"{hop.name}.example": route_to(lab, number) for number, hop in enumerate(lab.hops)}
        routes |= {"private.example": private.route, "*": route_to(lab, 0)}
        core = TimedCore(directory / "core", routes, SECTIONS, clock)
        try:
            await core.start()
            await Appliance.ask(core, "export", "--cut")
            await _mail(core, lab)
            await core.control.close()
            core.stop()
            shutil.copytree(core.home / "events", directory / CALM)
            _bad_weather(core.home / "events")
            await core.start()
            await Appliance.ask(core, "export", "--cut")
        finally:
            await core.control.close()
            if core._process is not None:
                core.stop()
    return core.home / "events"


async def _mail(core: TimedCore, lab: Lab) -> None:
    def refused(hop: str) -> int:
        return sum(lab.hop(hop).counters.refused.values())

    def send(*recipients: str, sender: str = SENDER) -> Awaitable[str]:
        return core.send(*recipients, sender=sender, heard=False)

    for number in range(6):
        await send(f"a{number}@good.example", f"b{number}@grey.example")
        await send(f"c{number}@private.example", sender=f"x@shop{number % 2}.example")
        await send(f"bad{number}@bad.example", f"fine{number}@bad.example")
    dead = [await send(f"d{number}@dead.example") for number in range(8)]
    # Deferred and then asked again in the same generation: the manager is killed while the pass is still busy with another.
    for number in range(3):
        before = refused("grey")
        await send(f"e{number}@grey.example", f"f{number}@slow.example")
        await eventually(lambda before=before: refused("grey") > before and lab.hop("slow").counters.connections_now)
        await asyncio.sleep(1.0)  # the deferral is recorded, and the other recipient's reply is two seconds away
        await core.kill("manager")
    await core.kill("exporter")
    await send("g@good.example", "h@grey.example")
    await core.again()

    async def only_dead() -> bool:
        return bool((await core.size())["recipients"] == len(dead))

    async def returned() -> bool:
        return bool((await core.ask("bounce", queue_ids=[dead[0]]))["changed"])

    await core.insist(lambda: core.eventually(only_dead, "everything else to be over"))
    await Appliance.ask(core, "export", "--now")  # what follows is in another file of the same segment
    await core.insist(lambda: core.until_in(dead[0], "retry"))
    await core.insist(lambda: core.eventually(returned, "the operator's bounce"))
    await core.until_removed(dead[0])
    await Appliance.ask(core, "export", "--cut")


def _bad_weather(events: Path) -> None:
    """A file that an exporter was writing when it was killed, and exported positions that cannot be read."""
    whole = next(iter(sorted(events.glob("dt=*/journal.*.parquet"))))
    whole.with_name(f".{whole.name}").write_bytes(whole.read_bytes()[:-100])
    (events / "_exported" / "positions.json").write_text("damaged", encoding="utf-8")


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return asyncio.run(live(tmp_path_factory.mktemp("day")))


@pytest.fixture
def events(lived: Path) -> Path:
    """What ``builder`` reads."""
    return lived


@pytest.fixture
def calm(lived: Path, tmp_path: Path) -> Path:
    """A directory with the home of before the damage: afterwards no lane that was damaged can be compared."""
    shutil.copytree(lived.parents[2] / CALM, tmp_path / "home" / "events")
    return tmp_path


@dataclass
class Report:
    balances: bool | None
    words: str
    gold: Gold
    rows: Callable[[str], list[dict[str, Any]]]


@pytest.fixture
def report(builder: ReportBuilder) -> Report:
    told = builder.day(Day(DAY, "UTC"))

    def rows(table: str) -> list[dict[str, Any]]:
        there = read_table(told.directory / table)
        assert there is not None
        return list(there.to_pylist())

    return Report(told.balances, told.words, Gold(told.directory, told.content), rows)


def figures(rows: list[dict[str, Any]], key: str, *names: str) -> dict[str, tuple[Any, ...]]:
    """By the key, of each row that has any."""
    return {row[key]: tuple(row[name] for name in names) for row in rows if any(row[name] for name in names)}


def queried(connection: duckdb.DuckDBPyConnection, title: str) -> list[dict[str, Any]]:
    answer = connection.execute(EXAMPLES[title])
    names = [each[0] for each in answer.description or ()]
    return [dict(zip(names, row, strict=True)) for row in answer.fetchall()]


def test_duckdb_says_what_the_report_says(lived: Path, report: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    assert report.balances, report.words
    monkeypatch.chdir(lived.parents[1])
    connection = duckdb.connect()
    connection.execute(EXAMPLES[ATTEMPTS])
    compared = {}

    def same(title: str, table: str, key: str, *names: str) -> None:
        compared[title] = figures(queried(connection, title), key, *names)
        assert compared[title] == figures(report.rows(table), key, *names), title

    attempts = ("attempts", "delivered", "deferred", "bounced", "put_off")
    same("Deliveries by destination", "by_destination", "destination", *attempts)
    same("Share of first attempts that delivered, by recipient domain", "by_recipient_domain", "recipient_domain",
         "first_attempts", "first_attempt_share")  # fmt: skip
    same("Messages deferred, by sender domain", "by_sender_domain", "sender_domain", "messages_deferred")
    same("Share of deliveries over TLS, by destination", "by_destination", "destination", "delivered", "tls_share")
    lanes = rows_of_lanes(connection)
    assert all(exported == in_files for exported, in_files in lanes.values()), lanes
    assert {*compared, WHOLE, "pandas"} == set(OTHERS), "an example that nothing compares"
    assert all(compared.values()), compared
    _was_bad_weather(connection)


def rows_of_lanes(connection: duckdb.DuckDBPyConnection) -> dict[str, tuple[int, int]]:
    """Exported and in files."""
    return {row["lane"]: (row["exported"], row["in_files"]) for row in queried(connection, WHOLE)}


def _was_bad_weather(connection: duckdb.DuckDBPyConnection) -> None:
    """Or the examples could be careless."""
    rows, events = connection.execute(
        """select count(*), count(distinct (lane, "offset", part)) from read_parquet('home/events/dt=*/journal.*.parquet')"""
    ).fetchall()[0]
    assert rows > events, "no event is in two files"
    with pytest.raises(duckdb.Error, match=r"\.journal"):
        connection.execute("select count(*) from read_parquet('home/events/dt=*/*.parquet')").fetchall()
    first, generation = connection.execute(
        "select count(*) filter (first_attempt), count(*) filter (asked and generation = 0) from attempt"
    ).fetchall()[0]
    assert first < generation, "no recipient was asked for twice in its first generation"
    tls, put_off = connection.execute(
        "select count(*) filter (tls <> ''), count(*) filter (not asked) from attempt"
    ).fetchall()[0]
    assert min(tls, put_off) > 0


@pytest.mark.parametrize("lost", ["", "journal", "incoming"])
def test_duckdb_sees_that_a_file_is_missing(lost: str, calm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if lost:
        min(calm.glob(f"home/events/dt=*/{lost}.*.parquet")).unlink()
    monkeypatch.chdir(calm)
    connection = duckdb.connect()
    connection.execute(EXAMPLES[ATTEMPTS])
    lanes = rows_of_lanes(connection)
    assert {"journal", "incoming.0", "local"} <= lanes.keys()
    wrong = {lane for lane, (exported, in_files) in lanes.items() if exported != in_files}
    assert {lane.split(".")[0] for lane in wrong} == ({lost} if lost else set()), lanes
    assert lanes["journal"][0] > lanes["incoming.0"][0] > 0


def test_pandas_says_what_the_report_says(
    lived: Path, report: Report, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(lived.parents[1])
    names: dict[str, Any] = {}
    exec(compile(EXAMPLES["pandas"], "docs/events.md", "exec"), names)
    printed = capsys.readouterr().out
    found = {}
    for destination, row in names["by_destination"].iterrows():
        found[destination] = {name: None if math.isnan(value) else round(value, 6) for name, value in row.items()}
        assert destination in printed
    columns = (
        "attempts",
        "delivered",
        "deferred",
        "bounced",
        "put_off",
        "messages_deferred",
        "first_attempt_share",
        "tls_share",
    )
    rows = [{"destination": name, **row} for name, row in found.items()]
    assert figures(rows, "destination", *columns) == figures(report.rows("by_destination"), "destination", *columns)


def test_duckdb_counts_every_table_of_the_report(lived: Path, report: Report) -> None:
    counted = recount(lived, DAY, end=report.gold.balance["end"])
    assert differences(tables_of(report.gold), counted) == []


def test_no_report_shows_certificates_as_checked(lived: Path, report: Report) -> None:
    """These days have no level above encrypt, and docs/events.md says that false means "not checked"."""
    said = duckdb.connect().execute(
        "select distinct tls_verified from read_parquet($files) where tls <> ''",
        {"files": [str(file) for file in lived.glob("dt=*/journal.*.parquet")]},
    )
    assert said.fetchall() == [(False,)]
    columns = {name for rows in tables_of(report.gold).values() for row in rows for name in row}
    assert [name for name in columns if "verif" in name] == []
