"""Lanes and a journal whose events are exported by the real export, and whose segments go then."""

from __future__ import annotations

from pathlib import Path

import pytest

from mailcore.events.read.archive import EventArchive
from mailcore.events.write.export import Export
from mailcore.log.disk import Disk
from mailcore.log.positions import LanePosition, RestartPositions, write_positions
from mailcore.log.segment import Damage
from mailcore.lookup.answers import ServiceTimes
from mailcore.lookup.service_times import measure
from mailcore.lookup.tracing import Walk
from mailcore.queue.lanes import JOURNAL
from tests.lookup.recorded_lives import RecordedLives

__all__ = ["ExportedLives", "unsynced"]


@pytest.fixture
def unsynced(monkeypatch: pytest.MonkeyPatch) -> None:
    """No power goes here, and a thousand syncs take long."""
    monkeypatch.setattr(Disk, "sync", lambda self, fd: None)


class ExportedLives(RecordedLives):
    """``kept``: events answer, too; a test turns it on when it has heard what the log alone says."""

    def __init__(self, path: Path, journal_segment_bytes: int = 64 << 10) -> None:
        super().__init__(path / "queue", journal_segment_bytes)
        self.events = path / "events"
        self.sequence = 0

    def export(self) -> None:
        """Everything there is."""
        ends = {name: lane.end for name, lane in self.lanes.items()}
        for _ in range(2):
            self.sequence += 1
            lanes = {name: LanePosition(0, end) for name, end in ends.items()}
            positions = RestartPositions(self.sequence, self.now, lanes, 0, self.journal.durable)
            write_positions(Disk(), str(self.directory), positions)
        export = Export(Disk(), str(self.directory), str(self.events), _damaged, _lost)
        with export.locked(0):
            export.run(ends | {JOURNAL: self.journal.durable})
        self.archive = EventArchive(Disk(), str(self.events))

    def forget(self, lane: str, keep: int = 0) -> None:
        """Its segments go, but for the newest ``keep``."""
        segments = sorted((self.directory / lane).glob("*.seg"))
        for segment in segments[: len(segments) - keep]:
            segment.unlink()
            segment.with_suffix(".idx").unlink(missing_ok=True)

    def forget_all(self) -> None:
        for lane in (JOURNAL, *self.lanes):
            self.forget(lane)

    def measured(self, since: float) -> ServiceTimes:
        times: ServiceTimes = self.walked(Walk(measure(self.browser, since, 1_000_000, self.archive)))
        return times


def _damaged(damage: Damage) -> None:
    raise AssertionError(f"{damage}")


def _lost(lane: str, start: int, end: int) -> None:
    raise AssertionError(f"{lane}: {start} to {end} was deleted before it was exported")
