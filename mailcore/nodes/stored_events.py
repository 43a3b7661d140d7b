"""The event files of a shard on this node: fetches those that earlier owners wrote, and opens the store for new ones.

A file that has its name never changes, and was synced before the store had it (law: events-stored-first). So a file of the same
length is the same, and its bytes are not read again. The exported position comes first: what it covers is in the store.

Files here that the store does not have were written without it. They are never deleted: they are moved into ``_aside-TIME``,
which readers of events skip.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable

from mailcore.config.settings import Settings
from mailcore.counted import counted
from mailcore.log.disk import Disk
from mailcore.log.store import Store
from mailcore.maillog import MailLog
from mailcore.nodes.kept import EVENTS, EXPORTED_POSITIONS, is_of_events
from mailcore.nodes.opening import Opening
from mailcore.queue.events_fetched import note_fetched
from mailcore.replication.faults import StoreRefused
from mailcore.replication.snapshot import Part, Snapshot, StoredFile

__all__ = ["WRITER", "local_events", "make_events", "open_events", "set_aside"]

WRITER = "e"
BYTES_AT_ONCE = 64 << 20  # fetched in one transaction: a long one keeps the database from cleaning up


def open_events(settings: Settings) -> Callable[[], Store]:
    """Returns what begins as the writer of events; first it makes the files here what the store has, as long as that takes."""
    opening = Opening(settings)
    disk, directory = opening.disk, str(settings.events_directory)
    opening.make(lambda shown: _tidy(opening, shown))
    moved: list[str] = []
    opening.make(lambda shown: moved.extend(set_aside(shown, disk, directory)))
    if moved:
        log = MailLog(settings.log_directory)
        words = f"{counted(len(moved), 'event file')} here, which the database does not have, moved to _aside-… in {directory}"
        log.failed("exporter", words)
        log.flush()
    is_whole: list[bool] = []
    while not (is_whole and is_whole[-1]):
        opening.make(lambda shown: is_whole.append(make_events(shown, disk, directory)))
    note_fetched(disk, str(settings.place))

    def open_store() -> Store:
        try:
            return opening.store(WRITER)
        except StoreRefused as error:
            raise OSError(errno.EIO, error.fault.message) from error

    return open_store


def _tidy(opening: Opening, shown: Snapshot) -> None:
    """Deletes what an exporter that was killed left of a file in the store."""
    parts = [file.name for file in Part(shown, EVENTS).files() if os.path.basename(file.name).startswith(".")]
    if parts:
        store = opening.store(WRITER)
        changes = store.changes()
        changes.drop(f"{EVENTS}/{name}" for name in parts)
        store.commit(changes, {})


def local_events(disk: Disk, directory: str) -> list[str]:
    """Returns the names of the files here that a store keeps."""
    found = []
    for name in disk.list(directory) if disk.is_directory(directory) else []:
        if disk.is_own_directory(os.path.join(directory, name)):
            found += [
                f"{name}/{file}" for file in disk.list(os.path.join(directory, name)) if is_of_events(f"{name}/{file}")
            ]
    return found


def set_aside(shown: Snapshot, disk: Disk, directory: str) -> list[str]:
    """Moves the files away that the store does not have, and returns their names. Raises OSError."""
    stored = {file.name for file in Part(shown, EVENTS).files()}
    foreign = [name for name in local_events(disk, directory) if name not in stored]
    aside = time.strftime("_aside-%Y%m%dT%H%M%S", time.gmtime())
    for name in foreign:
        to = os.path.join(directory, aside, name)
        disk.make_directory(os.path.dirname(to))
        disk.replace(os.path.join(directory, name), to)
    return foreign


def make_events(shown: Snapshot, disk: Disk, directory: str, bytes_max: int = BYTES_AT_ONCE) -> bool:
    """Fetches files that are missing, the newest days first; returns whether all are here.

    Raises OSError, Lost, ChunkDamaged.
    """
    files = [file for file in Part(shown, EVENTS).files() if is_of_events(file.name)]
    files.sort(key=lambda file: (file.name == EXPORTED_POSITIONS, file.name), reverse=True)
    fetched = 0
    for file in files:
        path = os.path.join(directory, file.name)
        if file.data is not None:
            if not disk.exists(path) or disk.read_whole(path) != file.data:
                disk.make_directory(os.path.dirname(path))
                disk.write_whole(path, file.data)
        elif not disk.exists(path) or disk.size_of(path) != file.length:
            if fetched >= bytes_max:
                return False
            _fetch(shown, disk, path, file)
            fetched += file.length
    return True


def _fetch(shown: Snapshot, disk: Disk, path: str, file: StoredFile) -> None:
    """Writes a file under another name, syncs it and gives it its own: a reader finds it complete."""
    directory, name = os.path.split(path)
    new = os.path.join(directory, f".{name}")
    disk.make_directory(directory)
    if disk.exists(new):
        disk.unlink(new)
    fd = disk.create(new)
    try:
        for place, data in shown.fetch(file.chunks):
            disk.write(fd, [data], place.at)
        disk.sync(fd)
    finally:
        disk.close(fd)
    disk.replace(new, path)
    disk.sync_directory(directory)
