"""The files of events: what their footers tell, which are damaged, which may share rows, what is missing between them."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from appliance.pipeline.events import EventFile, SetAside, event_paths, fingerprint, look, overlapping
from appliance.pipeline.verify import all_unchanged
from tests.appliance.pipeline.sample_events import SampleMail, utc, write_file

DT = "2026-11-20"


@pytest.fixture
def aside(tmp_path: Path) -> SetAside:
    return SetAside(tmp_path / "set_aside.json")


def some_day(events: Path) -> list[Path]:
    sample = SampleMail()
    sample.traffic(utc("2026-11-20 10:00"), utc("2026-11-20 11:00"), 40)
    return sample.write(events, rows_max=20)


def test_a_file_tells_its_stretch_and_its_offsets(events: Path, aside: SetAside) -> None:
    written = some_day(events)
    files, damaged = look(events, DT, aside)
    assert not damaged
    assert {each.path for each in files} == set(written)
    for each in files:
        assert each.end is not None
        assert each.begin <= each.first <= each.last < each.end
    assert overlapping(files) == []


def test_what_is_not_published_yet_is_not_there(events: Path, aside: SetAside) -> None:
    (path, *_) = some_day(events)
    path.rename(path.with_name(f".{path.name}"))
    files, _ = look(events, DT, aside)
    assert path.name not in {each.path.name.lstrip(".") for each in files}
    assert path.name not in {each.name.lstrip(".") for each in (*event_paths(events), *event_paths(events, DT))}


@pytest.mark.parametrize("damage", ["cut short", "empty", "no Parquet", "no events", "of tomorrow"])
def test_a_damaged_file_is_set_aside_named_and_left_where_it_is(events: Path, aside: SetAside, damage: str) -> None:
    (path, *others) = some_day(events)
    whole = path.read_bytes()
    if damage == "of tomorrow":
        path.write_bytes(whole.replace(b"waypost.events\x18\x011", b"waypost.events\x18\x019"))
        assert path.read_bytes() != whole
    elif damage == "no events":
        pq.write_table(pa.table({"a": [1]}), path)
    else:
        path.write_bytes({"cut short": whole[: len(whole) // 2], "empty": b"", "no Parquet": b"PAR1" * 100}[damage])
    files, damaged = look(events, DT, aside)
    assert {each.path for each in files} == set(others)
    assert [each.file for each in damaged] == [f"dt={DT}/{path.name}"]
    assert damaged[0].why
    assert path.exists()
    again = SetAside(aside.kept)
    assert [each.file for each in look(events, DT, again)[1]] == [f"dt={DT}/{path.name}"]
    path.write_bytes(whole)
    assert look(events, DT, again)[1] == []


@pytest.mark.parametrize("broken", ["", '[{"identity": "a", "fi', '[{"identity": 1}]', "{}x", "7", "\\xff"])
def test_when_the_list_of_them_is_broken_itself_it_is_set_aside_and_named(
    events: Path, aside: SetAside, broken: str
) -> None:
    (path, *_) = some_day(events)
    path.write_bytes(b"")
    look(events, DT, aside)
    aside.kept.write_bytes(b"\xff" if broken == "\\xff" else broken.encode())
    again = SetAside(aside.kept)
    assert again.known == {}
    assert again.fault.startswith("set_aside.json could not be read, and is set_aside.broken now: ")
    assert aside.kept.with_suffix(".broken").exists()
    assert [each.file for each in look(events, DT, again)[1]] == [f"dt={DT}/{path.name}"], "it is found again"
    assert SetAside(aside.kept).known == again.known
    assert SetAside(aside.kept).fault == ""


def flip(path: Path, byte: int) -> None:
    """One byte, and the file's time as before: as a disk does it, or who copies with the times."""
    stat = path.stat()
    with path.open("r+b") as file:
        file.seek(byte)
        (was,) = file.read(1)
        file.seek(byte)
        file.write(bytes([was ^ 1]))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


@pytest.mark.parametrize("how", ["written over", "another file"])
def test_a_good_file_that_comes_back_with_its_time_is_read_again(
    events: Path, aside: SetAside, tmp_path: Path, how: str
) -> None:
    (path, *others) = some_day(events)
    backup = Path(shutil.copy2(path, tmp_path / "backup"))
    assert look(events, DT, aside)[1] == []
    flip(path, path.stat().st_size - 9)
    assert path.stat().st_mtime_ns == backup.stat().st_mtime_ns
    assert len(look(events, DT, aside)[1]) == 1
    if how == "another file":
        path.unlink()
    shutil.copy2(backup, path)
    again = SetAside(aside.kept)
    assert look(events, DT, again)[1] == []
    assert len(look(events, DT, again)[0]) == len(others) + 1
    flip(path, path.stat().st_size - 9)
    look(events, DT, again)
    assert len(again.known) == 1, "of a file what was found last"


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO, errno.EMFILE])
@pytest.mark.parametrize("whole_file", [False, True])
def test_what_cannot_be_read_now_is_told_as_that_and_looked_at_anew_by_the_next_run(
    events: Path, aside: SetAside, monkeypatch: pytest.MonkeyPatch, number: int, whole_file: bool
) -> None:
    (path, *others) = some_day(events)

    def refuses(it: Path, whole: bool) -> None:
        if it == path and whole == whole_file:
            raise OSError(number, os.strerror(number), str(it))

    with monkeypatch.context() as faulty:
        faulty.setattr("appliance.pipeline.events.check", refuses)
        faulty.setattr("appliance.pipeline.verify.check", refuses)
        files, _ = look(events, DT, aside)
        assert all_unchanged(files, aside) is not whole_file
        _, damaged = look(events, DT, aside)
        words = f"cannot be read now ({os.strerror(number)}); the next run tries again"
        assert [(each.file, each.why) for each in damaged] == [(f"dt={DT}/{path.name}", words)]
    assert look(events, DT, aside)[1] == damaged, "all steps of a run go by the same files"
    files, damaged = look(events, DT, SetAside(aside.kept))
    assert not damaged
    assert len(files) == len(others) + 1


FOREIGN = {
    "another's columns": pa.table({"offset": ["a"], "kind": ["accepted"]}),
    "another's kinds": pa.table({"offset": [1], "kind": [1]}),
    "another lane's": pa.table({"offset": [1], "kind": ["accepted"]}).replace_schema_metadata(
        {"waypost.lane": "retry.5"}
    ),
    "no list of damage": pa.table({"offset": [1], "kind": ["accepted"]}).replace_schema_metadata(
        {"waypost.damaged": "3"}
    ),
}


@pytest.mark.parametrize("what", FOREIGN)
def test_a_foreign_file_under_a_name_of_ours_is_set_aside(events: Path, aside: SetAside, what: str) -> None:
    ours = some_day(events)
    path = events / f"dt={DT}" / "journal.99999999.parquet"
    pq.write_table(FOREIGN[what], path)
    files, damaged = look(events, DT, aside)
    assert {each.path for each in files} == set(ours)
    assert [each.file for each in damaged] == [f"dt={DT}/{path.name}"]
    overlapping(files)


def test_a_name_that_is_none_of_ours_is_said_to_be_none(events: Path, aside: SetAside) -> None:
    some_day(events)
    pq.write_table(pa.table({"a": [1]}), events / f"dt={DT}" / "sales.parquet")
    assert [(each.file, each.why) for each in look(events, DT, aside)[1]] == [
        (f"dt={DT}/sales.parquet", "it is not named as events are: LANE.OFFSET.parquet")
    ]


def test_a_link_that_leads_nowhere_is_named_until_it_leads_somewhere(events: Path, aside: SetAside) -> None:
    (path, *others) = some_day(events)
    elsewhere = path.rename(path.parent.parent / "elsewhere")
    path.symlink_to(events / "gone")
    files, damaged = look(events, DT, aside)
    assert {each.path for each in files} == set(others)
    assert [each.file for each in damaged] == [f"dt={DT}/{path.name}"]
    elsewhere.rename(events / "gone")
    assert look(events, DT, aside)[1] == []


def made(name: str, first: int, last: int, begin: int = 0, end: int | None = None) -> EventFile:
    return EventFile(Path(f"{name}.{begin}.parquet"), DT, name, begin, end, 1, 1, 10, first, last)


def test_files_of_a_lane_that_lie_across_each_other_may_share_rows() -> None:
    apart = [made("journal", 0, 90, 0), made("journal", 100, 190, 100), made("incoming.0", 50, 120, 50)]
    assert overlapping(apart) == []
    across = made("journal", 150, 160, 150)
    assert overlapping([*apart, across]) == [apart[1], across]


def test_a_file_that_changed_is_another(events: Path, aside: SetAside) -> None:
    (path, *_) = some_day(events)
    before = fingerprint(look(events, DT, aside)[0], 1)
    assert fingerprint(look(events, DT, aside)[0], 1) == before
    assert fingerprint(look(events, DT, aside)[0], 2) != before
    write_file(path, [], "journal", 0, 10)
    assert fingerprint(look(events, DT, aside)[0], 1) != before
