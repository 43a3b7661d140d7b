"""A disk whose calls show the supervisor that the exporter makes progress."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from mailcore.log.disk import Buffer, Disk
from mailcore.supervisor.pulse import BEAT_S, Beats

__all__ = ["BeatingDisk", "beating"]


@contextmanager
def beating(beats: Beats) -> Iterator[None]:
    """Beats meanwhile: a database that does not answer is waited for."""
    over = threading.Event()

    def beat() -> None:
        while not over.wait(BEAT_S):
            beats.now()

    thread = threading.Thread(target=beat, name="beats", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


class BeatingDisk(Disk):
    """A disk whose calls show the supervisor that the export makes progress; a cut may take longer than any time limit."""

    def __init__(self, beats: Beats) -> None:
        super().__init__()
        self._beats = beats

    def read(self, fd: int, length: int, offset: int) -> bytes:
        """Reads, as ``Disk`` does."""
        self._beats.now()
        return super().read(fd, length, offset)

    def write(self, fd: int, buffers: Sequence[Buffer], offset: int) -> None:
        """Writes, as ``Disk`` does."""
        self._beats.now()
        super().write(fd, buffers, offset)

    def unlink(self, path: str) -> None:
        """Removes a name, as ``Disk`` does."""
        self._beats.now()
        super().unlink(path)

    def lock(self, path: str) -> int:
        """Takes a lock, as ``Disk`` does."""
        self._beats.now()
        return super().lock(path)
