"""A disk for event files that a store keeps as well, so that they outlive the node that wrote them.

- law: events-stored-first. An event file, a cut or the exported position gets its name on this disk after the store has it
  under that name, and loses it after the store has deleted it. So a segment of which the position says that it is exported is
  in a file that the next owner has, too.

Everything that has another name (locks, files that are being written, identities) is left to the disk alone. A file goes to the
store piece by piece under a name that begins with a dot, and then gets its own in one commit: an exporter that is killed in
between leaves a part that no reader takes for a file.

Keeps law: events-stored-first (docs/laws.md).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from mailcore.events.beating_disk import BeatingDisk, beating
from mailcore.log.store import Store
from mailcore.nodes.kept import EXPORTED_POSITIONS, is_of_events
from mailcore.supervisor.pulse import Beats

__all__ = ["StoredDisk", "part_of"]

PIECE_BYTES = 1 << 20  # of a file, in memory and in one commit


def part_of(name: str) -> str:
    """Returns the name under which the store has a file until it is complete."""
    directory, _, file = name.rpartition("/")
    return f"{directory}/.{file}"


class StoredDisk(BeatingDisk):
    """Commits what happens to event files below ``directory``, and then does it here. ``open_store`` begins as the only writer.

    It is called once in each process: a connection does not survive a fork.
    """

    def __init__(self, beats: Beats, directory: str, open_store: Callable[[], Store]) -> None:
        super().__init__(beats)
        self._directory = directory.rstrip("/")
        self._open = open_store
        self._opened: tuple[int, Store] | None = None

    def replace(self, old: str, new: str) -> None:
        """Gives a complete file its name, in the store first. Raises OSError; then neither has it."""
        name = self._name(new)
        if name == EXPORTED_POSITIONS:
            with self._committing() as store:
                changes = store.changes()
                changes.put(store.name(new), self.read_whole(old))
                store.commit(changes, {})
        elif name:
            self._store_file(old, new)
        super().replace(old, new)

    def unlink(self, path: str) -> None:
        """Removes a name, in the store first."""
        if self._name(path) and self.exists(path):
            with self._committing() as store:
                changes = store.changes()
                changes.drop([store.name(path)])
                store.commit(changes, {})
        super().unlink(path)

    def _name(self, path: str) -> str:
        """Returns the name relative to the directory; "" for a file that the store does not keep."""
        name = path.removeprefix(f"{self._directory}/")
        return name if name != path and is_of_events(name) else ""

    def _store_file(self, old: str, new: str) -> None:
        with self._committing() as store:
            name = store.name(new)
            part = part_of(name)
            changes = store.changes()
            changes.drop([part])  # of a process that was killed
            fd = self.open_read(old)
            try:
                size = self.size(fd)
                for at in range(0, size, PIECE_BYTES):
                    changes.blob(part, at, [self.read(fd, PIECE_BYTES, at)])
                    store.commit(changes, {})
                    changes = store.changes()
            finally:
                self.close(fd)
            if not size:
                changes.drop([name])
                store.commit(changes, {})
                changes = store.changes()
                changes.put(name, b"")
            else:
                changes.drop([name])  # the same stretch, written once more
                changes.rename(part, name)
            store.commit(changes, {})

    @contextmanager
    def _committing(self) -> Iterator[Store]:
        """Gives the store, and beats meanwhile: a database that does not answer is waited for."""
        with beating(self._beats):
            if self._opened is None or self._opened[0] != os.getpid():
                self._opened = os.getpid(), self._open()
            yield self._opened[1]
