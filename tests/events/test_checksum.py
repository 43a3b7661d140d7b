"""Checksums of event files: a bit that flips is found, wherever it is, or changes nothing that is read."""

from __future__ import annotations

import contextlib
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mailcore.events.checksum import ChecksumError, check
from mailcore.events.read import rows as past_rows
from mailcore.events.write.files import StretchFiles
from mailcore.log.disk import Disk

AT = 1_795_219_200.0
OURS_BYTES = 18  # at the end of the footer


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file as the exporter writes it: two kinds, and values that repeat, so that pages are of both sorts."""
    files = StretchFiles(Disk(), str(tmp_path / "events"), "journal", 0)
    for number in range(60):
        rest = ("smtp:example.net", "mx.example.net[192.0.2.1]:25", "TLSv1.3", 0.1 * number, 0.2, 0.3, 0.4, 0)
        labels = (
            "example.net",
            "example.org",
            "192.0.2.7",
            False,
            "spring",
            1_000,
            "may",
            "a@b.example",
            "c@d.example",
            "",
        )
        status = ("delivered", "2.0.0", f"250 2.0.0 Ok: queued as {number:x}")
        files.add("attempt", 300 * number, (0, AT + number, f"Q{number}", 1, 0, *status, *rest, *labels))
        files.add("finished", 300 * number + 200, (0, AT + number, f"Q{number}", 0, "done"))
    (path,) = files.complete(20_000, AT)
    return Path(path)


def flipped(whole: bytes, bit: int) -> bytes:
    return whole[: bit // 8] + bytes([whole[bit // 8] ^ (1 << bit % 8)]) + whole[bit // 8 + 1 :]


def rows(path: Path) -> list[dict[str, Any]]:
    return pq.ParquetFile(path, page_checksum_verification=True).read().to_pylist()  # type: ignore[no-any-return]


def replies(path: Path) -> list[Any]:
    """As the history of a message and the search read."""
    with past_rows.opened(str(path)) as groups:
        return [row for group in groups for row in group.events(["reply"], range(group.rows))]


def test_a_file_as_it_was_written_passes_and_is_read_by_whoever_reads_parquet(path: Path) -> None:
    check(path, whole=True)
    assert len(rows(path)) == 120
    assert pq.read_table(path).num_rows == 120


def test_each_bit_that_flips_is_found_or_none_of_the_values(path: Path, tmp_path: Path) -> None:
    whole, true = path.read_bytes(), rows(path)
    copy = tmp_path / "copy.parquet"
    random = Random(5)
    passed = 0
    ours = range(8 * (len(whole) - OURS_BYTES - 8), 8 * len(whole))
    for bit in [*random.sample(range(ours.start), 2_000), *ours]:
        copy.write_bytes(flipped(whole, bit))
        try:
            check(copy, whole=True)
        except ChecksumError:
            continue
        assert bit in ours, f"bit {bit}"
        passed += 1
        with contextlib.suppress(OSError, pa.ArrowException):
            assert rows(copy) == true
    assert passed  # the field itself


def test_the_footer_is_checked_without_the_rest(path: Path) -> None:
    whole = path.read_bytes()
    footer = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    path.write_bytes(flipped(whole, 8 * (footer + 40)))
    with pytest.raises(ChecksumError, match="footer"):
        check(path, whole=False)
    path.write_bytes(flipped(whole, 8 * 100))
    check(path, whole=False)
    with pytest.raises(ChecksumError, match="rows"):
        check(path, whole=True)


def test_pages_have_checksums_of_their_own_for_who_reads_some_of_them(path: Path) -> None:
    """Bodies of pages; zstd by itself takes some flipped bits for other text."""
    whole = path.read_bytes()
    column = pq.read_metadata(path).row_group(0).column(pq.read_schema(path).get_field_index("reply"))
    end = (column.dictionary_page_offset or column.data_page_offset) + column.total_compressed_size
    assert len(replies(path)) == 120
    for back in range(2, 30):
        path.write_bytes(flipped(whole, 8 * (end - back)))
        with pytest.raises(OSError, match="CRC"):
            replies(path)


@pytest.mark.parametrize("written", [b"", b"PAR1", b"PAR1" * 20])
def test_what_is_no_file_of_ours_is_for_others_to_refuse(tmp_path: Path, written: bytes) -> None:
    (tmp_path / "x").write_bytes(written)
    check(tmp_path / "x", whole=True)


def test_a_file_without_the_field_passes(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), tmp_path / "x")
    check(tmp_path / "x", whole=True)
