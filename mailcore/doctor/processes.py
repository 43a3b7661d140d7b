"""Processes: running or not, uptime, restarts, and whether the manager answers."""

from __future__ import annotations

import os
from collections.abc import Iterator

from mailcore.doctor import shards, shared_settings
from mailcore.doctor.finding import Finding, bad, good, warn
from mailcore.doctor.host import PROC, Host, Process

__all__ = ["look"]

YOUNG_S = 600.0  # a restart within this time is a warning
SLOW_ANSWER_S = 1.0
REMEDY = "See in mail.log how it ended; if by SIGKILL, check memory, too."


def look(host: Host) -> Iterator[Finding]:
    """Yields a finding for each process and for the control socket."""
    supervisor = host.processes.get("supervisor")
    if supervisor is None or not supervisor.is_up:
        last = "it has never run with this home" if supervisor is None else f"process {supervisor.pid} is gone"
        yield bad(
            "supervisor", f"Waypost is not running ({last}); no mail is accepted",
            "Start it (systemctl start waypost-core, or waypost mailcore) and read its output.",
        )  # fmt: skip
        return
    yield good("supervisor", f"process {supervisor.pid}, up {_shown(host.wall() - supervisor.started_at)}")
    for name, process in host.processes.items():
        if name != "supervisor":
            yield _child(process, host.wall())
    yield _manager(host)
    yield from shards.look(host)
    yield from shared_settings.look(host)


def _child(process: Process, now: float) -> Finding:
    figures = {"pid": process.pid, "restarts": process.restarts, "up_s": now - process.started_at}
    if not process.is_up:
        return bad(process.name, "not running; it exits after every restart", REMEDY, **figures)
    uptime = f"process {process.pid}, up {_shown(now - process.started_at)}"
    restarted = f"{uptime}, restarts: {process.restarts}"
    if _is_stopped(process.pid or 0):
        return bad(process.name, f"process {process.pid} is stopped by a debugger or by SIGSTOP",
                   f"Run: kill -CONT {process.pid}", **figures)  # fmt: skip
    if process.restarts and now - process.started_at < YOUNG_S:
        return warn(process.name, restarted, REMEDY, **figures)
    return good(process.name, restarted if process.restarts else uptime, **figures)


def _is_stopped(pid: int) -> bool:
    try:
        return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] in ("T", "t")
    except OSError:
        return False


def _manager(host: Host) -> Finding:
    what = "control socket"
    if host.state is None:
        process = host.processes.get("manager")
        remedy = "If the manager hangs, kill it; it is restarted"
        if process is not None and not process.is_up:
            remedy = "See in mail.log why the manager ended"
        if os.getuid() != 0:  # root has access in any case
            remedy += f"; or run waypost doctor as root or as the user of Waypost (not as uid {os.getuid()})"
        figures = {} if host.silence_code is None else {"code": host.silence_code}
        return bad(what, host.silence or "no answer", f"{remedy}.", **figures)
    took_s = host.answer_s or 0.0
    if took_s > SLOW_ANSWER_S:
        return warn(
            what, f"the manager took {took_s:.1f} s to answer", "Check memory, disk and load of this host.",
            answer_s=took_s,
        )  # fmt: skip
    return good(what, f"the manager answers in {took_s * 1000:.0f} ms", answer_s=took_s)


def _shown(seconds: float) -> str:
    for size, unit in ((86_400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"
