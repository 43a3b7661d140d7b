"""Limits: may each process open as many files and connections as its settings let it want (getrlimit(2))."""

from __future__ import annotations

import re
import resource
from collections.abc import Iterator

from mailcore.config.settings import Settings
from mailcore.doctor.finding import Finding, good, not_known, warn
from mailcore.doctor.host import PROC, Patient

__all__ = ["look"]

OTHERS = 128  # descriptors of lanes, spool files, sockets between processes
LINE = re.compile(r"^Max open files\s+(\S+)\s+(\S+)", re.MULTILINE)
REMEDY = "Raise LimitNOFILE of the service (or ulimit -n where it is started), or lower the settings named."


def look(patient: Patient) -> Iterator[Finding]:
    wanted = _wanted(patient.settings)
    up = {each.name: each.pid for each in patient.processes.values() if each.pid is not None and each.is_up}
    if not up:
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        most = max(wanted, key=lambda role: wanted[role][0])
        yield _judged(f"{most}, if started here", hard, *wanted[most])
        return
    for name, pid in up.items():
        role = name.partition(".")[0]
        if role not in wanted:
            continue
        try:
            found = LINE.search((PROC / str(pid) / "limits").read_text())
        except PermissionError:
            yield not_known(name, "its limits are not shown to this user", "Run it as root.")
            continue
        except FileNotFoundError:  # it has just ended
            continue
        if found is not None:  # receivers and deliverers take the hard one when they start
            hard = resource.RLIM_INFINITY if found[2] == "unlimited" else int(found[2])
            yield _judged(name, hard, *wanted[role])


def _wanted(settings: Settings) -> dict[str, tuple[int, str]]:
    """role -> descriptors it may come to need, and by which settings."""
    deliverer = settings.deliverer
    return {
        "receiver": (settings.receiver.connections_max + OTHERS, "[receiver] connections_max"),
        "deliverer": (  # a connection and the message it sends
            2 * deliverer.concurrency + deliverer.connections_idle_max + OTHERS,
            "[deliverer] concurrency and connections_idle_max",
        ),
    }


def _judged(what: str, hard: int, wanted: int, names: str) -> Finding:
    infinite = hard == resource.RLIM_INFINITY
    shown = "any number of" if infinite else str(hard)
    told = f"may open {shown} files, may want {wanted} ({names})"
    figures = {"limit": None if infinite else hard, "wanted": wanted}
    if not infinite and hard < wanted:
        return warn(what, told, REMEDY, **figures)
    return good(what, told, **figures)
