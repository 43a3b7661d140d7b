"""A store in memory: what of a queue is kept elsewhere, commit by commit, and the disk that a new node makes of it."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import NoReturn

from mailcore.log.store import Changes, Ends
from mailcore.replication.batch import MARKS, UPLOADED, Batch, offsets_in
from tests.power_loss import PowerLoss
from tests.simulated_disk import SimulatedDisk

__all__ = ["MemoryStore"]


class MemoryStore:
    """``files`` has the content of each file after all commits."""

    def __init__(self) -> None:
        self.files: dict[str, bytearray] = {}
        self.ends: dict[str, tuple[int, int]] = {}
        self.ever: dict[str, set[bytes]] = {}  # what each small file was
        self.gone: set[str] = set()  # names that are deleted, or were changed
        self.commits = 0
        self.refused = 0  # the number of coming commits that are refused
        self.on_commit: Callable[[bool], None] | None = None  # looks on in front of each commit, and behind it

    def copy(self) -> MemoryStore:
        store = MemoryStore()
        store.files = {name: bytearray(data) for name, data in self.files.items()}
        store.ends = dict(self.ends)
        store.ever = {name: set(contents) for name, contents in self.ever.items()}
        return store

    def disk(self) -> SimulatedDisk:
        """A disk that had nothing, with all that is here."""
        disk = SimulatedDisk()
        for name, data in self.files.items():
            disk.make_directory(os.path.dirname(name))
            disk.put(name, bytes(data))
        return disk

    # -- Store

    def name(self, path: str) -> str:
        return path

    def changes(self) -> Batch:
        return Batch()

    def commit(self, changes: Changes, ends: Ends) -> None:
        assert isinstance(changes, Batch)
        if self.on_commit is not None:
            self.on_commit(False)
        if self.refused:
            self.refused -= 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._apply(changes)
        self.ends.update(ends)
        self.commits += 1
        if self.on_commit is not None:
            self.on_commit(True)

    def _apply(self, batch: Batch) -> None:
        for file in batch.drops:
            self.files.pop(file, None)
            self.gone.add(file)
        for file, to in batch.renames.items():
            assert to not in self.files
            self.files[to] = self.files.pop(file)
            self.gone.add(file)
        for file, data in batch.states.items():
            self.files[file] = bytearray(data)
            self.ever.setdefault(file, set()).add(data)
        for chunk in batch.chunks:
            data = chunk.joined()
            if chunk.kind == MARKS:
                for offset in offsets_in(data):
                    self.files[chunk.file][offset] = chunk.at
            else:
                content = self.files.setdefault(chunk.file, bytearray())
                assert chunk.kind == UPLOADED or chunk.at == len(content), (
                    f"{chunk.file} has a hole, or is written twice"
                )
                content.extend(bytes(max(0, chunk.at - len(content))))
                content[chunk.at : chunk.at + len(data)] = data

    def waiting_s(self) -> float:
        return 0.0

    def end(self, why: str) -> NoReturn:
        raise PowerLoss(why)
