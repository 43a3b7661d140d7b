"""Writing a lane: what was reported durable stays, positions are used once, nobody appends behind a foreign tail."""

from __future__ import annotations

import contextlib
import errno
import random
import threading
from collections.abc import Sequence

import pytest

from mailcore.log.disk import Buffer, Locked
from mailcore.log.lane import LaneFailed, LaneWriter
from mailcore.log.reader import LaneReader
from mailcore.log.record import RecordType
from mailcore.log.segment import FIRST_RECORD, base_of, name_of, retired_name_of
from tests.log.lanes import DIRECTORY, Lane, open_writer, plain
from tests.simulated_disk import PowerLoss, RandomChoice, SimulatedDisk, every

T = RecordType.DELIVERY


def put(writer: LaneWriter, *bodies: bytes) -> list[tuple[int, bytes]]:
    placed = [(writer.append(T, body), body) for body in bodies]
    writer.sync()
    return placed


def segments(disk: SimulatedDisk) -> list[int]:
    return [base for base in map(base_of, disk.list(DIRECTORY)) if base is not None]


# -- law: durable-before-250


def history(disk: SimulatedDisk, durable: list[tuple[int, bytes]], segment_bytes: int) -> None:
    """Three batches, of which one goes over the end of a segment, in two lives of the writer. ``durable`` grows as the
    writer says so."""
    writer = open_writer(disk, segment_bytes=segment_bytes)
    durable += put(writer, b"one", b"two")
    durable += put(writer, b"three" * 300, b"four", b"five" * 300)
    writer.append(T, b"never synced")
    writer.close()
    writer = open_writer(disk, segment_bytes=segment_bytes)
    durable += put(writer, b"six")


def crash_points(segment_bytes: int) -> int:
    disk = SimulatedDisk()
    history(disk, [], segment_bytes)
    return disk.changes


@pytest.mark.parametrize("segment_bytes", [1 << 20, 5000])
def test_law_durable_what_was_reported_durable_is_there_after_every_possible_crash(segment_bytes: int) -> None:
    points = crash_points(segment_bytes)
    assert points > 10
    for point in range(1, points + 2):
        durable: list[tuple[int, bytes]] = []
        disk = SimulatedDisk()
        disk.crash_before(point)
        with contextlib.suppress(PowerLoss):
            history(disk, durable, segment_bytes)
        for choice in every(5000):
            after = disk.crash(choice)
            writer = open_writer(after, segment_bytes=segment_bytes)
            found = Lane(after, writer.durable)
            assert set(durable) <= set(plain(found.records)), f"crash before call {point}"
            # And it goes on: what comes now is found beside what was there.
            more = put(writer, b"after")
            assert [*plain(found.records), *more] == plain(Lane(after, writer.durable).records)


@pytest.mark.parametrize("seed", range(60))
def test_law_durable_holds_over_many_lives(seed: int) -> None:
    rng = random.Random(seed)
    disk = SimulatedDisk()
    durable: dict[int, bytes] = {}
    given_out: dict[int, bytes] = {}
    for _life in range(6):
        writer = open_writer(disk, segment_bytes=rng.choice([4096, 6000, 20_000, 1 << 20]))
        disk.crash_before(disk.changes + rng.randrange(1, 25))
        waiting: list[tuple[int, bytes]] = []
        try:
            for _ in range(30):
                body = rng.randbytes(rng.choice([1, 30, 700, 5000]))
                offset = writer.append(T, body)
                assert offset not in durable, "law: positions-never-reused"
                given_out[offset] = body
                waiting.append((offset, body))
                if rng.random() < 0.4:
                    writer.sync()
                    durable.update(waiting)
                    waiting = []
        except PowerLoss:
            pass
        disk = disk.kill() if rng.random() < 0.3 else disk.crash(RandomChoice(rng.getrandbits(32)))
        after = open_writer(disk)
        after.close()
        found = dict(plain(Lane(disk, after.durable).records))
        assert durable.items() <= found.items(), f"seed {seed}"
        assert found.items() <= given_out.items()
        durable = found


def test_nothing_is_durable_before_the_directory_of_its_segment_is_synced() -> None:
    disk = SimulatedDisk()
    put(open_writer(disk), b"x")
    calls = [call for call, path in disk.log if "lock" not in path]
    assert calls.index("sync") < calls.index("sync_directory", calls.index("create"))
    assert disk.crash(RandomChoice(0)).platter(f"{DIRECTORY}/{name_of(0)}")


def test_a_directory_that_another_process_made_and_did_not_sync_is_synced() -> None:
    disk = SimulatedDisk()
    disk.create_directory("/queue")
    disk.create_directory(DIRECTORY)  # and killed
    disk = disk.kill()
    writer = open_writer(disk)
    put(writer, b"x")
    for choice in every(1000):
        assert Lane(disk.crash(choice), writer.durable).bodies == [b"x"]


def test_a_segment_whose_maker_was_killed_before_its_name_was_synced_is_made_safe_before_it_is_believed() -> None:
    disk = SimulatedDisk()
    open_writer(disk).close()
    writer = open_writer(disk)
    disk.crash_before(disk.changes + 4)  # in front of the directory's sync
    writer.append(T, b"x")
    with pytest.raises(PowerLoss):
        writer.sync()
    assert disk.log[-1][0] == "sync"
    disk = disk.kill()
    writer = open_writer(disk)
    assert Lane(disk, writer.durable).bodies == [b"x"]
    for choice in every(1000):  # a reader was told so, and so it must stay
        assert Lane(disk.crash(choice), writer.durable).bodies == [b"x"]


def test_a_group_costs_one_sync() -> None:
    disk = SimulatedDisk()
    writer = open_writer(disk)
    put(writer, b"first")
    before = disk.calls.copy()
    put(writer, *[b"x" * 1000] * 500)
    assert disk.calls - before == {"write": 1, "sync": 1}


# -- law: positions-never-reused


def test_law_position_positions_are_never_reused() -> None:
    disk = SimulatedDisk()
    used: set[int] = set()
    for life in range(6):
        writer = open_writer(disk, segment_bytes=9000)
        offsets = [writer.append(T, b"x" * 500) for _ in range(20)]
        assert not used & set(offsets)
        used |= set(offsets)
        if life == 3:
            disk.fail("sync")
            with pytest.raises(LaneFailed):
                writer.sync()
            writer.reopen()
            offsets = [writer.append(T, b"y") for _ in range(5)]
            assert not used & set(offsets)
            used |= set(offsets)
        writer.sync()
        disk = disk.kill()
    assert len(Lane(disk, None).records) == len(used) - 20


def test_law_position_a_writer_goes_on_beyond_the_torn_tail_of_the_last_segment() -> None:
    disk = SimulatedDisk()
    writer = open_writer(disk)
    put(writer, b"x")
    disk.fail("write", error=errno.EIO, written=3000)
    writer.append(T, b"y" * 5000)
    with pytest.raises(LaneFailed):
        writer.sync()
    disk = disk.kill()
    tail = disk.size_of(f"{DIRECTORY}/{name_of(0)}")
    assert open_writer(disk).append(T, b"z") >= tail + FIRST_RECORD


def test_law_position_a_writer_goes_on_beyond_the_floor() -> None:
    disk = SimulatedDisk()
    writer = open_writer(disk, floor=1_000_000, end_at=0)
    assert writer.append(T, b"x") == 1_000_000 + FIRST_RECORD
    writer.sync()
    assert segments(disk) == [1_000_000]


class WrittenBuffers(SimulatedDisk):
    """Keeps the buffers of the last write."""

    buffers: Sequence[Buffer] = ()

    def write(self, fd: int, buffers: Sequence[Buffer], offset: int) -> None:
        self.buffers = list(buffers)
        super().write(fd, buffers, offset)


@pytest.mark.parametrize("is_first", [True, False])
def test_a_large_body_is_written_from_where_it_lies_and_small_ones_are_joined(is_first: bool) -> None:
    disk = WrittenBuffers()
    writer = open_writer(disk)
    placed = [] if is_first else put(writer, b"begin")
    large = [b"large" * 20_000, b"larger" * 30_000]
    placed += put(writer, b"small", large[0], b"two", b"three", *large)
    assert [buffer for buffer in disk.buffers if len(buffer) > 65_536] == [large[0], *large]
    assert any(buffer is large[1] for buffer in disk.buffers)
    assert len(disk.buffers) == 6  # with the small ones before each of them
    put(writer, b"four", b"five")
    assert len(disk.buffers) == 1
    assert plain(Lane(disk, writer.durable).records)[: len(placed)] == placed


def test_the_next_offset_is_known_before() -> None:
    writer = open_writer(SimulatedDisk(), segment_bytes=5000)
    for _ in range(30):
        foretold = writer.next_offset()
        assert writer.append(T, b"x" * 450) == foretold


@pytest.mark.parametrize("entry", [("", 1, 1), ("x" * 21, 1, 1), ("é", 1, 1)])
def test_an_id_that_could_never_be_found_is_refused(entry: tuple[str, int, int]) -> None:
    writer = open_writer(SimulatedDisk())
    with pytest.raises(ValueError, match="queue id"):
        writer.append(RecordType.ENVELOPE, b"x", entry=entry)
    with pytest.raises(ValueError, match="bytes"):
        writer.append(RecordType.ENVELOPE, b"")
    assert not writer.waiting


def test_a_lane_has_one_writer() -> None:
    disk = SimulatedDisk()
    writer = open_writer(disk)
    with pytest.raises(Locked):
        open_writer(disk)
    writer.close()
    open_writer(disk)


def test_the_lock_is_given_back_when_the_lane_cannot_be_opened() -> None:
    disk = SimulatedDisk()
    put(open_writer(disk), b"x")
    disk = disk.kill()
    disk.fail("sync")
    with pytest.raises(OSError, match="Input"):
        open_writer(disk)
    open_writer(disk)


def test_batches_are_written_in_the_order_they_were_taken_whoever_comes_first() -> None:
    disk = SimulatedDisk()
    writer = open_writer(disk)
    first_offset = writer.append(T, b"first")
    first = writer.take()
    second_offset = writer.append(T, b"second")
    second = writer.take()
    thread = threading.Thread(target=second.write)
    thread.start()
    first.write()
    thread.join()
    assert plain(Lane(disk, writer.durable).records) == [(first_offset, b"first"), (second_offset, b"second")]


def test_a_writer_knows_the_end_of_a_lane_better_than_its_bytes() -> None:
    """Recovery, step 3: what lies above the recorded end is dropped."""
    disk = SimulatedDisk()
    writer = open_writer(disk)
    placed = put(writer, b"kept", b"dropped")
    disk = disk.kill()
    writer = open_writer(disk, end_at=placed[1][0])
    put(writer, b"after")
    for durable in (writer.durable, None):
        assert Lane(disk, durable).bodies == [b"kept", b"after"]


def test_an_end_in_an_earlier_segment_drops_the_later_ones() -> None:
    disk = SimulatedDisk()
    writer = open_writer(disk, segment_bytes=5000)
    placed = put(writer, *[b"%d" % i * 300 for i in range(10)])
    writer.close()
    assert len(segments(disk)) > 2
    writer = open_writer(disk, end_at=placed[2][0])
    reader = LaneReader(disk, DIRECTORY, lambda damage: None)
    after = put(writer, b"after")
    reader.refresh()
    assert plain(list(reader.records(0, writer.durable))) == [*placed[:2], *after]
    assert reader.read(placed[1][0], writer.durable) is not None
    for offset, _ in placed[2:]:
        assert reader.read(offset, writer.durable) is None


def test_a_writer_continues_behind_retired_segments_also_when_no_other_is_left() -> None:
    disk = SimulatedDisk()
    writer = open_writer(disk)
    ((offset, _),) = put(writer, b"x" * 100)
    writer.close()
    base = segments(disk)[0]
    disk.replace(f"{DIRECTORY}/{name_of(base)}", f"{DIRECTORY}/{retired_name_of(base)}")
    writer = open_writer(disk)
    assert writer.next_offset() > offset + 100
    writer.close()
