"""The election of the giver of shares by a row of the database, as a shard's owner keeps its lease.

- An election holds from before its renewal was sent for ``LEASE_S`` of this process's own clock. Another process takes the row
  over only when it has read the same beat for 1.5 times as long by its own clock, at least every second.
- A process is elected when a write of its own on its row has returned, from a server that waits for a standby.

A thread asks the database, so neither its answers nor a long turn of the event loop cost anything but time.

Keeps law: shares-within-limit (docs/laws.md).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from threading import Event, Thread

from mailcore.faults import Fault
from mailcore.replication.connection import Connection
from mailcore.replication.faults import StoreError
from mailcore.replication.giver_row import GiverRow, make_giver, read_giver, renew_giver, take_giver
from mailcore.replication.lease import BeatWatch, Lease
from mailcore.replication.lease_keeper import boot_time_s
from mailcore.replication.parameters import StoreParameters
from mailcore.shares.election import Elected

__all__ = ["GiverElection"]

LOOK_S = 0.5  # a beat must be read at least once a second


class GiverElection:
    """Elects one process of all nodes. ``owner`` is of this start of the process, ``address`` where it answers.

    ``heard`` returns the last election known.
    """

    def __init__(
        self,
        parameters: StoreParameters,
        owner: str,
        address: str,
        heard: Callable[[], int],
        *,
        opener: Callable[[StoreParameters], Connection] = Connection.open,
        clock: Callable[[], float] = boot_time_s,
    ) -> None:
        self.row: GiverRow | None = None  # as it was read or written last: who is the giver, and where
        self.fault: Fault | None = None  # why the database could not be asked; None: it could
        self.elected: Elected | None = None
        self._parameters = parameters
        self._owner = owner
        self._address = address
        self._heard = heard
        self._opener = opener
        self._clock = clock
        self._above = 0  # an epoch that a shard has heard of
        self._lease: Lease | None = None
        self._watch = BeatWatch()
        self._connection: Connection | None = None
        self._stopping = Event()
        self._thread = Thread(target=self._keep, name="giver", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def look(self) -> None:
        """Does nothing: the thread looks."""

    def holds(self) -> bool:
        """Returns whether the election holds at this moment."""
        lease = self._lease
        return self.elected is not None and lease is not None and lease.holds(self._clock())

    def again(self, epoch: int) -> None:
        """Lets the thread raise the number above ``epoch``; until then there is no answer."""
        self._above = max(self._above, epoch)
        self.elected = None

    def end(self) -> None:
        """Ends the thread. Another process takes the row when it has not changed for long enough."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()
        self.elected = self._lease = None
        self._close()

    def look_once(self) -> None:
        """Renews this process's election, or watches another's. Raises StoreError."""
        try:
            if self._connection is None:
                self._connection = self._opener(self._parameters)
            if self._lease is not None and self.elected is not None:
                self._renew(self._connection)
            else:
                self._try(self._connection)
        except StoreError as error:
            self._watch.fails()
            self._close()
            self.fault = error.fault
            raise
        self.fault = None

    def _renew(self, connection: Connection) -> None:
        assert self._lease is not None
        assert self.row is not None
        confirmed, following = self._lease.send(self._clock())
        if renew_giver(connection, self.row, confirmed, following):
            self._lease.is_renewed(following)
        else:
            self.elected = self._lease = None
            self._watch = BeatWatch()

    def _try(self, connection: Connection) -> None:
        asked_at = self._clock()
        row = self.row = read_giver(connection)
        above = max(self._above, self._heard())
        if row is None:
            self._begin(connection, make_giver(connection, above + 1, self._owner, self._address))
            return
        self._watch.reads(row.epoch, row.beat, asked_at, self._clock())
        if row.owner == self._owner and row.epoch > self._above:  # a takeover whose outcome was unknown
            self._begin(connection, row)
        elif row.owner == self._owner or self._watch.is_silent():
            epoch = max(row.epoch, above) + 1
            self._begin(connection, take_giver(connection, row, epoch, self._owner, self._address))

    def _begin(self, connection: Connection, row: GiverRow | None) -> None:
        """Is elected as soon as a write on the row has returned."""
        if row is None:
            return
        self.row, self._lease = row, Lease(row.beat)
        confirmed, following = self._lease.send(self._clock())
        if renew_giver(connection, row, confirmed, following):
            self._lease.is_renewed(following)
            self.elected = Elected(row.epoch, self._clock())
        else:
            self._lease = None

    def _keep(self) -> None:
        while not self._stopping.is_set():
            with contextlib.suppress(StoreError):  # ``fault`` says why; the lease runs out meanwhile
                self.look_once()
            self._stopping.wait(LOOK_S)

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
