"""The simulated disk behaves as the real one while nothing goes wrong, and loses only what it may when something does."""

from __future__ import annotations

import errno
import inspect
from pathlib import Path

import pytest

from mailcore.log.disk import Disk, Locked
from tests.simulated_disk import PowerLoss, RandomChoice, SimulatedDisk, every

INHERITED = {
    "make_directory",
    "read_whole",
    "write_whole",
    "check",
    "guard_of",
    "is_identified",
}  # built from the calls below, whose syncs are simulated; and those of a directory's identity, which need a real one


def test_every_call_of_the_real_disk_is_simulated() -> None:
    for name, member in inspect.getmembers(Disk, inspect.isfunction):
        if name.startswith("_") or name in INHERITED:
            continue
        simulated = vars(SimulatedDisk)[name]
        assert inspect.signature(simulated).parameters.keys() == inspect.signature(member).parameters.keys(), name


def story(disk: Disk, home: str) -> list[object]:
    """The same calls on either disk; what they answer."""
    answers: list[object] = []

    def attempt(call: object, *arguments: object) -> object:
        try:
            answers.append(call(*arguments))  # type: ignore[operator]
        except (OSError, Locked) as error:
            answers.append((type(error).__name__, getattr(error, "errno", 0)))
        return answers[-1]

    disk.make_directory(f"{home}/a/b")
    disk.make_directory(f"{home}/a/b")
    path = f"{home}/a/b/file"
    fd = disk.create(path)
    attempt(disk.create, path)
    disk.write(fd, [b"one", b"", b"two"], 0)
    disk.write(fd, [b"!"], 10)
    attempt(disk.read, fd, 100, 0)
    attempt(disk.read, fd, 100, 50)
    attempt(disk.size, fd)
    disk.sync(fd)
    disk.drop_cache(fd)
    attempt(disk.read, fd, 4, 3)
    disk.close(fd)
    attempt(disk.close, fd)
    attempt(disk.open_read, f"{home}/none")
    attempt(disk.size_of, path)
    attempt(disk.exists, path)
    attempt(disk.is_directory, path)
    attempt(disk.replace, path, f"{path}.new")
    attempt(disk.list, f"{home}/a/b")
    attempt(disk.list, f"{home}/nowhere")
    attempt(disk.list, f"{path}.new")
    attempt(disk.unlink, path)
    attempt(disk.remove_directory, f"{home}/a/b")
    attempt(disk.unlink, f"{path}.new")
    attempt(disk.remove_directory, f"{home}/a/b")
    attempt(disk.create_directory, f"{home}/a")
    lock = disk.lock(f"{home}/lock")
    attempt(disk.lock, f"{home}/lock")
    disk.close(lock)
    disk.close(disk.lock(f"{home}/lock"))
    return answers


def test_it_answers_as_the_real_disk_does(tmp_path: Path) -> None:
    assert story(SimulatedDisk(), "/home") == story(Disk(), str(tmp_path))


def test_a_crash_keeps_what_was_synced_and_any_subset_of_the_rest() -> None:
    disk = SimulatedDisk()
    fd = disk.create("/f")
    disk.sync_directory("/")
    disk.write(fd, [b"safe"], 0)
    disk.sync(fd)
    disk.write(fd, [b"ab"], 4)
    disk.write(fd, [b"cd"], 6)
    found = {bytes(disk.crash(choice).image("/f")) for choice in every(100)}
    assert found == {
        b"safe" + rest for rest in (b"", b"a", b"ab", b"\0\0cd", b"a\0cd", b"abcd", b"\0\0c", b"a\0c", b"abc")
    }
    assert bytes(disk.kill().image("/f")) == b"safeabcd"


def test_a_crash_keeps_any_subset_of_the_marks() -> None:
    disk = SimulatedDisk()
    disk.put("/f", b"LLL")
    fd = disk.open_write("/f")
    for at in range(3):
        disk.write(fd, [b"G"], at)
    assert len({bytes(disk.crash(choice).image("/f")) for choice in every(100)}) == 8


def test_a_cut_is_there_or_not_until_it_is_synced() -> None:
    disk = SimulatedDisk()
    disk.put("/f", b"safe and more")
    fd = disk.open_write("/f")
    disk.shorten(fd, 4)
    assert disk.image("/f") == b"safe"
    assert {bytes(disk.crash(choice).image("/f")) for choice in every(100)} == {b"safe", b"safe and more"}
    disk.write(fd, [b"!"], 4)
    disk.sync(fd)
    assert {bytes(disk.crash(choice).image("/f")) for choice in every(100)} == {b"safe!"}


def test_a_synced_file_whose_name_is_not_synced_may_be_gone() -> None:
    disk = SimulatedDisk()
    fd = disk.create("/f")
    disk.write(fd, [b"data"], 0)
    disk.sync(fd)
    assert {disk.crash(choice).exists("/f") for choice in every(100)} == {True, False}
    disk.sync_directory("/")
    assert {disk.crash(choice).exists("/f") for choice in every(100)} == {True}


def test_a_rename_is_there_or_not() -> None:
    disk = SimulatedDisk()
    disk.put("/old", b"2")
    disk.put("/new", b"1")
    disk.replace("/old", "/new")
    found = set()
    for choice in every(100):
        after = disk.crash(choice)
        found.add((after.image("/new"), after.exists("/old")))
    assert found == {(b"2", False), (b"1", True)}


def test_a_lying_sync_shows_the_data_until_the_cache_is_dropped() -> None:
    disk = SimulatedDisk()
    fd = disk.create("/f")
    disk.sync_directory("/")
    disk.write(fd, [b"one"], 0)
    disk.fail("sync", lying=True)
    with pytest.raises(OSError, match="Input/output"):
        disk.sync(fd)
    disk.write(fd, [b"two"], 3)
    disk.sync(fd)
    assert disk.read(fd, 6, 0) == b"onetwo"
    assert disk.crash(RandomChoice(1)).image("/f") == b"\0\0\0two"
    disk.drop_cache(fd)
    assert disk.read(fd, 6, 0) == b"\0\0\0two"


def test_a_full_disk_takes_what_fits() -> None:
    disk = SimulatedDisk()
    disk.capacity = 5
    fd = disk.create("/f")
    with pytest.raises(OSError) as caught:  # noqa: PT011
        disk.write(fd, [b"1234567"], 0)
    assert caught.value.errno == errno.ENOSPC
    assert disk.image("/f") == b"12345"
    disk.write(fd, [b"abcde"], 0)


def test_nothing_reaches_the_disk_once_the_power_is_gone() -> None:
    disk = SimulatedDisk()
    disk.crash_before(2)
    fd = disk.create("/f")
    with pytest.raises(PowerLoss):
        disk.write(fd, [b"x"], 0)
    with pytest.raises(PowerLoss):
        disk.unlink("/f")
    disk.close(fd)
    assert disk.kill().image("/f") == b""


def test_locks_end_with_the_process() -> None:
    disk = SimulatedDisk()
    disk.lock("/lock")
    with pytest.raises(Locked):
        disk.lock("/lock")
    disk.kill().lock("/lock")
    disk.crash(RandomChoice(0)).lock("/lock")
