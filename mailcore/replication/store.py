"""The store of a shard as one process uses it: ``mailcore.log.store.Store`` over a writer of the database.

``commit`` returns when the batch is on two servers, raises OSError when it never will be there, and otherwise waits for as long
as it takes.

Keeps law: local-after-commit (docs/laws.md).
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Mapping
from typing import NoReturn

from mailcore.faults import Code, Fault
from mailcore.log.store import Changes
from mailcore.log.store import Ends as LaneEnds
from mailcore.replication.batch import Batch, Ends
from mailcore.replication.faults import BackInTime, Fenced, ServerError
from mailcore.replication.writer import StoreWriter

__all__ = ["ShardStore"]

_FULL = "53100"  # PostgreSQL's disk_full


class ShardStore:
    """Commits one process's changes, for all of its threads. ``begin`` comes first.

    ``directories``: local directory -> its name in the store. ``on_end`` ends the process: the shard is not ours any more, the
    database went back in time, or the local disk failed behind a commit.
    """

    def __init__(
        self, writer: StoreWriter, directories: Mapping[str, str], on_end: Callable[[Fault], NoReturn]
    ) -> None:
        self._writer = writer
        self._directories = {path.rstrip("/"): name for path, name in directories.items()}
        self._on_end = on_end
        self._lock = threading.Lock()
        self.ends: Ends = {}  # lane -> base of its newest segment, end of its records: as committed

    def begin(self) -> None:
        """Makes this process the only one that writes under this name, and reads where its lanes end. Raises StoreRefused."""
        try:
            self.ends = dict(self._writer.begin().ends)
        except (Fenced, BackInTime) as error:
            self._on_end(error.fault)

    def name(self, path: str) -> str:
        """Returns the name in the store. Raises ValueError for a path outside of all directories."""
        for directory, name in self._directories.items():
            if path.startswith(f"{directory}/"):
                return f"{name}/{path[len(directory) + 1 :]}"
        raise ValueError(f"{path} is in no directory of the shard")

    def changes(self) -> Batch:
        """Returns an empty batch."""
        return Batch()

    def commit(self, changes: Changes, ends: LaneEnds) -> None:
        """Blocks until the batch is on two servers. Raises OSError if the database refused it."""
        assert isinstance(changes, Batch)
        with self._lock:
            following = {**self.ends, **ends}
            try:
                self._writer.commit(changes, following)
            except ServerError as error:
                number = errno.ENOSPC if error.sqlstate == _FULL else errno.EIO
                raise OSError(number, f"PostgreSQL: {error.fault.message}") from error
            except (Fenced, BackInTime) as error:
                self._on_end(error.fault)
            self.ends = following

    def waiting_s(self) -> float:
        """Returns for how long the commit under way has waited, the time for its turn not counted; 0.0 if none is."""
        return self._writer.waiting_s()

    def end(self, why: str) -> NoReturn:
        """Ends the process."""
        self._on_end(
            Fault(Code.INTERNAL, f"The local disk failed behind a commit: {why}. Another node takes the shard over.")
        )
