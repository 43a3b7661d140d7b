"""Lag: how far the manager is behind the receivers, the export behind the log, the restart positions behind the clock; and
the oldest message. Where the core is down, files tell the half of it.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from typing import Any

from mailcore.control.client import ControlClient, ControlError
from mailcore.doctor.finding import Finding, bad, good, not_known, warn
from mailcore.doctor.host import ANSWER_S, Patient
from mailcore.log.disk import Disk
from mailcore.log.positions import PositionsTooNew, RestartPositions, read_all_positions
from mailcore.queue.exported import EXPORTED, UNEXPORTED, ExportedLane, read_exported
from mailcore.queue.lanes import JOURNAL, is_incoming

__all__ = ["look"]

SHARE_LOW, SHARE_BAD = 0.1, 0.9  # of what is allowed
POSITIONS_S = 60.0  # and at least so many checkpoints
POSITIONS_TIMES = 10
AGES_S = 8.0  # of looking through the queue
OVER_LIFETIME = 1.1
DAY_S = 86_400


def look(patient: Patient) -> Iterator[Finding]:
    queue = patient.settings.queue_directory
    if queue.is_dir() and not os.access(queue, os.R_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(queue))
    try:
        found = read_all_positions(Disk(), str(queue))
    except PositionsTooNew as error:
        yield bad("restart positions", str(error), "Run the newer Waypost again, which wrote them.")
        return
    newest = found[-1] if found else None
    yield _positions(patient, newest)
    if patient.state is not None:
        yield from _receivers(patient, patient.state)
    if patient.settings.export.enabled:
        yield _export(patient, newest)
    yield _oldest(patient)


def _positions(patient: Patient, newest: RestartPositions | None) -> Finding:
    what = "restart positions"
    if newest is None:
        if not patient.runs:
            return not_known(what, "there are none: Waypost never ran here, or they can't be believed")
        return bad(
            what, "there are none, or none that can be believed",
            "Look into the log: they are made from the files at the next start.",
        )  # fmt: skip
    age_s = patient.wall() - newest.written_at
    told = f"written {_ago(age_s)}"
    allowed_s = max(POSITIONS_S, POSITIONS_TIMES * patient.settings.queue.checkpoint_interval_s)
    if age_s > allowed_s and _is_ahead(patient.state, newest):
        return bad(
            what, f"{told}, every {patient.settings.queue.checkpoint_interval_s:g} s expected: no segment can be deleted",
            "Look at disk and log: the manager can't sync or write; restart it.", age_s=age_s,
        )  # fmt: skip
    return good(what, told, age_s=age_s)


def _is_ahead(state: dict[str, Any] | None, newest: RestartPositions) -> bool:
    """Whether the manager has come further than what is written; when nothing happens, nothing is written."""
    if state is None:
        return False
    there = {lane: each["runner"] for lane, each in (state.get("lanes") or {}).items()}
    written = {lane: each.runner for lane, each in newest.lanes.items()}
    moved = any(written.get(lane, at) != at for lane, at in there.items())
    return moved or (state.get("journal") or {}).get("end", newest.journal_end) != newest.journal_end


def _receivers(patient: Patient, state: dict[str, Any]) -> Iterator[Finding]:
    allowed = patient.settings.queue.lag_bytes_max
    lanes = state.get("lanes") or {}
    behind = {lane: max(0, each["end"] - each["runner"]) for lane, each in lanes.items() if is_incoming(lane)}
    for lane, lag in sorted(behind.items()):
        told = f"{lag} bytes received and not read by the manager; new mail gets 452 beyond {allowed}"
        remedy = (
            "Look what the manager waits for (waypost status): the active set is full of mail that can't be delivered."
        )
        if lag > SHARE_BAD * allowed:
            yield bad(lane, told, remedy, lag_bytes=lag)
        elif lag > SHARE_LOW * allowed:
            yield warn(lane, told, remedy, lag_bytes=lag)
        else:
            yield good(lane, f"{lag} bytes unread", lag_bytes=lag)
    for lane in sorted(behind.keys() - set(state.get("receivers") or ())):
        if behind[lane]:
            yield warn(lane, "its receiver is not connected to the manager", "See processes: is the receiver up?")


def _export(patient: Patient, newest: RestartPositions | None) -> Finding:
    what = "export"
    try:
        exported = read_exported(Disk(), str(patient.settings.events_directory / EXPORTED))
    except ValueError as error:
        return bad(what, str(error), "Set that file aside; the export begins anew where events are missing.")
    ends = {lane: each.end for lane, each in newest.lanes.items()} if newest else {}
    ends |= {JOURNAL: newest.journal_end} if newest else {}
    lanes = exported.lanes if exported is not None else {}
    behind = sum(
        max(0, end - lanes.get(lane, ExportedLane(0)).at) for lane, end in ends.items() if lane not in UNEXPORTED
    )
    allowed = patient.settings.export.lag_bytes_max
    cut_s = patient.wall() - exported.cut_at if exported is not None and exported.cut_at else None
    told = f"{behind} bytes not exported" + (f", last cut {_ago(cut_s)}" if cut_s is not None else "")
    figures = {"behind_bytes": behind, "cut_age_s": cut_s}
    remedy = "See processes and log: is the exporter up, and has it room for its files?"
    if behind > SHARE_BAD * allowed:
        return bad(what, f"{told}; beyond {allowed} events are lost to the reports", remedy, **figures)
    late = cut_s is not None and patient.runs and cut_s > 3 * patient.settings.export.cut_interval_s
    if behind > SHARE_LOW * allowed or late:
        return warn(what, told, remedy, **figures)
    return good(what, told, **figures)


def _oldest(patient: Patient) -> Finding:
    what = "oldest message"
    if patient.state is None:
        return not_known(what, "the manager does not answer")
    answer: dict[str, Any] = {}
    until = time.monotonic() + AGES_S
    try:
        with ControlClient(
            patient.settings.run_directory / "control.sock", who="doctor", timeout_s=ANSWER_S
        ) as control:
            for answer in control.parts("ages"):
                if not answer.get("done") and time.monotonic() > until:
                    told = (
                        f"{answer.get('examined')} records were looked through within {AGES_S:g} s, and there are more"
                    )
                    return not_known(what, f"{told}: the portal's page of ages has it")
    except ControlError as error:
        return not_known(what, f"the queue could not be looked through: {error}")
    oldest = answer.get("oldest")
    if not oldest:
        return good(what, "the queue is empty")
    age_s = patient.wall() - oldest["arrived_at"]
    state = str(oldest.get("state", ""))
    told = f"{oldest.get('queue_id')} arrived {_ago(age_s)}, {answer.get('total')} messages in all"
    figures = {"age_s": age_s, "queue_id": oldest.get("queue_id"), "messages": answer.get("total")}
    lifetime_s = patient.settings.scheduler.maximal_queue_lifetime
    if age_s > OVER_LIFETIME * lifetime_s + POSITIONS_S and state != "held":
        return warn(
            what, f"{told}; it should have expired after {lifetime_s / DAY_S:g} days",
            f"Ask why it waits: waypost queue explain {oldest.get('queue_id')}", **figures,
        )  # fmt: skip
    return good(what, told, **figures)


def _ago(age_s: float) -> str:
    if age_s < 0:
        return f"{-age_s:.0f} s in the future"
    for size, unit in ((DAY_S, "days"), (3600, "h"), (60, "min")):
        if age_s >= 2 * size:
            return f"{age_s / size:.0f} {unit} ago"
    return f"{age_s:.0f} s ago"
