"""The process that watches the shards of other nodes, and takes over those whose owners are silent.

It also writes once a second that this node lives, and asks for shards that a person has placed here. It takes a shard over by
its row alone; the process of the node then starts a supervisor for it, whose owner step makes its files. It never takes the
shard of this home: the owner step of the home does. A shard that is ours and whose beat stands still, because its processes
cannot start, is taken over like any other. A node that drains takes only what it has handed over and no node took.

The look for people, what this node tells the others, the settings of all nodes, their kept files, and the rest of closed
shards have threads and connections of their own (``apart``): nothing that is slow or fails there delays a takeover.

Of two nodes that want the same shard one gets it: both name the epoch and the beat that they have seen.

Keeps law: lease-by-own-clock, law: foreign-queue-stays (docs/laws.md).
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from threading import Thread

from mailcore.config.settings import Settings
from mailcore.config.shards import adopted
from mailcore.faults import FaultError
from mailcore.log.disk import Disk
from mailcore.maillog import MailLog
from mailcore.nodes import kept
from mailcore.nodes.apart import Apart, line_of
from mailcore.nodes.kept_sweep import SweepingKept
from mailcore.nodes.looking import Looking
from mailcore.nodes.moving import STILL_S, comes_back, continue_drain, others_of
from mailcore.nodes.names import name_in, new_owner
from mailcore.nodes.offers import Offers
from mailcore.nodes.owned import read_owned, write_owned
from mailcore.nodes.parameters import node_of, parameters_of, shard_of
from mailcore.nodes.telling import Telling
from mailcore.nodes.tidying import Tidying
from mailcore.queue.shard_copy import ShardCopy, read_copy, write_copy
from mailcore.replication.connection import Connection
from mailcore.replication.faults import ServerError, StoreError
from mailcore.replication.guarantees import Findings, open_checked
from mailcore.replication.lease import BeatWatch
from mailcore.replication.lease_keeper import boot_time_s
from mailcore.replication.node_row import DRAINING, OPEN, beat_node, end_drain
from mailcore.replication.parameters import StoreParameters
from mailcore.replication.shard import ShardRow, read_shards, take_over, want
from mailcore.replication.writer import is_transient
from mailcore.supervisor.adopted import TakenOver, write_taken
from mailcore.supervisor.pulse import Beats

__all__ = ["Spare", "main"]

READ_EVERY_S = 0.5  # a beat must be read at least every second
BEAT_EVERY_S = 1.0
AGAIN_S = 1.0
LOCK_S = 0.5  # a takeover that waits longer for a commit is tried again, so that the other shards are looked at
TAKEN_STATES = ("open", "draining")


class Spare:
    """Watches all shards. ``say`` gets lines for the log, ``told`` is called when the list of shards taken over has changed.

    ``progress`` is called after each step that may wait for the database.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        say: Callable[[str], None],
        told: Callable[[], None] = lambda: None,
        progress: Callable[[], None] = lambda: None,
        disk: Disk | None = None,
        clock: Callable[[], float] = boot_time_s,
        opener: Callable[[StoreParameters], tuple[Connection, Findings]] = open_checked,
    ) -> None:
        self.taken: dict[str, TakenOver] = {}  # by name: what is ours beside the shard of this home
        self._settings = settings
        self._say = say
        self._told = told
        self._progress = progress
        self._disk = disk or Disk()
        self._clock = clock
        self._opener = opener
        self._node = node_of(settings)
        self._own = shard_of(settings)
        self._watches: dict[str, BeatWatch] = {}
        self._connection: Connection | None = None
        self._system = 0
        self._beaten_at = float("-inf")
        self._state = OPEN
        self._complained: dict[str, str] = {}  # shard -> why it is not taken over
        self._offers = Offers(self._node)
        self.troubles: list[str] = []  # for people; replaced as a whole, because another thread reads it
        self._published: list[TakenOver] | None = None
        self._empty_since = float("inf")

    def look(self) -> None:
        """Looks once at all rows. Raises FaultError, OSError; then nothing was seen, and no owner is silent."""
        try:
            self._look()
        except (FaultError, OSError):
            self._watches.clear()
            self.close()
            raise

    def close(self) -> None:
        """Closes the socket."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _look(self) -> None:
        if self._connection is None:
            self._connection, findings = self._opener(parameters_of(self._settings))
            self._system = findings.system
            self._progress()
        connection = self._connection
        if self._clock() - self._beaten_at >= BEAT_EVERY_S:
            self._state = beat_node(connection, self._node)
            self._beaten_at = self._clock()
            self._progress()
        asked_at = self._clock()
        rows = read_shards(connection)
        answered_at = self._clock()
        for row in rows.values():
            if row.name != self._own:
                watch = self._watches.setdefault(row.name, BeatWatch())
                watch.reads(row.epoch, row.beat, asked_at, answered_at)
                self._look_at(connection, row, watch)
                self._progress()
        for name in self.taken.keys() - rows.keys():
            del self.taken[name]
        for name in list(self._complained):
            if name not in rows or not self._foreign_files(self._derived(rows[name]), rows[name]):
                del self._complained[name]
        self._publish()
        self._drain(connection, rows)

    def _look_at(self, connection: Connection, row: ShardRow, watch: BeatWatch) -> None:
        if self._is_ours(row):
            self.taken.setdefault(row.name, TakenOver(row.number, row.name, row.epoch))
        else:
            self.taken.pop(row.name, None)
        if row.state not in TAKEN_STATES or self._state != OPEN:
            if row.state in TAKEN_STATES and comes_back(row, self._node, self._state) and watch.is_silent():
                self._take(connection, row, f"{row.wanted} has not taken it")
            return
        is_for_us = self._node in (row.placed, row.wanted)
        if row.is_released and row.wanted == self._node:
            self._take(connection, row, "it was handed over")
        elif watch.is_silent() and (self._settings.nodes.takes_over or is_for_us):
            self._take(connection, row, f"{row.node} is silent")
        elif (
            row.placed == self._node != row.node
            and not row.wanted
            and not row.is_released
            and self._is_free(self._derived(row), row)
        ):
            want(connection, row, self._node)

    def _is_ours(self, row: ShardRow) -> bool:
        """Returns whether this home owns it, in this boot, as its own files say."""
        if not row.owner.startswith(name_in(self._settings, self._disk)) or row.is_released:
            return False
        known = self.taken.get(row.name)
        if known is not None:
            return known.epoch == row.epoch
        owned = read_owned(self._disk, self._derived(row))
        return owned is not None and (owned.epoch, owned.owner) == (row.epoch, row.owner)

    def _derived(self, row: ShardRow) -> Settings:
        return adopted(self._settings, row.number, row.name)

    def _take(self, connection: Connection, row: ShardRow, why: str) -> None:
        """Takes a shard over, and names it to the process of the node. The node's files of another queue are left alone."""
        derived = self._derived(row)
        if not self._is_free(derived, row):
            return
        owner = new_owner(self._settings, self._disk)
        try:
            taken = take_over(connection, row, owner, LOCK_S, state="draining")
        except ServerError as error:
            if not is_transient(error):
                raise
            return  # a commit of the owner before is still under way
        if taken is None:
            self._watches.pop(row.name, None)  # another node has it, or its owner lives
            return
        # First the place is noted as that of a copy: after a kill -9, a start would make a queue of its own there. A note that
        # is there says which database the files were copied from.
        queue = str(derived.queue_directory)
        if read_copy(self._disk, queue) is None:
            self._disk.make_directory(queue)
            write_copy(self._disk, queue, ShardCopy(row.name, self._system))
        self._disk.make_directory(str(derived.run_directory))
        write_owned(self._disk, derived, taken, self._system)
        self.taken[row.name] = TakenOver(taken.number, taken.name, taken.epoch)
        self._say(f"shard {row.name} is taken over: {why}")
        self._publish()

    def _is_free(self, derived: Settings, row: ShardRow) -> bool:
        """Returns whether the place for the shard has no files of another queue."""
        if not self._foreign_files(derived, row):
            return True
        if row.name not in self._complained:
            words = (
                f"shard {row.name} is not taken over by this node: {derived.queue_directory} has another queue;"
                " let it drain and move it away"
            )
            self._complained[row.name] = words
            self._say(words)
        return False

    def _foreign_files(self, derived: Settings, row: ShardRow) -> bool:
        copy = read_copy(self._disk, str(derived.queue_directory))
        if copy is not None:
            return copy.shard != row.name
        return next(kept.kept_files(self._disk, derived), None) is not None

    def _drain(self, connection: Connection, rows: dict[str, ShardRow]) -> None:
        """Moves the shards of a node that drains to others, and says when there are none left."""
        now, complaints = self._clock(), list(self._complained.values())
        if self._state != DRAINING:
            self._offers.clear()
            self.troubles = complaints
            self._empty_since = float("inf")
            return
        self._offers.look(rows, now)
        is_empty = continue_drain(connection, self._node, rows, lambda shard, node: self._offers.may(shard, node, now))
        self.troubles = complaints
        if self._offers.has_refusals():
            self.troubles = complaints + self._offers.troubles(now, others_of(connection, self._node))
        if not is_empty:
            self._empty_since = float("inf")
            return
        self._empty_since = min(self._empty_since, self._clock())
        if self._clock() >= self._empty_since + STILL_S:
            end_drain(connection, self._node)

    def _publish(self) -> None:
        taken = sorted(self.taken.values())
        if taken != self._published:
            write_taken(self._settings.run_directory, taken)
            self._published = taken
            self._told()


def main(take: Callable[[Settings, int], None], settings: Settings, parent: int) -> None:
    """Runs until it is killed. ``parent`` is the process of the node; ``take`` takes over the settings of all nodes."""
    log = MailLog(settings.log_directory)
    last, said_at = "", 0.0

    def say(words: str) -> None:
        log.shard_waits(words)
        log.flush()
        with contextlib.suppress(OSError):
            os.write(2, f"waypost: {words}\n".encode())

    def wake() -> None:
        if os.getppid() == parent:
            os.kill(parent, signal.SIGCHLD)  # it looks at once

    beats = Beats()
    spare = Spare(settings, say=say, told=wake, progress=beats.now)
    Path(settings.run_directory).mkdir(parents=True, exist_ok=True)
    # A thread with a connection of its own: a change may wait for the database, and the shards are looked at meanwhile.
    Thread(target=take, args=(settings, parent), name="settings", daemon=True).start()
    for name, words, work in (
        (
            "looking",
            "the state of the nodes cannot be read for the pages now",
            Looking(settings, lambda: spare.troubles).once,
        ),
        (
            "telling",
            "why this node does not take a shard, or why its drain waits, cannot be written for the other nodes now",
            Telling(settings, lambda: spare.troubles).once,
        ),
        ("tidying", "closed shards cannot be tidied now", Tidying(settings).once),
        ("kept", "kept files that are not used cannot be removed from the database now", SweepingKept(settings).once),
    ):
        Apart(name, words, work, settings).start()
    while True:
        beats.now()
        try:
            spare.look()
            last = ""
            pause_s = READ_EVERY_S
        except (StoreError, FaultError, OSError) as error:
            words = line_of(error)
            if words != last or time.monotonic() > said_at + 60:
                last, said_at = words, time.monotonic()
                log.shard_waits(f"the shards of other nodes cannot be watched now: {words}")
                log.flush()
            pause_s = AGAIN_S
        time.sleep(pause_s)
