"""A record is wholly there or not at all, and only where it was written."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailcore.log.record import GARBAGE, HEADER_BYTES, LENGTH_MAX, LIVE, MARK_AT, RETAINED, RecordType, frame
from mailcore.log.segment import FIRST_RECORD, Segment, SegmentHeader, name_of
from tests.simulated_disk import SimulatedDisk

SALT = 0x1234_5678_9ABC_DEF0
OFFSET = FIRST_RECORD


def record(body: bytes, offset: int = OFFSET, salt: int = SALT, type_: int = RecordType.DELIVERY) -> bytes:
    return frame(salt, offset, type_, (body,), len(body)) + body


def segment_with(data: bytes, base: int = 0) -> Segment:
    disk = SimulatedDisk()
    path = f"/{name_of(base)}"
    disk.put(path, SegmentHeader(base, base, SALT, 0.0).encode() + data)
    return Segment(disk, path)


def test_a_record_is_read_back() -> None:
    read = segment_with(record(b"body")).read(OFFSET)
    assert read is not None
    assert (read.offset, read.type, read.live, read.body, read.end) == (
        OFFSET,
        RecordType.DELIVERY,
        True,
        b"body",
        OFFSET + HEADER_BYTES + 4,
    )


def test_any_flipped_bit_but_those_of_the_mark_makes_it_no_record() -> None:
    good = record(b"A body of some length.\r\n")
    for bit in range(len(good) * 8):
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        segment = segment_with(bytes(bad))
        if bit // 8 == MARK_AT:
            assert segment.read(OFFSET) is not None
            continue
        assert segment.read(OFFSET) is None, f"bit {bit}"
        assert list(segment.records(OFFSET, segment.file_end)) == [], f"bit {bit}"


def test_only_a_whole_mark_hides_an_envelope() -> None:
    for mark in range(256):
        marked = bytearray(record(b"body"))
        marked[MARK_AT] = mark
        read = segment_with(bytes(marked)).read(OFFSET)
        assert read is not None
        assert read.live == (mark not in (GARBAGE, RETAINED))
        segment = segment_with(bytes(marked))
        assert [r.live for r in segment.records(OFFSET, segment.file_end)] == [mark not in (GARBAGE, RETAINED)]
    for one, other in itertools.combinations((LIVE, RETAINED, GARBAGE), 2):
        assert bin(one ^ other).count("1") > 1  # a single flipped bit makes no other mark


@given(body=st.binary(min_size=1, max_size=600), other=st.integers(0, 2**64 - 1), moved=st.integers(1, 3000))
def test_a_record_is_none_under_another_salt_or_at_another_place(body: bytes, other: int, moved: int) -> None:
    if other != SALT:
        assert segment_with(record(body, salt=other)).read(OFFSET) is None
    segment = segment_with(bytes(moved) + record(body))
    assert segment.read(OFFSET + moved) is None
    assert list(segment.records(OFFSET, segment.file_end)) == []
    assert segment_with(record(body), base=1 << 20).read((1 << 20) + OFFSET) is None


@given(
    body=st.binary(min_size=1, max_size=300),
    changes=st.lists(st.tuples(st.integers(0, 311), st.integers(1, 255)), min_size=1, max_size=8),
)
def test_damage_of_any_kind_is_detected(body: bytes, changes: list[tuple[int, int]]) -> None:
    good = record(body)
    bad = bytearray(good)
    for at, flip in changes:
        if at < len(bad) and at != MARK_AT:
            bad[at] ^= flip
    read = segment_with(bytes(bad)).read(OFFSET)
    assert (read is not None) == (bytes(bad) == good)


@pytest.mark.parametrize("length", [0, LENGTH_MAX + 1])
def test_empty_and_endless_bodies_are_refused(length: int) -> None:
    with pytest.raises(ValueError, match="bytes"):
        frame(SALT, OFFSET, RecordType.START, (), length)


@pytest.mark.parametrize("size", [1, 7, 8, 12, 512, 100_000])
def test_zeros_are_never_a_record(size: int) -> None:
    segment = segment_with(bytes(size))
    assert list(segment.records(OFFSET, segment.file_end)) == []


def test_zeros_are_passed_over_quickly_under_any_salt() -> None:
    """A salt whose low bits are zero would make every zero byte look like the beginning of a record."""
    assert frame(0, OFFSET, RecordType.START, (b"x",), 1)[:1] != b"\0"
