"""Two threads of a shard's owner: one keeps the lease, and one reads the guarantees of the database on a timer.

The lease has a thread and a connection of its own, so that neither a long turn of the event loop nor a slow answer of Patroni
costs it. An error of the database lets the lease run out; the shard stays ours until another node takes it, and the next
renewal that returns brings the lease back. While the database does not keep what it is given, the lease is not renewed.

Keeps law: lease-by-own-clock, law: kept-by-two (docs/laws.md).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Event, Thread

from mailcore.faults import Code, Fault
from mailcore.replication.connection import Connection
from mailcore.replication.faults import Fenced, StoreError, StoreRefused
from mailcore.replication.guarantees import open_checked
from mailcore.replication.lease import RENEW_EVERY_S, Lease
from mailcore.replication.parameters import StoreParameters
from mailcore.replication.shard import ShardRow, renew
from mailcore.replication.writer import Opener

__all__ = ["LeaseKeeper", "boot_time_s"]


def boot_time_s() -> float:
    """Returns seconds that also count while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class LeaseKeeper:
    """Renews the lease of one shard. ``ended`` is called once, in a thread: the shard is not ours any more, or for a bug."""

    def __init__(
        self,
        parameters: StoreParameters,
        row: ShardRow,
        ended: Callable[[Fault], None],
        *,
        opener: Callable[[StoreParameters], Connection] = Connection.open,
        checked_opener: Opener = open_checked,
        clock: Callable[[], float] = boot_time_s,
    ) -> None:
        self.row = row
        self.fault: Fault | None = None  # why the last renewal failed; None: it did not
        self.refusal: Fault | None = None  # why the database must not be used; None: it may, as far as we know
        self.wanted = ""  # the other node that waits for the shard, as the last renewal has heard
        self.stopping = Event()
        self._parameters = parameters
        self._ended = ended
        self._opener = opener
        self._checked_opener = checked_opener
        self._clock = clock
        self._lease = Lease(row.beat)
        self._connection: Connection | None = None
        self._threads = [
            Thread(target=target, name=f"{name} {row.name}", daemon=True)
            for name, target in (("lease", self._keep), ("guarantees", self._look))
        ]

    def start(self) -> None:
        """Starts the threads. The database was looked at before, when the shard was registered or taken over."""
        for thread in self._threads:
            thread.start()

    @property
    def until(self) -> float:
        """Returns until when deliveries may begin, by the clock. It does not count when the shard is lost (``holds``)."""
        return self._lease.until

    def holds(self) -> bool:
        """Returns True if deliveries may begin now."""
        return self._lease.holds(self._clock())

    @property
    def trouble(self) -> str:
        """Returns why the lease is not renewed; "" if it is."""
        found = self.refusal or self.fault
        return "" if found is None else found.message

    def renew_once(self) -> None:
        """Renews, connecting first if needed. Raises StoreError."""
        try:
            if self.refusal is not None:
                raise StoreRefused([self.refusal])
            if self._connection is None:
                self._connection = self._opener(self._parameters)
            confirmed, following = self._lease.send(self._clock())
            renewed = renew(self._connection, self.row, confirmed, following)
            self._lease.is_renewed(renewed.beat)
            self.wanted = "" if renewed.wanted == self.row.node else renewed.wanted
        except StoreError:
            self.close()
            raise
        self.fault = None

    def look_once(self) -> None:
        """Reads the guarantees over a connection of its own. A database that cannot be reached changes nothing."""
        try:
            connection, _ = self._checked_opener(self._parameters)
        except StoreRefused as error:
            self.refusal = error.fault
        except StoreError:
            pass
        else:
            connection.close()
            self.refusal = None

    def _keep(self) -> None:
        try:
            while not self.stopping.is_set():
                try:
                    self.renew_once()
                except Fenced:
                    raise
                except StoreError as error:
                    self.fault = error.fault
                self.stopping.wait(RENEW_EVERY_S)
        except Fenced as error:
            self._end(error.fault)
        except (
            Exception
        ) as error:  # a bug: a manager that delivers nothing, and does not say so, would be worse than its end
            self._end(Fault(Code.INTERNAL, f"The lease of shard {self.row.name} cannot be kept: {error!r}"))
            raise

    def _end(self, fault: Fault) -> None:
        self._lease.is_lost()
        self.fault = fault
        self._ended(fault)

    def _look(self) -> None:
        while not self.stopping.wait(self._parameters.look_every_s):
            self.look_once()

    def close(self) -> None:
        """Closes the socket."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def stop(self) -> None:
        """Ends the threads. Only tests need it: the daemon is killed."""
        self.stopping.set()
        for thread in self._threads:
            thread.join()
        self.close()
