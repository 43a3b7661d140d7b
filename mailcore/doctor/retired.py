"""Retired segments: disk space that is kept for the data of waiting mail, and how much of it is needed."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator

from mailcore.counted import counted
from mailcore.doctor.finding import Finding, good, not_known, warn
from mailcore.doctor.host import Host
from mailcore.log.disk import Disk
from mailcore.lookup.retired import RetiredLook
from mailcore.queue.bodies import LOOK_S

__all__ = ["look"]

TIMES = 4  # as many bytes as are needed: carrying and compaction keep it below that
SLACK_BYTES = 1 << 30  # a retired segment goes as a whole, so that small queues are above TIMES
READ_MAX = 2_000  # segments: some seconds
LEFT_S = 3 * LOOK_S  # a segment of which nothing is needed is deleted before


def look(host: Host) -> Iterator[Finding]:
    """Yields a finding. Raises PermissionError if this user cannot read the queue."""
    queue, what = host.settings.queue_directory, "retired segments"
    if not queue.is_dir():
        return
    if not os.access(queue, os.R_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(queue))
    retired = RetiredLook(Disk(), str(queue), READ_MAX)
    found = [retired.of(lane) for lane in retired.lanes()]
    segments, size = sum(each.segments for each in found), sum(each.bytes for each in found)
    if not segments:
        yield good(what, "none")
        return
    known = [each.needed_bytes for each in found if each.needed_bytes is not None]
    begun = [each.oldest_at for each in found if each.oldest_at]
    oldest_s = host.wall() - min(begun) if begun else None
    figures = {"segments": segments, "bytes": size, "oldest_s": oldest_s}
    there = f"{counted(segments, 'segment')}, {size} bytes"
    if len(known) < len(found):
        yield not_known(
            what, f"{there}; not all of them could be read, so it is not known what is needed",
            "See mail.log for damaged segments, and waypost queue positions for their lanes.", **figures,
        )  # fmt: skip
        return
    needed = sum(known)
    told = f"{there}, of which {needed} are needed for mail that waits"
    figures["needed_bytes"] = needed
    since = [each.unneeded_since for each in found if each.unneeded_since]
    if since and host.runs and host.wall() - min(since) > LEFT_S:
        yield warn(
            what, f"{told}; at least one of which nothing is needed should have been deleted",
            "Check mail.log: the manager cannot delete files in the queue. Then restart Waypost.", **figures,
        )  # fmt: skip
    elif size > TIMES * needed + SLACK_BYTES:
        yield warn(
            what, f"{told}; that is more than {TIMES} times as much and 1 GiB",
            "Run waypost queue ages to see the mail that waits; mail that is delivered, deleted or held keeps none of them.",
            **figures,
        )  # fmt: skip
    else:
        yield good(what, told, **figures)
