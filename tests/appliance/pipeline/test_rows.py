"""Rows of event files as Arrow reads and types them: whole microseconds, missing columns, kinds side by side, copies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from appliance.pipeline.events import EventFile, SetAside, look
from appliance.pipeline.rows import COLUMNS, first_of_each, schema_of, typed_rows

DT = "2026-11-20"
AT = 1_795_132_800.0


def file_of(tmp_path: Path, rows: list[dict[str, Any]], name: str = "journal.0.parquet", **how: Any) -> EventFile:
    directory = tmp_path / f"dt={DT}"
    directory.mkdir(exist_ok=True)
    for row in rows:
        row.setdefault("at", AT)
        row.setdefault("lane", "journal")
        row.setdefault("part", 0)
        row.setdefault("queue_id", "")
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = {each: [row.get(each) for row in rows] for each in names}
    table = pa.table(columns).set_column(names.index("part"), "part", pa.array(columns["part"], pa.int32()))
    pq.write_table(table, directory / name, **how)
    files, damaged = look(tmp_path, DT, SetAside(tmp_path / "set_aside.json"))
    assert damaged == []
    (found,) = (each for each in files if each.path.name == name)
    return found


def read(file: EventFile, kind: str, keep: Any = None) -> list[dict[str, Any]]:
    return [row for its, rows in typed_rows(file, keep) if its == kind for row in rows.to_pylist()]


def test_kinds_side_by_side_in_a_row_group_are_told_apart_and_foreign_ones_left_out(tmp_path: Path) -> None:
    rows = [
        {"offset": 0, "kind": "attempt", "status": "delivered", "relay": "mx.example.net[192.0.2.1]:25"},
        {"offset": 1, "kind": "finished", "generation": 3},
        {"offset": 2, "kind": "of a later version"},
        {"offset": 3, "kind": "attempt", "status": "deferred", "relay": "none", "delay_c": 0.0},
        {"offset": 4, "kind": "attempt", "status": "deferred", "relay": "none", "delay_d": 0.25},
    ]
    file = file_of(tmp_path, rows)
    found = read(file, "attempt")
    assert [(row["offset"], row["provider"], row["tried"]) for row in found] == [
        (0, "example.net", True),
        (3, "", False),
        (4, "", True),
    ]
    assert [row["generation"] for row in read(file, "finished")] == [3]
    assert read(file, "refused") == []


def test_columns_that_an_older_version_lacks_are_null(tmp_path: Path) -> None:
    (row,) = read(file_of(tmp_path, [{"offset": 7, "kind": "attempt"}]), "attempt")
    assert set(row) == set(schema_of("attempt").names)
    empty = {name for name, value in row.items() if value is None}
    assert empty == set(row) - {"lane", "offset", "part", "at", "queue_id", "provider", "tried"}
    assert (row["provider"], row["tried"]) == ("", True)


@pytest.mark.parametrize(
    ("seconds", "micros"),
    [(0.1, 100_000), (0.0000005, 1), (-0.0000006, -1), (1e300, (1 << 63) - 1), (-1e300, -(1 << 63)), (None, None),
     (float("nan"), 0)],
)  # fmt: skip
def test_durations_are_whole_microseconds(tmp_path: Path, seconds: float | None, micros: int | None) -> None:
    rows = [{"offset": 0, "kind": "attempt", "delay_a": seconds}, {"offset": 1, "kind": "attempt", "delay_a": 1.5}]
    assert [row["delay_a_us"] for row in read(file_of(tmp_path, rows), "attempt")] == [micros, 1_500_000]


def test_a_time_keeps_its_microseconds(tmp_path: Path) -> None:
    (table,) = (rows for _, rows in typed_rows(file_of(tmp_path, [{"offset": 0, "kind": "finished", "at": AT + 1e-6}])))
    assert table["at"].cast(pa.int64()).to_pylist() == [int(AT) * 1_000_000 + 1]
    assert table.schema.field("at").type == COLUMNS["at"]


@pytest.mark.parametrize("group", [1, 2, 100])
def test_of_copies_the_first_is_kept_and_others_of_the_same_place_stay(tmp_path: Path, group: int) -> None:
    one = [{"offset": number, "kind": "attempt", "number": number} for number in range(4)]
    two = [{"offset": number, "kind": "attempt", "number": 10 + number} for number in range(2, 6)]
    two += [{"offset": 5, "kind": "attempt", "number": 20}, {"offset": 5, "part": 1, "kind": "attempt", "number": 21}]
    two += [{"offset": 3, "kind": "finished", "generation": 1}]
    files = [
        file_of(tmp_path, one, row_group_size=group),
        file_of(tmp_path, two, "journal.2.parquet", row_group_size=group),
    ]
    keep = first_of_each(files)
    numbers = [row["number"] for file in files for row in read(file, "attempt", keep[file.path])]
    assert numbers == [0, 1, 2, 3, 14, 15, 21]
    assert len(read(files[1], "finished", keep[files[1].path])) == 1
