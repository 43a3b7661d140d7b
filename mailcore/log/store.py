"""The interface of a store, which keeps the files of a queue outside of this machine.

Without a store, a local disk keeps the files: they are written and synced. With one, the changes are committed first, and
the local files follow, unsynced: they are a cache, and what starts makes them what the store says.

- law: local-after-commit. No byte is written to a local file of the queue, none is removed, and no name is changed, before the
  commit with this change has returned. So local files hold nothing that the store lacks.

A commit is all or nothing. One that returns is kept by two servers; one that raises OSError is not there and never will be; one
of which nothing is known does not return. ``mailcore.replication`` has the store that is a database (decision 0096).

Keeps law: local-after-commit (docs/laws.md).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from typing import NoReturn, Protocol

from mailcore.log.disk import Disk

__all__ = ["Changes", "Ends", "Store", "unlink"]

Ends = Mapping[str, tuple[int, int]]  # lane -> base of its newest segment, end of its records


class Changes(Protocol):
    """Changes of files that are committed together. Files have the names that ``Store.name`` gives them."""

    def append(self, file: str, at: int, buffers: Iterable[bytes]) -> None:
        """Adds bytes at the offset ``at``, which no byte was written to before."""

    def blob(self, file: str, at: int, buffers: Iterable[bytes]) -> None:
        """Adds bytes of an upload, whose file counts only when a record names it; the same byte may be written again."""

    def marks(self, file: str, offsets: Sequence[int], value: int) -> None:
        """Sets the bytes at these offsets to ``value``, after all that was appended to the file."""

    def put(self, file: str, data: bytes) -> None:
        """Replaces a small file as a whole."""

    def rename(self, file: str, to: str) -> None:
        """Gives a file another name, which no file has."""

    def drop(self, files: Iterable[str]) -> None:
        """Deletes files, those that are not there as well."""


class Store(Protocol):
    """The store as one process writes to it; its threads may call it at once."""

    def name(self, path: str) -> str:
        """Returns the name in the store of the file at a local path."""

    def changes(self) -> Changes:
        """Returns an empty collection of changes."""

    def commit(self, changes: Changes, ends: Ends) -> None:
        """Blocks until the changes are kept. ``ends``: of the lanes that they extend. Raises OSError if they were refused."""

    def waiting_s(self) -> float:
        """Returns for how long the commit under way has waited; 0.0 if none is."""

    def end(self, why: str) -> NoReturn:
        """Ends this process: what was committed cannot be written to the local disk."""


def unlink(disk: Disk, paths: Iterable[str], store: Store | None = None) -> None:
    """Removes files that exist. If a crash loses an unlink, space is lost until the next start, never mail.

    ``store``: deletes them there, too, and first.
    """
    if store is not None:
        changes = store.changes()
        changes.drop(map(store.name, paths := list(paths)))
        store.commit(changes, {})
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            disk.unlink(path)
