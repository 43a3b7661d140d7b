"""A log that is followed loses no line: not while it rotates, not under load, not when it rotates twice at once."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections import Counter
from pathlib import Path

import pytest

from mailcore.maillog import logfile
from mailcore.maillog.follow import OLD_S, Followed, last_lines

WRITERS, LINES = 3, 4_000


def write_lines(path: Path, name: int) -> None:
    logfile.LOOK_INTERVAL_S = 0.01
    file = logfile.Logfile(path, lambda count, why: "lost\n")
    for number in range(LINES):
        file.append(f"{name} {number} {'x' * 80}\n")
        if number % 7 == 0:
            file.flush(time.monotonic())
            time.sleep(0.001)
    file.close()


def read(followed: Followed) -> list[bytes]:
    return list(followed.lines())


def test_no_line_is_lost_or_doubled_while_the_log_rotates_under_load(tmp_path: Path) -> None:
    path = tmp_path / "mail.jsonl"
    followed = Followed(path)
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=write_lines, args=(path, name)) for name in range(WRITERS)]
    for writer in writers:
        writer.start()
    found: Counter[bytes] = Counter()
    rotations = 0
    while any(writer.is_alive() for writer in writers):
        for number in range(1 + rotations % 2):  # every second time twice between two looks
            if path.exists():
                path.rename(tmp_path / f"mail.jsonl.{rotations}-{number}")
                time.sleep(0.012)
        rotations += 1
        found.update(read(followed))
    found.update(read(followed))
    followed.close()
    assert rotations > 5
    wanted = {f"{name} {number} {'x' * 80}".encode() for name in range(WRITERS) for number in range(LINES)}
    lost, strange = wanted - found.keys(), found.keys() - wanted
    assert not lost, f"{len(lost)} lost, such as {sorted(lost)[:3]}"
    assert not strange
    assert set(found.values()) == {1}


def test_it_begins_at_the_end_and_old_files_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "mail.jsonl"
    (tmp_path / "mail.jsonl.1").write_text("older\n")
    path.write_text("before\n")
    followed = Followed(path)
    assert read(followed) == []
    with path.open("a") as file:
        file.write("one\ntw")
        file.flush()
        assert read(followed) == [b"one"]
        file.write("o\n")
        file.flush()
        assert read(followed) == [b"two"]
        path.rename(tmp_path / "mail.jsonl.2")
        file.write("late\n")
        file.flush()
        assert read(followed) == [b"late"]
        path.write_text("new\n")
        file.write("later\n")
        file.flush()
        assert read(followed) == [b"later", b"new"]
    followed.close()


def test_a_file_that_came_and_went_between_two_looks_is_read_while_no_file_has_the_name(tmp_path: Path) -> None:
    path = tmp_path / "mail.jsonl"
    path.write_text("before\n")
    followed = Followed(path)
    path.rename(tmp_path / "mail.jsonl.1")
    path.write_text("between\n")
    path.rename(tmp_path / "mail.jsonl.2")
    assert read(followed) == [b"between"]
    assert read(followed) == []
    path.write_text("after\n")
    assert read(followed) == [b"after"]
    followed.close()


def test_a_log_that_is_copied_and_cut_is_read_from_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "mail.jsonl"
    path.write_text("a long line before\n")
    followed = Followed(path)
    os.truncate(path, 0)
    with path.open("a") as file:
        file.write("x\n")
    assert read(followed) == [b"x"]
    followed.close()


def test_files_of_old_rotations_are_closed(tmp_path: Path) -> None:
    path = tmp_path / "mail.jsonl"
    now = 0.0
    path.touch()
    followed = Followed(path, monotonic=lambda: now)
    for number in range(50):
        path.rename(tmp_path / f"mail.jsonl.{number}")
        path.touch()
        read(followed)
        now += OLD_S / 5
    assert len(followed._files) <= 8
    followed.close()


@pytest.mark.parametrize(("count", "lines"), [(0, []), (2, [b"b", b"c"]), (9, [b"a", b"b", b"c"])])
def test_the_last_lines_are_whole(tmp_path: Path, count: int, lines: list[bytes]) -> None:
    path = tmp_path / "mail.jsonl"
    path.write_text("a\nb\nc\nd")
    assert last_lines(path, count, 1 << 30) == lines
    assert last_lines(path, count, 4) == lines[:-1][-count:] if count != 2 else [b"a", b"b"]
    assert last_lines(tmp_path / "none", count, 9) == []
