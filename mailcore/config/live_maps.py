"""The maps of aliases and canonical addresses of one process: read at the start, and again when a file changes.

Laws
- Files that cannot be read, or have a fault, never replace maps that are in use. Without any maps no mail is accepted: it
  would go to addresses that are not final.
- A message costs no look at a file: the files are looked at twice a second, and read in a thread.

Keeps law: maps-stay-good (docs/laws.md).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from mailcore.config.maps import read_maps
from mailcore.config.rewriting import REGEXP, Rewriting
from mailcore.envelope import Envelope, Recipient
from mailcore.rewriting.address_map import MapFault
from mailcore.rewriting.rewriting import Maps, Rewritten, rewrite

__all__ = ["LOOK_S", "LiveMaps", "MapLog"]

LOOK_S = 0.5  # how often to look whether a file has changed; a change is in force within a second


class MapLog(Protocol):
    """Logs changes of the maps: ``MailLog``."""

    def maps_read(self, files: int) -> None:
        """Logs that other maps are in use."""

    def maps_refused(self, faults: Sequence[str], *, in_use: bool) -> None:
        """Logs that the files cannot be used."""

    def flush(self) -> None:
        """Writes the lines."""


class LiveMaps:
    """Holds the maps; ``look`` reads the files again if they have changed."""

    def __init__(
        self, settings: Rewriting, log: MapLog, loop: asyncio.AbstractEventLoop, threads: ThreadPoolExecutor
    ) -> None:
        self._settings = settings
        self._log = log
        self._loop = loop
        self._threads = threads
        self._paths = [name.removeprefix(REGEXP) for name in settings.files]
        self._seen = self._signature()
        self._changed = self._reading = False
        self.maps: Maps | None = None  # None: no message can be accepted
        try:
            self.maps = read_maps(settings)
        except MapFault as fault:
            log.maps_refused(str(fault).splitlines(), in_use=False)

    def apply(self, envelope: Envelope, more: Sequence[Recipient]) -> Rewritten:
        """Returns the envelope with its final addresses, or why it cannot be accepted. May run in a thread."""
        maps = self.maps
        if maps is None:
            return Rewritten(envelope, tuple(more), "the files of [rewriting] cannot be used")
        return rewrite(maps, envelope, more)

    async def watch(self) -> None:
        """Looks at the files until it is cancelled."""
        while True:
            self.look()
            self._log.flush()
            await asyncio.sleep(LOOK_S)

    def look(self) -> None:
        """Begins to read the files if they have changed; the maps in use stay until all of them are read."""
        if self._reading:
            return
        seen = self._signature()
        if seen != self._seen:
            self._seen, self._changed = seen, True
            return  # it may be half written: it is read when it has not changed between two looks
        if not self._changed:
            return
        self._changed, self._reading = False, True
        self._loop.run_in_executor(self._threads, read_maps, self._settings).add_done_callback(self._read)

    def _read(self, future: asyncio.Future[Maps]) -> None:
        self._reading = False
        if future.cancelled():
            return
        error = future.exception()
        if error is None:
            self.maps = future.result()
            self._log.maps_read(len(self._paths))
        elif isinstance(error, MapFault):
            self._log.maps_refused(str(error).splitlines(), in_use=self.maps is not None)
        else:
            raise error

    def _signature(self) -> list[tuple[int, int, int, int] | None]:
        return [_signature(path) for path in self._paths]


def _signature(path: str) -> tuple[int, int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
