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
from mailcore.replication.shard import TIMEOUT_S, reserve_ids

__all__ = ["ReservedInShard"]

QUICK_S = 1.0


class ReservedInShard:
    """The keeper for one process of an owner, which is named by its epoch. Any thread may call it, and waits in it.

    Its errors are OSError, as those of a file: where nothing can be reserved, no id is given out. A caller that is ``hurried``,
    because all clients of a loop wait with it, waits QUICK_S at most, and never for a connection.
    """

    def __init__(
        self,
        parameters: StoreParameters,
        shard: str,
        epoch: int,
        *,
        opener: Callable[[StoreParameters], Connection] = Connection.open,
        hurried: Callable[[], bool] = lambda: False,
    ) -> None:
        self._hurried = hurried
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
        hurried = self._hurried()
        if not self._lock.acquire(timeout=QUICK_S if hurried else -1):
            raise OSError(errno.EAGAIN, "the database does not answer")
        try:
            if self._connection is None:
                if hurried:
                    raise OSError(errno.EAGAIN, "there is no connection to the database")
                self._connection = self._opener(self._parameters)
            timeout_s = QUICK_S if hurried else TIMEOUT_S
            return reserve_ids(self._connection, self._shard, self._epoch, until, timeout_s)
        except StoreError as error:
            self._close()
            raise OSError(errno.EAGAIN, error.fault.message) from error
        finally:
            self._lock.release()
