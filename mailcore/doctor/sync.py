"""Sync latency: what each 250 waits for, measured on the disk the queue lies on.

Nothing stays behind: the file has no name (O_TMPFILE), and is gone with its descriptor. Where a file system can't make such
a file, or syncs it without a disk (btrfs leaves out what has no name), it has a name for as long as it takes.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

from mailcore.doctor.disk import mount_of
from mailcore.doctor.finding import Finding, bad, good, not_known, warn
from mailcore.doctor.host import Patient

__all__ = ["look", "measure"]

TIMES = 50
BLOCK = bytes(4096)
LIMIT_S = 5.0
SLOW_S, BAD_S = 0.010, 0.100  # an idle disk that spins takes 4 to 10 ms; a message that waits 100 ms is noticed
STALL_S = 1.0
NAMELESS_UNSYNCED = ("btrfs",)
REMEDY = "Put queue_directory on a disk of its own, with a write cache that survives a power cut."


def look(patient: Patient) -> Iterator[Finding]:
    directory = patient.settings.queue_directory
    what = "sync latency"
    if not directory.is_dir():
        yield not_known(what, f"{directory} is not there yet: it is made by the first start")
        return
    taken = measure(directory)
    if not taken:
        yield bad(what, f"not one sync ended within {LIMIT_S:g} s", REMEDY)
        return
    median, worst = statistics.median(taken), max(taken)
    told = f"median {median * 1000:.2f} ms, worst {worst * 1000:.1f} ms of {len(taken)} ({directory})"
    figures = {"median_ms": median * 1000, "worst_ms": worst * 1000, "syncs": len(taken)}
    if median >= BAD_S:
        yield bad(what, told, REMEDY, **figures)
    elif median >= SLOW_S or worst >= STALL_S:
        yield warn(what, told, REMEDY, **figures)
    else:
        yield good(what, told, **figures)


def measure(directory: Path, times: int = TIMES, limit_s: float = LIMIT_S) -> list[float]:
    """Seconds of each append and fdatasync; fewer than ``times`` when they take long. Raises OSError."""
    fd, name = _file(directory)
    taken: list[float] = []
    until = time.monotonic() + limit_s
    try:
        while len(taken) < times and time.monotonic() < until:
            began = time.perf_counter()
            os.pwrite(fd, BLOCK, len(taken) * len(BLOCK))
            os.fdatasync(fd)
            taken.append(time.perf_counter() - began)
    finally:
        os.close(fd)
        if name is not None:
            with contextlib.suppress(OSError):
                os.unlink(name)
    return taken


def _file(directory: Path) -> tuple[int, str | None]:
    if mount_of(directory).kind not in NAMELESS_UNSYNCED:
        try:
            return os.open(directory, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600), None
        except PermissionError:
            raise
        except OSError:  # this file system has none (EOPNOTSUPP, EISDIR)
            pass
    name = str(directory / f".doctor.{os.getpid()}")
    return os.open(name, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600), name
