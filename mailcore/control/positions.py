"""Answers ``positions``: runners and ends of lanes, segments on disk and why they are kept, and the cost of a restart now.

Laws: the manager is asked one question; when it is away, the restart positions on disk are used, with a note that says so.
Only names and sizes of files are read, the headers of records in retired segments, and the first records of the newest
journal segment.

Keeps law: works-without-manager (docs/laws.md).
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable
from datetime import UTC, datetime
from typing import Any

import msgspec

from mailcore.control.manager_link import ManagerAway, OutcomeUnknown
from mailcore.control.operations import Answers
from mailcore.control.protocol.operation import Arguments
from mailcore.control.protocol.state import JournalPositions, LanePositions, Recovery
from mailcore.control.protocol.state import Positions as PositionsResult
from mailcore.control.session import Session
from mailcore.control.view import View
from mailcore.log.positions import DAMAGED, RestartPositions, read_positions
from mailcore.log.reader import LaneReader
from mailcore.log.segment import Damage
from mailcore.lookup.browse import lane_order
from mailcore.lookup.retired import RetiredLook
from mailcore.lookup.segments import LanePlaces, lane_segments
from mailcore.manager_answers import JournalPlaces, LaneCut, Places
from mailcore.queue.exported import UNEXPORTED, ExportedLane, read_exported
from mailcore.queue.lanes import JOURNAL, interval_of

__all__ = ["Positions"]

SAMPLE_BYTES = 256 << 10  # of the newest journal segment, read to learn how long its records are
RECORD_BYTES = 150  # of a journal record, when the journal is empty; START and FINISH have about this length
# The parts of a start: reading (queue.checkpoint: 64 MB in half a second), restating each message (docs/decisions/0006:
# 20 000 in half a second), and starting the process.
SUFFIX_BYTES_A_SECOND = 128 << 20
MESSAGE_S = 25e-6
START_S = 0.1


class Positions:
    """Answers ``positions``."""

    def __init__(self, view: View, undo_time_s: int, exported_directory: str = "") -> None:
        """``exported_directory``: of the exported positions; "" when nothing is exported."""
        self._view = view
        self._exported_directory = exported_directory
        self._undo_time_s = undo_time_s
        self._retired = RetiredLook(view.browser.disk, view.browser.queue_directory)
        self.answers: dict[str, Answers] = {"positions": self._positions}

    async def _positions(self, session: Session, arguments: Arguments) -> AsyncGenerator[Any, None]:
        places: Places | None
        note = ""
        try:
            places = await self._view.link.ask("places", Places)
        except (ManagerAway, OutcomeUnknown):
            absence = self._view.link.absence or "the manager did not answer"
            places, note = None, f"{absence}; this is what the restart positions on disk say"
        yield await self._view.in_thread(self._look, places, note)

    def _look(self, places: Places | None, note: str) -> PositionsResult:
        """Raises PositionsDamaged, OSError."""
        browser = self._view.browser
        disk, directory = browser.disk, browser.queue_directory
        positions = read_positions(disk, directory) or RestartPositions(0, 0.0, {}, 0, 0)
        if places is None:
            places = self._from_disk(positions)
        exported = self._exported()
        self._retired.begin()
        lanes = []
        for lane, cut in sorted(places.lanes.items(), key=lambda pair: lane_order(pair[0])):
            recorded = positions.lanes.get(lane)
            at = LanePlaces(
                cut.browse,
                cut.runner,
                recorded.browse if recorded else 0,
                None if places.held is None else dict(places.held.get(lane, ())),
                exported(lane),
            )
            lanes.append(
                LanePositions(
                    lane=lane,
                    interval_s=interval_of(lane, self._undo_time_s),
                    runner=cut.runner,
                    end=cut.end,
                    lag_bytes=max(cut.end - cut.runner, 0),
                    browse=cut.browse,
                    retired=self._retired.of(lane),
                    **msgspec.structs.asdict(lane_segments(disk, os.path.join(directory, lane), at)),
                )
            )
        suffix, end, durable = places.journal.suffix, places.journal.end, places.journal.durable
        found = lane_segments(
            disk,
            os.path.join(directory, JOURNAL),
            LanePlaces(suffix, suffix, positions.suffix, exported=exported(JOURNAL)),
        )
        return PositionsResult(
            sequence=positions.sequence,
            written_at=positions.written_at,
            age_s=max(browser.clock() - positions.written_at, 0.0) if positions.written_at else None,
            note="; ".join(each for each in (note, self._damaged()) if each),
            lanes=lanes,
            journal=JournalPositions(
                suffix=suffix,
                end=end,
                durable=durable,
                suffix_bytes=max(end - suffix, 0),
                **msgspec.structs.asdict(found),
            ),
            # A start reads from where the positions on disk say, however far the suffix has come since.
            recovery=self._recovery(max(end - positions.suffix, 0), durable, places.working),
        )

    def _damaged(self) -> str:
        """Returns that restart positions were set aside because they are damaged; "" if there are none."""
        browser = self._view.browser
        path = os.path.join(browser.queue_directory, DAMAGED)
        if not browser.disk.exists(path):
            return ""
        at = datetime.fromtimestamp(browser.disk.modified(path), UTC)
        return (
            f"restart positions written at {at:%Y-%m-%d %H:%M:%S} UTC were damaged and are in {path}; mail.log says what the "
            "start read instead; remove the file when you have looked at it"
        )

    def _exported(self) -> Callable[[str], int | None]:
        """Returns how far the events of a lane are exported; None where no exporter needs them."""
        if not self._exported_directory:
            return lambda lane: None
        try:
            found = read_exported(self._view.browser.disk, self._exported_directory)
        except (OSError, ValueError):
            found = None
        lanes = found.lanes if found is not None else {}
        return lambda lane: None if lane in UNEXPORTED else lanes.get(lane, ExportedLane(0)).needed

    def _from_disk(self, positions: RestartPositions) -> Places:
        browser = self._view.browser
        lanes = {lane: LaneCut(at.browse, at.runner, at.end) for lane, at in positions.lanes.items()}
        for name in browser.disk.list(browser.queue_directory):
            if name[0] != "." and name != JOURNAL and os.path.isdir(os.path.join(browser.queue_directory, name)):
                lanes.setdefault(name, LaneCut(0, 0, 0))
        end = positions.journal_end
        return Places(lanes=lanes, journal=JournalPlaces(suffix=positions.suffix, end=end, durable=end))

    def _recovery(self, suffix_bytes: int, durable: int, working: int | None) -> Recovery:
        records = round(suffix_bytes / self._record_bytes(durable)) if suffix_bytes else 0
        seconds = round(START_S + suffix_bytes / SUFFIX_BYTES_A_SECOND + (working or 0) * MESSAGE_S, 2)
        again = "" if working is None else f" and continue with {working:,} message{'s' * (working != 1)}"
        sentence = f"A start now would read {_bytes(suffix_bytes)} of the journal, about {records:,} records,{again}"
        return Recovery(
            bytes=suffix_bytes,
            records_estimate=records,
            seconds_estimate=seconds,
            messages=working,
            sentence=f"{sentence.removesuffix(',')}: about {seconds:g} s.",
        )

    def _record_bytes(self, durable: int) -> float:
        """Returns the mean over the first records of the newest segment."""
        browser = self._view.browser
        reader = LaneReader(browser.disk, os.path.join(browser.queue_directory, JOURNAL), _told_elsewhere)
        try:
            base = reader.base_for(max(durable - 1, 0))
            segment = None if base is None else reader.segment(base)
            if segment is None:
                return RECORD_BYTES
            count = first = last = 0
            for record in segment.records(segment.base, min(durable, segment.base + SAMPLE_BYTES), _told_elsewhere):
                first = first or record.offset
                last, count = record.end, count + 1
            return (last - first) / count if count else RECORD_BYTES
        finally:
            reader.close()


def _told_elsewhere(damage: Damage) -> None:
    """Ignores damage: a start reports it."""


def _bytes(count: float) -> str:
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1000
    raise AssertionError
