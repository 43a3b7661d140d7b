"""The clients of the shards behind one client: it asks all of them, where the node has several (``several.ways``).

A client looks for the list of shards with each question, so that it needs no new start when a node has other shards.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from mailcore.config.known_shards import KnownShard, all_shards, known_shards
from mailcore.config.waiting import waits_in
from mailcore.control.control_errors import ControlError, NotRunning
from mailcore.faults import Code

if TYPE_CHECKING:
    from mailcore.control.several.step import Taking
    from mailcore.control.several.steps import Session

__all__ = ["Several"]

C = TypeVar("C")
CONTROL_SOCKET = "control.sock"  # in the run directory


class Several(Generic[C]):
    """Keeps the clients of one kind. ``path``: the socket of a queue that is alone; ``here``: no other node is asked."""

    def __init__(self, path: str, *, here: bool = False) -> None:
        self._known = known_shards if here else all_shards
        directory, name = os.path.split(path)
        self._directory = Path(directory) if name == CONTROL_SOCKET else None  # the exporter is asked as it is
        self._shards: list[KnownShard] = []
        self._clients: dict[str, C] = {}  # by their path: a shard that comes again may be elsewhere
        self._session: Session | None = None

    def look(self) -> bool:
        """Looks for the list of shards; returns whether there are several."""
        self._shards = []
        if self._directory is not None:
            with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
                self._shards = self._known(self._directory)
        return bool(self._shards)

    def taking(self, operation: str, arguments: dict[str, Any]) -> Taking:
        """Returns the steps of a question."""
        # Most nodes have one queue, and a command takes a third of its time to load what it needs.
        from mailcore.control.several.step import Taking
        from mailcore.control.several.steps import Session
        from mailcore.control.several.ways import steps_of

        if self._session is None:
            self._session = Session()
        is_here = any(each.is_here for each in self._shards)
        waits = None if is_here or self._directory is None else waits_in(self._directory)
        return Taking(steps_of(self._shards, self._session, operation, arguments, waits))

    def client(self, shard: int, make: Callable[[str], C]) -> C:
        """Returns the client of a shard."""
        path = self.path_of(shard)
        if path not in self._clients:
            self._clients[path] = make(path)
        return self._clients[path]

    def path_of(self, shard: int) -> str:
        """Returns the socket of a shard."""
        (directory,) = [each.run_directory for each in self._shards if each.number == shard]
        return str(directory / CONTROL_SOCKET)

    def failed(self, shard: int, error: ControlError) -> ControlError:
        """Returns the error of a shard, with what it means where this node's own process asks for it."""
        for each in self._shards:
            if each.number == shard and each.why:
                return NotRunning(each.why)
        is_here = any(each.is_here for each in self._shards if each.number == shard)
        if is_here or not isinstance(error, NotRunning) or error.code is not Code.UNAVAILABLE:
            return error
        return NotRunning("the process peers of this node, which asks the others, does not run")

    def forget(self) -> list[C]:
        """Returns all clients, which are to be closed, and keeps none."""
        clients, self._clients = list(self._clients.values()), {}
        return clients
