"""The ballast: taken when there is room, given back to the write that finds the disk full, killed anywhere on the way."""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

import pytest

from mailcore.log.disk import Disk
from mailcore.queue.ballast import GIVE_BYTES, LEFT_BYTES, LEFT_INODES, NAME, TAKE_BYTES, Ballast, Held, held
from tests.ext4 import ext4
from tests.simulated_disk import PowerLoss, RandomChoice, SimulatedDisk

QUEUE = "/home/queue"
WANTED = Held(1 << 20, 5)
ROOMY = WANTED.space_bytes + LEFT_BYTES + (1 << 20)


def simulated(capacity: int = ROOMY, inodes: int = 1000) -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directory(QUEUE)
    disk.capacity, disk.inodes = capacity, inodes
    return disk


def ballast_on(disk: Disk, *directories: str, wanted: Held = WANTED) -> Ballast:
    ballast = Ballast(disk, directories or (QUEUE,), wanted)
    disk.relief = ballast.relieve
    return ballast


def fill(disk: SimulatedDisk) -> None:
    """By another program, which does not get the ballast."""
    disk.put("/others", bytes(disk.free_bytes("/")))
    assert disk.free_bytes("/") == 0


def test_it_is_taken_while_there_is_room() -> None:
    disk = simulated()
    ballast_on(disk).keep()
    assert held(disk, QUEUE) == WANTED
    assert disk.unsynced() == [], "it must be there after a power cut"
    before = disk.changes
    ballast_on(disk).keep()
    assert disk.changes == before


def test_some_room_is_left() -> None:
    disk = simulated(capacity=LEFT_BYTES + TAKE_BYTES, inodes=LEFT_INODES + 5)  # two of them are directories
    ballast_on(disk).keep()
    there = held(disk, QUEUE)
    assert there.space_bytes == TAKE_BYTES
    assert 0 < there.inodes < WANTED.inodes
    assert disk.free_bytes(QUEUE) >= LEFT_BYTES
    nothing = simulated(capacity=LEFT_BYTES + TAKE_BYTES - 1, inodes=LEFT_INODES)
    ballast_on(nothing).keep()
    assert held(nothing, QUEUE) == Held(0, 0)


def test_a_write_gets_what_it_needs_and_no_more() -> None:
    disk = simulated()
    ballast_on(disk).keep()
    fill(disk)
    fd = disk.create(f"{QUEUE}/journal")
    disk.write(fd, [bytes(100_000)], 0)
    assert disk.image(f"{QUEUE}/journal") == bytes(100_000)
    assert held(disk, QUEUE) == Held(WANTED.space_bytes - 100_000 - GIVE_BYTES, WANTED.inodes)
    disk.write(fd, [bytes(10)], 100_000)
    assert held(disk, QUEUE).space_bytes == WANTED.space_bytes - 100_000 - GIVE_BYTES, "there was room"


def test_a_new_file_gets_an_inode_and_no_space() -> None:
    disk = simulated()
    ballast_on(disk).keep()
    disk.inodes = disk.files()
    disk.close(disk.create(f"{QUEUE}/one"))
    assert held(disk, QUEUE) == Held(WANTED.space_bytes, WANTED.inodes - 2)
    disk.make_directory(f"{QUEUE}/two")
    assert held(disk, QUEUE).inodes == WANTED.inodes - 2, "there was one"
    for number in range(3, WANTED.inodes + 1):
        disk.close(disk.create(f"{QUEUE}/{number}"))
    with pytest.raises(OSError, match="No space"):
        disk.create(f"{QUEUE}/more")


def test_when_nothing_is_left_the_error_is_the_callers() -> None:
    disk = simulated()
    ballast_on(disk).keep()
    fill(disk)
    fd = disk.create(f"{QUEUE}/journal")
    with pytest.raises(OSError, match="No space") as caught:
        disk.write(fd, [bytes(WANTED.space_bytes + 1)], 0)
    assert caught.value.errno == errno.ENOSPC
    assert held(disk, QUEUE).space_bytes == 0


def test_it_is_taken_back_when_there_is_room_again() -> None:
    disk = simulated()
    ballast = ballast_on(disk)
    ballast.keep()
    fill(disk)
    fd = disk.create(f"{QUEUE}/journal")
    disk.write(fd, [bytes(300_000)], 0)
    ballast.keep()
    assert held(disk, QUEUE).space_bytes < WANTED.space_bytes
    disk.unlink("/others")
    ballast.keep()
    assert held(disk, QUEUE) == WANTED


def test_room_for_what_does_not_ask() -> None:
    disk = simulated()
    ballast = ballast_on(disk)
    ballast.keep()
    fill(disk)
    disk.inodes = disk.files()
    ballast.make_room()
    assert disk.free_bytes(QUEUE) == LEFT_BYTES
    assert disk.free_inodes(QUEUE) == WANTED.inodes
    ballast.make_room()
    assert disk.free_bytes(QUEUE) == LEFT_BYTES, "there was enough"


def test_less_is_wanted() -> None:
    disk = simulated()
    ballast_on(disk).keep()
    less = Held(WANTED.space_bytes // 2, 2)
    ballast_on(disk, wanted=less).keep()
    assert held(disk, QUEUE) == less


def test_directories_on_one_disk_share_it() -> None:
    disk = simulated()
    disk.make_directory("/home/spool")
    alone = ballast_on(disk, "/home/spool")
    alone.keep()
    assert held(disk, "/home/spool") == WANTED
    both = ballast_on(disk, QUEUE, "/home/spool", "/home/missing")
    assert both.room("/home/spool").ballast == WANTED
    both.keep()
    assert held(disk, "/home/spool") == Held(0, 0)
    assert held(disk, QUEUE) == WANTED


def test_a_kill_or_a_power_cut_anywhere_is_continued() -> None:
    whole = simulated()
    ballast_on(whole).keep()
    fd = whole.create(f"{QUEUE}/journal")
    fill(whole)
    whole.write(fd, [bytes(200_000)], 0)
    ballast_on(whole, wanted=Held(100_000, 1)).keep()
    for number in range(1, whole.changes + 2):
        disk = simulated()
        disk.crash_before(number)
        with contextlib.suppress(PowerLoss):
            ballast_on(disk).keep()
            fd = disk.create(f"{QUEUE}/journal")
            fill(disk)
            disk.write(fd, [bytes(200_000)], 0)
            ballast_on(disk, wanted=Held(100_000, 1)).keep()
        for after in (disk.kill(), disk.crash(RandomChoice(number))):
            with contextlib.suppress(OSError):
                after.unlink("/others")
            after.make_directory(QUEUE)
            ballast_on(after).keep()
            assert held(after, QUEUE) == WANTED, f"before call {number}"


# -- on real disks


def test_the_space_is_really_allocated(tmp_path: Path) -> None:
    disk = Disk()
    ballast_on(disk, str(tmp_path)).keep()
    status = os.stat(tmp_path / NAME / "space")
    assert status.st_size == WANTED.space_bytes
    assert status.st_blocks * 512 >= WANTED.space_bytes
    assert len(list((tmp_path / NAME).glob("inode.*"))) == WANTED.inodes


@pytest.mark.parametrize("how", ["not supported", "as zeros that take no space"])
def test_a_file_system_that_cannot_allocate_is_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    def fallocate(fd: int, offset: int, size_bytes: int) -> None:
        if how == "not supported":
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
        os.ftruncate(fd, offset + size_bytes)

    monkeypatch.setattr(os, "posix_fallocate", fallocate)
    ballast_on(Disk(), str(tmp_path)).keep()
    assert held(Disk(), str(tmp_path)) == WANTED
    written = (tmp_path / NAME / "space").read_bytes()
    assert len(set(written)) == 256, "zeros would be compressed"


def test_bytes_that_a_disk_does_not_hold_do_not_count(tmp_path: Path) -> None:
    ballast = ballast_on(Disk(), str(tmp_path))
    ballast.keep()
    with (tmp_path / NAME / "space").open("wb") as file:
        file.truncate(WANTED.space_bytes)  # a hole
    assert held(Disk(), str(tmp_path)).space_bytes == 0
    ballast.keep()
    assert held(Disk(), str(tmp_path)) == WANTED


def test_on_a_full_ext4_writes_and_names_get_through(tmp_path: Path) -> None:
    with ext4(tmp_path / "disk", 8 << 20, inodes=128) as full:
        queue = full.point / "queue"
        queue.mkdir()
        disk = Disk()
        ballast_on(disk, str(queue)).keep()
        assert held(disk, str(queue)) == WANTED
        full.fill_inodes()
        full.fill_bytes()
        with pytest.raises(OSError, match="No space"):
            (queue / "another").touch()
        fd = disk.create(str(queue / "journal"))
        disk.write(fd, [b"x" * 200_000], 0)
        disk.sync(fd)
        disk.close(fd)
        disk.write_whole(str(queue / "restart"), bytes(1000))
        full.fill_inodes()
        disk.make_directory(str(queue / "retry.300"))
        full.fill_inodes()
        disk.close(disk.lock(str(queue / "retry.300" / "lock")))
        assert (queue / "journal").read_bytes() == b"x" * 200_000
        left = held(disk, str(queue))
        assert 0 < left.space_bytes < WANTED.space_bytes - 200_000
        full.empty()
        ballast_on(disk, str(queue)).keep()
        assert held(disk, str(queue)) == WANTED
