"""Removes old events: whole days and the cuts of those days; the queue ids of cuts are removed sooner.

Keeps law: one-identity (docs/laws.md).
"""

from __future__ import annotations

import contextlib
import os
import re

from mailcore.events.day import DAY_S, day_of
from mailcore.events.write.cutoff import CUTS, IDS
from mailcore.log.disk import Disk

__all__ = ["remove_old"]

IDS_DAYS = 14  # for the search why a day does not balance

_DAY = re.compile(r"dt=(\d{4}-\d{2}-\d{2})")


def remove_old(disk: Disk, events_directory: str, now: float, keep_days: int) -> list[str]:
    """Removes days that ended ``keep_days`` ago, and their cuts; returns the paths. The next run completes a killed one.

    Removes nothing if the directory does not carry the identity of this Waypost. Raises OSError.
    """
    if not disk.is_identified(events_directory):
        return []
    oldest = day_of(max(now - keep_days * DAY_S, 0.0))
    removed = []
    for name in disk.list(events_directory):
        found = _DAY.fullmatch(name)
        if found is None or found[1] >= oldest:
            continue
        directory = os.path.join(events_directory, name)
        for file in disk.list(directory):
            with contextlib.suppress(FileNotFoundError):
                disk.unlink(os.path.join(directory, file))
        disk.remove_directory(directory)
        removed.append(directory)
    cuts = os.path.join(events_directory, CUTS)
    unnamed = max(oldest, day_of(max(now - IDS_DAYS * DAY_S, 0.0)))
    for name in disk.list(cuts):
        if name[:10] < (unnamed if name.endswith(IDS) else oldest):
            disk.unlink(os.path.join(cuts, name))
            removed.append(os.path.join(cuts, name))
    return removed
