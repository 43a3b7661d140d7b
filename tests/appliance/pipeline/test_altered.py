"""Event files that are not what was exported: rows changed under a checksum computed again, files copied, files without one."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from appliance.pipeline.balance import BALANCED, UNBALANCED
from appliance.pipeline.build_day import ReportBuilder
from appliance.pipeline.cuts import cuts_in, ends
from appliance.pipeline.events import SetAside, look
from appliance.pipeline.missing import Gap, missing
from mailcore.envelope import Status
from mailcore.events.checksum import check
from tests.appliance.pipeline.sample_events import SampleMail, rewrite, write_file
from tests.appliance.pipeline.test_balance import DAY as SAMPLE_DAY
from tests.appliance.pipeline.test_balance import some_mail
from tests.appliance.pipeline.test_balance_of_the_log import A, B, C, ExportedLanes, told
from tests.events.lanes import DAY

Rows = list[dict[str, Any]]


@pytest.fixture
def exported(tmp_path: Path) -> ExportedLanes:
    exported = ExportedLanes(tmp_path, segment_bytes=1 << 20)
    exported.cut(DAY)
    exported.through(A, Status.DELIVERED, Status.DELIVERED)
    exported.through(B, Status.DELIVERED, Status.BOUNCED)
    exported.through(C, Status.DEFERRED, Status.DEFERRED)
    exported.add(C, "late@example.org")
    exported.refuse()
    exported.cut(DAY + 86_400)
    exported.close()
    return exported


def alter(events: Path, lane: str, change: Callable[[Rows], Rows]) -> None:
    """Changes the rows of a lane's files, and computes their checksums again."""
    changed = False
    for path in events.glob(f"dt=*/{lane}.*.parquet"):
        table = pq.ParquetFile(path).read()
        before = table.to_pylist()
        after = change([dict(row) for row in before])
        changed |= after != before
        rewrite(path, pa.Table.from_pylist(after, table.schema))
        assert check(path, whole=True)
    assert changed


def first_of(queue_id: str, **values: Any) -> Callable[[Rows], Rows]:
    """Sets values in the first attempt or acceptance of a message."""

    def change(rows: Rows) -> Rows:
        for row in rows:
            if (row["queue_id"], row["part"]) == (queue_id, 0) and row["kind"] in ("attempt", "accepted"):
                row.update(values)
                break
        return rows

    return change


def without(kind: str) -> Callable[[Rows], Rows]:
    def change(rows: Rows) -> Rows:
        gone = next((row for row in rows if row["kind"] == kind), None)
        return [row for row in rows if row is not gone]

    return change


def one_twice(queue_id: str, exactly: bool) -> Callable[[Rows], Rows]:
    """Drops the row of one recipient of a message and doubles that of the other, ``exactly`` or under the place of the
    dropped one."""

    def change(rows: Rows) -> Rows:
        kept, gone = [row for row in rows if row["kind"] == "attempt" and row["queue_id"] == queue_id]
        double = kept if exactly else kept | {"part": gone["part"], "recipient_count": None}
        return [double if row is gone else row for row in rows]

    return change


ALTERED: dict[str, tuple[str, Callable[[Rows], Rows], set[str]]] = {
    "a delivery is a bounce": ("journal", first_of(A, status="bounced"), {"delivered", "bounced", "checksum"}),
    "a deferral is gone": ("journal", without("attempt"), {"deferred", "rows", "checksum", "routes"}),
    "a size": ("incoming.0", first_of(A, size_bytes=1), {"bytes"}),
    "a refusal is gone": ("incoming.0", without("refused"), {"refused", "rows", "checksum"}),
    "one recipient twice and the other not": ("journal", one_twice(A, exactly=True), {"checksum", "routes"}),
    "one recipient in the place of the other": ("journal", one_twice(A, exactly=False), {"checksum"}),
    "another destination": ("journal", first_of(A, destination="smtp:else.example"), {"routes"}),
    "another recipient domain": ("journal", first_of(A, recipient_domain="else.example"), {"routes"}),
}


SHORT = ("one recipient twice and the other not",)  # of ./test; each takes a report


@pytest.mark.parametrize(
    "what", [each if each in SHORT else pytest.param(each, marks=pytest.mark.long) for each in ALTERED]
)
def test_rows_that_were_changed_under_a_new_checksum_are_red(
    builder: ReportBuilder, exported: ExportedLanes, what: str
) -> None:
    lane, change, counters = ALTERED[what]
    if what == "a deferral is gone":  # the first attempt is one
        alter(exported.events, lane, lambda rows: sorted(rows, key=lambda row: row["queue_id"] != C))
        assert told(builder, exported).state == BALANCED
    alter(exported.events, lane, change)
    found = told(builder, exported)
    assert (found.state, found.difference, found.message_by_message) == (UNBALANCED, 0, True)
    assert found.altered is not None
    assert {(each.lane, each.what) for each in found.altered} == {(lane, name) for name in counters}
    assert (
        found.words
        == f"The totals balance, but the event files of {lane} do not contain the events that were exported."
    )


def test_what_was_exported_agrees_with_its_counters(builder: ReportBuilder, exported: ExportedLanes) -> None:
    found = told(builder, exported)
    assert (found.state, found.altered) == (BALANCED, [])
    (path,) = sorted((exported.events / "cuts").glob("*.json"))[1:]
    counted = json.loads(path.read_text())["counted"]
    assert {name: counted["journal"]["counts"].get(name) for name in ("delivered", "bounced", "deferred", "added")} == {
        "delivered": 3, "bounced": 1, "deferred": 2, "added": 1,
    }  # fmt: skip
    assert {name: counted["incoming.0"]["counts"].get(name) for name in ("messages", "accepted", "refused", "bytes")} == {
        "messages": 3, "accepted": 6, "refused": 1, "bytes": 3_000,
    }  # fmt: skip


@pytest.mark.long
def test_cuts_of_an_older_version_have_no_counters_to_compare_with(
    builder: ReportBuilder, exported: ExportedLanes
) -> None:
    path = min((exported.events / "cuts").glob("*.json"))
    said = json.loads(path.read_text())
    del said["counted"]
    path.write_text(json.dumps(said))
    alter(exported.events, "journal", first_of(A, status="bounced"))
    found = told(builder, exported)
    assert (found.state, found.altered) == (BALANCED, None)


@pytest.mark.long
@pytest.mark.parametrize("some", [True, pytest.param(False, marks=pytest.mark.long)])
def test_attempts_that_an_older_version_exported_have_no_routes_to_compare_with(
    builder: ReportBuilder, exported: ExportedLanes, some: bool
) -> None:
    """All attempts between the cuts, or ``some`` of them: it was replaced between the cuts."""
    path = max((exported.events / "cuts").glob("*.json"))
    said = json.loads(path.read_text())
    counts = said["counted"]["journal"]["counts"]
    if some:
        counts["routed"] -= 1
        counts["routes"] -= 1
    else:
        del counts["routed"], counts["routes"]
    path.write_text(json.dumps(said))
    alter(exported.events, "journal", first_of(A, destination="smtp:else.example"))
    found = told(builder, exported)
    assert (found.state, found.altered) == (BALANCED, [])


@pytest.mark.long
def test_a_lane_that_was_counted_anew_is_not_compared(builder: ReportBuilder, exported: ExportedLanes) -> None:
    path = max((exported.events / "cuts").glob("*.json"))
    said = json.loads(path.read_text())
    said["counted"]["journal"] |= {"since": 4096, "counts": {}}
    path.write_text(json.dumps(said))
    assert told(builder, exported).altered == []


def test_a_file_copied_to_another_day_is_set_aside_and_counts_once(
    builder: ReportBuilder, exported: ExportedLanes
) -> None:
    (journal,) = exported.events.glob("dt=*/journal.*.parquet")
    other = exported.events / "dt=2026-11-22" / journal.name
    other.parent.mkdir()
    shutil.copy(journal, other)
    good, damaged = look(exported.events, "2026-11-22", SetAside(exported.path / "aside"))
    assert good == []
    assert [each.why for each in damaged] == [
        "it has events of 2026-11-21, and lies in dt=2026-11-22: it was copied or moved"
    ]
    found = told(builder, exported)  # reads the day after, too: the last cut is at midnight
    assert (found.state, found.difference) == (BALANCED, 0)


def test_a_file_under_another_name_is_set_aside(exported: ExportedLanes) -> None:
    (journal,) = exported.events.glob("dt=*/journal.*.parquet")
    shutil.copy(journal, journal.with_name("journal.77777.parquet"))
    good, damaged = look(exported.events, journal.parent.name[3:], SetAside(exported.path / "aside"))
    assert journal in [each.path for each in good]
    assert [each.why for each in damaged] == ["its name says offset 77777, and it begins at 0: it was renamed"]


def test_of_a_stretch_over_midnight_a_damaged_file_is_missed(tmp_path: Path) -> None:
    """It is still there under its name, and the range of the log is that of the other day's file as well."""
    days = ("2026-11-20", "2026-11-21")
    for dt in days:
        write_file(tmp_path / f"dt={dt}" / "journal.0.parquet", [], "journal", 0, 100, days)
    (tmp_path / "dt=2026-11-21" / "journal.0.parquet").write_bytes(b"PAR1 is not all PAR1")
    good, _ = look(tmp_path, "2026-11-20", SetAside(tmp_path / "aside"))
    assert missing({0: tmp_path}, good, {"journal": 0}, {"journal": 100}) == [Gap("journal", 0, 100, "2026-11-21")]


@pytest.mark.long
def test_a_file_without_checksum_is_told(builder: ReportBuilder, events: Path) -> None:
    sample, _ = some_mail(events)
    first, *_ = [path for path in sample.write(events) if SAMPLE_DAY.date.isoformat() in str(path)]
    sample.cut(events, SAMPLE_DAY.end)
    pq.write_table(pq.ParquetFile(first).read(), first)
    told_ = builder.day(SAMPLE_DAY)
    assert told_.content["unsigned"] == [f"{first.parent.name}/{first.name}"]
    assert told_.words.endswith("Without checksum: 1 file.")
    assert told_.balances is True


@pytest.mark.long
def test_samples_of_windows_are_of_no_lane_and_are_not_compared(builder: ReportBuilder, events: Path) -> None:
    sample = SampleMail()
    sample.cut(events, SAMPLE_DAY.begin)
    sample.delivered(SAMPLE_DAY.begin + 60)
    sample.window(SAMPLE_DAY.begin + 60, "smtp:example.net", 5, 1, 1)
    sample.write(events)
    sample.cut(events, SAMPLE_DAY.end)
    cuts, unreadable = cuts_in(events)
    assert unreadable == []
    assert builder._balance(*ends(cuts, SAMPLE_DAY), SAMPLE_DAY.partitions()).altered == []
