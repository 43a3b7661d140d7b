"""Keeps the reserved time of queue ids in the row of a shard. Of a queue that is alone, ``mailcore/queue`` has it in a file.

The owners of a shard have their own clocks, and none of them has the disk of another. So a process of the shard begins behind
all that any process of any owner has reserved in the row, which is one number for all of them.

Keeps law: ids-never-reused (docs/laws.md).
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from threading import Lock

from mailcore.replication.connection import Connection
from mailcore.replication.faults import StoreError
from mailcore.replication.parameters import StoreParameters
from mailcore.replication.shard import reserve_ids

__all__ = ["ReservedInShard"]


class ReservedInShard:
    """The keeper for one process of an owner, which is named by its epoch. Any thread may call it, and waits in it.

    Its errors are OSError, as those of a file: where nothing can be reserved, no id is given out.
    """

    def __init__(
        self,
        parameters: StoreParameters,
        shard: str,
        epoch: int,
        *,
        opener: Callable[[StoreParameters], Connection] = Connection.open,
    ) -> None:
        self._parameters = parameters
        self._shard = shard
        self._epoch = epoch
        self._opener = opener
        self._connection: Connection | None = None
        self._lock = Lock()

    def read(self) -> int:
        """Returns up to where time is reserved. It writes, so all that it shows is on two servers. Raises OSError."""
        return self._reserve(0)

    def keep(self, until: int) -> None:
        """Reserves time up to ``until``. Raises OSError."""
        self._reserve(until)

    def close(self) -> None:
        """Closes the socket."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _reserve(self, until: int) -> int:
        with self._lock:
            try:
                if self._connection is None:
                    self._connection = self._opener(self._parameters)
                return reserve_ids(self._connection, self._shard, self._epoch, until)
            except StoreError as error:
                self._close()
                raise OSError(errno.EAGAIN, error.fault.message) from error
