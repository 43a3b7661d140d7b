"""The election of the giver of shares by a row of the database, as a shard's owner keeps its lease.

- An election holds from before its renewal was sent for ``GIVER_LEASE_S`` of this process's own clock. Another process takes
  the row over only when it has read the same beat for 1.5 times as long by its own clock, at least every second.
- A process is elected when a write of its own on its row has returned, from a server that waits for a standby.
- The one before gave nothing later than its lease behind its last beat, which was sent before that was read first. So the new
  one knows until when shares may hold of which it has not heard, and does not wait for longer.

The lease is shorter than that of a shard: it is renewed before the shares end that the one before gave. While the database
does not answer, no process takes it over, and it continues later.

A thread asks the database, so neither its answers nor a long turn of the event loop cost anything but time.

Keeps law: shares-within-limit (docs/laws.md).
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from threading import Event, Thread

from mailcore.faults import Fault
from mailcore.replication.connection import Connection
from mailcore.replication.faults import StoreError
from mailcore.replication.giver_row import GiverRow, leave_giver, make_giver, read_giver, renew_giver, take_giver
from mailcore.replication.lease import BeatWatch, Lease
from mailcore.replication.lease_keeper import boot_time_s
from mailcore.replication.parameters import StoreParameters
from mailcore.shares.election import Elected
from mailcore.shares.holder import DRIFT

__all__ = ["GIVER_LEASE_S", "GIVER_WATCH_S", "GiverElection"]

LOOK_S = 0.5  # a beat must be read at least once a second
GIVER_LEASE_S = 2.0  # four renewals
GIVER_WATCH_S = 1.5 * GIVER_LEASE_S  # and a look: less than what is left of a share when its giver ends
RESIGNED_S = 10.0  # one that cannot be the giver leaves it to others for that long
LEAVE_S = 1.0  # a process that is about to end waits no longer


class GiverElection:
    """Elects one process of all nodes. ``owner`` is of this start of the process, ``address`` where it answers.

    ``heard`` returns the last election known. ``beside`` is called with each look's connection; ``may`` returns whether this
    process may be elected at all.
    """

    def __init__(
        self,
        parameters: StoreParameters,
        owner: str,
        address: str,
        heard: Callable[[], int],
        *,
        beside: Callable[[Connection], None] = lambda _: None,
        may: Callable[[], bool] = lambda: True,
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
        self._beside = beside
        self._may = may
        self._opener = opener
        self._clock = clock
        self._above = 0  # an epoch that a shard has heard of
        self._lease: Lease | None = None
        self._watch = self._new_watch()
        self._leaving: GiverRow | None = None  # to be freed for others at once
        self._not_before = 0.0  # elected again
        self._left = Event()
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
        """Answers no more, and lets the thread tell the others so; this process is not elected again for a while."""
        if self.elected is not None:
            self.elected = None
            self._not_before = self._clock() + RESIGNED_S
            self._leaving = self.row

    def leave(self) -> None:
        """Ends for good, and waits for a second until the others know it."""
        was_elected = self.elected is not None
        self.end()
        self._not_before = math.inf
        if was_elected:
            self._left.wait(LEAVE_S)

    def stop(self) -> None:
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
            self._beside(self._connection)
            if not self._may():
                self.end()
            if self._leaving is not None:
                self._leave(self._connection, self._leaving)
            elif self._lease is not None and self.elected is not None:
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
            self._watch = self._new_watch()

    def _leave(self, connection: Connection, row: GiverRow) -> None:
        leave_giver(connection, row)
        self._leaving = self._lease = None
        self._left.set()

    @staticmethod
    def _new_watch() -> BeatWatch:
        return BeatWatch(GIVER_WATCH_S)

    def _try(self, connection: Connection) -> None:
        asked_at = self._clock()
        row = self.row = read_giver(connection)
        if row is not None:
            self._watch.reads(row.epoch, row.beat, asked_at, self._clock())
        if not self._may() or asked_at < self._not_before:
            return
        above = max(self._above, self._heard())
        if row is None:
            self._begin(connection, make_giver(connection, above + 1, self._owner, self._address))
        elif row.owner == self._owner and row.epoch > self._above:  # a takeover whose outcome was unknown
            self._begin(connection, row)
        elif row.owner in (self._owner, "") or self._watch.is_silent():
            epoch = max(row.epoch, above) + 1
            # One that has left gave nothing since; of one that is silent the row was read when its lease had not yet ended.
            is_silent = row.owner not in (self._owner, "") and above <= row.epoch
            gave_until = self._watch.since + GIVER_LEASE_S * (1 + DRIFT) if is_silent else math.inf
            self._begin(connection, take_giver(connection, row, epoch, self._owner, self._address), gave_until)

    def _begin(self, connection: Connection, row: GiverRow | None, gave_until: float = math.inf) -> None:
        """Is elected as soon as a write on the row has returned. The giver before gave nothing later than ``gave_until``."""
        if row is None:
            return
        self.row, self._lease = row, Lease(row.beat, GIVER_LEASE_S)
        confirmed, following = self._lease.send(self._clock())
        if renew_giver(connection, row, confirmed, following):
            self._lease.is_renewed(following)
            self.elected = Elected(row.epoch, min(self._clock(), gave_until))
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
