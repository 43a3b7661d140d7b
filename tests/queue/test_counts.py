"""What arrived while nobody counted is counted by the indexes, and comes to the same as reading every record."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mailcore.envelope import DataPlace
from mailcore.log.disk import Disk
from mailcore.log.lane import LaneWriter
from mailcore.log.reader import LaneReader
from mailcore.log.record import RecordType
from mailcore.log.segment import Damage
from mailcore.queue.arrivals import count_arrivals
from mailcore.queue.records import Refused, append_envelope, encode
from tests.lookup.sample_messages import NOW, envelope

STRIDE = 4096  # bytes an index block covers here


class CountingDisk(Disk):
    def __init__(self) -> None:
        super().__init__()
        self.bytes_read = 0

    def read(self, fd: int, length: int, offset: int) -> bytes:
        data = super().read(fd, length, offset)
        self.bytes_read += len(data)
        return data


@pytest.fixture
def lane(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, list[tuple[int, int, int]]]:
    """A receiver's lane of several segments; (offset, following offset, recipients) of each envelope."""
    monkeypatch.setattr("mailcore.log.lane.INDEX_STRIDE", STRIDE)
    directory = str(tmp_path / "incoming.0")
    writer = LaneWriter(Disk(), directory, segment_bytes=64 << 10, clock=lambda: NOW, salt=lambda: 42)
    written = []
    for number in range(400):
        to = [f"r{n}@example.org" for n in range(1 + number % 5)]
        data = bytes(number % 900 + 1)
        message = envelope(to, data=DataPlace.INLINE, size_bytes=len(data))
        written.append((append_envelope(writer, message, data), writer.end, len(to)))
        if number % 7 == 0:
            refused = Refused(NOW, "RCPT", "550 no", "192.0.2.1", "client", "a@example.org", "b@example.org")
            writer.append(RecordType.REFUSED, encode(refused))
        if number % 20 == 0:
            writer.sync()
    writer.sync()
    writer.close()
    return directory, written


def reader(disk: Disk, directory: str) -> LaneReader:
    def no_damage(damage: Damage) -> None:
        raise AssertionError(damage)

    return LaneReader(disk, directory, no_damage)


def expected(written: list[tuple[int, int, int]], start: int, end: int) -> tuple[int, int]:
    counted = [recipients for offset, _, recipients in written if start <= offset < end]
    return len(counted), sum(counted)


@pytest.mark.parametrize(("first", "last"), [(0, 399), (1, 2), (57, 311), (399, 399), (120, 121)])
def test_any_stretch_is_counted_as_it_was_written(
    lane: tuple[str, list[tuple[int, int, int]]], first: int, last: int
) -> None:
    directory, written = lane
    start, end = written[first][0], written[last][1]
    counted = count_arrivals(reader(Disk(), directory), start, end)
    assert counted == expected(written, start, end)
    assert counted[0] == last - first + 1


def test_without_an_index_the_records_are_counted(lane: tuple[str, list[tuple[int, int, int]]]) -> None:
    directory, written = lane
    for path in sorted(Path(directory).glob("*.idx"))[1:]:
        path.unlink()
    end = written[-1][1]
    assert count_arrivals(reader(Disk(), directory), 0, end) == expected(written, 0, end)


def test_an_index_cut_off_or_damaged_is_made_up_for(lane: tuple[str, list[tuple[int, int, int]]]) -> None:
    directory, written = lane
    first, second = sorted(Path(directory).glob("*.idx"))[:2]
    os.truncate(first, 100)
    damaged = bytearray(second.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    second.write_bytes(damaged)
    end = written[-1][1]
    assert count_arrivals(reader(Disk(), directory), 0, end) == expected(written, 0, end)


def test_what_the_index_covers_is_not_read(lane: tuple[str, list[tuple[int, int, int]]]) -> None:
    directory, written = lane
    disk = CountingDisk()
    end = written[-1][1]
    count_arrivals(reader(disk, directory), 0, end)
    indexes = sum(path.stat().st_size for path in Path(directory).glob("*.idx"))
    assert disk.bytes_read < indexes + 2 * STRIDE + 5 * 4096
    assert disk.bytes_read < end / 4


def test_nothing_is_counted_in_a_lane_that_is_not_there(tmp_path: Path) -> None:
    assert count_arrivals(reader(Disk(), str(tmp_path / "incoming.9")), 0, 1000) == (0, 0)
