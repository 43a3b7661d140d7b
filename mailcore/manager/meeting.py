"""The place where the managers that share limits meet: how the giver is elected, listens, and is reached.

On one host it is a directory with a lock and a Unix socket. Over several nodes a row of the database elects, and mutual TLS
connects (``mailcore.nodes.meeting``).

Keeps law: shares-within-limit (docs/laws.md).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from mailcore.manager.election import LockElection
from mailcore.shares.election import Election
from mailcore.supervisor.listen import fitting_path, listen_on_path

__all__ = ["GIVER_SOCKET", "Listening", "LocalMeeting", "Meeting", "Protocols"]

GIVER_SOCKET = "shares.sock"

Protocols = Callable[[], asyncio.Protocol]


class Listening(Protocol):
    """Listens until it is closed."""

    def close(self) -> None:
        """Listens no more."""


class Meeting(Protocol):
    """The place where managers meet."""

    def elect(self, heard: Callable[[], int]) -> Election:
        """Returns the election, out of what returns the last one heard of."""

    async def listen(self, loop: asyncio.AbstractEventLoop, serving: Protocols) -> Listening:
        """Listens as the giver. Raises OSError."""

    async def open(self, loop: asyncio.AbstractEventLoop, asking: Protocols, serving: Protocols) -> None:
        """Connects to the giver; ``serving`` answers if this process is the giver itself. Raises OSError."""

    def is_current(self) -> bool:
        """Returns False if what was opened last leads to a process that is not the giver any more."""

    def trouble(self) -> str:
        """Returns why this process cannot meet the others; "" if nothing is known."""


class LocalMeeting:
    """The queues of one host meet in a directory. ``relieve`` frees room for the socket on a full disk."""

    def __init__(
        self, directory: Path, clock: Callable[[], float], relieve: Callable[[Path], bool] = lambda _: False
    ) -> None:
        self._directory = directory
        self._path = directory / GIVER_SOCKET
        self._clock = clock
        self._relieve = relieve

    def elect(self, heard: Callable[[], int]) -> Election:
        """Returns an election by a lock in the directory."""
        return LockElection(self._directory, heard, self._clock)

    async def listen(self, loop: asyncio.AbstractEventLoop, serving: Protocols) -> asyncio.AbstractServer:
        """Listens at the socket, which replaces that of the giver before. Raises OSError."""
        return await loop.create_unix_server(serving, sock=listen_on_path(self._path, self._relieve))

    async def open(self, loop: asyncio.AbstractEventLoop, asking: Protocols, serving: Protocols) -> None:
        """Connects to the socket of the giver. Raises OSError."""
        with fitting_path(self._path) as name:
            await loop.create_unix_connection(asking, name)

    def is_current(self) -> bool:
        """Returns True: the kernel ends the connection with the giver."""
        return True

    def trouble(self) -> str:
        """Returns "": without a giver, this process becomes it."""
        return ""
