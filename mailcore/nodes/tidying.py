"""Frees the rest of closed shards: from time to time, a little at once, and at one node alone.

If a node dies meanwhile, another one continues later.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from mailcore.config.settings import Settings
from mailcore.nodes.closing import tidy
from mailcore.nodes.parameters import parameters_of
from mailcore.replication.connection import Connection
from mailcore.replication.ending import CLOSED
from mailcore.replication.guarantees import Findings, open_checked
from mailcore.replication.parameters import StoreParameters
from mailcore.replication.shard import TIMEOUT_S, read_shards

__all__ = ["TIDY_EVERY_S", "TIDY_FIRST_S", "Tidying"]

TIDY_FIRST_S = 60.0  # a command that closes a shard frees more at once
TIDY_EVERY_S = 3600.0
REST_S = 0.1  # between two steps, for commits of mail
# Held as long as the connection: no other session of the database has it meanwhile, and a node that dies loses it.
_ALONE = f"select pg_try_advisory_lock({int.from_bytes(b'waytidy', 'big')})"


class Tidying:
    """Frees rows over a connection that it makes for each time."""

    def __init__(
        self,
        settings: Settings,
        *,
        sleep: Callable[[float], None] = time.sleep,
        opener: Callable[[StoreParameters], tuple[Connection, Findings]] = open_checked,
    ) -> None:
        self._settings = settings
        self._sleep = sleep
        self._opener = opener
        self._is_first = True

    def once(self) -> float:
        """Frees all that may go, and returns when to look again. Raises FaultError, OSError."""
        if self._is_first:
            self._is_first = False
            return TIDY_FIRST_S
        connection, _ = self._opener(parameters_of(self._settings))
        try:
            (answer,) = connection.run(_ALONE, TIMEOUT_S)
            if answer.rows == [(b"t",)]:
                for row in read_shards(connection).values():
                    while row.state == CLOSED and tidy(connection, row, self._settings.export.keep_days, time.time()):
                        self._sleep(REST_S)
        finally:
            connection.close()
        return TIDY_EVERY_S
