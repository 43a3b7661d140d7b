"""What a segment still holds is read from it, and damage counts as needed."""

from __future__ import annotations

import pytest

from mailcore.log.record import GARBAGE, MARK_AT, RETAINED, RecordType
from mailcore.log.segment import FIRST_RECORD, Segment, name_of
from mailcore.queue.bodies import LOOK_S, Bodies
from mailcore.queue.records import append_envelope
from mailcore.queue.retiring import Look, living_data
from tests.log.lanes import DIRECTORY, open_writer
from tests.queue.test_records import envelope
from tests.simulated_disk import SimulatedDisk

PATH = f"{DIRECTORY}/{name_of(0)}"


def segment_of(*sizes: int) -> tuple[SimulatedDisk, list[int], int]:
    """A segment of envelopes with so much data each; their offsets, and the end."""
    disk = SimulatedDisk()
    writer = open_writer(disk)
    offsets = [append_envelope(writer, envelope(b"x" * size), b"x" * size) for size in sizes]
    writer.append(RecordType.RECIPIENTS, b"y" * 5000)
    writer.append(RecordType.REFUSED, b"z")
    end = writer.end
    writer.sync()
    writer.close()
    return disk, offsets, end


def mark(disk: SimulatedDisk, offset: int, value: int) -> None:
    disk.damage(PATH, offset + MARK_AT, bytes([value]))


def needed(disk: SimulatedDisk, end: int) -> int:
    segment = Segment(disk, PATH)
    found, size = living_data(segment, end)
    segment.close()
    assert size == end - FIRST_RECORD
    return found


@pytest.mark.parametrize("size", [1, 100, 4000, 5000, 300_000])
def test_data_is_needed_until_its_record_is_garbage(size: int) -> None:
    disk, offsets, end = segment_of(size, size, 0, size)
    everything = needed(disk, end)
    assert everything > 3 * size
    for offset in offsets:
        mark(disk, offset, RETAINED)
    assert needed(disk, end) == everything
    for offset in offsets[:2]:
        mark(disk, offset, GARBAGE)
    assert size < needed(disk, end) < 2 * size + 1000
    mark(disk, offsets[3], GARBAGE)
    assert needed(disk, end) == 0, "an envelope without data, and records of other types, keep nothing"


def test_only_the_headers_are_read() -> None:
    disk, _, end = segment_of(*[200_000] * 20)
    disk.calls.clear()
    needed(disk, end)
    assert disk.calls["read"] < 30


@pytest.mark.parametrize("at", [0, 4, 7])
def test_behind_a_damaged_header_everything_is_needed(at: int) -> None:
    disk, offsets, end = segment_of(100, 100, 100)
    for offset in offsets:
        mark(disk, offset, GARBAGE)
    disk.damage(PATH, offsets[1] + at, b"\xff")
    assert needed(disk, end) >= end - offsets[2] - 300  # a wrong length leads into the next record


def retired() -> tuple[Bodies, Look]:
    disk, _, _ = segment_of(100, 3000)
    disk.replace(PATH, PATH.replace(".seg", ".data"))
    bodies = Bodies(disk, "/queue")
    bodies.find()
    look = bodies.look(0.0, older=5)
    assert look is not None
    return bodies, look


def test_a_hint_tells_where_to_look_and_never_what_to_delete() -> None:
    bodies, look = retired()
    assert bodies.looked(look.run(), older=5) == []
    assert bodies.look(1.0, older=5) is None
    bodies.will_mark("lane", 0, 7)
    bodies.marked("lane", 0, 1 << 30)
    assert bodies.look(1.0, older=6) is None, "an older restart position may need it"
    again = bodies.look(1.0, older=7)
    assert again is not None
    assert bodies.looked(again.run(), older=7) == []
    assert bodies.look(2.0, older=7) is None
    assert bodies.look(LOOK_S, older=7) is not None


def test_after_a_start_nothing_is_deleted_before_two_restart_positions() -> None:
    bodies, look = retired()
    bodies.first_sequence = 9
    look.found["lane", 0] = (0, 3000)
    assert bodies.looked(look, older=8) == []
    assert bodies.looked(look, older=9) == [("lane", 0, "/queue/lane/00000000000000000000.data")]


def test_little_of_a_segment_is_needed_as_passes_end() -> None:
    bodies = Bodies(SimulatedDisk(), "/queue")
    path = "/queue/lane/00000000000000000000.seg"
    assert bodies.needed_share(path, 100) == 1.0
    for _ in range(99):
        bodies.note_pass(path, 100, is_first=True, stays=False)
    assert bodies.needed_share(path, 100) == 0.01
    for _ in range(99):
        bodies.note_pass(path, 100, is_first=True, stays=True)
    assert bodies.needed_share(path, 100) > 0.5
    for _ in range(99):
        bodies.note_pass(path, 100, is_first=False, stays=False)
    assert bodies.needed_share(path, 100) < 0.01
    bodies.retire("lane", 0)
    assert bodies.needed_share(path, 100) == 1.0
    assert bodies.needed_share(path.replace(".seg", ".data"), 100) == 1.0, "nothing is known of it"


def test_on_a_full_disk_one_segment_is_emptied_at_a_time() -> None:
    bodies, look = retired()
    for base, needed_bytes in ((0, 300), (10_000, 200), (20_000, 9000)):
        bodies.retire("lane", base)
        look.found["lane", base] = (needed_bytes, 10_000)
        look.wanted.append(("lane", base, f"/queue/lane/{base:020}.data"))
    bodies.looked(look, older=5)
    needed = [bodies.needed_in_emptiest(f"/queue/lane/{base:020}.data") for base in (0, 10_000, 20_000)]
    assert needed == [None, 200, None]
    assert bodies.needed_in_emptiest("/queue/lane/00000000000000010000.seg") is None
    bodies.marked("lane", 10_000, 200)
    assert bodies.needed_in_emptiest(f"/queue/lane/{10_000:020}.data") is None, "nothing is left to be carried"
    assert bodies.needed_in_emptiest(f"/queue/lane/{0:020}.data") == 300


def test_of_a_segment_that_was_just_retired_it_is_known_what_is_needed() -> None:
    """A disk may be full before the next look."""
    bodies, _ = retired()
    found = {("lane", 0): (300, 10_000), ("lane", 70_000): (1, 10_000)}
    bodies.hints(found)
    assert bodies.needed_in_emptiest(f"/queue/lane/{0:020}.data") == 300, "one that was deleted meanwhile has no hint"
