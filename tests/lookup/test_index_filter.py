"""A filter that names a sender or a size reads the index of a segment first, and finds what a reading of all would find."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import google_crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailcore.log.disk import Disk
from mailcore.log.index import decode_blocks, entries_of
from mailcore.lookup.filter import Filter, sender_matcher
from mailcore.queue.sender_mark import DOMAIN_BITS, domain_mark, sender_mark
from mailcore.routing.address import comparable
from tests.lookup.sample_messages import envelope, spoil_index
from tests.lookup.test_browse import Queue

BLOCK = 4096  # bytes of an index block here
SENDERS = (
    "", "a@example.org", "A@Example.ORG", "b@example.org", "a@example.org.", "a@other.example", "a@bücher.example",
    "a@xn--bcher-kva.example", "A@BÜCHER.example.", "ä@example.org", "Ä@example.org", "a@[192.0.2.1]", "a@[IPv6:2001:DB8::1]",
    "a@[ipv6:2001:db8:0::1]", "postmaster", "a*b@example.org", '"a@b"@example.org', "a@straße.example",
)  # fmt: skip
PATTERNS = (
    "<>", "a@example.org", "A@EXAMPLE.org.", "*@example.org", "?@example.org", "*@example.org.", "*@bücher.example",
    "a@BÜCHER.example", "*@xn--bcher-kva.example", "ä@example.org", "*@*.example", "*@[192.0.2.1]", "a@[ipv6:2001:db8::1]",
    "postmaster", "POST*", "a\\*b@example.org", "*b@example.org", "*@strasse.example", "*@straße.example", "*",
    "none@example.org",
)  # fmt: skip
SIZES = (1, 999, 1000, 1001, 100_000, 2**32 - 2, 2**32 - 1, 2**32, 2**40)


@pytest.fixture
def queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Queue]:
    monkeypatch.setattr("mailcore.log.lane.INDEX_STRIDE", BLOCK)
    queue = Queue(tmp_path)
    yield queue
    for lane in queue.lanes.values():
        lane.close()


def in_old_format(base: int, index: bytes) -> bytes:
    """The blocks as releases before sizes and senders wrote them."""
    blocks = []
    for block in decode_blocks(index):
        packed = b"".join(
            struct.pack("<20sIII", each.queue_id.encode(), each.offset - base, each.recipients, each.arrived)
            for each in entries_of(block, base)
        )
        crc = google_crc32c.value(struct.pack("<QQ", block.start, block.end) + packed)
        head = struct.pack("<4sIQQII", b"WayI", block.entries_count, block.start, block.end, crc, 0)
        blocks.append(head + packed)
    return b"".join(blocks)


@pytest.mark.parametrize(
    "index", ["whole", "missing", "torn", "of another lane", "of an older release", "half of it older"]
)
def test_a_sender_or_a_size_finds_the_same_messages_through_the_index_as_without(queue: Queue, index: str) -> None:
    rng = random.Random(index)
    for name in ("incoming.0", "retry.60"):
        lane = queue.lane(name, segment_bytes=20_000)
        for _ in range(40):
            usual = rng.choice(SENDERS), rng.choice(SIZES)
            odd = rng.randrange(12)
            written = [
                envelope(sender=rng.choice(SENDERS), size_bytes=rng.choice(SIZES))
                if number == odd
                else envelope(sender=usual[0], size_bytes=usual[1])
                for number in range(10)
            ]
            lane.mark_garbage(rng.choice(lane.write(*written)))
    for path in sorted(queue.directory.glob("*/*.idx")):
        old = in_old_format(int(path.stem), path.read_bytes())
        spoil_index(path, index, rng)
        if index == "of an older release":
            path.write_bytes(old)
        elif index == "half of it older" and (blocks := list(decode_blocks(old))):
            head = 32 + 32 * blocks[0].entries_count
            path.write_bytes(old[:head] + path.read_bytes()[32 + 40 * blocks[0].entries_count :])
    everything = queue.all()
    assert len(everything) == 720
    sizes: list[dict[str, Any]] = [{}]
    sizes += [{"larger_than_bytes": size} for size in SIZES] + [{"smaller_than_bytes": size} for size in SIZES]
    sizes += [{"larger_than_bytes": 999, "smaller_than_bytes": 1001}]
    for limits in [{"sender": pattern} | rng.choice(sizes) for pattern in PATTERNS for _ in range(3)] + sizes[1:]:
        test = sender_matcher(limits["sender"]) if "sender" in limits else lambda sender: True
        wanted = [
            item.queue_id
            for item in everything
            if test(item.sender)
            and limits.get("larger_than_bytes", 0) < item.size_bytes < limits.get("smaller_than_bytes", 2**60)
        ]
        assert [item.queue_id for item in queue.all(Filter(**limits), items=7)] == wanted, limits


@pytest.mark.parametrize(
    "limits",
    [
        {"sender": "rare@example.net"},
        {"sender": "*@example.net"},
        {"sender": "<>"},
        {"larger_than_bytes": 5_000},
        {"smaller_than_bytes": 900},
        {"sender": "rare@example.net", "larger_than_bytes": 5_000},
    ],
)
def test_a_sender_or_a_size_reads_only_what_can_match(queue: Queue, limits: dict[str, Any]) -> None:
    lane = queue.lane("retry.60", segment_bytes=100_000)
    usual = [f"user{number}@domain{number % 50}.example" for number in range(1_000)]
    lane.write(*[envelope(sender=each) for each in usual])
    lane.write(envelope(sender="rare@example.net", size_bytes=10_000), envelope(sender="", size_bytes=10))
    lane.write(*[envelope(sender=each) for each in usual])
    page = queue.page(Filter(**limits))
    assert len(page.items) == 1
    assert page.examined < 100, "of 2 002"


def test_what_is_not_in_the_index_yet_is_read(queue: Queue) -> None:
    lane = queue.lane("retry.60")
    lane.write(*[envelope(sender="b@example.org") for _ in range(100)])
    lane.write(envelope(sender="last@example.org"))
    assert Disk().read_whole(str(next(lane.directory.glob("*.idx"))))
    assert queue.senders(sender="last@example.org") == ["last@example.org"]


ADDRESSES = st.one_of(
    st.sampled_from(SENDERS),
    st.builds(
        "{}@{}".format,
        st.text("abAB*.@äÄ", max_size=4),
        st.lists(st.sampled_from(["a", "B", "ex", "Bücher", "xn--bcher-kva", "straße", ""]), max_size=3).map(".".join),
    ),
)


@given(ADDRESSES, ADDRESSES)
def test_equal_senders_have_the_same_mark_or_none(one: str, other: str) -> None:
    if comparable(one) == comparable(other):
        assert sender_mark(one) == sender_mark(other) or 0 in (sender_mark(one), sender_mark(other))


@given(ADDRESSES)
def test_a_sender_has_the_mark_of_its_domain_or_none(sender: str) -> None:
    mark, domain = sender_mark(sender), comparable(sender).rpartition("@")[2]
    if mark and domain_mark(domain):
        assert mark & DOMAIN_BITS == domain_mark(domain)
