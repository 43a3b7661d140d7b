"""A segment, its index, restart positions and a spool file, taken apart as ``FORMAT.md`` says and by nothing of ours."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import msgspec
import pytest

import mailcore.log
from mailcore.envelope import DataPlace, Envelope, Recipient
from mailcore.log.disk import Disk
from mailcore.log.lane import INDEX_STRIDE
from mailcore.log.positions import LanePosition, RestartPositions, write_positions
from mailcore.log.record import RecordType
from mailcore.queue.records import append_envelope, append_recipients
from mailcore.queue.spool import Spool
from tests.log.lanes import open_writer

_TABLE = []
for _byte in range(256):
    for _ in range(8):
        _byte = _byte >> 1 ^ (0x82F63B78 if _byte & 1 else 0)
    _TABLE.append(_byte)


def crc32c(data: bytes) -> int:
    crc = 0xFFFF_FFFF
    for byte in data:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFF_FFFF


def test_the_checksum_is_that_of_rfc_3720() -> None:
    assert crc32c(bytes(32)) == 0x8A9136AA  # appendix B.4
    assert crc32c(bytes(range(32))) == 0x46DD794E


def envelope(queue_id: str, data: bytes, batches: tuple[int, ...] = ()) -> Envelope:
    return Envelope(
        queue_id=queue_id,
        generation=0,
        sender="s@example.net",
        recipients=(Recipient(0, "r@example.org"),),
        recipient_count=3 if batches else 1,
        batches=batches,
        arrived_at=1_700_000_000.5,
        size_bytes=len(data),
        data=DataPlace.INLINE,
    )


@pytest.fixture
def lane(tmp_path: Path) -> Path:
    directory = tmp_path / "incoming.0"
    writer = open_writer(Disk(), str(directory))
    batch = append_recipients(writer, [Recipient(1, "a@example.org"), Recipient(2, "b@example.org")])
    append_envelope(
        writer, envelope("0GABCDEFGHJKM", b"Subject: x\r\n\r\n..\r\n", (batch,)), b"Subject: x\r\n\r\n..\r\n"
    )
    append_envelope(writer, envelope("0GABCDEFGHJKN", b"d" * INDEX_STRIDE), b"d" * INDEX_STRIDE)
    writer.sync()
    writer.close()
    return directory


def records_of(data: bytes) -> list[tuple[int, int, bytes, bytes]]:
    magic, version, _, _, base, previous_end, salt, _created, crc = struct.unpack_from("<8sHHIQQQdI", data)
    assert (magic, version, base, previous_end) == (b"WAYPLOG\0", 1, 0, 0)
    assert crc == crc32c(data[:48])
    assert data[:52] == data[2048 : 2048 + 52]
    at, found = 4096, []
    while at < len(data):
        record_magic, type_, mark, length, crc = struct.unpack_from("<HBcII", data, at)
        body = data[at + 12 : at + 12 + length]
        assert record_magic == salt & 0xFFFF | 1
        if length < 10_000:  # the table is slow
            assert crc == crc32c(struct.pack("<QQBI", salt, base + at, type_, length) + body)
        found.append((base + at, type_, mark, body))
        at += 12 + length
    return found


def test_a_segment(lane: Path) -> None:
    found = records_of((lane / f"{0:020d}.seg").read_bytes())
    assert [(type_, mark) for _, type_, mark, _ in found] == [(2, b"L"), (1, b"L"), (1, b"L")]
    recipients = msgspec.msgpack.decode(found[0][3])
    assert [(number, address) for number, address, *_ in recipients] == [(1, "a@example.org"), (2, "b@example.org")]
    (length,) = struct.unpack_from("<I", found[1][3])
    fields = msgspec.msgpack.decode(found[1][3][4 : 4 + length])
    assert fields[0] == "0GABCDEFGHJKM"
    assert fields[:3] == ["0GABCDEFGHJKM", 0, "s@example.net"]
    assert fields[5] == [found[0][0]]
    assert found[1][3][4 + length :] == b"Subject: x\r\n\r\n..\r\n"


def test_an_index(lane: Path) -> None:
    found = records_of((lane / f"{0:020d}.seg").read_bytes())
    data = (lane / f"{0:020d}.idx").read_bytes()
    magic, count, start, end, crc, zero = struct.unpack_from("<4sIQQII", data)
    assert (magic, count, start, zero) == (b"WayJ", 2, 4096, 0)
    assert end == found[-1][0] + 12 + len(found[-1][3])
    assert crc == crc32c(data[8:24] + data[32:])
    entries = list(struct.iter_unpack("<20sIIIII", data[32:]))
    mark = (crc32c(b"example.net") & 0xFFFF) << 16 | crc32c(b"s@example.net") & 0xFFFF
    assert entries[0] == (b"0GABCDEFGHJKM".ljust(20, b"\0"), found[1][0], 3, 1_700_000_000, 18, mark)


def test_restart_positions(tmp_path: Path) -> None:
    write_positions(Disk(), str(tmp_path), RestartPositions(7, 1.5, {"incoming.0": LanePosition(5, 9, 4)}, 100, 200))
    data = (tmp_path / "restart").read_bytes()
    magic, version, _, length, crc = struct.unpack_from("<8sHHII", data)
    assert (magic, version, length) == (b"WAYREST\0", 1, len(data) - 20)
    assert crc == crc32c(data[:16] + data[20:])
    assert msgspec.msgpack.decode(data[20:])[:5] == [7, 1.5, {"incoming.0": [5, 9, 4]}, 100, 200]


def test_a_spool_file(tmp_path: Path) -> None:
    spool = Spool(Disk(), str(tmp_path))
    spool.store(envelope("0GABCDEFGHJKM", b"data"), b"data")
    (path,) = tmp_path.rglob("0GABCDEFGHJKM")
    assert path.parent.name == f"{crc32c(b'0GABCDEFGHJKM') % 64:02x}"
    data = path.read_bytes()
    magic, at, length, crc, _ = struct.unpack_from("<8sQQII", data)
    assert (magic, at, length) == (b"WAYSPL1\0", 36, 4)
    assert crc == crc32c(data[:24] + data[at:])
    assert data[32:at] == b"data"
    assert msgspec.msgpack.decode(data[at:])[0] == "0GABCDEFGHJKM"


def test_the_page_names_every_record_type() -> None:
    page = (Path(mailcore.log.__file__).parent / "FORMAT.md").read_text()
    rows = dict(re.findall(r"^\| (\d+) \| ([A-Z]+) \|", page, re.MULTILINE))
    assert rows == {str(int(type_)): type_.name for type_ in RecordType}
