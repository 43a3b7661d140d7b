"""The maildrop: files that were set aside, and mail of local programs that waits."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

from mailcore.counted import counted
from mailcore.doctor.finding import Finding, good, not_known, warn
from mailcore.doctor.host import Host
from mailcore.pickup.dropped import ASIDE, DIRECTORY, names_of

__all__ = ["look"]

WAITS_S = 60.0  # the pickup looks each second


def look(host: Host) -> Iterator[Finding]:
    """Yields findings about the maildrop."""
    directory = host.settings.home / DIRECTORY
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        yield not_known("maildrop", f"{directory} does not exist", "Start Waypost: it makes the directory.")
        return
    except PermissionError:
        yield not_known("maildrop", f"{directory} cannot be read by this user", "Run waypost doctor as its owner.")
        return
    aside = sum(name.startswith(ASIDE) for name in names)
    if aside:
        yield warn(
            "maildrop",
            f"set aside in {directory}, and not sent: {counted(aside, 'file')}",
            f"Look at {directory}/{ASIDE}*, whose owners submitted them; remove them when they are not needed.",
            files=aside,
        )
    now, waiting, oldest_s = time.time(), names_of(names), 0.0
    for name in waiting:
        try:
            oldest_s = max(oldest_s, now - os.lstat(directory / name).st_mtime)
        except FileNotFoundError:
            continue
    if oldest_s > WAITS_S:
        yield warn(
            "maildrop",
            f"waiting in {directory}: {counted(len(waiting), 'message')} of local programs, one for {oldest_s:.0f} s",
            "Start Waypost, or see mail.log for lines of pickup that say why they are not taken.",
            files=len(waiting),
            oldest_s=round(oldest_s, 1),
        )
    elif not aside:
        yield good("maildrop", f"waiting: {counted(len(waiting), 'message')} of local programs", files=len(waiting))
