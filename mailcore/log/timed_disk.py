"""A disk whose syncs are timed, for the metrics. A process uses it only if they can be read ([metrics] listen)."""

from __future__ import annotations

import time
from collections.abc import Callable

from mailcore.log.disk import Disk

__all__ = ["TimedDisk"]


class TimedDisk(Disk):
    """The real disk; ``observe`` gets the seconds of each sync that succeeded, in the thread that made it."""

    def __init__(self, observe: Callable[[float], None]) -> None:
        super().__init__()
        self._observe = observe

    def sync(self, fd: int) -> None:
        """Syncs a file, as ``Disk`` does."""
        begun = time.perf_counter()
        super().sync(fd)
        self._observe(time.perf_counter() - begun)
