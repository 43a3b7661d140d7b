"""A day of several nodes, of whose shards a copy was fetched from the database: one balance over all, and one of each; unknown
if something is not there yet, also when a shard was taken over in the middle of the day.

law: nodes-balance-together.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from appliance.pipeline.build_day import ReportBuilder, Told
from appliance.pipeline.days import Day
from appliance.pipeline.nodes import NotGathered, read_nodes
from appliance.pipeline.store import Store
from appliance.pipeline.tables import read_table
from tests.appliance.pipeline.conftest import NOW
from tests.appliance.pipeline.sample_events import BOUNCED, DEFERRED, DELIVERED, SampleMail, rewrite
from tests.appliance.pipeline.test_shards import DAY, NOON, equation, rows_of

NAMES = {1: "north", 2: "south"}
Spoil = Callable[["Copy"], None]


@dataclass
class Copy:
    """The copy of the shards of two nodes; what they must come to is counted here as the mail is made."""

    root: Path
    samples: dict[int, SampleMail] = field(default_factory=dict)
    said: dict[int, dict[str, Any]] = field(default_factory=dict)
    at: float = DAY.end + 5_400
    since: str = "2026-11-10"
    until: str = "2026-11-22"
    fault: str = ""

    def events(self, number: int) -> Path:
        return self.root / "shards" / f"{number:02}" / "events"

    def add(self, number: int, name: str) -> SampleMail:
        sample = self.samples[number] = SampleMail(number)
        sample.shard = 0  # files of a shard that a database keeps do not have its number
        self.said[number] = {
            "number": number, "name": name, "state": "open", "node": "mx1", "absent_at": 0.0, "missing": 0, "named": [],
        }  # fmt: skip
        return sample

    def live(self, number: int) -> None:
        """Mail until an hour before the end of the day, with the count at the beginning."""
        sample = self.add(number, NAMES[number])
        old = sample.accept(DAY.begin - 7_200, ["o@x.example"])
        sample.attempt(old, DAY.begin - 7_199, {0: DEFERRED})
        sample.replaced(old, DAY.begin - 7_199)
        sample.cut(self.events(number), DAY.begin + 3 + number)
        for each in range(3):
            sample.delivered(NOON + each)
        both = sample.accept(NOON + 10, ["a@y.example", "b@y.example"])
        sample.attempt(both, NOON + 11, {0: DELIVERED, 1: BOUNCED})
        sample.finish(both, NOON + 11)
        sample.attempt(old, NOON + 70, {0: DELIVERED}, generation=1)
        sample.finish(old, NOON + 70)
        sample.write(self.events(number), rows_max=4)
        sample.cut(self.events(number), DAY.end - 3_600)  # one that is made each hour

    def taken_over(self, number: int, *, behind_s: float = 0.0) -> None:
        """Mail that one node took and another one delivered, whose clock is behind by so much; with the count at the end."""
        sample = self.samples[number]
        waits = [sample.accept(DAY.end - 1_800 + each) for each in range(4)]  # by the node that is gone
        sample.write(self.events(number))
        for each in waits[:3]:
            sample.attempt(each, DAY.end - 600 - behind_s)
            sample.finish(each, DAY.end - 600 - behind_s)
        sample.write(self.events(number))
        sample.cut(self.events(number), DAY.end + 8 - behind_s, ids=True)
        if behind_s:
            sample.cut(self.events(number), DAY.end + 5)

    def tell(self) -> Path:
        manifest = self.root / "shards.json"
        told = {"version": 1, "at": self.at, "since": self.since, "until": self.until}
        manifest.write_text(json.dumps({**told, "shards": list(self.said.values())}))
        return manifest

    def builder(self, builder: ReportBuilder, now: float = NOW) -> ReportBuilder:
        store, nodes = Store(builder.store.root), read_nodes(self.tell(), self.fault)
        nothing = self.root / "none"  # of this node's own directory nothing is read
        return ReportBuilder(builder.session, store, nothing, lambda stage, share: None, lambda: now, nodes=nodes)

    def report(self, builder: ReportBuilder, day: Day = DAY, now: float = NOW) -> Told:
        return self.builder(builder, now).day(day)


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    copy = Copy(tmp_path / "copy")
    for number in NAMES:
        copy.live(number)
    copy.taken_over(1)
    copy.samples[2].cut(copy.events(2), DAY.end + 4)
    return copy


def test_both_shards_balance_by_name_and_mail_that_two_nodes_had_counts_once(
    builder: ReportBuilder, copy: Copy
) -> None:
    told = copy.report(builder)
    assert (told.balances, told.words) == (True, "It balances.")
    balance, rows = told.content["balance"], rows_of(told)
    assert {number: row["name"] for number, row in rows.items()} == NAMES
    assert {number: row["accepted"] for number, row in rows.items()} == {1: 9, 2: 5}
    assert {number: row["delivered"] for number, row in rows.items()} == {1: 8, 2: 5}
    assert {number: row["queued_at_end"] for number, row in rows.items()} == {1: 1, 2: 0}
    assert all((row["balances"], row["queued_at_start"], equation(row)) == (True, 1, 0) for row in rows.values())
    assert (balance["accepted"], balance["delivered"], balance["bounced"]) == (14, 13, 2)
    assert (balance["message_by_message"], balance["altered"], balance["gaps"]) == (True, [], [])
    table = read_table(told.directory / "shards")
    assert table is not None
    assert [(row["shard"], row["number"], row["delivered"], row["balance"]) for row in table.to_pylist()] == [
        ("north", 1, 8, "It balances."),
        ("south", 2, 5, "It balances."),
    ]


def test_one_shard_of_a_database_has_its_name_too(builder: ReportBuilder, copy: Copy) -> None:
    del copy.said[2]
    told = copy.report(builder)
    assert (told.balances, rows_of(told)[1]["name"]) == (True, "north")


@pytest.mark.parametrize("behind_s", [30.0, 300.0])
def test_a_clock_that_is_behind_that_of_the_former_owner_moves_nothing_twice(
    builder: ReportBuilder, tmp_path: Path, behind_s: float
) -> None:
    copy = Copy(tmp_path / "copy")
    copy.live(1)
    copy.taken_over(1, behind_s=behind_s)
    told = copy.report(builder)
    row = rows_of(told)[1]
    assert (told.balances, row["accepted"], row["delivered"], row["queued_at_end"]) == (True, 9, 8, 1), told.words


def test_a_stretch_that_the_next_owner_exported_again_counts_once(builder: ReportBuilder, copy: Copy) -> None:
    files = sorted((copy.events(1) / "dt=2026-11-20").glob("journal.*.parquet"), key=_begin)
    said = {k: v for k, v in (pq.read_metadata(files[-2]).metadata or {}).items() if k[:7] == b"waypost"}
    tables = [pq.read_table(each, partitioning=None) for each in files[-2:]]
    end = (pq.read_metadata(files[-1]).metadata or {})[b"waypost.to"]
    rewrite(files[-2], pa.concat_tables(tables).replace_schema_metadata(said | {b"waypost.to": end}))
    told = copy.report(builder)
    assert (told.balances, rows_of(told)[1]["delivered"]) == (True, 8), told.words


def _begin(path: Path) -> int:
    return int(path.name.split(".")[1])


# -- what is not there yet


def _file_is_missing(copy: Copy) -> None:
    copy.said[1] |= {"missing": 2, "named": ["dt=2026-11-20/journal.7.parquet", "…"]}


def _asked_too_early(copy: Copy) -> None:
    copy.at = DAY.end - 60


def _other_days(copy: Copy) -> None:
    copy.until = "2026-11-19"


def _not_exported_yet(copy: Copy) -> None:
    """The node of shard 1 is gone since the last hour, and no node has counted the shard since."""
    last = sorted((copy.events(1) / "cuts").glob("*.json"))[-1]
    last.unlink()
    sorted((copy.events(1) / "dt=2026-11-20").glob("journal.*.parquet"), key=_begin)[-1].unlink()


def _never_counted(copy: Copy) -> None:
    copy.add(3, "west")


def _not_kept(copy: Copy) -> None:
    """A node that keeps its events for three days has deleted those of this day; the report is made much later."""
    sample = copy.add(3, "west")
    sample.cut(copy.events(3), DAY.end + 4 * 86_400)


UNKNOWN: dict[str, tuple[Spoil, str]] = {
    "a file could not be fetched": (
        _file_is_missing,
        "2 event files of shard north could not be fetched from the database",
    ),
    "the database was asked before the day was over": (_asked_too_early, "events of shard north may be missing"),
    "other days were fetched": (_other_days, "the events of shard north were not fetched from the database"),
    "what a node had last is not exported yet": (
        _not_exported_yet,
        "shard north was not counted at the end of the day",
    ),
    "a shard whose events are not kept": (_not_kept, "shard west may have begun before, because its first counts"),
    "a shard that says nothing": (_never_counted, "shard west was never counted, and has no events"),
}


@pytest.mark.parametrize("case", UNKNOWN)
def test_what_is_not_there_makes_the_day_unknown_and_is_named(builder: ReportBuilder, copy: Copy, case: str) -> None:
    spoil, words = UNKNOWN[case]
    spoil(copy)
    told = copy.report(builder)
    assert told.balances is None, told.words
    assert words in told.words
    balance = told.content["balance"]
    assert (balance["queued_at_start"], balance["queued_at_end"], balance["difference"]) == (None, None, None)
    table = read_table(told.directory / "shards")
    assert table is not None
    assert None in table["accepted"].to_pylist()
    if case not in ("the database was asked before the day was over", "other days were fetched"):
        assert rows_of(told)[2]["balances"] is True


def test_a_day_is_made_again_when_the_node_that_took_a_shard_over_has_counted_it(
    builder: ReportBuilder, copy: Copy, tmp_path: Path
) -> None:
    last = sorted((copy.events(2) / "cuts").glob("*.json"))[-1]
    kept = shutil.move(last, tmp_path / last.name)
    assert copy.report(builder).balances is None
    assert not copy.builder(builder).stale(DAY)
    shutil.move(kept, last)  # and no event
    assert copy.builder(builder).stale(DAY)
    assert copy.report(builder).balances is True
    assert not copy.builder(builder).stale(DAY)


def test_a_file_that_was_fetched_and_is_gone_is_red_with_the_name_of_the_shard(
    builder: ReportBuilder, copy: Copy
) -> None:
    sorted((copy.events(2) / "dt=2026-11-20").glob("journal.*.parquet"), key=_begin)[0].unlink()
    told = copy.report(builder)
    assert told.balances is False
    assert "Not balanced: shard south" in told.words
    assert {gap["lane"] for gap in told.content["balance"]["gaps"]} == {"journal@2"}


def test_so_far_it_needs_a_copy_that_was_made_for_it(builder: ReportBuilder, copy: Copy) -> None:
    now = DAY.end - 300
    for number in NAMES:
        for cut in sorted((copy.events(number) / "cuts").glob("2026-11-21*.json")):
            cut.unlink()
    copy.at = now - 10
    told = copy.report(builder, now=now)
    assert (told.balances, told.content["so_far"]) == (True, True), told.words
    copy.fault = "the database does not answer"
    told = copy.report(builder, now=now)
    assert told.balances is None
    assert told.words.count("may be missing, because the database was asked last at") == 2
    assert "does not answer" in told.words


# -- shards that come and go


def test_a_shard_that_came_after_the_day_has_no_part_in_it(builder: ReportBuilder, copy: Copy) -> None:
    copy.add(3, "west")
    copy.said[3]["absent_at"] = DAY.end + 60
    told = copy.report(builder)
    assert (told.balances, sorted(rows_of(told))) == (True, [1, 2])
    copy.said[3]["absent_at"] = 0.0  # not known; what is that young is not deleted yet
    copy.samples[3].cut(copy.events(3), DAY.end + 60)
    told = copy.report(builder, now=DAY.end + 5_400)
    assert (told.balances, sorted(rows_of(told))) == (True, [1, 2])


def test_a_shard_that_came_within_the_day_balances_from_its_first_count(builder: ReportBuilder, copy: Copy) -> None:
    sample = copy.add(3, "west")
    copy.said[3]["absent_at"] = NOON - 3_600
    sample.cut(copy.events(3), NOON)
    sample.delivered(NOON + 1)
    sample.write(copy.events(3))
    sample.cut(copy.events(3), DAY.end + 2)
    told = copy.report(builder)
    assert (told.balances, rows_of(told)[3]["accepted"]) == (True, 1), told.words


def test_a_shard_that_is_closed_counts_for_its_days_and_not_after(builder: ReportBuilder, copy: Copy) -> None:
    after, later = DAY.before(-1), DAY.before(-2)
    copy.at, copy.until = later.end + 5_400, "2026-11-25"
    copy.said[2]["state"] = "closed"
    assert not copy.samples[2].left
    sample = copy.samples[1]
    for day in (after, later):
        sample.cut(copy.events(1), day.end + 4)
    first = copy.report(builder)
    assert (first.balances, sorted(rows_of(first))) == (True, [1, 2])
    for day in (after, later):
        told = copy.report(builder, day)
        assert told.balances is True, (day.date, told.words)
    assert sorted(rows_of(told)) == [1]


def test_a_closed_shard_whose_last_count_is_missing_is_unknown_on_that_day_alone(
    builder: ReportBuilder, copy: Copy
) -> None:
    after, later = DAY.before(-1), DAY.before(-2)
    copy.at, copy.until = later.end + 5_400, "2026-11-25"
    copy.said[2]["state"] = "closed"
    copy.samples[2].delivered(after.begin + 3_600)  # and no count behind it
    copy.samples[2].write(copy.events(2))
    for day in (after, later):
        copy.samples[1].cut(copy.events(1), day.end + 4)
    assert copy.report(builder).balances is True
    told = copy.report(builder, after)
    assert (told.balances, "shard south" in told.words) == (None, True)
    assert copy.report(builder, later).balances is True


def test_a_shard_that_is_made_of_files_has_no_part_before_it_runs(builder: ReportBuilder, copy: Copy) -> None:
    copy.add(3, "west")
    copy.said[3]["state"] = "held"
    assert copy.report(builder).balances is True


def test_a_shard_that_the_database_lost_is_missed_by_name(builder: ReportBuilder, copy: Copy) -> None:
    copy.report(builder)
    after = DAY.before(-1)
    copy.at, copy.until = after.end + 5_400, "2026-11-25"
    copy.samples[1].cut(copy.events(1), after.end + 4)
    del copy.said[2]
    for day in (after, DAY):
        told = copy.report(builder, day)
        assert told.balances is None
        assert "the events of shard south are not there" in told.words
        assert rows_of(told)[2]["name"] == "south"


def test_the_report_of_one_queue_before_asks_for_no_shard(builder: ReportBuilder, copy: Copy, tmp_path: Path) -> None:
    alone = SampleMail()
    alone.cut(tmp_path / "alone", DAY.before(1).begin + 3)
    alone.delivered(DAY.begin - 3_600)
    alone.write(tmp_path / "alone")
    alone.cut(tmp_path / "alone", DAY.begin + 3)
    store = Store(builder.store.root)
    told = ReportBuilder(builder.session, store, tmp_path / "alone", lambda *_: None, lambda: NOW).day(DAY.before(1))
    assert told.balances is True
    assert copy.report(builder).balances is True


def test_without_a_copy_no_report_is_made(tmp_path: Path) -> None:
    with pytest.raises(NotGathered, match="has not fetched them from the database yet"):
        read_nodes(tmp_path / "shards.json")
    (tmp_path / "shards.json").write_text('{"at": 1}')
    with pytest.raises(NotGathered, match="cannot be read"):
        read_nodes(tmp_path / "shards.json")
