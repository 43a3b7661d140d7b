"""The tracer: a thread of the exporter that reads the log and sends the spans of messages to a collector.

It reads what restart positions cover, as the export does, and keeps how far it came in a file of its own. It is not in the way
of mail nor of the export: it holds no lock and keeps no segment from being deleted. While the collector is away it waits, with
one request in memory; what is deleted meanwhile is lost to traces, counted and logged.

Laws
- Sent first, then the position: no span is lost by a kill, and those of one request are sent twice, with the same ids.
- What the tracer fails at ends neither the exporter nor mail.

Keeps law: spans-from-the-log (docs/laws.md).
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import socket
import threading
import time
from collections import deque

import msgspec

from mailcore.config.settings import Settings
from mailcore.config.traces import TRACEPARENT
from mailcore.log.disk import Disk
from mailcore.log.positions import RestartPositions, read_all_positions
from mailcore.log.reader import LaneReader
from mailcore.maillog.maillog import MailLog
from mailcore.queue.exported import UNEXPORTED
from mailcore.queue.lanes import JOURNAL
from mailcore.traces.collector import Collector, CollectorFailed
from mailcore.traces.context import Contexts
from mailcore.traces.making import Making
from mailcore.traces.messages import Messages
from mailcore.traces.progress import Progress, progress_directory, read_progress, write_progress
from mailcore.traces.span import Span, request_of

__all__ = ["Tracer", "start"]

AGAIN_BYTES = (
    1 << 20
)  # of a lane, read again at a start: FINISH follows closely behind the last DELIVERY of its message
BACKOFF_S_MIN, BACKOFF_S_MAX = 1.0, 60.0
SPANS_OF_A_RECORD = 2
RECORDS_MAX = 20_000  # read before the position is saved, if none of them gives a span


class Tracer:
    """Reads the log of one queue and sends spans. ``stopped`` ends it, for tests; it is crash-only."""

    def __init__(self, settings: Settings, stopped: threading.Event | None = None, disk: Disk | None = None) -> None:
        traces = settings.traces
        version = importlib.metadata.version("waypost")
        hostname = settings.receiver.hostname or socket.gethostname()
        contexts = Contexts(hostname, traces.ratio, from_tag=traces.trace_id == TRACEPARENT)
        self._settings = traces
        self._queue_directory = str(settings.queue_directory)
        self._directory = progress_directory(settings)
        self._making = Making(contexts, Messages(traces.messages_max), addresses=traces.addresses)
        self._collector = Collector(traces.endpoint, traces.timeout_s, version)
        self._resource = {"service.name": traces.service_name, "service.version": version, "host.name": hostname}
        self._version = version
        self._log = MailLog(settings.log_directory)
        self._disk = disk or Disk()
        self._stopped = stopped or threading.Event()
        self._progress: Progress | None = None
        self._ends: dict[str, deque[int]] = {}  # lane -> where a start may read again, oldest first
        self._complaint = ""

    def run(self) -> None:
        """Reads and sends until the process ends."""
        while not self._stopped.is_set():
            try:
                self.turn()
                self._complaint = ""
            except Exception as error:  # a fault of the tracer must not be one of the exporter
                words = f"{type(error).__name__}: {error}"
                if words != self._complaint:
                    self._log.traces_failed(words)
                self._complaint = words
            self._log.flush()
            self._stopped.wait(self._settings.interval_s)

    def turn(self) -> None:
        """Reads and sends what the restart positions cover. Raises OSError, PositionsTooNew, SegmentTooNew."""
        ends = self._covered()
        if self._progress is None:
            self._begin(ends)
        journal_last = sorted(ends, key=lambda lane: lane == JOURNAL)  # a message is read before its end
        for lane in journal_last:
            while not self._stopped.is_set() and self._batch(lane, ends[lane]):
                pass

    def _covered(self) -> dict[str, int]:
        """Returns how far each lane is covered by all restart positions: a recovery drops nothing below."""
        found: list[RestartPositions] = []
        for _ in range(10):
            with contextlib.suppress(FileNotFoundError):  # it is being replaced
                found = read_all_positions(self._disk, self._queue_directory)
                break
        covered: dict[str, int] = {}
        for number, each in enumerate(found):
            ends = {lane: at.end for lane, at in each.lanes.items()} | {JOURNAL: each.journal_end}
            covered = ends if not number else {lane: min(end, ends.get(lane, 0)) for lane, end in covered.items()}
        return {lane: end for lane, end in covered.items() if lane not in UNEXPORTED}

    def _begin(self, ends: dict[str, int]) -> None:
        """Reads the progress; the first start begins at the end of the log, so that the past gets no traces."""
        try:
            progress = read_progress(self._disk, self._directory)
        except ValueError as error:  # nothing but traces depends on it
            self._log.traces_failed(f"{error}; traces begin at the end of the log")
            progress = None
        if progress is None:
            progress = Progress(lanes=ends)
            write_progress(self._disk, self._directory, progress)
        self._progress = progress
        for lane, at in progress.again.items():
            to = progress.lanes.get(lane, 0)
            self._ends[lane] = deque([at])
            if at < to <= ends.get(lane, 0):
                reader = self._reader(lane)
                try:
                    for record in reader.records(at, to):
                        self._making.spans(lane, record)
                finally:
                    reader.close()

    def _reader(self, lane: str) -> LaneReader:
        directory = os.path.join(self._queue_directory, lane)
        return LaneReader(self._disk, directory, lambda damage: None)  # the export reports it

    def _batch(self, lane: str, end: int) -> bool:
        """Sends the spans of the next records of a lane; returns whether there may be more."""
        assert self._progress is not None
        at = self._progress.lanes.get(lane, 0)
        if at > end:  # another queue, or one that was restored
            self._save(lane, end)
        if at >= end:
            return False
        spans: list[Span] = []
        to, count = at, 0
        reader = self._reader(lane)
        try:
            lost = _deleted(reader, at)
            for record in reader.records(at + lost, end):
                spans.extend(self._making.spans(lane, record))
                to, count = record.end, count + 1
                if len(spans) + SPANS_OF_A_RECORD > self._settings.batch_spans or count >= RECORDS_MAX:
                    break
            else:
                to = end
        finally:
            reader.close()
        if lost:
            self._log.traces_lost(lane, lost)
        if spans and not self._send(spans):
            return False
        self._save(lane, to, lost)
        return to < end

    def _save(self, lane: str, to: int, lost: int = 0) -> None:
        assert self._progress is not None
        ends = self._ends.setdefault(lane, deque())
        ends.append(self._progress.lanes.get(lane, 0))
        while len(ends) > 1 and ends[1] <= to - AGAIN_BYTES:
            ends.popleft()
        self._progress = msgspec.structs.replace(
            self._progress,
            lanes={**self._progress.lanes, lane: to},
            again={**self._progress.again, lane: min(ends[0], to)},
            lost_bytes=self._progress.lost_bytes + lost,
        )
        write_progress(self._disk, self._directory, self._progress)

    # -- the collector

    def _send(self, spans: list[Span]) -> bool:
        """Sends one request until the collector takes or rejects it; returns False if it was stopped before."""
        body = request_of(spans, self._resource, self._version)
        backoff_s = BACKOFF_S_MIN
        while not self._stopped.is_set():
            try:
                answer = self._collector.post(body, len(spans))
            except CollectorFailed as error:
                self._failed(str(error))
                self._stopped.wait(max(backoff_s, error.wait_s))
                backoff_s = min(2 * backoff_s, BACKOFF_S_MAX)
                continue
            self._answered(len(spans), answer.rejected, answer.why)
            return True
        return False

    def _failed(self, reason: str) -> None:
        """Logs a failure of the collector, once until it answers, and keeps the reason for the doctor."""
        assert self._progress is not None
        if reason == self._progress.failure:
            return
        if not self._progress.failure:
            self._log.collector_failed(self._settings.endpoint, reason)
            self._log.flush()
        since = self._progress.failing_since or time.time()
        self._progress = msgspec.structs.replace(self._progress, failure=reason, failing_since=since)
        with contextlib.suppress(OSError):
            write_progress(self._disk, self._directory, self._progress)

    def _answered(self, spans: int, rejected: int, why: str) -> None:
        assert self._progress is not None
        if self._progress.failure:
            self._log.collector_answers(self._settings.endpoint)
        if rejected:
            self._log.spans_rejected(self._settings.endpoint, rejected, why)
        self._progress = msgspec.structs.replace(
            self._progress,
            sent=self._progress.sent + spans - rejected,
            rejected=self._progress.rejected + rejected,
            failure="",
            failing_since=0.0,
        )


def _deleted(reader: LaneReader, at: int) -> int:
    """Returns how many bytes from ``at`` on were deleted; 0 if the writer skipped them (law: positions-never-reused)."""
    bases = reader.bases
    if not bases or at >= bases[0]:
        return 0
    first = reader.segment(bases[0])
    return 0 if first is not None and first.header.previous_end <= at else bases[0] - at


def start(settings: Settings) -> None:
    """Starts the thread. The process need not wait for it: it is crash-only."""
    threading.Thread(target=Tracer(settings).run, name="tracer", daemon=True).start()
