"""Bits of event files that flip: such a file is set aside and named, and never are other values counted."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from random import Random

import pyarrow
import pyarrow.parquet as pq
import pytest

from appliance.pipeline import rows
from appliance.pipeline.build_day import ReportBuilder
from appliance.pipeline.events import SetAside, look
from appliance.pipeline.silver import read
from appliance.pipeline.verify import all_unchanged
from mailcore.events.write.files import StretchFiles
from mailcore.log.disk import Disk

DT = "2026-11-21"
AT = 1_795_219_200.0


def attempts(events: Path, begin: int) -> Path:
    """As the exporter writes them."""
    files = StretchFiles(Disk(), str(events), "journal", begin)
    for number in range(40):
        rest = ("smtp:example.net", "mx.example.net[192.0.2.1]:25", "", 0.1, 0.2, 0.3, 0.4, 0)
        labels = (
            "example.net",
            "example.org",
            "192.0.2.7",
            False,
            "spring",
            1_000,
            "",
            "a@example.net",
            "b@example.org",
            "",
        )
        status = ("delivered", "2.0.0", f"250 2.0.0 Ok: queued as {number:x}")
        files.add(
            "attempt", begin + 100 * number, (0, AT + number, f"Q{begin + number}", 1, 0, *status, *rest, *labels)
        )
    (path,) = files.complete(begin + 4_000, AT)
    return Path(path)


def flip(path: Path, byte: int, bit: int = 0) -> None:
    written = bytearray(path.read_bytes())
    written[byte] ^= 1 << bit
    path.write_bytes(written)


def last_of(path: Path, column: str) -> int:
    """The last byte of the column's last page."""
    found = pq.read_metadata(path).row_group(0).column(pq.read_schema(path).get_field_index(column))
    begin = found.dictionary_page_offset or found.data_page_offset
    return int(begin + found.total_compressed_size - 1)


def test_a_bit_anywhere_sets_the_file_aside(events: Path, tmp_path: Path) -> None:
    path = attempts(events, 0)
    written = path.read_bytes()
    random = Random(5)
    for number in range(300):
        aside = SetAside(tmp_path / f"set_aside.{number}.json")
        path.write_bytes(written)
        flip(path, random.randrange(len(written) - 26), random.randrange(8))  # 26: the sums themselves, and the end
        files, damaged = look(events, DT, aside)
        if files:
            assert not all_unchanged(files, aside)
            files, damaged = look(events, DT, aside)
        assert not files
        assert [each.file for each in damaged] == [f"dt={DT}/{path.name}"]


def test_silver_is_made_of_the_files_that_are_whole_and_names_the_other(builder: ReportBuilder, events: Path) -> None:
    attempts(events, 0)
    path = attempts(events, 10_000)
    flip(path, last_of(path, "reply"))
    (day,) = builder.silver([DT])
    assert {row["offset"] for row in read(builder.session, [day], "attempt").collect()} == set(range(0, 4_000, 100))
    assert [(each.file, each.why) for each in builder._damaged[DT]] == [
        (f"dt={DT}/{path.name}", "its rows are damaged: wrong checksum")
    ]


def test_what_could_not_be_read_for_a_moment_is_not_kept(
    builder: ReportBuilder, another: Callable[[Path], ReportBuilder], events: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts(events, 0)

    def failing(error: Exception) -> None:
        def fail(_: object) -> None:
            raise error

        monkeypatch.setattr(rows, "_open", fail)

    failing(PermissionError(errno.EACCES, "Permission denied"))
    builder.silver([DT])
    (damage,) = look(events, DT, builder.aside)[1]
    assert damage.why == "cannot be read now (Permission denied); the next run tries again"
    assert look(events, DT, SetAside(builder.aside.kept))[1] == []
    failing(pyarrow.ArrowInvalid("it is no Parquet"))
    another(builder.store.root).silver([DT])
    assert len(look(events, DT, SetAside(builder.aside.kept))[1]) == 1


@pytest.mark.parametrize("checksum", [True, False])
def test_a_page_that_spark_finds_damaged_sets_its_file_aside_too(
    builder: ReportBuilder, events: Path, checksum: bool
) -> None:
    """A file that changes after it was looked at, here one without sums of ours. Not compressed: nothing but the page's
    checksum can find it; without it another value is read."""
    attempts(events, 0)
    path = attempts(events, 10_000)
    pq.write_table(pq.read_table(path), path, compression="none", use_dictionary=False, write_page_checksum=checksum)
    flip(path, last_of(path, "reply"))
    (day,) = builder.silver([DT])
    count = read(builder.session, [day], "attempt").count()
    if checksum:
        assert count == 40
        assert [each.file for each in builder._damaged[DT]] == [f"dt={DT}/{path.name}"]
    else:
        assert count == 80
