"""A day of several shards: one balance over all and one of each, to the last recipient, and red or unknown when it must be.

law: shards-balance-together.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from appliance.pipeline.build_day import ReportBuilder, Told
from appliance.pipeline.days import Day
from appliance.pipeline.store import Store
from tests.appliance.pipeline.sample_events import BOUNCED, DEFERRED, DELIVERED, SampleMail, rewrite, utc

DAY = Day(date(2026, 11, 20), "UTC")
NOON = utc("2026-11-20 12:00")
Spoil = Callable[["Node"], None]


@dataclass
class Node:
    """Three shards with a day each; what they must come to is counted here as the mail is made."""

    home: Path
    samples: dict[int, SampleMail] = field(default_factory=dict)
    accepted: dict[int, int] = field(default_factory=dict)

    def events(self, shard: int) -> Path:
        return self.home / "shards" / f"{shard:02}" / "events" if shard else self.home / "events"

    def live(self, shard: int) -> None:
        """Mail of all kinds, at the same positions in each shard; the counts are some seconds apart."""
        sample = self.samples[shard] = SampleMail(shard)
        events = self.events(shard)
        old = sample.accept(DAY.begin - 7_200, ["o@x.example", "p@x.example"])
        sample.attempt(old, DAY.begin - 7_199, {0: DELIVERED, 1: DEFERRED})
        sample.replaced(old, DAY.begin - 7_199)
        sample.cut(events, DAY.begin + 3 + 5 * shard)
        for number in range(3 + shard):
            sample.delivered(NOON + number)
        both = sample.accept(NOON + 10, ["a@y.example", "b@y.example"])
        sample.attempt(both, NOON + 11, {0: DELIVERED, 1: BOUNCED})
        sample.finish(both, NOON + 11)
        gone = sample.accept(NOON + 30)
        sample.attempt(gone, NOON + 31, {0: ("deleted", "", "")}, relay="")
        sample.finish(gone, NOON + 31, "deleted")
        waits = sample.accept(NOON + 40, ["c@y.example"])
        sample.attempt(waits, NOON + 41, {0: DEFERRED})
        sample.replaced(waits, NOON + 41)
        sample.order(waits, NOON + 50, "add_recipients", recipients=["d@y.example"])
        sample.refuse(NOON + 60)
        sample.attempt(old, NOON + 70, {1: ("expired", "4.4.7", "too old")}, generation=1)
        sample.finish(old, NOON + 70)
        late = DAY.end + 2 + 5 * shard  # of the next day, and before the count
        sample.delivered(late)
        sample.write(events, rows_max=7)
        sample.cut(events, late + 2, ids=True)
        self.accepted[shard] = 3 + shard + 2 + 1 + 1 + 1

    def builder(self, builder: ReportBuilder, shards: tuple[int, ...] = (1, 2)) -> ReportBuilder:
        theirs = {shard: self.events(shard) for shard in shards}
        store = Store(builder.store.root)
        return ReportBuilder(builder.session, store, self.events(0), lambda stage, share: None, builder.now, theirs)

    def report(self, builder: ReportBuilder, day: Day = DAY, shards: tuple[int, ...] = (1, 2)) -> Told:
        return self.builder(builder, shards).day(day)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    node = Node(tmp_path)
    for shard in range(3):
        node.live(shard)
    return node


def rows_of(told: Told) -> dict[int, dict[str, Any]]:
    return {row["shard"]: row for row in told.content["balance"]["shards"]}


def equation(row: dict[str, Any]) -> int:
    left = sum(row[name] for name in ("delivered", "bounced", "returned", "expired", "deleted", "queued_at_end"))
    return int(row["queued_at_start"] + row["accepted"] - left)


def test_all_shards_balance_together_and_each_for_itself(builder: ReportBuilder, node: Node) -> None:
    told = node.report(builder)
    balance = told.content["balance"]
    assert (told.balances, told.words) == (True, "It balances.")
    assert (balance["accepted"], balance["queued_at_start"], balance["queued_at_end"]) == (
        sum(node.accepted.values()),
        3,
        6,
    )
    assert (balance["message_by_message"], balance["altered"], balance["gaps"]) == (True, [], [])
    rows = rows_of(told)
    assert {shard: row["accepted"] for shard, row in rows.items()} == node.accepted
    assert {shard: row["delivered"] for shard, row in rows.items()} == {0: 4, 1: 5, 2: 6}
    for row in rows.values():
        assert (row["balances"], row["queued_at_start"], row["queued_at_end"], equation(row)) == (True, 1, 2, 0)
    for name in ("accepted", "delivered", "bounced", "expired", "deleted", "queued_at_start", "queued_at_end"):
        assert balance[name] == sum(row[name] for row in rows.values()), name
    assert told.content["totals"]["refused"] == 3


def test_one_queue_is_reported_as_it_was(builder: ReportBuilder, node: Node) -> None:
    told = node.report(builder, shards=())
    assert told.balances is True
    assert "shards" not in told.content["balance"]
    assert told.content["balance"]["accepted"] == node.accepted[0]


# -- it is deceived


def _journals(node: Node, shard: int) -> list[Path]:
    files = node.events(shard).glob("dt=2026-11-20/journal.*.parquet")
    return sorted(files, key=lambda path: int(path.name.split(".")[1]))


def _a_file_is_missing(node: Node) -> None:
    _journals(node, 1)[1].unlink()


def _a_file_of_another_shard(node: Node) -> None:
    wrong = _journals(node, 2)[1]
    shutil.copy(wrong, node.events(1) / "dt=2026-11-20" / wrong.name)


def _a_file_of_the_first_shard(node: Node) -> None:
    wrong = _journals(node, 0)[1]
    shutil.copy(wrong, node.events(1) / "dt=2026-11-20" / wrong.name)


def _a_file_with_other_rows(node: Node) -> None:
    """Rows of another shard in a file that says that they are of this one, with checksums."""
    mine, theirs = _journals(node, 1)[1], _journals(node, 2)[1]
    said = {k: v for k, v in (pq.read_metadata(mine).metadata or {}).items() if k[:7] == b"waypost"}
    rewrite(
        mine,
        pq.read_table(theirs, partitioning=None).replace_schema_metadata(said),
    )


def _a_file_twice(node: Node) -> None:
    """All rows of a file once more in the next one, as if they had happened twice."""
    one, other = _journals(node, 1)[1:3]
    said = {k: v for k, v in (pq.read_metadata(other).metadata or {}).items() if k[:7] == b"waypost"}
    doubled = pq.read_table(one, partitioning=None)
    shifted = doubled.set_column(
        doubled.column_names.index("offset"), "offset", [[each + 1 for each in doubled["offset"].to_pylist()]]
    )
    whole = pa.concat_tables([pq.read_table(other, partitioning=None), shifted.cast(doubled.schema)])
    rewrite(other, whole.replace_schema_metadata(said))


def _a_count_of_another_time(node: Node) -> None:
    """The counts at the end say what was queued at the beginning."""
    first, last = sorted((node.events(1) / "cuts").glob("*.json"))
    said = json.loads(last.read_text())
    last.write_text(json.dumps(json.loads(first.read_text()) | {"at": said["at"]}))


def _one_lost_one_doubled(node: Node) -> None:
    """A recipient of shard 1 without its end, one of shard 2 with an end too many: the sums agree."""
    for shard, keep in ((1, False), (2, True)):
        for path in _journals(node, shard):
            table = pq.read_table(path, partitioning=None)
            rows = table.to_pylist()
            ended = [row for row in rows if row["status"] == "delivered"]
            if not ended:
                continue
            said = {k: v for k, v in (pq.read_metadata(path).metadata or {}).items() if k[:7] == b"waypost"}
            rows = [*rows, ended[0] | {"part": 9}] if keep else [row for row in rows if row is not ended[0]]
            rewrite(path, pa.Table.from_pylist(rows, table.schema).replace_schema_metadata(said))
            break


RED: dict[str, tuple[Spoil, str]] = {
    "a file is missing": (_a_file_is_missing, "journal@1"),
    "a file of another shard": (_a_file_of_another_shard, "journal@1"),
    "a file of the first shard": (_a_file_of_the_first_shard, "journal@1"),
    "other rows in a file that says it is of this shard": (_a_file_with_other_rows, "journal@1"),
    "rows twice": (_a_file_twice, "journal@1"),
    "one lost here and one doubled there": (_one_lost_one_doubled, "journal@1"),
}


@pytest.mark.parametrize("case", RED)
def test_what_is_wrong_in_one_shard_turns_the_day_red_and_names_the_shard(
    builder: ReportBuilder, node: Node, case: str
) -> None:
    spoil, lane = RED[case]
    spoil(node)
    told = node.report(builder)
    assert told.balances is False, told.words
    assert "Not balanced: shard 1" in told.words
    rows = rows_of(told)
    assert [rows[0]["balances"], rows[1]["balances"]] == [True, False]
    balance = told.content["balance"]
    assert lane in {each["lane"] for each in [*balance["gaps"], *balance["altered"]]}
    if case.startswith("a file of"):
        assert any("lies among those of shard 1" in each for each in told.content["damaged"])


def test_a_count_of_another_time_is_not_green(builder: ReportBuilder, node: Node) -> None:
    _a_count_of_another_time(node)
    told = node.report(builder)
    assert told.balances is None, told.words
    assert "on the wrong side of a count of shard 1" in told.words


def test_the_count_of_another_shard_is_none(builder: ReportBuilder, node: Node) -> None:
    for cut in (node.events(1) / "cuts").glob("*.json"):
        cut.unlink()
    for cut in (node.events(2) / "cuts").iterdir():
        shutil.copy(cut, node.events(1) / "cuts" / cut.name)
    told = node.report(builder)
    assert told.balances is None
    assert told.words.startswith("The balance is unknown: shard 1 was not counted at the start and end of the day.")
    assert any("it counts shard 2" in each for each in told.content["damaged"])


# -- what is not known is not zero


@pytest.mark.parametrize("which", [0, -1])
def test_a_shard_that_was_not_counted_makes_the_day_unknown(builder: ReportBuilder, node: Node, which: int) -> None:
    sorted((node.events(2) / "cuts").glob("*.json"))[which].unlink()
    told = node.report(builder)
    assert told.balances is None
    assert "shard 2 was not counted at the" in told.words
    balance = told.content["balance"]
    assert (balance["queued_at_start"], balance["queued_at_end"], balance["difference"]) == (None, None, None)
    assert rows_of(told)[2].keys() == {"shard", "closed", "balances", "words"}
    assert rows_of(told)[1]["balances"] is True


def test_red_stays_red_when_another_shard_is_unknown(builder: ReportBuilder, node: Node) -> None:
    _a_file_is_missing(node)
    shutil.rmtree(node.events(2) / "cuts")
    told = node.report(builder)
    assert told.balances is False
    assert "Not balanced: shard 1" in told.words
    assert "shard 2 was not counted" in told.words


@pytest.mark.long
def test_a_shard_of_the_day_before_whose_events_are_gone_is_missed(builder: ReportBuilder, node: Node) -> None:
    node.report(builder, DAY.before(1))
    node.report(builder)
    after = DAY.before(-1)
    for shard in (0, 1):
        node.samples[shard].cut(node.events(shard), after.end + 5)
    shutil.rmtree(node.home / "shards" / "02")
    for day in (after, DAY):
        told = node.report(builder, day, shards=(1,))
        assert told.balances is None
        assert "the events of shard 2 are not there" in told.words
    shutil.rmtree(node.home / "shards")
    told = node.report(builder, after, shards=())
    assert "the events of shard 1 are not there" in told.words


# -- shards that begin and end


def test_a_shard_that_begins_in_the_middle_of_the_day_balances(builder: ReportBuilder, node: Node) -> None:
    sample = node.samples[3] = SampleMail(3)
    events = node.events(3)
    sample.delivered(NOON - 60)
    sample.cut(events, NOON)
    waits = sample.accept(NOON + 1, ["a@x.example", "b@x.example"])
    sample.attempt(waits, NOON + 2, {0: DELIVERED, 1: DEFERRED})
    sample.replaced(waits, NOON + 2)
    sample.write(events)
    sample.cut(events, DAY.end + 4)
    node.report(builder, DAY.before(1))
    told = node.report(builder, shards=(1, 2, 3))
    assert (told.balances, told.words) == (True, "It balances.")
    row = rows_of(told)[3]
    assert (row["balances"], row["accepted"], row["delivered"], row["queued_at_end"]) == (True, 3, 2, 1)
    assert told.content["balance"]["accepted"] == sum(node.accepted.values()) + 3
    before = node.report(builder, DAY.before(1), shards=(1, 2, 3))
    assert 3 not in rows_of(before)


@pytest.mark.long
def test_a_shard_that_was_closed_counts_for_its_days_and_not_after(builder: ReportBuilder, node: Node) -> None:
    sample = node.samples[1]
    events = node.events(1)
    after, later = DAY.before(-1), DAY.before(-2)
    for queue_id in list(sample.left):
        sample.attempt(queue_id, after.begin + 3_600, dict.fromkeys(sample.left[queue_id], DELIVERED))
        sample.finish(queue_id, after.begin + 3_600)
    sample.write(events)
    sample.cut(events, after.begin + 7_200, closed=True)
    for shard in (0, 2):
        for day in (after, later):
            node.samples[shard].cut(node.events(shard), day.end + 4)
    told = node.report(builder)
    assert (told.balances, rows_of(told)[1]["balances"]) == (True, True)
    told = node.report(builder, after)
    row = rows_of(told)[1]
    assert (told.balances, told.words) == (True, "It balances.")
    assert (row["closed"], row["queued_at_start"], row["delivered"], row["queued_at_end"]) == (True, 2, 3, 0)
    told = node.report(builder, later)
    assert (told.balances, sorted(rows_of(told))) == (True, [0, 2])
    sample.delivered(later.begin + 3_600)  # of a queue that is closed
    sample.write(events)
    told = node.report(builder, later)
    assert told.balances is None
    assert "shard 1 has events from after it was closed" in told.words
