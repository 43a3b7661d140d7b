"""Restart positions: replaced as one, the ones before kept, damage seen (law: positions-after-sync)."""

from __future__ import annotations

import errno
import itertools
import struct

import google_crc32c
import msgspec
import pytest

from mailcore.log.positions import (
    NAME,
    PREVIOUS,
    Counts,
    LanePosition,
    PositionsDamaged,
    PositionsTooNew,
    RestartPositions,
    read_positions,
    write_positions,
)
from tests.simulated_disk import PowerLoss, SimulatedDisk, every

HOME = "/queue"


def positions(sequence: int) -> RestartPositions:
    return RestartPositions(
        sequence,
        1e9 + sequence,
        {"incoming.0": LanePosition(5000 * sequence, 9000 * sequence, 17)},
        100 * sequence,
        200 * sequence,
        {"retry.300": Counts(2, 3)},
        {"smtp:example.org": 3},
        4,
    )


def written(count: int) -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directory(HOME)
    for sequence in range(1, count + 1):
        write_positions(disk, HOME, positions(sequence))
    return disk


def test_a_new_queue_has_none() -> None:
    assert read_positions(written(0), HOME) is None
    assert read_positions(SimulatedDisk(), "/nowhere") is None


def test_they_are_read_back_and_the_newest_counts() -> None:
    for count in (1, 2, 5):
        disk = written(count)
        assert read_positions(disk, HOME) == positions(count)
        assert disk.open_files() == []


@pytest.mark.parametrize("before", [0, 1, 2, 3])
def test_law_checkpoint_after_a_crash_at_any_call_the_old_or_the_new_ones_are_read(before: int) -> None:
    for point in itertools.count(1):
        disk = written(before)
        start = disk.changes
        disk.crash_before(start + point)
        done = False
        try:
            write_positions(disk, HOME, positions(before + 1))
            done = True
        except PowerLoss:
            pass
        old = positions(before) if before else None
        for view in [disk.kill(), *(disk.crash(choice) for choice in every(2000))]:
            found = read_positions(view, HOME)
            if done:
                assert found == positions(before + 1)
            else:
                assert found in (old, positions(before + 1))
            # And they can be written from there, and survive once more.
            write_positions(view, HOME, positions(before + 2))
            for choice in every(2000):
                assert read_positions(view.crash(choice), HOME) == positions(before + 2)
        if done:
            return


def test_once_written_they_are_there_after_every_crash() -> None:
    for count in (1, 2, 3):
        disk = written(count)
        for choice in every(1000):
            after = disk.crash(choice)
            assert read_positions(after, HOME) == positions(count)
            assert after.exists(f"{HOME}/{PREVIOUS}") == (count > 1)


def test_when_the_newest_are_damaged_those_before_count() -> None:
    size = written(2).size_of(f"{HOME}/{NAME}")
    for at in range(size):
        disk = written(2)
        disk.damage(f"{HOME}/{NAME}", at, bytes([disk.image(f"{HOME}/{NAME}")[at] ^ 0x40]))
        assert read_positions(disk, HOME) == positions(1), f"byte {at}"
    for cut in range(size):
        disk = written(2)
        disk.truncate(f"{HOME}/{NAME}", cut)
        assert read_positions(disk, HOME) == positions(1)


def test_damaged_ones_never_take_the_place_of_those_before() -> None:
    for point in itertools.count(1):
        disk = written(2)
        disk.damage(f"{HOME}/{NAME}", 25, b"\xff\xff")
        disk.crash_before(disk.changes + point)
        try:
            write_positions(disk, HOME, positions(3))
        except PowerLoss:
            for choice in every(2000):
                assert read_positions(disk.crash(choice), HOME) in (positions(1), positions(3))
            continue
        for choice in every(2000):
            after = disk.crash(choice)
            assert read_positions(after, HOME) == positions(3)
            after.damage(f"{HOME}/{NAME}", 25, b"\xff\xff")
            assert read_positions(after, HOME) == positions(1)
        return


def test_when_the_newest_cannot_be_read_those_before_count() -> None:
    disk = written(2)
    disk.break_blocks(f"{HOME}/{NAME}", 0, 10)
    assert read_positions(disk, HOME) == positions(1)


def test_when_both_are_damaged_nobody_guesses() -> None:
    disk = written(2)
    for name in (NAME, PREVIOUS):
        disk.damage(f"{HOME}/{name}", 30, b"\xff\xff")
    with pytest.raises(PositionsDamaged, match=PREVIOUS):
        read_positions(disk, HOME)


def test_those_of_a_newer_waypost_stop_the_start_instead_of_going_back() -> None:
    disk = written(2)
    data = bytearray(disk.image(f"{HOME}/{NAME}"))
    struct.pack_into("<H", data, 8, 9)
    struct.pack_into("<I", data, 16, google_crc32c.extend(google_crc32c.value(bytes(data[:16])), bytes(data[20:])))
    disk.put(f"{HOME}/{NAME}", bytes(data))
    with pytest.raises(PositionsTooNew, match="version 9"):
        read_positions(disk, HOME)


@pytest.mark.parametrize(
    ("aside", "refers", "version"), [(False, False, 1), (True, False, 2), (True, True, 3), (False, True, 3)]
)
def test_the_version_rises_with_what_an_older_waypost_would_deliver_again(
    monkeypatch: pytest.MonkeyPatch, *, aside: bool, refers: bool, version: int
) -> None:
    disk = SimulatedDisk()
    disk.make_directory(HOME)
    there = msgspec.structs.replace(positions(1), aside=aside, refers=refers)
    write_positions(disk, HOME, there)
    assert read_positions(disk, HOME) == there
    assert struct.unpack_from("<H", disk.image(f"{HOME}/{NAME}"), 8) == (version,)
    monkeypatch.setattr("mailcore.log.positions.VERSION", version)
    read_positions(disk, HOME)
    monkeypatch.setattr("mailcore.log.positions.VERSION", version - 1)
    with pytest.raises(PositionsTooNew, match=f"version {version}"):
        read_positions(disk, HOME)


def test_what_is_no_positions_but_well_checksummed_is_damage() -> None:
    disk = written(2)
    head = b"WAYREST\0" + struct.pack("<HHI", 1, 0, 3)
    disk.put(f"{HOME}/{NAME}", head + struct.pack("<I", google_crc32c.value(head + b"abc")) + b"abc")
    assert read_positions(disk, HOME) == positions(1)


@pytest.mark.parametrize("call", ["create", "write", "sync", "replace", "sync_directory"])
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_a_failure_leaves_what_was_there_valid_and_the_next_attempt_succeeds(call: str, error: int) -> None:
    for skip in range(2 if call == "replace" else 1):
        disk = written(2)
        disk.fail(call, in_path=HOME, error=error, written=5, skip=skip)
        with pytest.raises(OSError, match=r"error|space") as caught:
            write_positions(disk, HOME, positions(3))
        assert caught.value.errno == error
        assert disk.open_files() == []
        for choice in every(2000):
            assert read_positions(disk.crash(choice), HOME) in (positions(2), positions(3))
        write_positions(disk, HOME, positions(4))
        for choice in every(2000):
            assert read_positions(disk.crash(choice), HOME) == positions(4)


def test_an_unreadable_home_is_named_and_not_taken_for_a_new_queue() -> None:
    disk = written(1)
    disk.fail("open_read", error=errno.EACCES)
    with pytest.raises(PermissionError, match=NAME):
        read_positions(disk, HOME)
