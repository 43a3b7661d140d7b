"""The maildrop in a backup: messages that sendmail has taken and the queue does not have yet.

A message moves from the maildrop into the lane of the pickup while the backup is made. So its files are copied first, then the
snapshot is taken, and then those that the snapshot has are left out. Files that were taken after the snapshot's moment stay.

Law: a message that was in the maildrop when the backup began is in it exactly once: as a file, or in the queue.

Keeps law: maildrop-backed-up-once (docs/laws.md).
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from mailcore.backup.snapshot import LINKS, Snapshot
from mailcore.log.disk import Disk
from mailcore.queue.from_maildrop import names_of, names_taken
from mailcore.queue.lanes import incoming
from mailcore.queue.queue_id import PICKUP

__all__ = ["MaildropCopy"]

BESIDE_BYTES = 64 << 20  # of a file beside its data: 100 000 recipients with parameters


class MaildropCopy:
    """``take`` before the snapshot, ``left`` after it."""

    def __init__(self, directory: Path, folder: Path, bytes_max: int) -> None:
        """``folder`` gets the copies; ``bytes_max`` is the limit of a message's size."""
        self._directory = directory
        self._folder = folder
        self._bytes_max = bytes_max + BESIDE_BYTES
        self._names: list[str] = []
        self.refused: list[str] = []  # files that are not messages or cannot be read: any user may put one there

    def take(self) -> None:
        """Copies the files that are there. Raises OSError if a copy cannot be written, or the directory cannot be read."""
        disk = Disk()
        try:
            names = names_of(os.listdir(self._directory))
        except FileNotFoundError:
            return
        for name in names:
            path = str(self._directory / name)
            try:
                fd = disk.open_foreign(path)
            except FileNotFoundError:
                continue  # it was taken just now: the snapshot will have it
            except OSError as error:
                self.refused.append(f"{path}: {error.strerror}")
                continue
            with os.fdopen(fd, "rb") as file:
                status = os.fstat(fd)
                if (disk.owner_of(fd) is None or status.st_size > self._bytes_max) and status.st_nlink:
                    self.refused.append(f"{path}: not a message")
                    continue
                copy = self.path(name)
                with open(copy, "wb") as written:
                    shutil.copyfileobj(file, written)
                os.chmod(copy, status.st_mode & 0o777)
                os.utime(copy, ns=(status.st_atime_ns, status.st_mtime_ns))
                if os.geteuid() == 0:  # the Received field names its author
                    os.chown(copy, status.st_uid, status.st_gid)
            self._names.append(name)

    def left(self, snapshot: Snapshot) -> list[str]:
        """Returns the names of those that are not in the snapshot and were not finished before it. Raises OSError."""
        if not self._names:
            return []
        lane = incoming(PICKUP)
        queue, end = snapshot.queue_directory, snapshot.ends().get(lane, 0)
        there = set(names_of(os.listdir(self._directory)))
        later = set(names_taken(Disk(), os.path.join(queue, lane), end, None))
        has = set(names_taken(Disk(), os.path.join(queue, LINKS, lane), 0, end)) if end else set()
        return [name for name in self._names if name not in has and (name in there or name in later)]

    def path(self, name: str) -> Path:
        """Returns the path of a copy."""
        return self._folder / name
