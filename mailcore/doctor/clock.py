"""Clock: does somebody keep it, was it moved, does anything lie in its future; and the time zone."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator

from mailcore.doctor.finding import Finding, bad, good, not_known, warn
from mailcore.doctor.host import PROC, Patient
from mailcore.log.disk import Disk
from mailcore.log.positions import PositionsTooNew, read_all_positions

__all__ = ["look"]

ANSWER_S = 3.0
JUMP_S = 5.0  # less is what starting a process and reading its times may differ by
FUTURE_S = 5.0
_STA_UNSYNC = 0x40  # adjtimex(2)
REMEDY = "Let one service keep the clock (chrony or systemd-timesyncd), and let it step only at boot."


def look(patient: Patient) -> Iterator[Finding]:
    yield _kept()
    yield _moved(patient)
    yield from _future(patient)
    yield _zone(patient)


def _kept() -> Finding:
    told = _timedatectl()
    if told.get("NTPSynchronized") in ("yes", "no"):
        kept = told["NTPSynchronized"] == "yes"
        service = {"yes": "a time service is on", "no": "no time service is on"}.get(told.get("NTP", ""), "")
    else:
        state = _kernel()
        if state is None:
            return not_known("kept", "neither timedatectl nor the kernel says whether somebody keeps the clock", REMEDY)
        kept, service = state, "the kernel says so; timedatectl does not answer"
    more = f" ({service})" if service else ""
    if kept:
        return good("kept", f"synchronized{more}", synchronized=True)
    return warn(
        "kept", f"not synchronized{more}: Received fields and reports will be wrong", REMEDY, synchronized=False
    )


def _timedatectl() -> dict[str, str]:
    """Nothing where there is no systemd."""
    program = shutil.which("timedatectl")
    if program is None:
        return {}
    try:
        command = [program, "show", "--property=NTP", "--property=NTPSynchronized"]
        told = subprocess.run(command, capture_output=True, text=True, timeout=ANSWER_S, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return {}
    return dict(line.split("=", 1) for line in told.stdout.splitlines() if "=" in line)


def _kernel() -> bool | None:
    """adjtimex(2) with nothing to change. None when it can't be asked."""
    room = ctypes.create_string_buffer(
        256
    )  # struct timex has 208 bytes where a long has 64 bits; all zero changes nothing
    try:
        if ctypes.CDLL(None, use_errno=True).adjtimex(room) < 0:
            return None
    except AttributeError:
        return None
    status = int.from_bytes(room.raw[40:44], sys.byteorder)  # behind modes and four longs
    return not status & _STA_UNSYNC


def _moved(patient: Patient) -> Finding:
    """When a process began: by the clock of then, and counted back from the clock of now."""
    jumps = []
    for process in patient.processes.values():
        began = _began(process.pid, patient.wall()) if process.pid is not None and process.is_up else None
        if began is not None:
            jumps.append(began - process.started_at)
    if not jumps:
        return not_known("jumps", "no process of Waypost runs whose start it could be seen by")
    jump = max(jumps, key=abs)
    if abs(jump) < JUMP_S:
        return good("jumps", "none since Waypost was started", jump_s=jump)
    return warn(
        "jumps",
        f"the clock was set {'forward' if jump > 0 else 'back'} by {abs(jump):.0f} s since Waypost was started",
        REMEDY,
        jump_s=jump,
    )


def _began(pid: int, now: float) -> float | None:
    try:
        ticks = int((PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        return None
    up_s = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return now - up_s


def _future(patient: Patient) -> Iterator[Finding]:
    """What was written by a clock that was ahead."""
    try:
        found = read_all_positions(Disk(), str(patient.settings.queue_directory))
    except PositionsTooNew:  # lag tells of it
        return
    if not found:
        return
    ahead_s = found[-1].written_at - patient.wall()
    if ahead_s > FUTURE_S:
        yield bad(
            "future",
            f"the restart positions were written {ahead_s:.0f} s in the future: the clock was ahead, or is behind now",
            REMEDY,
            ahead_s=ahead_s,
        )
    else:
        yield good("future", "nothing lies in it")


def _zone(patient: Patient) -> Finding:
    here = time.strftime("%Z, UTC%z", time.localtime(patient.wall()))
    reports = patient.settings.reports.zone
    told = f"this host's is {here}, in which mail.log is written; [reports] zone is {reports}"
    return good("time zone", told, host=here, reports=reports)
