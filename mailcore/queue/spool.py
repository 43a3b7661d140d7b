"""Spool files: message data that is too big for the log, or that had to wait.

```
 0          8                16             24        28       32
 +----------+----------------+--------------+---------+--------+---------------- - - +------------ - - +
 | WAYSPL1\\0 | envelope at u64 | data bytes u64| CRC u32 | 0      | data as on the wire | static envelope |
 +----------+----------------+--------------+---------+--------+---------------- - - +------------ - - +
```

The head is written last, after data and envelope; until then it is zeros and the file is not a message. Its CRC-32C covers the
head's first 24 bytes and the envelope. The checksums of the data and the size of the file are in the ENVELOPE record that names
the file (mailcore.log.data_blocks), not here: what damages this file cannot make them fit. A spool file is never moved. It is
safe when ``SpoolFile.complete`` has returned: file and directory are synced. A valid head alone proves nothing about the data:
the file counts only if an ENVELOPE record names it, and that is written later (law: data-before-replacement). With a store,
each piece is committed before it is written here (law: local-after-commit).
"""

from __future__ import annotations

import contextlib
import os
import struct
import threading
from collections.abc import Iterable

import google_crc32c
import msgspec

from mailcore.envelope import Envelope
from mailcore.log.disk import Disk
from mailcore.log.store import Store, unlink

__all__ = ["DATA_AT", "FANOUT", "Spool", "SpoolDamaged", "SpoolFile"]

_MAGIC = b"WAYSPL1\0"
_HEAD = struct.Struct("<8sQQII")
DATA_AT = _HEAD.size
FANOUT = 64  # directories, each synced separately; few, so that many files share one sync of names


_CHECKED = 24  # bytes of the head that the checksum covers, with the envelope


def _checksum(head: bytes, envelope: bytes) -> int:
    crc: int = google_crc32c.extend(google_crc32c.value(head[:_CHECKED]), envelope)
    return crc


class SpoolDamaged(Exception):
    """Raised if the file is not a complete spool file; the message names it."""


class Spool:
    """The spool directory."""

    def __init__(self, disk: Disk, directory: str, store: Store | None = None) -> None:
        self.disk = disk
        self.directory = directory
        self.backing = store  # keeps the files beside the local disk; None: nothing does
        self.replacing = threading.Lock()  # held while a file is replaced, and by the sweep while it removes one

    def path(self, queue_id: str) -> str:
        """Returns ``<spool>/ab/<queue id>``; ab spreads the ids evenly over the directories."""
        return os.path.join(self.directory, f"{google_crc32c.value(queue_id.encode()) % FANOUT:02x}", queue_id)

    def create(self, queue_id: str) -> SpoolFile:
        """Creates a spool file. Raises FileExistsError if one of that id exists, OSError if the disk is full."""
        path = self.path(queue_id)
        self.disk.make_directory(os.path.dirname(path))
        return SpoolFile(self.disk, path, self.backing)

    def store(self, envelope: Envelope, data: bytes) -> Envelope:
        """Writes a complete, synced spool file for data in memory, replacing one of the same id. Raises OSError.

        Returns what ``SpoolFile.complete`` returns.
        """
        path = self.path(envelope.queue_id)
        with self.replacing:
            if self.disk.exists(path):
                unlink(self.disk, [path], self.backing)
            file = self.create(envelope.queue_id)
        try:
            file.write([data])
            return file.complete(envelope)
        finally:
            file.close()

    def read_envelope(self, queue_id: str) -> tuple[Envelope, int]:
        """Reads (static envelope, data bytes) of a complete file. Raises SpoolDamaged, FileNotFoundError."""
        path = self.path(queue_id)
        fd = self.disk.open_read(path)
        try:
            head = self.disk.read(fd, _HEAD.size, 0)
            if len(head) < _HEAD.size:
                raise SpoolDamaged(f"{path}: shorter than its head")
            magic, at, data_bytes, crc, _ = _HEAD.unpack(head)
            size = self.disk.size(fd)
            if magic != _MAGIC or at != DATA_AT + data_bytes or at > size:
                raise SpoolDamaged(f"{path}: never completed, or damaged")
            body = self.disk.read(fd, size - at, at)
            if _checksum(head, body) != crc:
                raise SpoolDamaged(f"{path}: its envelope is damaged")
            try:
                return msgspec.msgpack.decode(body, type=Envelope), data_bytes
            except msgspec.MsgspecError as error:
                raise SpoolDamaged(f"{path}: {error}") from error
        finally:
            self.disk.close(fd)

    def remove(self, queue_id: str) -> None:
        """Removes a spool file if it exists."""
        unlink(self.disk, [self.path(queue_id)], self.backing)

    def queue_ids(self) -> Iterable[str]:
        """Yields the queue ids of all files, complete or not."""
        for folder in range(FANOUT):
            yield from self.queue_ids_in(folder)

    def queue_ids_in(self, folder: int) -> list[str]:
        """Returns the queue ids of the files in one of the FANOUT directories."""
        return self.disk.list(os.path.join(self.directory, f"{folder:02x}"))


class SpoolFile:
    """A spool file being written: ``write`` in order, then ``complete``, or ``abandon``."""

    def __init__(self, disk: Disk, path: str, store: Store | None = None) -> None:
        self.disk = disk
        self.path = path
        self._store = store
        self._fd = disk.create(path)
        self.data_bytes = 0

    def write(self, buffers: list[bytes]) -> None:
        """Appends data as on the wire. Raises OSError; then only ``abandon`` may be called."""
        self._put(buffers, DATA_AT + self.data_bytes)
        self.data_bytes += sum(map(len, buffers))

    def complete(self, envelope: Envelope) -> Envelope:
        """Writes envelope and head, and syncs file and directory. Blocks; may run in another thread. Raises OSError.

        Returns the envelope for the log: with the size of the file.
        """
        body = msgspec.msgpack.encode(msgspec.structs.replace(envelope, spool_bytes=0))
        at = DATA_AT + self.data_bytes
        head = _HEAD.pack(_MAGIC, at, self.data_bytes, 0, 0)
        head = _HEAD.pack(_MAGIC, at, self.data_bytes, _checksum(head, body), 0)
        if self._store is None:
            self.disk.write(self._fd, [body], at)
            self.disk.write(self._fd, [head], 0)
            self.disk.sync(self._fd)
            self.disk.sync_directory(os.path.dirname(self.path))
        else:
            self._put([body], at)
            self._put([head], 0)
        return msgspec.structs.replace(envelope, spool_bytes=at + len(body))

    def _put(self, buffers: list[bytes], at: int) -> None:
        """Writes here, and in the store first, if there is one: each piece is a commit, so that no upload is held in memory."""
        if self._store is not None:
            changes = self._store.changes()
            changes.blob(self._store.name(self.path), at, buffers)
            self._store.commit(changes, {})
        self.disk.write(self._fd, buffers, at)

    def close(self) -> None:
        """Closes the file, if it is open."""
        if self._fd >= 0:
            self.disk.close(self._fd)
            self._fd = -1

    def abandon(self) -> None:
        """Closes and removes the file. Errors are ignored: the sweep removes what stays."""
        with contextlib.suppress(OSError):
            self.close()
            unlink(self.disk, [self.path], self._store)
