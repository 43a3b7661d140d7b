"""An envelope is believed although its message data is damaged, and only then (law: damaged-data-keeps-its-envelope)."""

from __future__ import annotations

import random

import google_crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailcore.envelope import DataPlace, Envelope, Recipient
from mailcore.log.damaged_data import DATA_SUMS_FIELD, combine
from mailcore.log.data_blocks import BLOCK_BYTES, sums_of
from mailcore.log.lane import LaneWriter
from mailcore.log.record import Record
from mailcore.log.segment import Damage, Segment
from mailcore.queue.records import append_envelope, decode_envelope, inline_data_at
from tests.log.lanes import DIRECTORY, Lane, open_writer
from tests.simulated_disk import SimulatedDisk


def message(queue_id: str, data: bytes, *, sums: bytes | None = None) -> Envelope:
    return Envelope(
        queue_id=queue_id,
        generation=0,
        sender="s@example.net",
        recipients=tuple(Recipient(number, f"r{number}@example.org") for number in range(3)),
        recipient_count=3,
        arrived_at=1.0,
        due_at=1.0,
        size_bytes=len(data),
        data=DataPlace.INLINE,
        data_sums=sums_of(data) if sums is None else sums,
    )


def lane_of(*messages: tuple[str, bytes]) -> tuple[SimulatedDisk, LaneWriter, list[int]]:
    disk = SimulatedDisk()
    writer = open_writer(disk)
    offsets = [append_envelope(writer, message(queue_id, data), data) for queue_id, data in messages]
    writer.sync()
    return disk, writer, offsets


def path_of(disk: SimulatedDisk) -> str:
    (name,) = [name for name in disk.list(DIRECTORY) if name.endswith(".seg")]
    return f"{DIRECTORY}/{name}"


def flip(disk: SimulatedDisk, at: int, by: int = 1) -> None:
    path = path_of(disk)
    disk.damage(path, at, bytes([disk.image(path)[at] ^ by]))


def found(disk: SimulatedDisk, durable: int) -> tuple[list[str], list[Damage], list[Record]]:
    lane = Lane(disk, durable)
    return [decode_envelope(record.body).queue_id for record in lane.records], lane.damage, lane.records


def test_the_field_of_the_checksums_is_where_the_log_looks_for_it() -> None:
    assert Envelope.__struct_fields__[DATA_SUMS_FIELD] == "data_sums"


@given(st.binary(max_size=200), st.binary(max_size=5000))
def test_a_checksum_of_two_texts_follows_from_theirs(first: bytes, second: bytes) -> None:
    whole = google_crc32c.value(first + second)
    assert combine(google_crc32c.value(first), google_crc32c.value(second), len(second)) == whole


@pytest.mark.parametrize("size", [1, 700, BLOCK_BYTES, BLOCK_BYTES + 1, 3 * BLOCK_BYTES - 7])
def test_a_message_whose_data_is_damaged_anywhere_is_there(size: int) -> None:
    rng = random.Random(size)
    data = rng.randbytes(size)
    for at in {0, size - 1, rng.randrange(size)}:
        disk, writer, (_, offset, _) = lane_of(("A", b"a"), ("B", data), ("C", b"c"))
        start = inline_data_at(offset, Lane(disk, writer.end).records[1].body)
        flip(disk, start + at, 1 << rng.randrange(8))
        queue_ids, damage, records = found(disk, writer.end)
        assert (queue_ids, damage) == (["A", "B", "C"], [])
        assert decode_envelope(records[1].body) == message("B", data)
        segment = Segment(disk, path_of(disk))
        assert segment.read(offset) == records[1]
        segment.close()


def test_a_record_that_is_damaged_anywhere_else_is_none() -> None:
    disk, writer, (_, offset, following) = lane_of(("A", b"a"), ("B", b"data"), ("C", b"c"))
    for at in range(offset, following - len(b"data")):
        if at == offset + 3:
            continue  # the mark
        for with_data in (False, True):
            disk, writer, _ = lane_of(("A", b"a"), ("B", b"data"), ("C", b"c"))
            flip(disk, at)
            if with_data:
                flip(disk, following - 1)
            queue_ids, damage, _ = found(disk, writer.end)
            assert queue_ids == ["A", "C"], at - offset
            assert damage


def test_data_without_checksums_is_believed_with_its_record_only() -> None:
    """As mail of an older version has it."""
    disk = SimulatedDisk()
    writer = open_writer(disk)
    append_envelope(writer, message("A", b"data", sums=b""), b"data")
    end = writer.end
    writer.sync()
    flip(disk, end - 1)
    assert found(disk, end)[0] == []


def test_a_record_whose_data_is_damaged_at_the_end_of_a_lane_is_there() -> None:
    """A writer that starts must not cut it off. If a crash has kept its envelope alone, one message too many is held."""
    disk, writer, _ = lane_of(("A", b"a"), ("B", b"x" * 9000))
    writer.close()
    path = path_of(disk)
    size = len(disk.image(path))
    disk.damage(path, size - 4096, bytes(4096))  # blocks of the data that never reached the disk
    again = open_writer(disk)
    append_envelope(again, message("C", b"c"), b"c")
    again.sync()
    assert found(disk, again.end)[0] == ["A", "B", "C"]
