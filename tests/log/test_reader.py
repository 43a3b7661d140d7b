"""Reading a lane: only what is durable, only what later headers confirm, and all of that."""

from __future__ import annotations

from mailcore.log.lane import LaneFailed, LaneWriter
from mailcore.log.reader import OPEN_SEGMENTS_MAX, LaneReader
from mailcore.log.record import GARBAGE, MARK_AT, RecordType
from mailcore.log.segment import FIRST_RECORD, Damage, base_of, name_of
from tests.log.lanes import DIRECTORY, Lane, open_writer
from tests.simulated_disk import SimulatedDisk

T = RecordType.DELIVERY


def ignore(damage: Damage) -> None:
    raise AssertionError(damage)


def filled(segments: int = 3) -> tuple[SimulatedDisk, LaneWriter, list[int]]:
    disk = SimulatedDisk()
    writer = open_writer(disk, segment_bytes=5000)
    offsets = []
    while len([n for n in disk.list(DIRECTORY) if base_of(n) is not None]) < segments:
        offsets.append(writer.append(T, b"x" * 300))
        writer.sync()
    return disk, writer, offsets


def test_an_empty_lane_and_no_lane_have_no_records() -> None:
    disk = SimulatedDisk()
    reader = LaneReader(disk, DIRECTORY, ignore)
    assert list(reader.records(0)) == []
    assert reader.read(0) is None
    assert list(reader.find("X", 0)) == []
    open_writer(disk)
    reader.refresh()
    assert list(reader.records(0, 0)) == []


def test_law_readable_nothing_beyond_what_is_durable_is_read() -> None:
    disk, _writer, offsets = filled()
    reader = LaneReader(disk, DIRECTORY, ignore)
    for i, offset in enumerate(offsets):
        assert [r.offset for r in reader.records(0, offset)] == offsets[:i]
        assert reader.read(offset, offset) is None
        assert reader.read(offset, offset + 1) is not None


def test_reading_begins_at_any_record() -> None:
    disk, writer, offsets = filled()
    reader = LaneReader(disk, DIRECTORY, ignore)
    for i, offset in enumerate(offsets):
        assert [r.offset for r in reader.records(offset, writer.durable)] == offsets[i:]
        record = reader.read(offset, writer.durable)
        assert record is not None
        assert [r.offset for r in reader.records(record.end, writer.durable)] == offsets[i + 1 :]


def test_new_segments_are_seen_without_being_told_when_something_in_them_is_durable() -> None:
    """Otherwise the tail of the one before, which the new header cuts off, would be believed."""
    disk = SimulatedDisk()
    writer = open_writer(disk)
    writer.append(T, b"safe")
    writer.sync()
    reader = LaneReader(disk, DIRECTORY, ignore)
    assert [r.body for r in reader.records(0, writer.durable)] == [b"safe"]
    writer.append(T, b"answered with 451")
    disk.fail("sync")
    try:
        writer.sync()
    except LaneFailed:
        writer.reopen()
    offset = writer.append(T, b"after")
    writer.sync()
    assert [r.body for r in reader.records(0, writer.durable)] == [b"safe", b"after"]
    assert reader.read(offset, writer.durable) is not None
    fresh = LaneReader(disk, DIRECTORY, ignore)
    assert fresh.read(offset, writer.durable) is not None


def test_deleted_segments_are_gone_after_a_refresh_and_what_is_open_is_closed() -> None:
    disk, writer, offsets = filled(4)
    reader = LaneReader(disk, DIRECTORY, ignore)
    assert len(list(reader.records(0, writer.durable))) == len(offsets)
    open_files = len(disk.open_files())
    disk.unlink(reader.path(0))
    reader.refresh()
    assert len(disk.open_files()) == open_files - 1
    rest = [o for o in offsets if o > reader.bases[0]]
    assert [r.offset for r in reader.records(0, writer.durable)] == rest
    assert reader.read(offsets[0], writer.durable) is None


def test_a_segment_deleted_while_it_is_read_ends_nothing() -> None:
    disk, writer, offsets = filled(4)
    reader = LaneReader(disk, DIRECTORY, ignore)
    records = reader.records(0, writer.durable)
    next(records)
    disk.unlink(reader.path(reader.bases[1]))
    reader.refresh()
    assert next(reversed(list(records))).offset == offsets[-1]


def test_descriptors_are_bounded() -> None:
    disk, writer, offsets = filled(OPEN_SEGMENTS_MAX + 10)
    reader = LaneReader(disk, DIRECTORY, ignore)
    for _ in range(2):
        assert len(list(reader.records(0, writer.durable))) == len(offsets)
        assert len(disk.open_files()) <= OPEN_SEGMENTS_MAX + 2
    reader.close()
    assert len(disk.open_files()) <= 2


def test_law_damage_a_segment_with_a_damaged_header_is_reported_once_and_the_others_are_read() -> None:
    disk, writer, offsets = filled(4)
    bases = [base for base in map(base_of, disk.list(DIRECTORY)) if base is not None]
    victim = bases[1]
    path = f"{DIRECTORY}/{name_of(victim)}"
    size = disk.size_of(path)
    disk.damage(path, 0, bytes(FIRST_RECORD))
    damage: list[Damage] = []
    reader = LaneReader(disk, DIRECTORY, damage.append)
    for _ in range(2):
        found = [r.offset for r in reader.records(0, writer.durable)]
        assert found == [o for o in offsets if not victim <= o < bases[2]]
    assert [(d.path, d.offset, d.end) for d in damage] == [(path, victim, victim + size)]
    assert disk.exists(path)


def test_the_mark_is_read() -> None:
    disk, writer, offsets = filled()
    fd = disk.open_write(f"{DIRECTORY}/{name_of(0)}")
    disk.write(fd, [bytes([GARBAGE])], offsets[1] + MARK_AT)
    live = [r.live for r in Lane(disk, writer.durable).records]
    assert live == [i != 1 for i in range(len(offsets))]


def test_a_truncated_segment_is_damage_and_no_more() -> None:
    disk, writer, offsets = filled()
    path = f"{DIRECTORY}/{name_of(0)}"
    disk.truncate(path, offsets[2] + 20)
    found = Lane(disk, writer.durable)
    second = base_of(disk.list(DIRECTORY)[[n.endswith(".seg") for n in disk.list(DIRECTORY)].index(True) + 1]) or 0
    assert [r.offset for r in found.records] == offsets[:2] + [o for o in offsets if o > 5000 and o > second]
    assert [d.offset for d in found.damage] == [offsets[2]]


def test_positions_in_between_are_no_records() -> None:
    disk, writer, offsets = filled()
    reader = LaneReader(disk, DIRECTORY, ignore)
    for offset in (0, 1, FIRST_RECORD - 1, offsets[0] + 1, offsets[-1] + 5, 1 << 60):
        assert reader.read(offset, writer.durable) is None


def test_law_damage_the_newest_segment_is_missed_when_its_header_or_its_end_is_gone() -> None:
    for cut in (True, False):
        disk, writer, offsets = filled()
        newest = [base for base in map(base_of, disk.list(DIRECTORY)) if base is not None][-1]
        path = f"{DIRECTORY}/{name_of(newest)}"
        last = [offset for offset in offsets if offset > newest][-1]
        if cut:
            disk.truncate(path, last - newest)
        else:
            disk.damage(path, 0, bytes(FIRST_RECORD))
        found = Lane(disk, writer.durable)
        assert [r.offset for r in found.records] == [o for o in offsets if (o < last if cut else o < newest)]
        assert [(d.path, d.offset, d.end) for d in found.damage] == [(path, last if cut else newest, writer.durable)]


def test_law_damage_a_lane_whose_segments_are_gone_is_missed() -> None:
    disk, writer, _ = filled()
    for name in disk.list(DIRECTORY):
        if base_of(name) is not None:
            disk.unlink(f"{DIRECTORY}/{name}")
    found = Lane(disk, writer.durable)
    assert found.records == []
    assert [(d.path, d.offset, d.end) for d in found.damage] == [(DIRECTORY, 0, writer.durable)]
