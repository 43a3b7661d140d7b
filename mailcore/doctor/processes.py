"""Processes: are they up, since when, how often were they started again, does the manager answer."""

from __future__ import annotations

import os
from collections.abc import Iterator

from mailcore.doctor.finding import Finding, bad, good, warn
from mailcore.doctor.host import PROC, Patient, Process

__all__ = ["look"]

YOUNG_S = 600.0  # who was started again so short ago is no good sign
SLOW_ANSWER_S = 1.0
REMEDY = "Look into the log for how it ended; with signal SIGKILL, at memory, too."


def look(patient: Patient) -> Iterator[Finding]:
    supervisor = patient.processes.get("supervisor")
    if supervisor is None or not supervisor.is_up:
        last = "it never ran on this home" if supervisor is None else f"process {supervisor.pid} is gone"
        yield bad(
            "supervisor", f"Waypost is not running: {last}; no mail is accepted",
            "Start it (systemctl start waypost-core, or waypost mailcore) and read what it says.",
        )  # fmt: skip
        return
    yield good("supervisor", f"process {supervisor.pid}, up {_shown(patient.wall() - supervisor.started_at)}")
    for name, process in patient.processes.items():
        if name != "supervisor":
            yield _child(process, patient.wall())
    yield _manager(patient)


def _child(process: Process, now: float) -> Finding:
    figures = {"pid": process.pid, "restarts": process.restarts, "up_s": now - process.started_at}
    if not process.is_up:
        return bad(process.name, "not running; it is started again and again, and ends", REMEDY, **figures)
    told = f"process {process.pid}, up {_shown(now - process.started_at)}, started again {process.restarts} times"
    if _is_stopped(process.pid or 0):
        return bad(process.name, f"process {process.pid} is stopped: a debugger or SIGSTOP holds it",
                   f"Run: kill -CONT {process.pid}", **figures)  # fmt: skip
    if process.restarts and now - process.started_at < YOUNG_S:
        return warn(process.name, told, REMEDY, **figures)
    return good(process.name, told if process.restarts else told.rpartition(",")[0], **figures)


def _is_stopped(pid: int) -> bool:
    try:
        return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] in ("T", "t")
    except OSError:
        return False


def _manager(patient: Patient) -> Finding:
    what = "control socket"
    if patient.state is None:
        process = patient.processes.get("manager")
        remedy = "Kill the manager if it hangs, it is started again"
        if process is not None and not process.is_up:
            remedy = "Find out why the manager does not run: the log says how it ended"
        if os.getuid() != 0:  # root always may
            remedy += f"; run the doctor as a user who may ask (not uid {os.getuid()})"
        return bad(what, patient.silence or "no answer", f"{remedy}.")
    took_s = patient.answer_s or 0.0
    if took_s > SLOW_ANSWER_S:
        return warn(
            what, f"the manager took {took_s:.1f} s to answer", "Look at memory, disk and the load of this host.",
            answer_s=took_s,
        )  # fmt: skip
    return good(what, f"the manager answers in {took_s * 1000:.0f} ms", answer_s=took_s)


def _shown(seconds: float) -> str:
    for size, unit in ((86_400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"
