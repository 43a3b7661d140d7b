"""Which files of a home the store keeps, under which names, and making them what the database says.

Kept are the segments of all lanes and of the journal, living or retired, restart positions, the marker of a restored queue,
spool files, and event files with their cuts and the exported position (``stored_events``). Left alone are locks, identities,
indexes, notes of damage, the ballast, and all that has another name.

An index describes records that were committed, so it stays right when its segment is fetched; the sweep removes those
whose segment is gone.

Keeps law: files-as-the-database-says (docs/laws.md).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator

from mailcore.config.settings import Settings
from mailcore.log.disk import Disk
from mailcore.log.positions import NAME as RESTART
from mailcore.log.positions import PREVIOUS
from mailcore.log.segment import base_of, name_of, retired_base_of
from mailcore.queue.lanes import DELETED, HOLD, JOURNAL, LOCAL, is_incoming
from mailcore.queue.restored import NAME as RESTORED
from mailcore.replication.batch import Ends
from mailcore.replication.files import Changes, extend, make_equal
from mailcore.replication.snapshot import Part, Snapshot

__all__ = [
    "EVENTS",
    "EXPORTED_POSITIONS",
    "QUEUE",
    "SPOOL",
    "directories_of",
    "ends_in",
    "is_lane",
    "is_of_events",
    "kept_files",
    "make_all",
    "make_lane",
    "make_managers",
    "set_aside",
]

QUEUE, SPOOL, EVENTS = "queue", "spool", "events"
_SMALL = (RESTART, PREVIOUS, RESTORED)
_LANE = re.compile(r"(incoming|retry)\.[0-9]+")
_SPOOLED = re.compile(r"[0-9a-f]{2}/[^./][^/]*")
_OF_EVENTS = re.compile(r"dt=\d{4}-\d{2}-\d{2}/[^./][^/]*\.parquet|cuts/[^./][^/]*\.(json|jsonl)")
EXPORTED_POSITIONS = "_exported/positions.json"  # of events, as ``queue.exported`` names it


def directories_of(settings: Settings) -> dict[str, str]:
    """Returns the names in the store of the directories that it keeps."""
    return {
        str(settings.queue_directory): QUEUE,
        str(settings.spool_directory): SPOOL,
        str(settings.events_directory): EVENTS,
    }


def is_of_queue(name: str) -> bool:
    """Returns True for a file of the queue directory that the store keeps."""
    lane, _, file = name.partition("/")
    if not file:
        return lane in _SMALL
    return is_lane(lane) and (base_of(file) is not None or retired_base_of(file) is not None)


def is_of_spool(name: str) -> bool:
    """Returns True for a spool file."""
    return _SPOOLED.fullmatch(name) is not None


def is_of_events(name: str) -> bool:
    """Returns True for a file of the directory of events that the store keeps."""
    return name == EXPORTED_POSITIONS or _OF_EVENTS.fullmatch(name) is not None


def is_lane(name: str) -> bool:
    """Returns True for the name of a lane, or of the journal."""
    return name in (JOURNAL, LOCAL, HOLD, DELETED) or _LANE.fullmatch(name) is not None


def _parts(settings: Settings) -> list[tuple[str, str, Callable[[str], bool]]]:
    return [
        (QUEUE, str(settings.queue_directory), is_of_queue),
        (SPOOL, str(settings.spool_directory), is_of_spool),
    ]


def kept_files(disk: Disk, settings: Settings) -> Iterator[tuple[str, str]]:
    """Yields (directory, name) of the local files of the kind that the store keeps. Raises OSError."""
    for _, directory, concerns in _parts(settings):
        names = disk.list(directory) if disk.is_directory(directory) else []
        for name in names:
            below = os.path.join(directory, name)
            inside = [f"{name}/{each}" for each in disk.list(below)] if disk.is_own_directory(below) else [name]
            yield from ((directory, each) for each in inside if concerns(each))


def make_all(snapshot: Snapshot, disk: Disk, settings: Settings) -> list[Changes]:
    """Makes all files of the queue and the spool what the database says; no process of the shard runs. As ``make_equal``."""
    return [
        make_equal(Part(snapshot, name), disk, directory, concerns) for name, directory, concerns in _parts(settings)
    ]


def ends_in(snapshot: Snapshot) -> Ends:
    """Returns the ends of all lanes, by lane."""
    return {lane: end for row in snapshot.writers.values() for lane, end in row.ends.items()}


def make_managers(snapshot: Snapshot, disk: Disk, settings: Settings) -> Changes:
    """Makes the files that a manager writes what the database says, while receivers run. As ``make_equal``.

    Of a receiver's lane these are the segments before the newest one: a newer one may grow at this moment. Spool files that
    differ are named by no record, and the sweep removes them.
    """
    newest = {lane: base for lane, (base, _) in ends_in(snapshot).items()}

    def concerns(name: str) -> bool:
        lane, _, file = name.partition("/")
        if not is_of_queue(name) or not is_incoming(lane):
            return is_of_queue(name)
        base = base_of(file)
        if base is None:
            base = retired_base_of(file)
        return base is not None and base < newest.get(lane, (0))

    return make_equal(Part(snapshot, QUEUE), disk, str(settings.queue_directory), concerns)


def make_lane(snapshot: Snapshot, disk: Disk, settings: Settings, lane: str) -> Changes:
    """Writes what the end of a lane lacks here, for the process that alone appends to it. As ``extend``.

    Each batch was written here before the next one was committed. So only the last one can be missing, behind what the last
    segment here has. Bytes that are there stay: the manager may have marked them.
    """
    directory = os.path.join(settings.queue_directory, lane)
    names = disk.list(directory) if disk.is_directory(directory) else []
    bases = [base for base in map(base_of, names) if base is not None]
    first = max(bases, default=0)

    def concerns(name: str) -> bool:
        base = base_of(name)
        return base is not None and base >= first

    return extend(Part(snapshot, f"{QUEUE}/{lane}", name_of(first)), disk, directory, concerns)


def set_aside(disk: Disk, settings: Settings, name: str) -> int:
    """Moves the local files into a directory ``name`` beside them, and returns how many. Raises OSError."""
    count = 0
    for directory, file in list(kept_files(disk, settings)):
        to = os.path.join(directory, name, file)
        disk.make_directory(os.path.dirname(to))
        disk.replace(os.path.join(directory, file), to)
        count += 1
    return count
