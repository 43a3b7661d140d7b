"""Disk: free space compared with the reserve, inodes, and whether the file system keeps mail after a power failure."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from mailcore.config.settings import Settings
from mailcore.doctor.finding import Finding, bad, good, warn
from mailcore.doctor.host import PROC, Host, nearest
from mailcore.log.disk import Disk
from mailcore.queue.ballast import NAME, NOTHING, held
from mailcore.queue.ballast import places as ballast_places

__all__ = ["Mount", "look", "mount_of", "places"]

IN_MEMORY = ("tmpfs", "ramfs")
ELSEWHERE = ("nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "glusterfs")
SHARE_LOW = 0.05
INODES_LOW, INODES_BAD = 0.05, 1_000  # a share; a number
FULL = "Free space or enlarge the disk: old logs, events (export.keep_days), reports (reports.keep_days), held mail."


class Mount(NamedTuple):
    """A mounted file system: its mount point, type and options."""

    point: str
    kind: str
    options: frozenset[str]


def look(host: Host) -> Iterator[Finding]:
    """Yields findings for each file system that Waypost writes to."""
    grouped: dict[int, list[str]] = {}
    where: dict[int, Path] = {}
    for name, path in places(host.settings).items():
        there = nearest(path)
        device = os.stat(there).st_dev
        grouped.setdefault(device, []).append(name)
        where.setdefault(device, there)
    for device, names in grouped.items():
        keeps_mail = bool({"queue", "spool"} & set(names))
        what = ", ".join(names) if len(grouped) > 1 else "home and all directories"
        yield from _room(what, where[device], host.settings.queue.reserve_bytes if keeps_mail else 0)
        yield from _kind(what, where[device], keeps_mail)
    yield from _ballasts(host.settings)


def _ballasts(settings: Settings) -> Iterator[Finding]:
    """Yields a finding for each disk with a ballast; the manager makes them when it runs for the first time."""
    wanted, disk = settings.queue, Disk()
    for place in ballast_places(disk, settings.ballast_directories, NOTHING):
        if not os.path.isdir(os.path.join(place.directory, NAME)):
            continue
        left = held(disk, place.directory)
        space = f"{_size(left.space_bytes)} of {_size(wanted.ballast_bytes)}"
        of_it = f"{space} and {left.inodes} of {wanted.ballast_inodes} inodes"
        figures = {"ballast_bytes": left.space_bytes, "ballast_inodes": left.inodes}
        if left.space_bytes < wanted.ballast_bytes or left.inodes < wanted.ballast_inodes:
            yield warn("ballast", f"in use in {place.directory}: {of_it} left for delivery", FULL, **figures)
        else:
            yield good("ballast", f"whole in {place.directory}: {of_it}", **figures)


def places(settings: Settings) -> dict[str, Path]:
    """Returns the directories that Waypost writes to, by the name used in findings."""
    return {
        "home": settings.home,
        "queue": settings.queue_directory,
        "spool": settings.spool_directory,
        "log": settings.log_directory,
        "run": settings.run_directory,
        "events": settings.events_directory,
        "reports": settings.reports_directory,
    }


def mount_of(path: Path) -> Mount:
    """Returns the mounted file system of a path (proc(5), mountinfo). Raises OSError."""
    real = os.path.realpath(nearest(path))
    best = Mount("", "", frozenset())
    for line in (PROC / "self" / "mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        fields = before.split()
        point = fields[4].encode().decode("unicode_escape")  # a space is \\040
        inside = real == point or real.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best.point):  # a later one lies above an earlier one
            kind, _, rest = after.split(" ", 2)
            best = Mount(point, kind, frozenset(fields[5].split(",")) | frozenset(rest.split(",")))
    return best


def _room(what: str, path: Path, reserve: int) -> Iterator[Finding]:
    status = os.statvfs(path)
    free, total = status.f_bavail * status.f_frsize, status.f_blocks * status.f_frsize
    space = f"{_size(free)} of {_size(total)} free" + (f", reserve {_size(reserve)}" if reserve else "")
    figures = {"free_bytes": free, "total_bytes": total, "reserve_bytes": reserve}
    if (reserve and free < reserve) or free == 0:
        yield bad(what, f"{space}; new mail is refused with 452" if reserve else space, FULL, **figures)
    elif free < max(2 * reserve, SHARE_LOW * total):
        yield warn(what, space, FULL, **figures)
    else:
        yield good(what, space, **figures)
    if status.f_files == 0:  # this file system creates inodes on demand
        return
    inodes = f"{status.f_favail} of {status.f_files} inodes free"
    figures = {"inodes_free": status.f_favail, "inodes_total": status.f_files}
    remedy = "Remove small files from this file system, or create it again with more inodes."
    if status.f_favail < min(INODES_BAD, SHARE_LOW * status.f_files):
        yield bad(what, inodes, remedy, **figures)
    elif status.f_favail < INODES_LOW * status.f_files:
        yield warn(what, inodes, remedy, **figures)
    else:
        yield good(what, inodes, **figures)


def _kind(what: str, path: Path, keeps_mail: bool) -> Iterator[Finding]:
    mount = mount_of(path)
    mounted = f"{mount.kind} at {mount.point}"
    if "ro" in mount.options:
        yield bad(
            what, f"{mounted}, mounted read-only", "Check the kernel log for disk errors, then mount it read-write."
        )
    elif keeps_mail and mount.kind in IN_MEMORY:
        yield bad(
            what, f"{mounted}: kept in memory; accepted mail is lost at the next power failure",
            "Put queue_directory and spool_directory on a disk.",
        )  # fmt: skip
    elif keeps_mail and mount.kind in ELSEWHERE:
        yield warn(
            what, f"{mounted}: a network file system; durability and locking depend on the server",
            "Put queue_directory and spool_directory on a local disk.",
        )  # fmt: skip
    else:
        yield good(what, mounted, kind=mount.kind)


def _size(size_bytes: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if size_bytes < 999.5:
            return f"{size_bytes:.0f} {unit}" if size_bytes >= 10 or unit == "B" else f"{size_bytes:.1f} {unit}"
        size_bytes /= 1000
    return f"{size_bytes:.1f} TB"
