"""Envelopes and lanes for tests of whoever reads the queue: written with the engine's own writers, on a real disk."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mailcore.envelope import DataPlace, Envelope, Recipient
from mailcore.log.disk import Disk
from mailcore.log.lane import LaneWriter
from mailcore.log.record import GARBAGE, MARK_AT
from mailcore.queue.queue_id import QueueIds
from mailcore.queue.records import append_envelope, append_recipients

NOW = 1_795_000_000.0  # wall clock of every test here

IDS = QueueIds(7, lambda: NOW)


def envelope(to: Sequence[str] | str = "user@example.org", **fields: Any) -> Envelope:
    """A message as it lies in a lane; addresses become unrouted recipients."""
    addresses = [to] if isinstance(to, str) else list(to)
    recipients = fields.pop("recipients", None)
    if recipients is None:
        recipients = tuple(Recipient(number, address) for number, address in enumerate(addresses))
    given: dict[str, Any] = {
        "queue_id": IDS.next(),
        "generation": 0,
        "sender": "sender@example.org",
        "recipients": recipients,
        "recipient_count": len(recipients),
        "arrived_at": NOW - 600,
        "size_bytes": 1000,
        "data": DataPlace.SPOOL,
    }
    return Envelope(**(given | fields))


def deferred(to: str, reply: str = "450 4.2.0 try again later", **fields: Any) -> Envelope:
    destination = fields.pop("destination", "smtp:" + to.rpartition("@")[2])
    recipient = Recipient(0, to, destination, "", reply)
    given: dict[str, Any] = {"recipients": (recipient,), "generation": 1, "attempts": 1, "due_at": NOW + 300}
    return envelope(**(given | fields))


class Lane:
    """A lane being written; what was written is synced at once."""

    def __init__(self, queue_directory: Path, name: str, segment_bytes: int = 1 << 20) -> None:
        self.name = name
        self.directory = queue_directory / name
        self.writer = LaneWriter(
            Disk(), str(self.directory), segment_bytes=segment_bytes, clock=lambda: NOW, salt=lambda: 42
        )

    def write(self, *envelopes: Envelope) -> list[int]:
        """Their offsets."""
        offsets = [append_envelope(self.writer, each) for each in envelopes]
        self.writer.sync()
        return offsets

    def write_batch(self, recipients: list[Recipient]) -> int:
        """A RECIPIENTS record."""
        return append_recipients(self.writer, recipients)

    def mark_garbage(self, offset: int) -> None:
        """As the manager does when a message is finished."""
        self.mark(offset, GARBAGE)

    def mark(self, offset: int, value: int) -> None:
        disk = Disk()
        for segment in sorted(self.directory.glob("*.seg"), reverse=True):
            base = int(segment.stem)
            if base <= offset:
                fd = disk.open_write(str(segment))
                try:
                    disk.write(fd, [bytes([value])], offset - base + MARK_AT)
                finally:
                    disk.close(fd)
                return

    @property
    def end(self) -> int:
        return self.writer.durable

    def close(self) -> None:
        self.writer.close()


def spoil_index(path: Path, how: str, rng: random.Random) -> None:
    """Removes an index, cuts it anywhere, or puts that of lane incoming.0 in its place; any other ``how`` leaves it."""
    if how == "missing":
        path.unlink()
    elif how == "torn":
        path.write_bytes(path.read_bytes()[: rng.randrange(path.stat().st_size)])
    elif how == "of another lane":
        other = path.parent.parent / "incoming.0" / path.name
        path.write_bytes(other.read_bytes() if other.exists() else b"")
