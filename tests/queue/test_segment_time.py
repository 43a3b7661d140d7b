"""The time in the header of a segment is not before that of the queue ids in it, even if the clock is set back."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from mailcore.log.disk import Disk
from mailcore.queue.queue_id import CONTROL, QueueIds, arrival_of
from mailcore.queue.reserved_time import AHEAD_S, ReservedFile, ReservedTime
from mailcore.queue.segment_time import reserved_files, segment_clock
from tests.simulated_disk import SimulatedDisk

NOW = 1_790_000_000.0
HOUR_S = 3600.0
OF_CONTROL, OF_RECEIVER = "/queue/ids.control", "/queue/incoming.0/ids"


def queue_with_ids(path: str) -> tuple[SimulatedDisk, float]:
    """Returns a queue whose writer with this file gave out an id, and the time of the id."""
    disk = SimulatedDisk()
    disk.make_directory("/queue/incoming.0")
    disk.make_directory("/queue/retry.600")
    return disk, arrival_of(QueueIds(CONTROL, lambda: NOW, ReservedTime(ReservedFile(disk, path))).next())


def test_it_is_that_of_the_clock_in_good_weather() -> None:
    disk, arrival = queue_with_ids(OF_RECEIVER)
    clock = segment_clock(lambda: NOW + 1, disk, lambda: reserved_files(disk, "/queue"))
    assert clock() == NOW + 1 > arrival


@pytest.mark.parametrize("path", [OF_RECEIVER, OF_CONTROL])
def test_it_is_that_of_the_newest_ids_of_any_writer_when_the_clock_was_set_back(path: str) -> None:
    disk, arrival = queue_with_ids(path)
    clock = segment_clock(lambda: NOW - HOUR_S, disk, lambda: reserved_files(disk, "/queue"))
    assert arrival - AHEAD_S <= clock() <= arrival + AHEAD_S


def test_it_follows_what_is_reserved_later() -> None:
    disk, _ = queue_with_ids(OF_RECEIVER)
    clock = segment_clock(lambda: NOW - HOUR_S, disk, lambda: [OF_RECEIVER])
    ids = QueueIds(0, lambda: NOW + HOUR_S, ReservedTime(ReservedFile(disk, OF_RECEIVER)))
    assert clock() < NOW + HOUR_S - AHEAD_S
    later = arrival_of(ids.next())
    assert clock() >= later - AHEAD_S


def test_files_that_are_missing_or_cannot_be_read_leave_the_clock(tmp_path: Path) -> None:
    assert segment_clock(lambda: NOW, Disk(), lambda: [str(tmp_path / "ids"), str(tmp_path)])() == NOW
    assert segment_clock(lambda: NOW, Disk(), lambda: reserved_files(Disk(), str(tmp_path / "missing")))() == NOW
    disk, _ = queue_with_ids(OF_RECEIVER)
    disk.fail("read", in_path="ids", error=errno.EACCES)
    assert segment_clock(lambda: NOW - HOUR_S, disk, lambda: [OF_RECEIVER])() == NOW - HOUR_S
