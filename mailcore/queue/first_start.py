"""Whether a directory without an identity may be given one: what speaks against its being new, or the one that was here.

Asked at a first start, at the first start after an upgrade from a version without identities, and when an operator wants to go
on without a directory's contents. Later starts compare identities and need none of this.
"""

from __future__ import annotations

import contextlib
import json
import os
import struct
from collections.abc import Iterator, Mapping

import msgspec

from mailcore.envelope import DataPlace
from mailcore.log.disk import Disk
from mailcore.log.positions import PositionsTooNew, RestartPositions, read_all_positions
from mailcore.log.reader import LaneReader
from mailcore.log.record import RecordType
from mailcore.log.segment import SegmentTooNew, base_of
from mailcore.queue.ballast import NAME as BALLAST
from mailcore.queue.exported import EXPORTED, read_exported
from mailcore.queue.lanes import JOURNAL, is_incoming
from mailcore.queue.records import decode_envelope
from mailcore.queue.spool import FANOUT, Spool

__all__ = ["holds_spool_files", "is_empty", "queue_has_begun", "why_not_new"]

LOOKED_AT_MAX = 20  # messages whose spool file is looked for
RECORDS_MAX = 10_000  # of a receiver's lane: most of its mail has no spool file
SURE_OF_MIXED = 3  # spool files that are missing while others are there; one may be damage
LOG_BYTES = 1 << 20
OTHERS_FILES = ("lost+found", BALLAST)  # e2fsck's, on a disk of its own; and files without data


def is_empty(disk: Disk, directory: str) -> bool:
    """Returns True if there is no file in the directory or one level below.

    Directories in it count for nothing: they may have been made before the disk was mounted.
    """
    for name in disk.list(directory):
        path = os.path.join(directory, name)
        if name not in OTHERS_FILES and (not disk.is_directory(path) or disk.list(path)):
            return False
    return True


def queue_has_begun(disk: Disk, queue: str) -> bool:
    """Returns True if a manager or a receiver has ever written here."""
    names = disk.list(queue)
    if any(name.startswith("restart") for name in names):
        return True
    return any(base_of(file) is not None for name in names for file in _files(disk, os.path.join(queue, name)))


def holds_spool_files(disk: Disk, spool: str) -> bool:
    """Returns True if there is a spool file."""
    return any(_files(disk, os.path.join(spool, f"{folder:02x}")) for folder in range(FANOUT))


def why_not_new(
    disk: Disk, name: str, directories: Mapping[str, str], log_directory: str, reports_directory: str
) -> str:
    """Returns what speaks against a directory's being new, as the rest of a sentence; "" if nothing does. Raises OSError."""
    if name == "queue":
        return _why_no_queue(disk, directories, log_directory)
    if name == "spool":
        return _why_no_spool(disk, directories)
    return _why_no_events(disk, directories["events"], reports_directory)


def _why_no_queue(disk: Disk, directories: Mapping[str, str], log_directory: str) -> str:
    if queue_has_begun(disk, directories["queue"]):
        return ""
    if holds_spool_files(disk, directories["spool"]):
        return f"holds no queue, but there are spool files in {directories['spool']}"
    events = directories.get("events", "")
    with contextlib.suppress(ValueError):
        exported = read_exported(disk, os.path.join(events, EXPORTED)) if events else None
        if exported is not None and exported.lanes:
            return f"holds no queue, but events of one are in {events}"
    if log_directory.startswith(directories["home"] + os.sep) and _has_recovered(
        disk, os.path.join(log_directory, "mail.jsonl")
    ):
        return f"holds no queue, but {log_directory}/mail.jsonl says that there was one"
    return ""


def _has_recovered(disk: Disk, path: str) -> bool:
    """Returns True if a manager has written to this log. A start that was refused writes there too."""
    try:
        fd = disk.open_read(path)
    except OSError:
        return False
    try:
        lines = disk.read(fd, LOG_BYTES, 0).splitlines()
    except OSError:
        return False
    finally:
        disk.close(fd)
    for line in lines:
        with contextlib.suppress(ValueError):
            entry = json.loads(line)
            if isinstance(entry, dict) and entry.get("event") == "recovered":
                return True
    return False


def _why_no_spool(disk: Disk, directories: Mapping[str, str]) -> str:
    spool = Spool(disk, directories["spool"])
    missing: list[str] = []
    for queue_id in _spooled(disk, directories["queue"]):
        if disk.exists(spool.path(queue_id)):
            return ""
        missing.append(queue_id)
        if len(missing) >= LOOKED_AT_MAX:
            break
    if not missing or (len(missing) < SURE_OF_MIXED and holds_spool_files(disk, spool.directory)):
        return ""
    return f"lacks the data of queued mail, such as {missing[0]}"


def _spooled(disk: Disk, queue: str) -> Iterator[str]:
    """Yields queue ids of living envelopes whose data must be in the spool, some of each lane."""
    positions: RestartPositions | None = None
    with contextlib.suppress(PositionsTooNew, FileNotFoundError):
        positions = next(iter(reversed(read_all_positions(disk, queue))), None)
    for lane in disk.list(queue):
        path = os.path.join(queue, lane)
        if lane == JOURNAL or lane.startswith(".") or not disk.is_directory(path):
            continue
        known = positions.lanes.get(lane) if positions is not None else None
        reader = LaneReader(disk, path, lambda damage: None)
        try:
            found = 0
            for number, record in enumerate(reader.records(known.browse if known is not None else 0)):
                if found >= LOOKED_AT_MAX // 4 or (number >= RECORDS_MAX and is_incoming(lane)):
                    break
                if record.type != RecordType.ENVELOPE or not record.live:
                    continue
                with contextlib.suppress(msgspec.MsgspecError, struct.error):
                    envelope = decode_envelope(record.body)
                    if envelope.data is DataPlace.SPOOL:
                        found += 1
                        yield envelope.queue_id
        except SegmentTooNew:
            continue
        finally:
            reader.close()


def _why_no_events(disk: Disk, events: str, reports_directory: str) -> str:
    if disk.exists(os.path.join(events, EXPORTED)) or not is_empty(disk, events):
        return ""
    with contextlib.suppress(PermissionError):  # the portal's user may own it
        if not is_empty(disk, reports_directory):
            return f"holds no events, but reports were made of them, in {reports_directory}"
    return ""


def _files(disk: Disk, directory: str) -> list[str]:
    return disk.list(directory) if disk.is_directory(directory) else []
