"""Tells the other nodes why this one does not take a shard, or why its drain waits: in a row of the database, for people.

The row is written again while there is a reason; one that is old is not believed. Why a row and not a question to the node:
docs/decisions/0112.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from mailcore.config.settings import Settings
from mailcore.nodes.parameters import node_of, parameters_of
from mailcore.replication.connection import Connection
from mailcore.replication.node_row import note_troubles, read_troubles

__all__ = ["Telling"]

TELL_EVERY_S = 2.0
NOTE_EVERY_S = 10.0  # the same again, and another number of seconds in it; readers believe it for 30 s


class Telling:
    """Writes the row, over a connection that it makes for each time. ``troubles`` returns the reasons of now."""

    def __init__(
        self,
        settings: Settings,
        troubles: Callable[[], list[str]],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._troubles = troubles
        self._clock = clock
        self._node = node_of(settings)
        self._told: list[str] | None = None  # None: what the row says is not known
        self._told_at = float("-inf")

    def once(self) -> float:
        """Writes the row if it is not what it should be, and returns when to look again. Raises FaultError, OSError."""
        troubles = self._troubles()
        is_new = self._told is None or bool(troubles) != bool(self._told)
        if is_new or (troubles and self._clock() >= self._told_at + NOTE_EVERY_S):
            connection = Connection.open(parameters_of(self._settings))
            try:
                if troubles or self._told or self._node in read_troubles(connection):
                    note_troubles(connection, self._node, troubles)
            finally:
                connection.close()
            self._told, self._told_at = troubles, self._clock()
        return TELL_EVERY_S
