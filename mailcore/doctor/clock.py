"""Clock: synchronization, jumps since the start, timestamps in the future; and the time zone."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator

from mailcore.doctor.finding import Finding, bad, good, not_known, warn
from mailcore.doctor.host import Host
from mailcore.log.disk import Disk
from mailcore.log.positions import PositionsTooNew, read_all_positions

__all__ = ["look"]

ANSWER_S = 3.0
JUMP_S = 5.0  # smaller jumps make no time in a Received field or a report wrong
FUTURE_S = 5.0
_STA_UNSYNC = 0x40  # adjtimex(2)
REMEDY = "Run one time service (chrony or systemd-timesyncd) and let it step the clock only at boot."


def look(host: Host) -> Iterator[Finding]:
    """Yields findings about the clock of this host."""
    yield _kept()
    yield _moved(host)
    yield from _future(host)
    yield _zone(host)


def _kept() -> Finding:
    properties = _timedatectl()
    if properties.get("NTPSynchronized") in ("yes", "no"):
        kept = properties["NTPSynchronized"] == "yes"
        service = {"yes": "a time service is enabled", "no": "no time service is enabled"}.get(
            properties.get("NTP", ""), ""
        )
    else:
        state = _kernel()
        if state is None:
            return not_known(
                "synchronization",
                "neither timedatectl nor the kernel reports whether the clock is synchronized",
                REMEDY,
            )
        kept, service = state, "according to the kernel; timedatectl does not answer"
    more = f" ({service})" if service else ""
    if kept:
        return good("synchronization", f"synchronized{more}", synchronized=True)
    return warn(
        "synchronization",
        f"not synchronized{more}; times in Received fields and reports will be wrong",
        REMEDY,
        synchronized=False,
    )


def _timedatectl() -> dict[str, str]:
    """Returns the properties of timedatectl; empty without systemd, or if it does not answer."""
    program = shutil.which("timedatectl")
    if program is None:
        return {}
    try:
        command = [program, "show", "--property=NTP", "--property=NTPSynchronized"]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=ANSWER_S, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return {}
    return dict(line.split("=", 1) for line in ended.stdout.splitlines() if "=" in line)


def _kernel() -> bool | None:
    """Tells whether the kernel's clock is synchronized: adjtimex(2) without changes. None if the call fails."""
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


def _moved(host: Host) -> Finding:
    """Compares, for each process, the clock of now with the clock at its start, both less the time since the boot.

    The kernel's start time of a process does not serve: it is that of the first program in it, and ``./run``, which becomes
    the supervisor, may have installed packages for minutes before.
    """
    booted_at = host.wall() - time.clock_gettime(time.CLOCK_BOOTTIME)
    jumps = [
        booted_at - (process.started_at - process.since_boot_s)
        for process in host.processes.values()
        if process.since_boot_s is not None and process.is_up
    ]
    if not jumps:
        return not_known(
            "jumps", "cannot check: no process of Waypost is running", "Start Waypost; then run waypost doctor again."
        )
    jump = max(jumps, key=abs)
    if abs(jump) < JUMP_S:
        return good("jumps", "none since Waypost started", jump_s=jump)
    return warn(
        "jumps",
        f"the clock was set {'forward' if jump > 0 else 'back'} by {abs(jump):.0f} s since Waypost started",
        REMEDY,
        jump_s=jump,
    )


def _future(host: Host) -> Iterator[Finding]:
    """Yields a finding about restart positions that were written while the clock was ahead."""
    try:
        found = read_all_positions(Disk(), str(host.settings.queue_directory))
    except PositionsTooNew:  # reported by the check lag
        return
    if not found:
        return
    ahead_s = found[-1].written_at - host.wall()
    if ahead_s > FUTURE_S:
        yield bad(
            "future",
            f"restart positions are dated {ahead_s:.0f} s in the future: the clock was fast then, or is slow now",
            REMEDY,
            ahead_s=ahead_s,
        )
    else:
        yield good("future", "no timestamps in the future")


def _zone(host: Host) -> Finding:
    here = time.strftime("%Z, UTC%z", time.localtime(host.wall()))
    reports = host.settings.reports.zone
    zones = f"this host uses {here} (also in mail.log); [reports] zone is {reports}"
    return good("time zone", zones, host=here, reports=reports)
