"""Lag: manager behind receivers, export behind the log, age of the restart positions, and the oldest message.

If the core is not running, positions and export are read from files.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator

from mailcore.control.client import ControlClient, ControlError
from mailcore.control.protocol.messages import AgesPart
from mailcore.counted import counted
from mailcore.doctor.finding import AFTER_PROCESSES, Finding, bad, good, not_known, warn
from mailcore.doctor.host import ANSWER_S, Host
from mailcore.log.disk import Disk
from mailcore.log.positions import PositionsTooNew, RestartPositions, read_all_positions
from mailcore.manager_answers import State
from mailcore.queue.exported import EXPORTED, UNEXPORTED, ExportedLane, read_exported
from mailcore.queue.lanes import JOURNAL, is_incoming

__all__ = ["look"]

SHARE_LOW, SHARE_BAD = 0.1, 0.9  # share of the limit in the settings
POSITIONS_S = 60.0  # and at least POSITIONS_TIMES checkpoints
POSITIONS_TIMES = 10
AGES_S = 8.0  # time limit for reading the queue
OVER_LIFETIME = 1.1
DAY_S = 86_400


def look(host: Host) -> Iterator[Finding]:
    """Yields findings about each lag. Raises PermissionError if this user cannot read the queue."""
    queue = host.settings.queue_directory
    if queue.is_dir() and not os.access(queue, os.R_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(queue))
    try:
        found = read_all_positions(Disk(), str(queue))
    except PositionsTooNew as error:
        yield bad("restart positions", str(error), "Run the newer version of Waypost that wrote them.")
        return
    newest = found[-1] if found else None
    yield _positions(host, newest)
    if host.state is not None:
        yield from _receivers(host, host.state)
    if host.settings.export.enabled:
        yield _export(host, newest)
    yield _oldest(host)


def _positions(host: Host, newest: RestartPositions | None) -> Finding:
    what = "restart positions"
    if newest is None:
        if not host.runs:
            return not_known(
                what, "none found: Waypost never ran here, or the files are damaged",
                "Start Waypost: it writes them, or logs in mail.log what is damaged.",
            )  # fmt: skip
        return bad(
            what, "none found, or all are damaged",
            "Check mail.log; the next start rebuilds them from the lanes.",
        )  # fmt: skip
    age_s = host.wall() - newest.written_at
    written = f"written {_ago(age_s)}"
    allowed_s = max(POSITIONS_S, POSITIONS_TIMES * host.settings.queue.checkpoint_interval_s)
    if age_s > allowed_s and _is_ahead(host.state, newest):
        return bad(
            what, f"{written}, expected every {host.settings.queue.checkpoint_interval_s:g} s; no segment can be deleted",
            "Check disk and mail.log: the manager cannot write or sync. Then restart it.", age_s=age_s,
        )  # fmt: skip
    return good(what, written, age_s=age_s)


def _is_ahead(state: State | None, newest: RestartPositions) -> bool:
    """Tells whether the manager is past the written positions; an idle manager writes none."""
    if state is None:
        return False
    there = {lane: each.runner for lane, each in state.lanes.items()}
    in_file = {lane: each.runner for lane, each in newest.lanes.items()}
    moved = any(in_file.get(lane, at) != at for lane, at in there.items())
    return moved or state.journal.end != newest.journal_end


def _receivers(host: Host, state: State) -> Iterator[Finding]:
    allowed = host.settings.queue.lag_bytes_max
    behind = {lane: max(0, each.end - each.runner) for lane, each in state.lanes.items() if is_incoming(lane)}
    for lane, lag in sorted(behind.items()):
        unread = f"{lag} bytes received but not read by the manager; above {allowed}, new mail is refused with 452"
        remedy = (
            "Run waypost status to see why the manager waits; usually the active set is full of undeliverable mail."
        )
        if lag > SHARE_BAD * allowed:
            yield bad(lane, unread, remedy, lag_bytes=lag)
        elif lag > SHARE_LOW * allowed:
            yield warn(lane, unread, remedy, lag_bytes=lag)
        else:
            yield good(lane, f"{lag} bytes unread", lag_bytes=lag)
    for lane in sorted(behind.keys() - set(state.receivers)):
        if behind[lane]:
            yield warn(
                lane,
                "its receiver is not connected to the manager",
                "See the findings on processes: is the receiver running?",
            )


def _export(host: Host, newest: RestartPositions | None) -> Finding:
    what = "export"
    try:
        exported = read_exported(Disk(), str(host.settings.events_directory / EXPORTED))
    except ValueError as error:
        return bad(what, str(error), "Rename that file; the exporter then continues where events are missing.")
    ends = {lane: each.end for lane, each in newest.lanes.items()} if newest else {}
    ends |= {JOURNAL: newest.journal_end} if newest else {}
    lanes = exported.lanes if exported is not None else {}
    behind = sum(
        max(0, end - lanes.get(lane, ExportedLane(0)).at) for lane, end in ends.items() if lane not in UNEXPORTED
    )
    allowed = host.settings.export.lag_bytes_max
    cut_s = host.wall() - exported.cut_at if exported is not None and exported.cut_at else None
    backlog = f"{behind} bytes not exported" + (f", last count of the queue {_ago(cut_s)}" if cut_s is not None else "")
    figures = {"behind_bytes": behind, "cut_age_s": cut_s}
    remedy = "See processes and log: is the exporter running, and does it have disk space?"
    if behind > SHARE_BAD * allowed:
        return bad(what, f"{backlog}; above {allowed}, reports lose events", remedy, **figures)
    late = cut_s is not None and host.runs and cut_s > 3 * host.settings.export.cut_interval_s
    if behind > SHARE_LOW * allowed or late:
        return warn(what, backlog, remedy, **figures)
    return good(what, backlog, **figures)


def _oldest(host: Host) -> Finding:
    what = "oldest message"
    if host.state is None:
        return not_known(what, "cannot check: the manager process does not answer", AFTER_PROCESSES)
    answer: AgesPart | None = None
    until = time.monotonic() + AGES_S
    try:
        with ControlClient(
            host.settings.run_directory / "control.sock", who="doctor", timeout_s=ANSWER_S, here=True
        ) as control:
            for answer in control.ask_parts("ages", AgesPart):
                if not answer.done and time.monotonic() > until:
                    progress = f"read {counted(answer.examined, 'record')} in {AGES_S:g} s, not all"
                    return not_known(what, progress, "Open the portal's page Ages: it reads the whole queue.")
    except ControlError as error:
        return not_known(what, f"could not read the queue: {error}", AFTER_PROCESSES)
    if answer is None or answer.oldest is None:
        return good(what, "the queue is empty")
    oldest = answer.oldest
    age_s = host.wall() - oldest.arrived_at
    arrival = f"{oldest.queue_id} arrived {_ago(age_s)}; {counted(answer.total, 'message')} in total"
    figures = {"age_s": age_s, "queue_id": oldest.queue_id, "messages": answer.total}
    lifetime_s = host.settings.scheduler.maximal_queue_lifetime
    # Held mail does not expire.
    if age_s > OVER_LIFETIME * lifetime_s + POSITIONS_S and oldest.state != "held":
        return warn(
            what, f"{arrival}; should have expired after {lifetime_s / DAY_S:g} days",
            f"Run: waypost queue explain {oldest.queue_id}", **figures,
        )  # fmt: skip
    return good(what, arrival, **figures)


def _ago(age_s: float) -> str:
    if age_s < 0:
        return f"{-age_s:.0f} s in the future"
    for size, unit in ((DAY_S, "days"), (3600, "h"), (60, "min")):
        if age_s >= 2 * size:
            return f"{age_s / size:.0f} {unit} ago"
    return f"{age_s:.0f} s ago"
