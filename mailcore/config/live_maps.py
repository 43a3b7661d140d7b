"""The maps of aliases and canonical addresses of one process: read at the start, and again when a file changes.

Laws
- Files that cannot be read, or have a fault, never replace maps that are in use. Without any maps no mail is accepted: it
  would go to addresses that are not final.
- A message costs no look at a file: the files are looked at twice a second, and read in a thread.

Keeps law: maps-stay-good (docs/laws.md).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from mailcore.config.header_completion import HeaderLog, log_notes
from mailcore.config.local_clients import LocalClients
from mailcore.config.maps import Files, read_files
from mailcore.config.rewriting import REGEXP, Rewriting
from mailcore.config.watched_files import WatchedFiles
from mailcore.envelope import Envelope, Recipient
from mailcore.rewriting.header_section import HeaderRules, HeaderSection, Note
from mailcore.rewriting.missing_fields import MissingFields, NewMessage
from mailcore.rewriting.rewriting import Maps, Rewritten, rewrite

__all__ = ["LOOK_S", "LiveMaps", "MapLog"]

LOOK_S = 0.5  # how often to look whether a file has changed; a change is in force within two seconds


class MapLog(HeaderLog, Protocol):
    """Logs changes of the maps, and what was found in headers: ``MailLog``."""

    def maps_read(self, files: int) -> None:
        """Logs that other maps are in use."""

    def maps_refused(self, faults: Sequence[str], *, in_use: bool) -> None:
        """Logs that the files cannot be used."""


class LiveMaps:
    """Holds the maps; ``look`` reads the files again if they have changed."""

    def __init__(
        self,
        settings: Rewriting,
        log: MapLog,
        threads: ThreadPoolExecutor,
        domain: str = "",
        hostname: str = "",
    ) -> None:
        """``domain`` completes addresses in headers of local mail; "": they stay as they are.

        ``hostname`` is our name in a Message-ID; "": no field is added that is missing.
        """
        self._log = log
        self._domain = domain
        self._hostname = hostname
        self._adds_always = settings.always_add_missing_headers
        self._local = LocalClients(settings.local_header_rewrite_clients)
        self._watched: WatchedFiles[Files] | None = None
        self._paths = [name.removeprefix(REGEXP) for name in settings.files]
        self._watched = WatchedFiles(self._paths, lambda: read_files(settings, domain), self._reported, threads)

    @property
    def files(self) -> Files | None:
        """Returns what the files have; None: no message can be accepted."""
        return None if self._watched is None else self._watched.value

    @property
    def maps(self) -> Maps | None:
        """Returns the maps of addresses; None: no message can be accepted."""
        return None if self.files is None else self.files.maps

    def apply(self, envelope: Envelope, more: Sequence[Recipient]) -> Rewritten:
        """Returns the envelope with its final addresses, or why it cannot be accepted. May run in a thread."""
        files = self.files
        if files is None:
            return Rewritten(envelope, tuple(more), "the files of [rewriting] cannot be used")
        return rewrite(files.maps, envelope, more)

    def header_of_client(self, address: str, trusted: bool, login: str, message: NewMessage) -> HeaderSection | None:
        """Returns what checks, rewrites and completes the header of a client's message; None if nothing does."""
        files = self.files
        if files is None:  # the message gets 451
            return None
        is_local = self._local.hold(address, trusted, login)
        missing = None
        if self._hostname and (is_local or self._adds_always):
            missing = MissingFields(self._hostname, self._domain, files.maps.sender_canonical)
        return self._section(files.headers, is_local, missing, message)

    def header(self, *, is_local: bool = True) -> HeaderSection | None:
        """Returns what checks a header, and rewrites it if it ``is_local``; None if nothing does. May run in a thread."""
        files = self.files
        return None if files is None else self._section(files.headers, is_local)

    def _section(
        self,
        rules: HeaderRules,
        is_local: bool,
        missing: MissingFields | None = None,
        message: NewMessage = ("", "", 0.0),
    ) -> HeaderSection | None:
        rewriter = rules.rewriter if is_local else None
        if not rules.checks and rewriter is None and missing is None:
            return None
        return HeaderSection(rules, rewriter, time.monotonic, missing, message)

    def checked(self, queue_id: str, client: str, sender: str, recipient: str, notes: Sequence[Note]) -> None:
        """Logs what header checks found."""
        log_notes(self._log, queue_id, client, sender, recipient, notes)

    async def watch(self) -> None:
        """Looks at the files until it is cancelled."""
        while True:
            self.look()
            self._log.flush()
            await asyncio.sleep(LOOK_S)

    def look(self) -> None:
        """Begins to read the files if they have changed; the maps in use stay until all of them are read."""
        if self._watched is not None:
            self._watched.look()

    def _reported(self, faults: Sequence[str]) -> None:
        if faults:
            self._log.maps_refused(faults, in_use=self.files is not None)
        else:
            self._log.maps_read(len(self._paths))
