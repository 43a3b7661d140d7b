"""A lane whose disk fails, lies, or is full: nobody appends behind a tail they did not write (law: no-tail-reuse)."""

from __future__ import annotations

import errno
import itertools

import pytest

from mailcore.log.lane import LaneFailed, LaneWriter
from mailcore.log.record import RecordType
from mailcore.log.segment import FIRST_RECORD, Segment, base_of, name_of
from tests.log.lanes import DIRECTORY, Lane, open_writer, plain
from tests.simulated_disk import RandomChoice, SimulatedDisk

T = RecordType.DELIVERY


def put(writer: LaneWriter, *bodies: bytes) -> list[tuple[int, bytes]]:
    placed = [(writer.append(T, body), body) for body in bodies]
    writer.sync()
    return placed


def segments(disk: SimulatedDisk) -> list[int]:
    return [base for base in map(base_of, disk.list(DIRECTORY)) if base is not None]


# -- law: no-tail-reuse, law: no-sync-retry


def test_law_tail_a_writer_that_starts_opens_a_new_segment_that_says_where_the_one_before_ends() -> None:
    disk = SimulatedDisk()
    writer = open_writer(disk)
    put(writer, b"x")
    end = writer.durable
    before = disk.image(f"{DIRECTORY}/{name_of(0)}")
    disk = disk.kill()
    put(open_writer(disk), b"y")
    first, second = segments(disk)
    assert disk.image(f"{DIRECTORY}/{name_of(first)}") == before
    assert Segment(disk, f"{DIRECTORY}/{name_of(second)}").header.previous_end == end


def test_law_tail_a_failed_sync_is_never_tried_again_on_the_same_file() -> None:
    disk = SimulatedDisk()
    writer = open_writer(disk)
    put(writer, b"safe")
    good = writer.durable
    disk.fail("sync", lying=True)
    writer.append(T, b"lost")
    with pytest.raises(LaneFailed) as caught:
        writer.sync()
    assert isinstance(caught.value.__cause__, OSError)
    with pytest.raises(LaneFailed):
        writer.append(T, b"too soon")
    with pytest.raises(LaneFailed):
        writer.sync()
    assert writer.durable == good
    path = f"{DIRECTORY}/{name_of(0)}"
    at = len(disk.log)
    writer.reopen()
    put(writer, b"after")
    assert path not in [p for _, p in disk.log[at:]]
    assert writer.durable > good
    second = segments(disk)[1]
    assert Segment(disk, f"{DIRECTORY}/{name_of(second)}").header.previous_end == good
    # The cache still shows the record that was answered with 451; the header says that it is none.
    assert b"lost" in disk.image(path)
    assert Lane(disk, writer.durable).bodies == [b"safe", b"after"]
    assert Lane(disk, None).bodies == [b"safe", b"after"]
    assert Lane(disk.crash(RandomChoice(1)), writer.durable).bodies == [b"safe", b"after"]


def test_law_tail_what_was_taken_while_a_batch_failed_fails_too() -> None:
    disk = SimulatedDisk()
    writer = open_writer(disk)
    put(writer, b"safe")
    writer.append(T, b"first")
    first = writer.take()
    writer.append(T, b"second")
    second = writer.take()
    disk.fail("sync")
    with pytest.raises(LaneFailed):
        first.write()
    before = disk.image(f"{DIRECTORY}/{name_of(0)}")
    with pytest.raises(LaneFailed):
        second.write()
    assert disk.image(f"{DIRECTORY}/{name_of(0)}") == before
    writer.reopen()
    put(writer, b"after")
    assert Lane(disk, writer.durable).bodies == [b"safe", b"after"]


def test_law_tail_a_batch_taken_before_a_reopen_is_not_written_after_it() -> None:
    disk = SimulatedDisk()
    writer = open_writer(disk)
    writer.append(T, b"first")
    first = writer.take()
    writer.append(T, b"second")
    second = writer.take()
    disk.fail("sync")
    with pytest.raises(LaneFailed):
        first.write()
    writer.reopen()
    with pytest.raises(LaneFailed):
        second.write()
    writer.reopen()
    put(writer, b"after")
    assert Lane(disk, writer.durable).bodies == [b"after"]


def test_law_tail_a_start_after_a_lying_sync_believes_the_disk_and_not_the_cache() -> None:
    disk = SimulatedDisk()
    writer = open_writer(disk)
    put(writer, b"safe")
    disk.fail("sync", lying=True)
    writer.append(T, b"lost")
    with pytest.raises(LaneFailed):
        writer.sync()
    disk = disk.kill()
    writer = open_writer(disk)
    assert Lane(disk, writer.durable).bodies == [b"safe"]
    assert Lane(disk.crash(RandomChoice(1)), writer.durable).bodies == [b"safe"]


def test_law_tail_a_segment_whose_header_was_lost_hides_nothing_and_ends_nothing() -> None:
    disk = SimulatedDisk()
    writer = open_writer(disk)
    put(writer, b"one", b"two")
    end = writer.durable
    disk = disk.kill()
    disk.put(f"{DIRECTORY}/{name_of(end)}", bytes(300))  # a segment whose first write was lost
    writer = open_writer(disk)
    put(writer, b"three")
    found = Lane(disk, writer.durable)
    assert (found.bodies, found.damage) == ([b"one", b"two", b"three"], [])
    assert Segment(disk, f"{DIRECTORY}/{name_of(segments(disk)[-1])}").header.previous_end == end


def test_law_tail_a_lost_header_does_not_bring_a_torn_tail_back_to_life() -> None:
    """A fails, B says that A ends before the tail, B is lost; the start looks at A again, and reports no damage in it."""
    disk = SimulatedDisk()
    writer = open_writer(disk)
    put(writer, b"safe")
    disk.fail("write", written=700)
    writer.append(T, b"t" * 5000)
    with pytest.raises(LaneFailed):
        writer.sync()
    disk.put(f"{DIRECTORY}/{name_of(writer.end)}", bytes(5000))
    disk = disk.kill()
    writer = open_writer(disk)
    put(writer, b"after")
    found = Lane(disk, writer.durable)
    assert found.bodies == [b"safe", b"after"]
    assert [damage.what for damage in found.damage if damage.offset < FIRST_RECORD + 5000] == []


def test_law_tail_the_segments_before_end_where_any_later_header_says() -> None:
    """Two failures in a row: the second new segment never got a record, and says of the first what is true."""
    disk = SimulatedDisk()
    writer = open_writer(disk)
    put(writer, b"safe")
    good = writer.durable
    for _ in range(3):
        writer.append(T, b"lost" * 10)
        disk.fail("sync")
        disk.fail("unlink")  # so that the failed segment stays where it is
        with pytest.raises(LaneFailed):
            writer.sync()
        writer.reopen()
    put(writer, b"after")
    assert len(segments(disk)) == 4
    headers = [Segment(disk, f"{DIRECTORY}/{name_of(base)}").header.previous_end for base in segments(disk)]
    assert headers == [0, good, good, good]
    for durable in (writer.durable, None):
        assert Lane(disk, durable).bodies == [b"safe", b"after"]


# -- rotation, failures, a full disk


def test_segments_end_at_segment_bytes_and_begin_where_the_one_before_ends() -> None:
    disk = SimulatedDisk()
    writer = open_writer(disk, segment_bytes=6000)
    placed = list(itertools.chain.from_iterable(put(writer, b"%03d" % i * 100) for i in range(30)))
    assert len(segments(disk)) > 4
    for base, following in itertools.pairwise(segments(disk)):
        assert base + disk.size_of(f"{DIRECTORY}/{name_of(base)}") == following
        assert Segment(disk, f"{DIRECTORY}/{name_of(following)}").header.previous_end == following
        assert 6000 <= following - base < 6400
    assert plain(Lane(disk, writer.durable).records) == placed


def test_a_segment_smaller_than_its_header_still_holds_a_record() -> None:
    disk = SimulatedDisk()
    writer = open_writer(disk, segment_bytes=1)
    placed = put(writer, b"a", b"b", b"c")
    assert len(segments(disk)) == 3
    assert plain(Lane(disk, writer.durable).records) == placed


@pytest.mark.parametrize("call", ["create", "write", "sync", "sync_directory"])
@pytest.mark.parametrize("skip", range(4))
def test_a_failure_in_a_batch_over_several_segments_makes_none_of_it_durable(call: str, skip: int) -> None:
    disk = SimulatedDisk()
    writer = open_writer(disk, segment_bytes=6000)
    put(writer, b"safe")
    disk.fail(call, in_path=DIRECTORY if call == "sync_directory" else ".seg", skip=skip)
    for i in range(40):
        writer.append(T, b"%03d" % i * 100)
    with pytest.raises(LaneFailed):
        writer.sync()
    disk.heal()
    writer.reopen()
    put(writer, b"after")
    for view in (disk, disk.crash(RandomChoice(skip)), disk.kill()):
        assert Lane(view, writer.durable).bodies == [b"safe", b"after"]
    disk = disk.kill()
    assert Lane(disk, open_writer(disk).durable).bodies == [b"safe", b"after"]


@pytest.mark.parametrize("free", [0, 1, 4095, 4096, 4100, 5000, 9000])
def test_a_full_disk_refuses_and_loses_nothing(free: int) -> None:
    disk = SimulatedDisk()
    writer = open_writer(disk, segment_bytes=20_000)
    placed = put(writer, b"safe")
    disk.capacity = disk.used() + free
    writer.append(T, b"x" * 10_000)
    with pytest.raises(LaneFailed) as caught:
        writer.sync()
    assert isinstance(caught.value.__cause__, OSError)
    assert caught.value.__cause__.errno == errno.ENOSPC
    disk.capacity = None
    writer.reopen()
    placed += put(writer, b"after")
    assert plain(Lane(disk, writer.durable).records) == placed


def test_a_full_disk_does_not_fill_with_segments_that_could_not_be_made() -> None:
    disk = SimulatedDisk()
    writer = open_writer(disk)
    put(writer, b"safe")
    disk.capacity = disk.used()
    for _ in range(20):
        writer.append(T, b"x")
        with pytest.raises(LaneFailed):
            writer.sync()
        writer.reopen()
    assert len(segments(disk)) == 1
    assert len(disk.open_files()) <= 1
    disk.capacity = None
    put(writer, b"after")
    assert Lane(disk, writer.durable).bodies == [b"safe", b"after"]


def test_what_was_appended_in_vain_is_forgotten_and_its_positions_are_not_used() -> None:
    disk = SimulatedDisk()
    writer = open_writer(disk)
    lost = writer.append(T, b"x" * 100_000)
    disk.fail("create", in_path=DIRECTORY)
    with pytest.raises(LaneFailed):
        writer.sync()
    writer.reopen()
    assert not writer.waiting
    assert writer.append(T, b"y") > lost + 100_000
