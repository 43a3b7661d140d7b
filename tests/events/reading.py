"""What is in event files, read back by pyarrow, and a balance made of it; and a disk that is killed at its n-th change."""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from mailcore.log.disk import Buffer, Disk

__all__ = ["Killed", "MortalDisk", "checksum", "damages", "digest", "ends", "incoming", "left", "rows"]

Event = dict[str, Any]


class Killed(BaseException):
    """SIGKILL, as far as a disk can see it."""


class MortalDisk(Disk):
    """Counts what changes something, and dies in front of the n-th; whoever is dead changes nothing more."""

    def __init__(self, dies_at: int = -1) -> None:
        super().__init__()
        self.calls = 0
        self.dies_at = dies_at

    def _step(self) -> None:
        if self.calls == self.dies_at:
            raise Killed
        self.calls += 1

    def create(self, path: str) -> int:
        self._step()
        return super().create(path)

    def write(self, fd: int, buffers: Sequence[Buffer], offset: int) -> None:
        self._step()
        super().write(fd, buffers, offset)

    def sync(self, fd: int) -> None:
        self._step()
        super().sync(fd)

    def sync_directory(self, path: str) -> None:
        self._step()
        super().sync_directory(path)

    def replace(self, old: str, new: str) -> None:
        self._step()
        super().replace(old, new)

    def unlink(self, path: str) -> None:
        self._step()
        super().unlink(path)


def files(events: Path) -> list[Path]:
    """As Spark sees them."""
    return sorted(path for path in events.glob("dt=*/*") if path.name[0] not in "._")


def rows(events: Path) -> list[Event]:
    """Every event once, whatever file it is in; each in the directory of its day, no two different under one name."""
    found: dict[tuple[str, int, int], Event] = {}
    for path in files(events):
        for row in pq.ParquetFile(path).read().to_pylist():
            key = row["lane"], row["offset"], row["part"]
            assert key not in found, f"{key} is in two files"
            found[key] = {name: value for name, value in row.items() if value is not None}
    return [found[key] for key in sorted(found)]


def damages(path: Path) -> list[Any]:
    metadata = pq.ParquetFile(path).metadata.metadata
    found: list[Any] = json.loads(metadata[b"waypost.damaged"])
    return found


def digest(events: Path) -> dict[str, bytes]:
    """All that is there, byte for byte, but for what is no event file yet."""
    return {str(path.relative_to(events)): path.read_bytes() for path in files(events)}


def incoming(events: Sequence[Event]) -> Counter[str]:
    """Recipients that came in, by queue id."""
    came: Counter[str] = Counter()
    for event in events:
        if event["kind"] == "accepted":
            came[event["queue_id"]] += len(event["recipients"])
        elif event["kind"] == "order" and event["operation"] == "add_recipients":
            came[event["queue_id"]] += len(json.loads(event["arguments"])["recipients"])
    return came


def ends(events: Sequence[Event]) -> dict[str, dict[int, str]]:
    """Queue id -> number -> what became of it. Nobody ends twice."""
    gone: dict[str, dict[int, str]] = {}
    for event in events:
        if event["kind"] == "attempt" and event["status"] != "deferred":
            numbers = gone.setdefault(event["queue_id"], {})
            assert event["number"] not in numbers, f"{event} ended before as {numbers[event['number']]}"
            numbers[event["number"]] = event["status"]
    return gone


def checksum(queued: Mapping[str, int]) -> int:
    """Of so many recipients of these messages, as a cut tells it."""
    return sum(zlib.crc32(queue_id.encode()) * count for queue_id, count in queued.items()) % (1 << 64)


def left(events: Sequence[Event]) -> dict[str, int]:
    """Recipients that must be queued, by queue id."""
    gone = ends(events)
    came = incoming(events)
    assert gone.keys() <= came.keys(), "somebody ended who never came"
    return {
        queue_id: count - len(gone.get(queue_id, ()))
        for queue_id, count in came.items()
        if count != len(gone.get(queue_id, ()))
    }
