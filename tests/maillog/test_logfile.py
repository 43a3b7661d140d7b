"""A log file shared by processes: whole lines, rotation, a full disk."""

from __future__ import annotations

import errno
import multiprocessing
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mailcore.maillog.logfile import LINES_MAX, LOOK_INTERVAL_S, Logfile

Write = Callable[[int, bytes], int]


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Logfile]:
    made = Logfile(tmp_path / "log" / "mail.log", lambda count, why: f"lost {count}: {why}\n")
    yield made
    made.close()


def append_many(path: Path, name: str) -> None:
    file = Logfile(path, lambda count, why: "lost\n")
    for at in range(300):
        for part in range(20):
            file.append(f"{name} {at} {part} " + "x" * 50 + "\n")
        file.flush(0.0)


def test_what_is_flushed_is_in_the_file_and_not_before(file: Logfile) -> None:
    file.append("one\n")
    assert not file.path.exists()
    file.flush(0.0)
    assert file.path.read_text() == "one\n"
    assert file.path.stat().st_mode & 0o007 == 0


def test_the_buffer_is_bounded_without_a_flush(file: Logfile) -> None:
    for at in range(LINES_MAX + 1):
        file.append(f"{at}\n")
    assert len(file.path.read_text().splitlines()) == LINES_MAX


def test_lines_of_several_processes_do_not_mix(tmp_path: Path) -> None:
    path = tmp_path / "mail.log"
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=append_many, args=(path, name)) for name in "abc"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    found = path.read_text().splitlines()
    assert len(found) == 3 * 300 * 20
    assert set(found) == {
        f"{name} {at} {part} " + "x" * 50 for name in "abc" for at in range(300) for part in range(20)
    }


def test_a_file_that_was_rotated_is_opened_anew_within_a_second(file: Logfile) -> None:
    file.append("one\n")
    file.flush(0.0)
    rotated = file.path.rename(file.path.with_suffix(".1"))
    file.append("two\n")
    file.flush(LOOK_INTERVAL_S / 2)
    file.append("three\n")
    file.flush(LOOK_INTERVAL_S)
    assert rotated.read_text() == "one\ntwo\n"
    assert file.path.read_text() == "three\n"


def test_a_file_that_was_removed_is_made_again(file: Logfile) -> None:
    file.append("one\n")
    file.flush(0.0)
    file.path.unlink()
    file.append("two\n")
    file.flush(LOOK_INTERVAL_S)
    assert file.path.read_text() == "two\n"


def full_disk(room: int) -> Write:
    """os.write on a disk with so much room: short first, then ENOSPC, as tmpfs does it."""
    real = os.write

    def write(descriptor: int, data: bytes) -> int:
        nonlocal room
        if not room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = real(descriptor, data[:room])
        room -= written
        return written

    return write


def test_a_full_disk_loses_lines_says_so_once_and_is_told_of_afterwards(
    file: Logfile, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full_disk(room=6))
        for line in ("one\n", "two\n", "three\n"):
            file.append(line)
        file.flush(0.0)
        file.append("four\n")
        file.flush(0.1)
    assert file.lost == 3
    said = capsys.readouterr().err
    assert said.count("No space left on device") == 1
    assert said.count("\n") == 1
    file.append("five\n")
    file.flush(0.2)
    assert file.path.read_text() == "one\ntw\nlost 3: No space left on device\nfive\n"
    file.append("six\n")
    file.flush(0.3)
    assert file.path.read_text().endswith("five\nsix\n")


def test_a_directory_that_cannot_be_made_stops_nobody(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in_the_way").write_text("")
    file = Logfile(tmp_path / "in_the_way" / "mail.log", lambda count, why: f"lost {count}\n")
    file.append("one\n")
    file.flush(0.0)
    assert file.lost == 1
    assert "in_the_way" in capsys.readouterr().err
    (tmp_path / "in_the_way").unlink()
    file.append("two\n")
    file.flush(0.1)
    assert file.path.read_text() == "lost 1\ntwo\n"
    file.close()
