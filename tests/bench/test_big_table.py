"""The queue that bench.big_table makes and lets mail pass through is one of the store, and nothing missed is hidden."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from bench.big_table import main
from bench.big_table_report import COMMITS, Found, Part, Size, Slice, report
from bench.filled_table import Table, filled
from bench.stored_queue import DROPS, Commit
from mailcore.replication.files import make_equal
from mailcore.replication.snapshot import snapshot
from tests.replication.cluster import made_template
from tests.replication.writing import SHARD
from tests.simulated_disk import SimulatedDisk

MB = 1 << 20
SHAPE = (
    "select writer, kind, part, at, octet_length(bytes) from waypost.chunk"
    " where file like '{}' and kind {} 'm' order by writer, n"
)


@pytest.fixture(scope="module")
def table() -> Iterator[Table]:
    with made_template(segment_mb=1) as template, filled(template, "filled", 3 * MB, 1 * MB) as table:
        yield table


def files_in(table: Table) -> dict[str, int]:
    """The files of a node that takes the shard over, and their sizes; the bytes are checked as they are fetched."""
    connection, disk = table.cluster.connect(), SimulatedDisk()
    try:
        with snapshot(connection, SHARD) as found:
            assert found is not None
            make_equal(found, disk, "/", lambda name: True)
            return {file: disk.size_of(f"/{file}") for file in found_files(disk, "")}
    finally:
        connection.close()


def found_files(disk: SimulatedDisk, below: str) -> Iterator[str]:
    for name in disk.list(f"/{below}"):
        if disk.is_directory(f"/{below}{name}"):
            yield from found_files(disk, f"{below}{name}/")
        else:
            yield f"{below}{name}"


def test_mail_that_was_filled_in_and_mail_that_passed_are_whole_files(table: Table) -> None:
    assert table.queue.live_bytes >= 3 * MB
    assert files_in(table) == table.queue.bytes, "as it was filled"
    left = 0
    for _ in range(7):
        turn = table.queue.turn()
        assert turn.arrived_bytes == table.queue.turn_bytes
        left += turn.left_bytes
    assert left == 6 * table.queue.turn_bytes, "the mail of the last turn is there"
    small = {"queue/restart": 2048, "queue/restart.previous": 2048}
    assert files_in(table) == table.queue.bytes | small


def test_rows_that_were_filled_in_are_those_that_commits_make(table: Table) -> None:
    table.queue.turn()
    server = table.cluster.primary
    arrived = server.sql("select max(file) from waypost.chunk where file like 'queue/incoming.0/%.seg'")[0][0]
    waiting = server.sql("select min(file) from waypost.chunk where file like 'queue/incoming.0/%.data'")[0][0]
    for kind in ("<>", "="):
        rows = server.sql(SHAPE.format(arrived, kind))
        assert rows
        assert rows == server.sql(SHAPE.format(waiting, kind))
    first, last = (
        server.sql(f"select {end}(file) from waypost.chunk where kind = 'b'")[0][0] for end in ("min", "max")
    )
    assert server.sql(SHAPE.format(first, "<>")) == server.sql(SHAPE.format(last, "<>"))


@pytest.fixture
def below() -> Iterator[Path]:
    """A directory that the servers' user may enter."""
    with TemporaryDirectory() as made:
        Path(made).chmod(0o755)
        yield Path(made)


@pytest.mark.parametrize("more", [[], ["--log-only"]])
def test_a_short_run_shows_each_phase_and_leaves_nothing(
    more: list[str], below: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = tmp_path / "found.json"
    assert main(["--short", "--directory", str(below), "--json", str(found), *more]) == 0
    shown = capsys.readouterr().out
    for words in ("before the churn", "between the churn", "after the churn", "part 2", "are missed.", "no result."):
        assert words in shown
    made = json.loads(found.read_text())
    assert {(one["table"], one["phase"]) for one in made["slices"]} == {
        (table, phase) for table in ("big", "small") for phase in ("before", "between", "after")
    }
    assert sum(part["arrived_bytes"] for part in made["parts"]) >= made["churn_bytes"]
    assert not list(below.iterdir())


def sliced(table: str, phase: str, ms: float, cpu_s: float = 0.1) -> Slice:
    """A hundred commits, some of which drop mail in ten times the time."""
    commits = [Commit(kind, ms / 1000) for kind in COMMITS for _ in range(30)]
    return Slice(table, phase, commits + [Commit(kind, ms / 100) for kind in DROPS for _ in range(5)], 1.0, cpu_s, 0.02)


def part(toast_mb: int, ms: float) -> Part:
    size = Size(1000 * MB, 100 * MB, toast_mb * MB, 100 * MB, 0, 0)
    return Part(1, 100, 1.0, 500 * MB, 500 * MB, 0.1, [ms, ms, ms, ms], size)


def reported(big_ms: float, big_cpu_s: float, *parts: Part, ended_early: str = "") -> dict[str, str]:
    """What is wanted, by the words in front of it."""
    found = Found(packed=Size(1000 * MB, 100 * MB, 800 * MB, 100 * MB, 0, 0), churn_bytes=1000 * MB)
    found.ended_early, found.cpu_ms = ended_early, {"small": 1.0, "big": big_cpu_s * 10}
    found.slices += [sliced("big", "before", big_ms, big_cpu_s), sliced("small", "before", 1.0)]
    found.parts += parts
    return {line.partition(": ")[2].partition(": ")[0] or line: line for line in report(found) if line}


def test_what_is_reached_is_said() -> None:
    lines = reported(1.19, 0.11, part(900, 1.0), part(920, 1.0))
    assert lines["commits, p50 on the big table"].endswith(
        "1.190 x (median of the pairs 1.190, wanted at most 1.2): reached"
    )
    assert lines["drop segment, p50 on the big table"].endswith("reached")
    assert lines["CPU of a commit on the big table"].endswith("1.100 x (wanted at most 1.2): reached")
    assert lines["size of the table beside a packed one, at its highest"].endswith(
        "1.120 x (wanted at most 1.25): reached"
    )
    assert lines["size of the table at its end beside the middle of it"].endswith("reached")
    assert any(line.startswith("0 of ") for line in lines)


def test_what_is_missed_is_said() -> None:
    lines = reported(1.3, 0.13, part(800, 1.1), part(900, 1.1), part(1_100, 1.3))
    missed = {words for words, line in lines.items() if line.endswith("MISSED")}
    assert missed == {
        *(f"commits, {name} on the big table" for name in ("p50", "p95", "p99")),
        *(f"{kind}, p50 on the big table" for kind in DROPS),
        "CPU of a commit on the big table",
        "CPU of a commit on the big table, all cleaning included",
        "size of the table beside a packed one, at its highest",
        "size of the table at its end beside the middle of it",
    }
    assert any(line.startswith("9 of ") for line in lines)


def test_a_churn_that_ended_early_says_so() -> None:
    lines = reported(1.0, 0.1, part(900, 1.0), ended_early="NO RESULT, because the disk had no room")
    assert "1.0 GB were to arrive: NO RESULT, because the disk had no room." in lines.values()


def test_a_disk_without_room_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--gb", "1000000", "--directory", str(tmp_path)]) == 1
    assert "choose fewer by --gb" in capsys.readouterr().err
