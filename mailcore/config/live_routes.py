"""The routes of one process: those of the configuration file, and those of [route_maps], which are read again when they change.

Laws
- A ``Routing`` is made beside the one in use, and replaces it as a whole. Files with a fault replace nothing.
- Without any routes mail waits: by the routes of the configuration file alone it would go astray.

Keeps law: routes-stay-good (docs/laws.md).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, Protocol

from mailcore.config.fallback_lines import configured_fallbacks
from mailcore.config.route_files import RouteTables, read_tables
from mailcore.config.routing_of import missing_routing, routing_of
from mailcore.config.settings import Settings
from mailcore.config.watched_files import WatchedFiles
from mailcore.routing.resolve import Routing

__all__ = ["LOOK_S", "LiveRoutes", "RouteLog"]

LOOK_S = 0.5  # how often to look whether a file has changed; a change is in force within two seconds


class RouteLog(Protocol):
    """Logs changes of the files: ``MailLog``."""

    def routes_read(self, files: int, routes: int, fallbacks: int) -> None:
        """Logs that other routes and fallback next hops are in use."""

    def routes_refused(self, faults: Sequence[str], *, in_use: bool) -> None:
        """Logs that the files cannot be used."""


class _Read(NamedTuple):
    routing: Routing
    routes: int  # of all tables
    fallbacks: int  # transports and destinations with one of their own
    tables: RouteTables | None


class LiveRoutes:
    """Holds the routing in use. ``changed`` is called after each change; ``log`` None: another process logs it.

    ``keeps_tables``: the tables are kept, too, for questions about them.
    """

    def __init__(
        self,
        settings: Settings,
        log: RouteLog | None,
        threads: ThreadPoolExecutor,
        changed: Callable[[Routing], None] = lambda routing: None,
        *,
        keeps_tables: bool = False,
    ) -> None:
        self._settings = settings
        self._log = log
        self._changed = changed
        self._keeps_tables = keeps_tables
        self._files: WatchedFiles[_Read] | None = None
        paths = settings.route_maps.files
        self.routing = missing_routing(settings) if paths else routing_of(settings)
        if paths:
            self._files = WatchedFiles(paths, self._read, self._reported, threads)
            if self._files.value is not None:
                self.routing = self._files.value.routing

    @property
    def tables(self) -> RouteTables:
        """Returns the tables of the routing in use; empty ones while there is none. Needs ``keeps_tables``."""
        settings = self._settings
        if self._files is None:
            return RouteTables(
                settings.routes,
                settings.sender_routes,
                settings.login_routes,
                configured_fallbacks(settings.transports),
                {},
            )
        value = self._files.value
        return value.tables if value is not None and value.tables is not None else RouteTables({}, {}, {}, {}, {})

    @property
    def faults(self) -> Sequence[str]:
        """Returns why the files as they are now are not in use; nothing if they are."""
        return self._files.faults if self._files is not None else ()

    @property
    def in_force(self) -> bool:
        """Tells whether there are any routes; otherwise mail waits."""
        return self._files is None or self._files.value is not None

    def look(self) -> None:
        """Begins to read the files if they have changed."""
        if self._files is not None:
            self._files.look()

    async def watch(self) -> None:
        """Looks at the files until it is cancelled; returns if there are none."""
        while self._files is not None:
            self._files.look()
            await asyncio.sleep(LOOK_S)

    def _read(self) -> _Read:
        tables = read_tables(self._settings)
        count = len(tables.routes) + len(tables.sender_routes) + len(tables.login_routes)
        return _Read(
            tables.routing(self._settings), count, len(tables.fallbacks), tables if self._keeps_tables else None
        )

    def _reported(self, faults: Sequence[str]) -> None:
        value = self._files.value if self._files is not None else None  # None at the start
        if faults:
            if self._log is not None:
                self._log.routes_refused(faults, in_use=value is not None)
        elif value is not None:
            self.routing = value.routing
            self._changed(value.routing)
            if self._log is not None:
                self._log.routes_read(len(self._settings.route_maps.files), value.routes, value.fallbacks)
