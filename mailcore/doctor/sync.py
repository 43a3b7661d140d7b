"""Sync latency of the queue's disk, which every 250 reply waits for.

The test file has no name (O_TMPFILE) and disappears with its descriptor. If the file system does not support that, or does
not really sync such a file (btrfs), the file has a name during the measurement.
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
from mailcore.doctor.host import Host

__all__ = ["look", "measure"]

TIMES = 50
BLOCK = bytes(4096)
LIMIT_S = 5.0
SLOW_S, BAD_S = 0.010, 0.100  # an idle hard disk needs 4 to 10 ms; users notice 100 ms
STALL_S = 1.0
NAMELESS_UNSYNCED = ("btrfs",)
REMEDY = "Put queue_directory on a separate disk with a write cache that survives a power failure."


def look(host: Host) -> Iterator[Finding]:
    """Yields one finding about the time of fdatasync in the queue's directory. Raises OSError."""
    directory = host.settings.queue_directory
    what = "sync latency"
    if not directory.is_dir():
        yield not_known(
            what, f"{directory} does not exist yet", "Start Waypost, which creates it; then run waypost doctor again."
        )
        return
    times = measure(directory)
    if not times:
        yield bad(what, f"no sync finished within {LIMIT_S:g} s", REMEDY)
        return
    median, worst = statistics.median(times), max(times)
    latency = f"median {median * 1000:.2f} ms, worst {worst * 1000:.1f} ms of {len(times)} syncs in {directory}"
    figures = {"median_ms": median * 1000, "worst_ms": worst * 1000, "syncs": len(times)}
    if median >= BAD_S:
        yield bad(what, latency, REMEDY, **figures)
    elif median >= SLOW_S or worst >= STALL_S:
        yield warn(what, latency, REMEDY, **figures)
    else:
        yield good(what, latency, **figures)


def measure(directory: Path, times: int = TIMES, limit_s: float = LIMIT_S) -> list[float]:
    """Returns the seconds of each append with fdatasync; fewer than ``times`` if ``limit_s`` is reached. Raises OSError."""
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
        except OSError:  # the file system does not support it (EOPNOTSUPP, EISDIR)
            pass
    name = str(directory / f".doctor.{os.getpid()}")
    return os.open(name, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600), name
