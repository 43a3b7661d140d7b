"""A look reads a retired segment again only after the segment has changed, and reads a limited number in one call."""

from __future__ import annotations

from pathlib import Path

from mailcore.log.disk import Disk
from mailcore.log.segment import retired_name_of
from mailcore.lookup.answers import Retired
from mailcore.lookup.retired import RetiredLook
from tests.lookup.retired_lane import mark_garbage, retired_lane

NONE = Retired(segments=0, bytes=0, needed_bytes=0, unneeded_since=0.0, oldest_at=0.0)


class ReadingDisk(Disk):
    def __init__(self) -> None:
        super().__init__()
        self.reads = 0

    def read(self, fd: int, length: int, offset: int) -> bytes:
        self.reads += 1
        return super().read(fd, length, offset)


def test_it_is_read_once_until_a_mark_is_written(tmp_path: Path) -> None:
    offsets = retired_lane(tmp_path, "incoming.0", 3, 8000)
    disk = ReadingDisk()
    look = RetiredLook(disk, str(tmp_path))
    assert look.lanes() == ["incoming.0"]
    first = look.of("incoming.0")
    assert (first.segments, first.oldest_at, first.unneeded_since) == (1, 1_000_000_000.0, 0.0)
    read = disk.reads
    look.begin()
    assert look.of("incoming.0") == first
    assert disk.reads - read < 3, "the header only, for the time at which it was begun"
    for offset in offsets:
        mark_garbage(tmp_path, "incoming.0", offset)
    look.begin()
    after = look.of("incoming.0")
    assert (after.needed_bytes, after.unneeded_since > 0) == (0, True)
    (tmp_path / "incoming.0" / retired_name_of(0)).unlink()
    look.begin()
    assert look.of("incoming.0") == NONE


def test_what_was_not_read_yet_is_not_known(tmp_path: Path) -> None:
    retired_lane(tmp_path, "incoming.0", 2, 8000)
    retired_lane(tmp_path, "incoming.1", 2, 8000)
    look = RetiredLook(Disk(), str(tmp_path), read_max=1)
    known = [look.of(lane).needed_bytes is not None for lane in ("incoming.0", "incoming.1")]
    assert known == [True, False]
    look.begin()
    known = [look.of(lane).needed_bytes is not None for lane in ("incoming.0", "incoming.1")]
    assert known == [True, True]
