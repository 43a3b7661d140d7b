"""A queue directory written record by record, with restart positions that cover what is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mailcore.envelope import DataPlace, Recipient, Status, Verdict
from mailcore.events.write.export import Export
from mailcore.log.disk import Disk
from mailcore.log.lane import LaneWriter
from mailcore.log.positions import LanePosition, RestartPositions, write_positions
from mailcore.log.record import RecordType
from mailcore.log.segment import Damage
from mailcore.queue.exported import ExportedLane
from mailcore.queue.lanes import JOURNAL
from mailcore.queue.records import Delivery, Refused, append_envelope, append_recipients, encode
from tests.lookup.sample_messages import envelope

__all__ = ["DAY", "Lanes"]

DAY = 20_778 * 86_400.0  # 2026-11-21, midnight UTC


class Lanes:
    def __init__(self, path: Path, segment_bytes: int = 5_000) -> None:
        self.path = path
        self.events = path / "events"
        self.writers: dict[str, LaneWriter] = {}
        self.segment_bytes = segment_bytes
        self.sequence = 0
        self.damage: list[Damage] = []
        self.lost: list[tuple[str, int, int]] = []

    def writer(self, lane: str) -> LaneWriter:
        if lane not in self.writers:
            self.writers[lane] = LaneWriter(
                Disk(),
                str(self.path / "queue" / lane),
                segment_bytes=self.segment_bytes,
                clock=lambda: DAY,
                salt=lambda: 42,
            )
        return self.writers[lane]

    def accept(self, queue_id: str, count: int = 1, lane: str = "incoming.0", **fields: Any) -> int:
        """Its offset; three recipients are a long list."""
        everybody = [Recipient(number, f"r{number}@example.org") for number in range(count)]
        batches = tuple(append_recipients(self.writer(lane), everybody[at : at + 3]) for at in range(3, count, 3))
        return self.envelope(queue_id, lane, everybody, batches, **fields)

    def envelope(
        self, queue_id: str, lane: str, everybody: list[Recipient], batches: tuple[int, ...], **fields: Any
    ) -> int:
        given: dict[str, Any] = {
            "queue_id": queue_id,
            "recipients": tuple(everybody[:3]),
            "recipient_count": len(everybody),
            "batches": batches,
            "arrived_at": DAY + 10,
            "data": DataPlace.SPOOL,
        }
        return append_envelope(self.writer(lane), envelope(**(given | fields)))

    def refuse(self, at: float = DAY + 20) -> int:
        body = Refused(at, "RCPT", "554 5.7.1 no", "192.0.2.1", "evil\x1b[31m", "a@b.example", "c@d.example")
        return self.writer("incoming.0").append(RecordType.REFUSED, encode(body))

    def deliver(self, queue_id: str, *statuses: Status, at: float = DAY + 30) -> int:
        verdicts = tuple(Verdict(number, status, "2.0.0", "said") for number, status in enumerate(statuses))
        return self.writer(JOURNAL).append(RecordType.DELIVERY, encode(Delivery(queue_id, 0, verdicts, at)))

    def sync(self) -> None:
        for writer in self.writers.values():
            writer.sync()

    def covered(self, ends: dict[str, int] | None = None, times: int = 2, at: float = DAY) -> None:
        """Restart positions, both the same, that cover all that is there; or a lane only up to its end in ``ends``."""
        self.sync()
        upto = {lane: writer.durable for lane, writer in self.writers.items()} | (ends or {})
        lanes = {lane: LanePosition(0, end) for lane, end in upto.items() if lane != JOURNAL}
        for _ in range(times):
            self.sequence += 1
            positions = RestartPositions(self.sequence, at, lanes, 0, upto.get(JOURNAL, 0))
            (self.path / "queue").mkdir(exist_ok=True)
            write_positions(Disk(), str(self.path / "queue"), positions)

    def export(self, disk: Disk | None = None) -> Export:
        def lost(lane: str, start: int, end: int) -> None:
            self.lost.append((lane, start, end))

        return Export(
            Disk(), str(self.path / "queue"), str(self.events), self.damage.append, lost, events_disk=disk or Disk()
        )

    def run(self, disk: Disk | None = None, everything: bool = False) -> None:
        export = self.export(disk)
        ends = {lane: writer.durable for lane, writer in self.writers.items()}
        with export.locked(0):
            export.run(ends if everything else None)

    def at(self, lane: str) -> ExportedLane:
        return self.export().state().lanes[lane]

    def bases(self, lane: str) -> list[int]:
        return sorted(int(path.stem) for path in (self.path / "queue" / lane).glob("*.seg"))

    def close(self) -> None:
        for writer in self.writers.values():
            writer.close()
