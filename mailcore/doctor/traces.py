"""Traces: whether the collector answers, and how far they are behind the log."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator

from mailcore.counted import counted
from mailcore.doctor.finding import Finding, good, not_known, warn
from mailcore.doctor.host import Host
from mailcore.log.disk import Disk
from mailcore.log.positions import PositionsTooNew, read_all_positions
from mailcore.queue.lanes import JOURNAL
from mailcore.traces.collector import EMPTY, Collector, CollectorFailed
from mailcore.traces.progress import Progress, behind, progress_directory, read_progress

__all__ = ["look"]

WAIT_S = 5.0
LAG_BYTES = 1 << 20  # a busy host is a second behind, with a collector that answers
REMEDY = "Start the collector, or correct endpoint in [traces]; mail is not affected."


def look(host: Host) -> Iterator[Finding]:
    """Yields findings about the traces. Raises PermissionError if this user cannot read how far they are."""
    traces = host.settings.traces
    if not traces.endpoint:
        yield good("traces", "none are made")
        return
    failure = ""
    try:
        Collector(traces.endpoint, min(WAIT_S, traces.timeout_s), importlib.metadata.version("waypost")).post(EMPTY, 0)
    except CollectorFailed as error:
        failure = str(error)
    if failure:
        yield warn(traces.endpoint, f"{failure}; traces wait", REMEDY)
    else:
        yield good(traces.endpoint, "answers")
    yield _progress(host)


def _progress(host: Host) -> Finding:
    what = "traces"
    try:
        progress = read_progress(Disk(), progress_directory(host.settings))
        found = read_all_positions(Disk(), str(host.settings.queue_directory))
    except (ValueError, PositionsTooNew) as error:
        return not_known(what, str(error), "Look at mail.log: the exporter says what it does about it.")
    except FileNotFoundError:
        found, progress = [], None
    if progress is None or not found:
        return not_known(what, "nothing was sent yet", "Start Waypost, and run waypost doctor again.")
    return _lag(
        what,
        behind({lane: at.end for lane, at in found[-1].lanes.items()} | {JOURNAL: found[-1].journal_end}, progress),
        progress,
    )


def _lag(what: str, lag_bytes: int, progress: Progress) -> Finding:
    figures = {
        "behind_bytes": lag_bytes, "sent": progress.sent, "rejected": progress.rejected, "lost_bytes": progress.lost_bytes,
    }  # fmt: skip
    counts = (
        f"{counted(progress.sent, 'span')} sent, {progress.rejected} rejected; {lag_bytes} bytes of the log not read"
    )
    if progress.lost_bytes:
        counts += f", {progress.lost_bytes} bytes deleted before they were read"
    if lag_bytes > LAG_BYTES or progress.failure:
        return warn(what, counts, REMEDY, **figures)
    return good(what, counts, **figures)
