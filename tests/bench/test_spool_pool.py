"""A file of the pool of bench.spool_pool: after any power failure it holds the message that a record names, or none."""

from __future__ import annotations

import random

import pytest

from bench.spool_pool import HEAD, MAGIC, MARKER, PoolFile, read_pooled
from mailcore.log.data_blocks import sums_of
from tests.power_loss import PowerLoss
from tests.simulated_disk import RandomChoice, SimulatedDisk

FIRST, SECOND = random.Random(1).randbytes(5000), random.Random(2).randbytes(3000)
SEEDS = range(200)


def crashed(seed: int, *, truncate: bool) -> tuple[SimulatedDisk, bool]:
    """Stores a message over another one, with a power failure somewhere; returns the disk, and whether it was stored."""
    disk = SimulatedDisk()
    pooled = PoolFile(disk, "/pool", len(FIRST), truncate=truncate)
    disk.sync_directory("/")
    pooled.store("first", FIRST)
    pooled.free()
    stored = False
    disk.crash_before(disk.changes + random.Random(seed).randint(1, 5))  # of four calls
    try:
        pooled.store("second", SECOND)
        stored = True
    except PowerLoss:
        pass
    return disk.crash(RandomChoice(seed)), stored


def found(disk: SimulatedDisk, queue_id: str, use: int, data: bytes) -> bytes | None:
    return read_pooled(disk, disk.open_read("/pool"), queue_id, use, len(data), sums_of(data))


def found_by_marker(disk: SimulatedDisk) -> bytes | None:
    """What the seed's rule believes: a head that is written last, and a marker where the content ends."""
    fd = disk.open_read("/pool")
    head = disk.read(fd, HEAD.size, 0)
    if len(head) < HEAD.size or not head.startswith(MAGIC):
        return None
    _, _, use, size, _ = HEAD.unpack(head)
    data = disk.read(fd, size + MARKER.size, HEAD.size)
    return data[:size] if data[size:] == MARKER.pack(MAGIC, use) else None


@pytest.mark.parametrize("truncate", [False, True])
def test_after_a_power_failure_a_file_holds_the_message_that_is_asked_for_or_none(truncate: bool) -> None:
    outcomes = set()
    for seed in SEEDS:
        disk, stored = crashed(seed, truncate=truncate)
        second = found(disk, "second", 2, SECOND)
        assert second == SECOND if stored else second in (None, SECOND), seed
        assert found(disk, "first", 1, FIRST) in (None, FIRST), seed
        assert found(disk, "first", 2, FIRST) is None
        outcomes.add((stored, second is None))
    assert {(True, False), (False, True)} <= outcomes


def test_a_head_and_a_marker_alone_would_believe_content_of_the_message_before() -> None:
    believed = [found_by_marker(crashed(seed, truncate=False)[0]) for seed in SEEDS]
    assert any(data not in (None, FIRST, SECOND) for data in believed)
