"""Lanes on a simulated disk, for the tests beside this file."""

from __future__ import annotations

import random
from typing import Any

from mailcore.log.disk import Disk
from mailcore.log.lane import LaneWriter
from mailcore.log.reader import LaneReader
from mailcore.log.record import Record, RecordType
from mailcore.log.segment import Damage

DIRECTORY = "/queue/lane"
_salts = random.Random(2821)


def open_writer(disk: Disk, directory: str = DIRECTORY, segment_bytes: int = 1 << 20, **more: Any) -> LaneWriter:
    return LaneWriter(
        disk,
        directory,
        segment_bytes=segment_bytes,
        clock=lambda: 1_000_000_000.0,
        salt=lambda: _salts.getrandbits(64),
        **more,
    )


class Lane:
    """What a reader finds in a lane."""

    def __init__(self, disk: Disk, durable: int | None, directory: str = DIRECTORY, start: int = 0) -> None:
        self.damage: list[Damage] = []
        reader = LaneReader(disk, directory, self.damage.append)
        self.records = list(reader.records(start, durable))
        reader.close()

    @property
    def bodies(self) -> list[bytes]:
        return [record.body for record in self.records]


def envelope_body(queue_id: str, rest: bytes = b"") -> bytes:
    """As much of an ENVELOPE body as the log looks at: a length, an array of 26, the queue id."""
    return b"\0\0\0\0\xdc\0\x1a" + bytes([0xA0 | len(queue_id)]) + queue_id.encode() + rest


def append_envelope(writer: LaneWriter, queue_id: str, rest: bytes = b"", recipients: int = 1, arrived: int = 7) -> int:
    return writer.append(RecordType.ENVELOPE, envelope_body(queue_id, rest), entry=(queue_id, recipients, arrived))


def plain(records: list[Record]) -> list[tuple[int, bytes]]:
    return [(record.offset, record.body) for record in records]
