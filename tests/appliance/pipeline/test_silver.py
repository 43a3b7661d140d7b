"""Silver: typed, each event once, a day made anew when its files change and only then; damage set aside."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from appliance.pipeline.build_day import ReportBuilder
from appliance.pipeline.events import look
from appliance.pipeline.silver import made as made_of
from appliance.pipeline.silver import manifest, read
from appliance.pipeline.store import Store
from tests.appliance.pipeline.sample_events import SampleMail, utc

DT = "2026-11-20"
TEN = utc("2026-11-20 10:00")


def again(builder: ReportBuilder) -> ReportBuilder:
    """As the next run finds it."""
    return ReportBuilder(builder.session, Store(builder.store.root), builder.events, lambda stage, share: None)


def test_a_file_that_is_there_twice_is_counted_once(builder: ReportBuilder, events: Path) -> None:
    sample = SampleMail()
    sample.traffic(TEN, TEN + 600, 20)
    kinds = [row["kind"] for row in sample.rows]
    for path in sample.write(events):
        lane, begin = path.name.removesuffix(".parquet").rsplit(".", 1)
        shutil.copy(path, path.with_name(f"{lane}.{int(begin) + 1}.parquet"))
    (day,) = builder.silver([DT])
    for kind in ("accepted", "attempt", "finished"):
        assert read(builder.session, [day], kind).count() == kinds.count(kind)
    # Times are exact to the microsecond, durations whole numbers of them.
    row = read(builder.session, [day], "attempt").orderBy("offset", "part").first()
    assert row is not None
    assert isinstance(row["delay_d_us"], int)


def test_it_is_made_once_and_anew_when_events_come_late(builder: ReportBuilder, events: Path) -> None:
    sample = SampleMail()
    sample.delivered(TEN)
    sample.write(events)
    (first,) = builder.silver([DT])
    assert again(builder).silver([DT]) == [first]
    sample.delivered(TEN + 1)
    sample.write(events)
    (second,) = again(builder).silver([DT])
    assert second.path != first.path
    assert read(builder.session, [second], "accepted").count() == 2
    assert first.path.exists()  # who reads it reads on


def test_events_that_were_written_and_are_gone_are_no_empty_day(builder: ReportBuilder, events: Path) -> None:
    sample = SampleMail()
    sample.delivered(TEN)
    sample.write(events)
    (day,) = builder.silver([DT])
    assert read(builder.session, [day], "refused").count() == 0  # there were none
    shutil.rmtree(day.path / "rows" / "attempt")
    with pytest.raises(FileNotFoundError, match="rows/attempt"):
        read(builder.session, [day], "attempt")


def test_a_day_that_does_not_say_what_it_is_is_made_anew(builder: ReportBuilder, events: Path) -> None:
    sample = SampleMail()
    sample.delivered(TEN)
    sample.write(events)
    (day,) = builder.silver([DT])
    files, _ = look(events, DT, builder.aside)
    assert made_of(builder.store, DT, files) == day
    for said in ('{"dt": "2026-11', "[]", "{}", ""):
        (day.path / "made.json").write_text(said)
        assert made_of(builder.store, DT, files) is None, said
    (made,) = again(builder).silver([DT])
    assert (made.path != day.path, made.rows) == (True, day.rows)
    shutil.rmtree(made.path / "rows" / "attempt")
    assert manifest(builder.store, DT) is None


@pytest.mark.parametrize("lost", [1, pytest.param(None, marks=pytest.mark.long)])
def test_a_day_whose_rows_were_cut_short_or_lost_is_made_anew(
    builder: ReportBuilder, events: Path, lost: int | None
) -> None:
    sample = SampleMail()
    sample.traffic(TEN, TEN + 600, 20)
    sample.write(events)
    (day,) = builder.silver([DT])
    before = read(builder.session, [day], "attempt").count()
    path = max((day.path / "rows" / "attempt").rglob("*.parquet"))
    if lost is None:
        path.unlink()
    else:
        os.truncate(path, path.stat().st_size - lost)
    (made,) = again(builder).silver([DT])
    assert made.path != day.path
    assert read(builder.session, [made], "attempt").count() == before


def test_a_file_damaged_in_its_middle_is_set_aside_and_the_others_are_read(
    builder: ReportBuilder, events: Path
) -> None:
    sample = SampleMail()
    sample.delivered(TEN)
    sample.write(events)
    sample.delivered(TEN + 1)
    (path, *_) = (each for each in sample.write(events) if each.name.startswith("journal"))
    whole = bytearray(path.read_bytes())
    whole[4:200] = bytes(196)  # pages; the footer is as it was
    path.write_bytes(whole)
    (day,) = builder.silver([DT])
    assert read(builder.session, [day], "attempt").count() == 1
    assert [each.file for each in builder._damaged[DT]] == [f"dt={DT}/{path.name}"]
    assert path.exists()
