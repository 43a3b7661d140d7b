"""A lane on a real disk with retired segments, as the manager leaves them behind."""

from __future__ import annotations

from pathlib import Path

from mailcore.log.disk import Disk
from mailcore.log.record import GARBAGE, MARK_AT
from mailcore.log.segment import name_of, retired_name_of
from mailcore.queue.records import append_envelope
from tests.log.lanes import open_writer
from tests.queue.test_records import envelope

__all__ = ["mark_garbage", "retired_lane"]


def retired_lane(queue: Path, lane: str, messages: int, data_bytes: int) -> list[int]:
    """Writes a segment of ``messages`` messages and retires it; the lane continues in a newer one. Returns their offsets."""
    queue.mkdir(parents=True, exist_ok=True)
    writer = open_writer(Disk(), str(queue / lane), segment_bytes=messages * data_bytes)
    data = b"x" * data_bytes
    offsets = [append_envelope(writer, envelope(data), data) for _ in range(messages)]
    writer.sync()
    append_envelope(writer, envelope(data), data)  # the next segment begins
    writer.sync()
    writer.close()
    (queue / lane / name_of(0)).rename(queue / lane / retired_name_of(0))
    return [offset for offset in offsets if offset < messages * data_bytes]


def mark_garbage(queue: Path, lane: str, offset: int) -> None:
    """Marks a message of the first segment: nothing of it is needed."""
    with (queue / lane / retired_name_of(0)).open("r+b") as file:
        file.seek(offset + MARK_AT)
        file.write(bytes([GARBAGE]))
