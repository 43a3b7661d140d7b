"""Where data ends, and what may not be in it, wherever the network cuts it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailcore.receiver.data import DataFault, DataReader, HeaderScan

PIECES = st.lists(
    st.sampled_from([b"\r\n", b"\r\n.", b"..", b".", b"\r", b"\n", b"\0", b"a", b"word", b"\r\n.\r\n"]), max_size=30
).map(b"".join)


def read(chunks: Iterable[bytes], limit: int = 1 << 20) -> tuple[bytes, DataReader]:
    reader = DataReader(limit)
    blocks = []
    for chunk in chunks:
        if reader.finished:
            reader.rest += chunk
        else:
            blocks.append(reader.feed(chunk))
    return b"".join(blocks), reader


def cut(data: bytes, places: Iterable[int]) -> list[bytes]:
    edges = [0, *sorted(places), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(edges) if start < end]


@given(st.data())
def test_cut_anywhere_the_same_comes_out(data: st.DataObject) -> None:
    stream = data.draw(PIECES) + b"\r\n.\r\nQUIT\r\n"
    places = data.draw(st.lists(st.integers(0, len(stream)), max_size=12))
    whole, one = read([stream])
    parts, many = read(cut(stream, places))
    assert (many.finished, many.rest, many.size_bytes) == (True, one.rest, one.size_bytes)
    assert (many.fault is None) == (one.fault is None)  # which fault is found first may depend on the cuts
    if one.fault is None:
        assert parts == whole


def check(content: bytes, places: Iterable[int]) -> None:
    """An oracle of its own: the first CRLF "." CRLF, the CRLF of DATA itself counting, ends the data."""
    stream = content + b"\r\n.\r\n"
    end = (b"\r\n" + stream).index(b"\r\n.\r\n")
    expected = stream[:end]
    data, reader = read(cut(stream, places))
    assert reader.rest == stream[end + 3 :]
    left_over = expected.replace(b"\r\n", b"")
    if b"\r" in left_over or b"\n" in left_over or b"\0" in expected:
        assert reader.fault is not None, (stream, places)
    else:
        assert (reader.fault, data) == (None, expected), (stream, places)
        assert reader.size_bytes == len(expected) - len(re.findall(rb"(?:\A|\r\n)\.", expected)), (stream, places)


@given(PIECES)
def test_byte_for_byte_or_not_at_all(content: bytes) -> None:
    check(content, range(len(content) + 5))


def test_all_short_data_and_all_places_where_it_may_be_cut() -> None:
    for length in range(6):
        for symbols in itertools.product((b"a", b"\r", b"\n", b"."), repeat=length):
            for place in range(length + 6):
                check(b"".join(symbols), [place])


@pytest.mark.parametrize(
    "end", [b"\n.\n", b"\n.\r\n", b"\r\n.\n", b"\r.\r", b"\r\n.\r", b"\r.\r\n", b"\n\n.\r\n", b"\r\n\0.\r\n"]
)
def test_no_other_end_is_an_end(end: bytes) -> None:
    """CVE-2024-27305 and its like: what comes behind would be another message to somebody."""
    _, reader = read([b"Subject: x\r\n\r\nbody" + end + b"MAIL FROM:<evil@example.com>\r\n.\r\n"])
    assert reader.finished
    assert reader.rest == b""
    assert reader.fault is not None


@pytest.mark.parametrize("octet", [b"\r", b"\n"])
@pytest.mark.parametrize("line", [b"a" * 76 + b"\r\n", bytes(range(128, 256)) + b"\r\n", b"a" * 1000 + b"."])
def test_a_bare_one_is_found_anywhere_in_a_big_block(line: bytes, octet: bytes) -> None:
    block = line * (200_000 // len(line))
    assert read([block, b"\r\n.\r\n"])[1].fault is None
    for place in (1, 77, 64 * 1024, 100_001, len(block) - 3):
        if b"\r\n" not in block[place - 1 : place + 2]:  # else it may be half of a CRLF
            _, reader = read([block[:place] + octet + block[place:], b"\r\n.\r\n"])
            assert (reader.fault, reader.finished) == (DataFault.BARE, True)


def test_an_empty_message_is_one() -> None:
    data, reader = read([b".\r\n"])
    assert (data, reader.finished, reader.size_bytes) == (b"", True, 0)


def test_a_fault_is_told_before_the_end() -> None:
    data, reader = read([b"a\nb" + b"c" * 10])
    assert (data, reader.fault, reader.finished) == (b"", DataFault.BARE, False)


def test_size_is_counted_without_the_stuffed_dots() -> None:
    assert read([b"..a\r\n..b\r\n.\r\n"], limit=8)[1].fault is None
    assert read([b"..a\r\n..b\r\n.\r\n"], limit=7)[1].fault is DataFault.TOO_BIG


def test_an_endless_line_keeps_nothing() -> None:
    reader = DataReader(1000)
    scan = HeaderScan()
    for _ in range(1000):
        block = reader.feed(b"x" * 1000)
        if block:
            scan.feed(block)
    assert reader.fault is DataFault.TOO_BIG
    assert len(reader._held) < 5
    assert len(scan._line) <= 1000


HEADERS = (
    b"Received: from a\r\n\tby b; date\r\nRECEIVED : x\r\nX-Received: no\r\nSubject: Received: no\r\n"
    b"X-Tag:\r\n\t spring sale \r\nX-Tagged: no\r\nx-tag: second\r\n"
    b"Message-ID:\r\n <one@example.org>\r\nMessage-Id: <two@example.org>\r\nReceived-SPF: no\r\n\r\nReceived: body\r\n"
)


@given(st.lists(st.integers(0, len(HEADERS)), max_size=10))
def test_the_header_is_seen_however_it_is_cut(places: list[int]) -> None:
    reader = DataReader(1 << 20)
    scan = HeaderScan(b"x-tag")
    for chunk in cut(HEADERS + b".\r\n", places):
        block = reader.feed(chunk) if not reader.finished else b""
        if block and not scan.finished:
            scan.feed(block)
    assert scan.finished
    assert scan.received == 2
    assert scan.message_id == "<one@example.org>"
    assert scan.tag == "spring sale"


def test_a_name_that_is_dot_stuffed_is_that_field_at_the_next_hop() -> None:
    scan = HeaderScan(b"x-tag")
    scan.feed(b".Received: a\r\n.Message-ID: <1@x>\r\n.X-Tag: sale\r\n..Received: no\r\n\r\n.Received: body\r\n")
    assert (scan.received, scan.message_id, scan.tag) == (1, "<1@x>", "sale")


@pytest.mark.parametrize("name", [b"received", b"message-id"])
def test_a_field_that_is_counted_or_found_anyway_may_be_the_tag(name: bytes) -> None:
    scan = HeaderScan(name)
    scan.feed(b"Received: here\r\nMessage-ID: <1@x>\r\n\r\n")
    assert (scan.received, scan.message_id) == (1, "<1@x>")
    assert scan.tag == ("here" if name == b"received" else "<1@x>")


def test_a_tag_is_none_unless_a_header_is_named_for_it() -> None:
    scan = HeaderScan()
    scan.feed(HEADERS)
    assert scan.tag == ""


def test_a_message_without_header_has_none() -> None:
    scan = HeaderScan()
    scan.feed(b"\r\nReceived: x\r\n")
    assert (scan.finished, scan.received, scan.message_id) == (True, 0, "")
