"""Limits: open files per process (getrlimit(2)) compared with the number its settings can need."""

from __future__ import annotations

import re
import resource
from collections.abc import Iterator

from mailcore.config.settings import Settings
from mailcore.doctor.finding import Finding, good, not_known, warn
from mailcore.doctor.host import PROC, Host

__all__ = ["look"]

OTHERS = 128  # file descriptors of lanes, spool files, sockets between processes
LINE = re.compile(r"^Max open files\s+(\S+)\s+(\S+)", re.MULTILINE)
REMEDY = "Raise LimitNOFILE of the service (or ulimit -n in the shell that starts it), or lower these settings."


def look(host: Host) -> Iterator[Finding]:
    """Yields a finding for each receiver and deliverer; if none runs, for a start by this user."""
    wanted = _wanted(host.settings)
    up = {each.name: each.pid for each in host.processes.values() if each.pid is not None and each.is_up}
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
            yield not_known(name, "this user cannot read its limits", "Run waypost doctor as root.")
            continue
        except FileNotFoundError:  # it has just ended
            continue
        if found is not None:  # receivers and deliverers raise their soft limit to the hard one
            hard = resource.RLIM_INFINITY if found[2] == "unlimited" else int(found[2])
            yield _judged(name, hard, *wanted[role])


def _wanted(settings: Settings) -> dict[str, tuple[int, str]]:
    """Returns for each role the number of file descriptors it can need, and the settings that decide it."""
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
    limit = "no limit on open files" if infinite else f"limit {hard} open files"
    comparison = f"{limit}, needs up to {wanted} ({names})"
    figures = {"limit": None if infinite else hard, "wanted": wanted}
    if not infinite and hard < wanted:
        return warn(what, comparison, REMEDY, **figures)
    return good(what, comparison, **figures)
