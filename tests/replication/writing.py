"""Writers in threads, and what the database says of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from mailcore.replication.batch import Batch
from mailcore.replication.parameters import StoreParameters
from mailcore.replication.writer import StoreWriter
from tests.eventually import PATIENCE_S, eventually_blocking
from tests.replication.cluster import Cluster, Server

SHARD = "north"
NODE = "node-1/boot-1"
WAITING = "select pid from pg_stat_activity where wait_event = 'SyncRep' and application_name = 'waypost' order by pid"


class Task:
    """A call in a thread of its own."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.result: Any = None
        self.error: BaseException | None = None
        self._call = call
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.result = self._call()
        except BaseException as error:  # the test looks at it
            self.error = error

    def is_running(self) -> bool:
        return self._thread.is_alive()

    def wait(self) -> Any:
        """Returns the result, or raises what the call raised."""
        self._thread.join(PATIENCE_S)
        assert not self.is_running(), "it does not end"
        if self.error is not None:
            raise self.error
        return self.result


def add_shard(server: Server, *, epoch: int = 1, owner: str = NODE, name: str = SHARD, number: int = 1) -> None:
    server.sql(
        f"insert into waypost.shard (name, number, epoch, owner) values ('{name}', {number}, {epoch}, '{owner}')"
    )


@contextmanager
def writing(
    cluster: Cluster, name: str = "r0", epoch: int = 1, parameters: StoreParameters | None = None
) -> Iterator[StoreWriter]:
    writer = StoreWriter(parameters or cluster.parameters(), SHARD, name, epoch)
    try:
        writer.begin()
        yield writer
    finally:
        writer.stopping.set()
        writer.close()


def appended(text: bytes, at: int, file: str = "incoming.0/0") -> Batch:
    batch = Batch()
    batch.append(file, at, [text])
    return batch


def stored(server: Server) -> list[tuple[str, ...]]:
    """Writer, number and bytes of each chunk."""
    return server.sql("select writer, n, convert_from(bytes, 'UTF8') from waypost.chunk order by writer, n, part")


def wait_for_waiting(server: Server, count: int = 1) -> list[int]:
    """Process ids of sessions that wait for a standby, once there are so many."""

    def found() -> list[int]:
        pids = [int(row[0]) for row in server.sql(WAITING)]
        return pids if len(pids) >= count else []

    return eventually_blocking(found, f"{count} sessions wait for a standby")
