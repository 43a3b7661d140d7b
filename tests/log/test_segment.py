"""Segments: their header, and reading over what is damaged (law: damage-set-aside)."""

from __future__ import annotations

import random
import struct
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mailcore.log.record import GARBAGE, HEADER_BYTES, LIVE, MARK_AT, RETAINED, RecordType, frame
from mailcore.log.segment import (
    FIRST_RECORD,
    READ_BYTES,
    VERSION,
    WITHOUT_RETAINED,
    Damage,
    Segment,
    SegmentDamaged,
    SegmentHeader,
    SegmentTooNew,
    base_of,
    name_of,
    retired_base_of,
    retired_name_of,
)
from tests.simulated_disk import SimulatedDisk

BASE = 1 << 20
SALT = 0xFEED_0000_1111_2222
PATH = f"/{name_of(BASE)}"


def build(bodies: list[bytes], salt: int = SALT, base: int = BASE) -> tuple[bytes, list[int]]:
    """A segment's bytes, and the lane offsets of its records."""
    data = bytearray(SegmentHeader(base, base, salt, 1.5).encode())
    offsets = []
    for body in bodies:
        offset = base + len(data)
        offsets.append(offset)
        data += frame(salt, offset, RecordType.DELIVERY, (body,), len(body)) + body
    return bytes(data), offsets


def read(data: bytes, start: int = 0, end: int | None = None) -> tuple[list[tuple[int, bytes]], list[Damage]]:
    disk = SimulatedDisk()
    disk.put(PATH, data)
    segment = Segment(disk, PATH)
    damage: list[Damage] = []
    records = list(segment.records(start, segment.file_end if end is None else end, damage.append))
    segment.close()
    return [(r.offset, r.body) for r in records], damage


class TestHeader:
    def test_it_is_read_back(self) -> None:
        disk = SimulatedDisk()
        disk.put(PATH, SegmentHeader(BASE, 77, SALT, 1.5).encode())
        assert Segment(disk, PATH).header == SegmentHeader(BASE, 77, SALT, 1.5)

    @pytest.mark.parametrize("damaged", [range(52), range(2048, 2100)])
    def test_either_copy_may_be_damaged_anywhere(self, damaged: range) -> None:
        for at in damaged:
            disk = SimulatedDisk()
            disk.put(PATH, build([b"x"])[0])
            disk.damage(PATH, at, bytes([disk.image(PATH)[at] ^ 0x55]))
            assert Segment(disk, PATH).header.salt == SALT

    @pytest.mark.parametrize("keep", [0, 10, 51, 4095])
    def test_a_file_cut_off_or_zeroed_in_its_headers_is_damaged(self, keep: int) -> None:
        disk = SimulatedDisk()
        whole = build([b"x"])[0]
        disk.put(PATH, whole[:keep] if keep < 4095 else bytes(len(whole)))
        with pytest.raises(SegmentDamaged, match=name_of(BASE)):
            Segment(disk, PATH)
        assert disk.open_files() == []

    def test_a_newer_version_is_called_newer(self) -> None:
        disk = SimulatedDisk()
        disk.put(PATH, build([b"x"])[0])
        newer = struct.pack("<H", VERSION + 1)
        disk.damage(PATH, 8, newer)
        assert Segment(disk, PATH).header.salt == SALT  # one copy only: that is damage, and the other is good
        disk.damage(PATH, 2048 + 8, newer)
        with pytest.raises(SegmentTooNew, match=f"version {VERSION + 1}"):
            Segment(disk, PATH)

    def test_a_file_under_another_segments_name_is_not_believed(self) -> None:
        disk = SimulatedDisk()
        disk.put(f"/{name_of(0)}", build([b"x"])[0])
        with pytest.raises(SegmentDamaged, match="renamed"):
            Segment(disk, f"/{name_of(0)}")

    def test_names(self) -> None:
        assert base_of(name_of(2**64 - 1)) == 2**64 - 1
        assert name_of(0) == "00000000000000000000.seg"
        assert [
            base_of(name) for name in ("lock", "1.seg", "00000000000000000000.idx", "0000000000000000000x.seg")
        ] == [None] * 4


class TestDamage:
    BODIES = [bytes([65 + i]) * (20 + 37 * i) for i in range(9)]  # noqa: RUF012

    @pytest.mark.parametrize("victim", range(9))
    @pytest.mark.parametrize("at", [0, 2, 4, 7, 8, 11, 12, 25])
    def test_a_damaged_record_costs_itself_and_no_other(self, victim: int, at: int) -> None:
        data, offsets = build(self.BODIES)
        bad = bytearray(data)
        bad[offsets[victim] - BASE + at] ^= 0x11
        records, damage = read(bytes(bad))
        assert records == [(o, b) for o, b in zip(offsets, self.BODIES, strict=True) if o != offsets[victim]]
        ends = [*offsets[1:], BASE + len(data)]
        assert [(d.path, d.offset, d.end) for d in damage] == [(PATH, offsets[victim], ends[victim])]

    @pytest.mark.parametrize("length", [0, 1, 0x7FFF_FFFF, 0xFFFF_FFFF, 15 << 20, 116 + 128])
    def test_a_damaged_length_does_not_lead_past_the_records_behind_it(self, length: int) -> None:
        bodies = [bytes([65 + i]) * 116 for i in range(6)]  # 128 with the header: the last length skips exactly one
        data, offsets = build(bodies)
        bad = bytearray(data)
        struct.pack_into("<I", bad, offsets[1] - BASE + 4, length)
        records, damage = read(bytes(bad))
        assert [body[:1] for _, body in records] == [b"A", b"C", b"D", b"E", b"F"]
        assert [(d.offset, d.end) for d in damage] == [(offsets[1], offsets[2])]

    @pytest.mark.parametrize("size", [1, 13, 600, 5000])
    def test_a_run_of_zeros_is_stepped_over(self, size: int) -> None:
        bodies = [bytes([65 + i]) * 400 for i in range(20)]
        data, offsets = build(bodies)
        at = offsets[3] - BASE + 5
        bad = data[:at] + bytes(size) + data[at + size :]
        records, damage = read(bad)
        hit = [o for o, b in zip(offsets, bodies, strict=True) if o < BASE + at + size and o + 12 + len(b) > BASE + at]
        assert [o for o, _ in records] == [o for o in offsets if o not in hit]
        assert len(damage) == 1

    def test_damage_is_reported_and_left_where_it_is(self) -> None:
        data, offsets = build(self.BODIES)
        disk = SimulatedDisk()
        disk.put(PATH, data)
        disk.damage(PATH, offsets[4] - BASE + 12, b"\xff")
        before, calls = disk.image(PATH), disk.changes
        segment = Segment(disk, PATH)
        list(segment.records(0, segment.file_end))
        assert (disk.image(PATH), disk.changes) == (before, calls)

    def test_another_segments_records_inside_a_body_are_not_believed(self) -> None:
        """Somebody mails a segment; then the record around it is damaged."""
        for salt in (SALT ^ 0x10000, SALT):  # with the same magic; and even with the same salt, but at other offsets
            other, _ = build([b"forged"] * 50, salt=salt, base=BASE)
            data, offsets = build([b"first", other, b"last"])
            bad = bytearray(data)
            bad[offsets[1] - BASE + 8] ^= 1
            records, damage = read(bytes(bad))
            assert [body for _, body in records] == [b"first", b"last"]
            assert len(damage) == 1

    def test_a_torn_tail_is_no_record_at_any_length(self) -> None:
        bodies = [b"first", b"second" * 20]
        data, offsets = build(bodies)
        for cut in range(offsets[1] - BASE, len(data)):
            records, damage = read(data[:cut])
            assert records == [(offsets[0], b"first")]
            assert len(damage) == (cut > offsets[1] - BASE)
            disk = SimulatedDisk()
            disk.put(PATH, data[:cut])
            assert Segment(disk, PATH).end_of_records() == offsets[1]

    def test_a_record_that_reaches_beyond_the_believed_end_is_not_read(self) -> None:
        data, offsets = build([b"first", b"second"])
        assert read(data, end=offsets[1] + 14)[0] == [(offsets[0], b"first")]

    def test_records_across_reads_and_longer_than_one(self) -> None:
        rng = random.Random(1)
        bodies = [rng.randbytes(size) for size in (READ_BYTES - 3, 5, READ_BYTES * 2 + 11, 1, 70_000, READ_BYTES)] * 2
        data, offsets = build(bodies)
        assert read(data) == (list(zip(offsets, bodies, strict=True)), [])
        bad = bytearray(data)
        bad[offsets[2] - BASE + 300_000] ^= 1
        records, damage = read(bytes(bad))
        assert [o for o, _ in records] == [o for o in offsets if o != offsets[2]]
        assert len(damage) == 1

    def test_a_block_the_disk_cannot_read_costs_the_records_in_it(self) -> None:
        bodies = [bytes([65 + i % 26]) * 1000 for i in range(40)]
        data, offsets = build(bodies)
        disk = SimulatedDisk()
        disk.put(PATH, data)
        disk.break_blocks(PATH, 16384, 20480)
        segment = Segment(disk, PATH)
        damage: list[Damage] = []
        found = [r.offset for r in segment.records(0, segment.file_end, damage.append)]
        in_it = [o for o in offsets if o - BASE < 20480 and o - BASE + HEADER_BYTES + 1000 > 16384]
        assert found == [o for o in offsets if o not in in_it]
        assert len(damage) == 1
        assert segment.read(in_it[1]) is None
        assert segment.read(offsets[-1]) is not None

    @settings(max_examples=150, deadline=None)
    @given(
        sizes=st.lists(st.integers(1, 900), min_size=1, max_size=25),
        holes=st.lists(st.tuples(st.floats(0, 1), st.integers(1, 700), st.integers(0, 2)), max_size=5),
        cut=st.integers(0, 400),
        seed=st.integers(0, 2**32),
    )
    def test_whatever_is_damaged_the_rest_is_read_and_the_damage_reported(
        self, sizes: list[int], holes: list[tuple[float, int, int]], cut: int, seed: int
    ) -> None:
        rng = random.Random(seed)
        bodies = [rng.randbytes(size) for size in sizes]
        data, offsets = build(bodies)
        bad = bytearray(data)
        for where, size, kind in holes:
            at = FIRST_RECORD + int(where * (len(data) - FIRST_RECORD - 1))
            length = min(size, len(data) - at)
            bad[at : at + length] = (bytes(length), rng.randbytes(length), b"\xff" * length)[kind]
        bad = bad[: max(FIRST_RECORD, len(bad) - cut)]
        records, damage = read(bytes(bad))
        whole = []
        for offset, body in zip(offsets, bodies, strict=True):
            at = offset - BASE
            span = slice(at, at + HEADER_BYTES + len(body))
            differs = [i for i in range(*span.indices(len(data))) if i >= len(bad) or bad[i] != data[i]]
            if not [i for i in differs if i != at + 3]:
                whole.append((offset, body))
        assert records == whole
        # Records and damage tile the segment: nothing is passed over in silence.
        spans = sorted([(o, o + HEADER_BYTES + len(b)) for o, b in records] + [(d.offset, d.end) for d in damage])
        at = BASE + FIRST_RECORD
        for start, end in spans:
            assert start == at
            at = end
        assert at == BASE + len(bad)


class TestRetained:
    """The mark R: the envelope is over, its data is not."""

    def test_what_is_retained_is_not_live(self) -> None:
        disk = SimulatedDisk()
        data, offsets = build([b"a", b"b", b"c"])
        disk.put(PATH, data)
        for offset, mark in zip(offsets, (LIVE, RETAINED, GARBAGE), strict=True):
            disk.damage(PATH, offset - BASE + MARK_AT, bytes([mark]))
        segment = Segment(disk, PATH)
        read_ones = [segment.read(offset) for offset in offsets]
        assert [(record.live, record.mark) for record in read_ones if record is not None] == [
            (True, LIVE),
            (False, RETAINED),
            (False, GARBAGE),
        ]
        assert [record.live for record in segment.records(0, segment.file_end)] == [True, False, False]

    @pytest.mark.parametrize("version", [WITHOUT_RETAINED, VERSION])
    def test_segments_of_both_versions_are_read(self, version: int) -> None:
        disk = SimulatedDisk()
        disk.put(PATH, replace(SegmentHeader(BASE, BASE, SALT, 1.0), version=version).encode())
        assert Segment(disk, PATH).header.version == version

    def test_an_older_release_refuses_the_second_version(self, monkeypatch: pytest.MonkeyPatch) -> None:
        disk = SimulatedDisk()
        disk.put(PATH, replace(SegmentHeader(BASE, BASE, SALT, 1.0), version=VERSION).encode())
        monkeypatch.setattr("mailcore.log.segment.VERSION", WITHOUT_RETAINED)
        with pytest.raises(SegmentTooNew, match=f"version {VERSION}"):
            Segment(disk, PATH)

    def test_a_retired_segment_has_another_name_and_the_same_base(self) -> None:
        disk = SimulatedDisk()
        path = f"/{retired_name_of(BASE)}"
        disk.put(path, build([b"x"])[0])
        assert Segment(disk, path).base == BASE
        assert retired_base_of(retired_name_of(BASE)) == BASE
        assert base_of(retired_name_of(BASE)) is None
        assert [retired_base_of(name) for name in (name_of(BASE), "1.data", "lock")] == [None] * 3
        disk.put(f"/{retired_name_of(0)}", build([b"x"])[0])
        with pytest.raises(SegmentDamaged, match="renamed"):
            Segment(disk, f"/{retired_name_of(0)}")
