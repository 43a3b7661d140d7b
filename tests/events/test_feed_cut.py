"""What a later start has cut off a lane is no part that is missing: the webhooks would stand still for it."""

from __future__ import annotations

from mailcore.events.feed.live import Deleted, live_rows
from mailcore.log.reader import LaneReader
from mailcore.log.record import RecordType
from tests.log.lanes import DIRECTORY, open_writer
from tests.simulated_disk import SimulatedDisk

WITHOUT_END = 1 << 60


def deleted(disk: SimulatedDisk, start: int, to: int) -> list[Deleted]:
    reader = LaneReader(disk, DIRECTORY, lambda damage: None)
    try:
        found = live_rows(reader, start, to, WITHOUT_END, lambda words: None, lambda gone: iter(()))
        return [each for each in found if isinstance(each, Deleted)]
    finally:
        reader.close()


def test_what_a_start_cut_off_behind_an_earlier_segment_is_not_missing() -> None:
    """A manager wrote a record and began the next segment, and was killed before its restart positions covered that."""
    disk = SimulatedDisk()
    writer = open_writer(disk, segment_bytes=8_000)
    writer.append(RecordType.ENVELOPE, b"covered" * 200)
    writer.sync()
    end = writer.end
    writer.append(RecordType.ENVELOPE, b"not covered" * 300)
    writer.append(RecordType.ENVELOPE, b"in the next segment" * 300)
    writer.sync()
    beyond = writer.end
    disk = disk.kill()
    writer = open_writer(disk, segment_bytes=8_000, floor=beyond, end_at=end)
    writer.append(RecordType.ENVELOPE, b"after the start" * 10)
    writer.sync()
    assert len(disk.list(DIRECTORY)) >= 3
    assert deleted(disk, end, writer.end) == []


def test_a_segment_that_is_gone_between_two_is_missing() -> None:
    disk = SimulatedDisk()
    writer = open_writer(disk, segment_bytes=8_000)
    for _ in range(3):
        writer.append(RecordType.ENVELOPE, b"a record" * 800)
        writer.sync()
    names = sorted(name for name in disk.list(DIRECTORY) if name.endswith(".seg"))
    assert len(names) == 3
    disk.unlink(f"{DIRECTORY}/{names[1]}")
    (gone,) = deleted(disk, 0, writer.end)
    assert gone.end == int(names[2].partition(".")[0])
