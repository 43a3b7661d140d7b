"""Memory: available on the host and in the control group, used by the processes, and kills by the OOM killer."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from mailcore.counted import counted
from mailcore.doctor.finding import Finding, bad, good, warn
from mailcore.doctor.host import PROC, Host

__all__ = ["look"]

LOW, VERY_LOW = 0.10, 0.03
REMEDY = (
    "Give the host more memory, or lower message_active_limit, message_recipient_limit and the numbers of processes."
)
GROUPS = Path("/sys/fs/cgroup")


def look(host: Host) -> Iterator[Finding]:
    """Yields findings about memory and swap."""
    figures = {
        name: int(value) * 1024
        for name, value in re.findall(r"^(\w+):\s+(\d+) kB", _text(PROC / "meminfo"), re.MULTILINE)
    }
    available, total = figures.get("MemAvailable", 0), figures.get("MemTotal", 1)
    yield _judged("host", available, total)
    swap, swap_free = figures.get("SwapTotal", 0), figures.get("SwapFree", 0)
    if swap and swap - swap_free > swap / 2:
        yield warn("swap", f"{_mb(swap - swap_free)} of {_mb(swap)} used", REMEDY, used_bytes=swap - swap_free)
    yield from _group(host)
    taken = {each.name: _rss(each.pid) for each in host.processes.values() if each.pid is not None and each.is_up}
    if taken:
        most = max(taken, key=lambda name: taken[name])
        yield good(
            "processes", f"{_mb(sum(taken.values()))} in total; largest: {most}, {_mb(taken[most])}", rss_bytes=taken
        )


def _group(host: Host) -> Iterator[Finding]:
    """Yields findings about the supervisor's control group: version 2 with kills, version 1 only its limit."""
    supervisor = host.processes.get("supervisor")
    pid = supervisor.pid if supervisor is not None and supervisor.is_up else None
    lines = [line.split(":", 2) for line in _text(PROC / str(pid or "self") / "cgroup").splitlines()]
    for parts in lines:
        if len(parts) != 3:
            continue
        _, controllers, path = parts
        if controllers == "":
            directory = GROUPS / path.lstrip("/")
            limit, used = _text(directory / "memory.max"), _text(directory / "memory.current")
            killed = re.search(r"^oom_kill (\d+)", _text(directory / "memory.events"), re.MULTILINE)
            if killed and int(killed[1]):
                kills = f"the kernel killed {counted(int(killed[1]), 'process')} because memory ran out"
                yield bad("control group", kills, REMEDY, oom_kills=int(killed[1]))
        elif "memory" in controllers.split(","):
            directory = GROUPS / "memory" / path.lstrip("/")
            limit, used = _text(directory / "memory.limit_in_bytes"), _text(directory / "memory.usage_in_bytes")
        else:
            continue
        if limit.strip().isdigit() and used.strip().isdigit() and int(limit) < 1 << 60:
            yield _judged("control group", max(0, int(limit) - int(used)), int(limit))


def _judged(what: str, available: int, total: int) -> Finding:
    memory = f"{_mb(available)} of {_mb(total)} available"
    figures = {"available_bytes": available, "total_bytes": total}
    if available < VERY_LOW * total:
        return bad(what, memory, REMEDY, **figures)
    if available < LOW * total:
        return warn(what, memory, REMEDY, **figures)
    return good(what, memory, **figures)


def _rss(pid: int) -> int:
    found = re.search(r"^VmRSS:\s+(\d+) kB", _text(PROC / str(pid) / "status"), re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


def _text(path: Path) -> str:
    """Returns the text of a file, or "" if it cannot be read."""
    try:
        return path.read_text()
    except OSError:
        return ""


def _mb(size_bytes: int) -> str:
    return f"{size_bytes / 1e9:.1f} GB" if size_bytes >= 1e9 else f"{size_bytes / 1e6:.0f} MB"
