"""The index hides no message and invents none, whatever state it is in: a search equals a scan."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mailcore.log.index import IndexEntry, decode_blocks, encode_block, entries_of, index_path, queue_id_in
from mailcore.log.lane import INDEX_STRIDE, LaneWriter
from mailcore.log.reader import LaneReader
from mailcore.log.record import RecordType
from mailcore.log.segment import base_of
from mailcore.queue.queue_id import QueueIds
from tests.log.lanes import DIRECTORY, append_envelope, envelope_body, open_writer
from tests.simulated_disk import RandomChoice, SimulatedDisk

SEGMENT_BYTES = 3 * INDEX_STRIDE
BIG = b"d" * 20_000


def fill(disk: SimulatedDisk, count: int = 300, lives: int = 2) -> tuple[LaneWriter, list[tuple[str, int]]]:
    ids = QueueIds(0, lambda: 1_700_000_000.0)
    placed = []
    for life in range(lives):
        writer = open_writer(disk, segment_bytes=SEGMENT_BYTES)
        for i in range(count):
            queue_id = ids.next()
            placed.append((queue_id, append_envelope(writer, queue_id, BIG)))
            if i % 7 == 0:  # a second generation, or a bounce about it, or a mail that only speaks of it
                placed.append((queue_id, append_envelope(writer, queue_id, BIG)))
                bounce = queue_id + "B0"  # longer by a little: ids are compared whole
                placed.append((bounce, append_envelope(writer, bounce, BIG)))
                append_envelope(writer, ids.next(), b"about " + queue_id.encode())
                writer.append(RecordType.REFUSED, envelope_body(queue_id))
            if i % 20 == 0:
                writer.sync()
        writer.sync()
        if life + 1 < lives:
            writer.close()
    return writer, placed


def by_scan(disk: SimulatedDisk, queue_id: str, durable: int) -> set[int]:
    reader = LaneReader(disk, DIRECTORY, lambda damage: None)
    return {
        r.offset
        for r in reader.records(0, durable)
        if r.type == RecordType.ENVELOPE and queue_id_in(r.body) == queue_id.encode()
    }


def by_search(disk: SimulatedDisk, queue_id: str, durable: int) -> list[int]:
    reader = LaneReader(disk, DIRECTORY, lambda damage: None)
    found = sorted(r.offset for r in reader.find(queue_id, 0, durable))
    assert found == sorted(r.offset for r in reader.find_all([queue_id], 0, durable))
    return found


@pytest.fixture(scope="module")
def full() -> tuple[SimulatedDisk, int, list[tuple[str, int]]]:
    disk = SimulatedDisk()
    writer, placed = fill(disk)
    assert len([n for n in disk.list(DIRECTORY) if n.endswith(".idx")]) >= 4
    return disk, writer.durable, placed


Full = tuple[SimulatedDisk, int, list[tuple[str, int]]]


def check(disk: SimulatedDisk, durable: int, placed: list[tuple[str, int]], sample: int = 25) -> None:
    for queue_id, offset in random.Random(5).sample(placed, sample):
        found = by_search(disk, queue_id, durable)
        assert set(found) == by_scan(disk, queue_id, durable)
        assert len(found) == len(set(found))
        assert offset in found
    assert by_search(disk, "0GZZZZZZZZZ00", durable) == []
    assert by_search(disk, "", durable) == []
    assert by_search(disk, "\0" * 20, durable) == []
    assert by_search(disk, placed[0][0][:-1], durable) == []


def test_a_search_equals_a_scan(full: Full) -> None:
    check(*full)


def test_a_search_reads_little(full: Full) -> None:
    disk, durable, placed = full
    reader = LaneReader(disk, DIRECTORY, lambda damage: None)
    before = disk.calls["read"]
    list(reader.find(placed[3][0], 0, durable))
    # Each segment: its header, its index, one record, and the stretch that no block covers.
    assert disk.calls["read"] - before < 20 * len(reader.bases)


@pytest.mark.parametrize("spoil", ["missing", "empty", "cut", "zeros", "noise", "flipped", "foreign", "unreadable"])
def test_a_missing_torn_or_foreign_index_hides_and_invents_nothing(full: Full, spoil: str) -> None:
    disk, durable, placed = full
    disk = disk.kill()
    names = [n for n in disk.list(DIRECTORY) if n.endswith(".idx")]
    rng = random.Random(spoil)
    images = {name: disk.image(f"{DIRECTORY}/{name}") for name in names}
    for i, name in enumerate(names):
        path, size = f"{DIRECTORY}/{name}", len(images[name])
        if spoil == "missing":
            disk.unlink(path)
        elif spoil == "empty":
            disk.put(path, b"")
        elif spoil == "cut":
            disk.put(path, images[name][: rng.randrange(size)])
        elif spoil == "zeros":
            disk.damage(path, size // 3, bytes(size // 2))
        elif spoil == "noise":
            disk.put(path, rng.randbytes(size))
        elif spoil == "flipped":
            for _ in range(5):
                disk.damage(path, at := rng.randrange(size), bytes([images[name][at] ^ 8]))
        elif spoil == "foreign":
            disk.put(path, images[names[i - 1]])
        elif spoil == "unreadable":
            disk.break_blocks(path, 0, size)
    check(disk, durable, placed, 8)


def test_an_index_that_names_wrong_places_invents_nothing(full: Full) -> None:
    disk, durable, _placed = full
    disk = disk.kill()
    base = next(b for b in map(base_of, disk.list(DIRECTORY)) if b is not None)
    path = f"{DIRECTORY}/{index_path(f'{base:020d}.seg')}"
    block = next(decode_blocks(disk.image(path)))
    right = list(entries_of(block, base))
    wrong = [e._replace(offset=right[i - 1].offset + i % 2) for i, e in enumerate(right)]
    disk.put(path, encode_block(base, block.start, block.end, wrong))
    for entry in right[:10]:
        assert by_search(disk, entry.queue_id, durable) == []  # its checksum is right: it lies, and is caught


@pytest.mark.parametrize("seed", range(12))
def test_a_crash_leaves_no_index_that_hides_or_invents(seed: int) -> None:
    disk = SimulatedDisk()
    writer, placed = fill(disk, count=120, lives=1)
    append_envelope(writer, "LASTONE", BIG)
    after = disk.crash(RandomChoice(seed))
    writer = open_writer(after, segment_bytes=SEGMENT_BYTES)
    placed = [(q, o) for q, o in placed if o < writer.durable]
    check(after, writer.durable, placed, 6)
    # The restarted writer's own index joins the others.
    again = [(f"AGAIN{i}", append_envelope(writer, f"AGAIN{i}", BIG)) for i in range(100)]
    writer.sync()
    check(after, writer.durable, placed + again, 6)


def test_an_index_that_cannot_be_written_stops_nothing() -> None:
    disk = SimulatedDisk()
    disk.fail("create", in_path=".idx", times=1000)
    writer, placed = fill(disk, count=120, lives=1)
    assert not [n for n in disk.list(DIRECTORY) if n.endswith(".idx")]
    check(disk, writer.durable, placed, 5)
    disk = SimulatedDisk()
    disk.fail("write", in_path=".idx", written=17)
    writer, placed = fill(disk, count=120, lives=1)
    check(disk, writer.durable, placed, 5)


def test_nothing_beyond_what_is_durable_or_before_the_start_is_found(full: Full) -> None:
    disk, _durable, placed = full
    queue_id, offset = placed[40]
    reader = LaneReader(disk, DIRECTORY, lambda damage: None)
    assert [r.offset for r in reader.find(queue_id, 0, offset)] == []
    assert [r.offset for r in reader.find(queue_id, offset + 1, None) if r.offset <= offset] == []


@settings(max_examples=60)
@given(
    entries=st.lists(
        st.tuples(
            st.text("0123456789ABCDEFGHJKMNPQRSTVWXYZ", min_size=1, max_size=20),
            *[st.integers(0, 2**32 - 1)] * 5,
        )
    ),
    base=st.integers(0, 2**40),
    tail=st.binary(max_size=60),
)
def test_a_block_is_read_back_and_what_follows_it_ends_the_reading(
    entries: list[tuple[str, int, int, int, int, int]], base: int, tail: bytes
) -> None:
    given_in = [IndexEntry(q, base + o, *rest) for q, o, *rest in entries]
    data = encode_block(base, base + 4096, base + 9999, given_in)
    blocks = list(decode_blocks(data + data + tail))
    assert [list(entries_of(block, base)) for block in blocks[:2]] == [given_in, given_in]
    assert [(b.start, b.end, b.entries_count) for b in blocks[:2]] == [(base + 4096, base + 9999, len(entries))] * 2


@pytest.mark.parametrize(
    "body", [b"", b"\0" * 4, b"\0\0\0\0\x9a", b"\0\0\0\0\x9a\xadABC", b"\0\0\0\0\xc0\xa1A", b"\xff" * 40]
)
def test_a_body_that_begins_with_no_queue_id_has_none(body: bytes) -> None:
    assert queue_id_in(body) is None


def test_the_queue_id_of_short_and_long_envelopes_is_found() -> None:
    assert queue_id_in(b"\0\0\0\0\x9a\xa3ABCrest") == b"ABC"
    assert queue_id_in(envelope_body("0G123456789AB", b"rest")) == b"0G123456789AB"
