"""The owner step: before any process of a shard starts, this node owns the shard, and its files are what the database says.

The supervisor runs it in a child, which ends when that is so. Until then it waits, for days if need be: for a database that
cannot be reached or must not be used, or, as a spare, for an owner that falls silent. Each reason is logged, the same one not
more than once a minute.

- law: own-before-start. No process of a shard starts before a write of this node on the shard's row has returned, and the
  files are what was committed before that write.
- law: foreign-queue-stays. Files that are not the copy of this shard are never changed: nothing is taken over then.

An owner is a home in one boot, with random digits: a copy of a machine, or a home whose processes were ended because the
shard was lost, is another owner and watches the beat like any other.

A shard that was adopted from another node (``spare``) is taken over by the process that watches, and made ready here. If it is
not ours any more, this step ends with SHARD_GONE: then another node has it.

An owner that is to hand its shard over does so here, where nothing of it runs. It waits as a spare then; the node that waits
for it takes it at once. If that does not, it takes the shard again after the wait, also while its node drains.

A database that went back in time is believed, but its mail may have been delivered since: it is held as that of a restored
queue is, and the files here, which may have more, are put aside.

Keeps law: never-back-in-time, law: lease-by-own-clock, law: handed-over-at-rest, law: files-as-the-database-says,
law: disk-or-shard, law: closed-when-drained (docs/laws.md).
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable

import msgspec

from mailcore.config.settings import Settings
from mailcore.config.waiting import write_waiting
from mailcore.counted import counted
from mailcore.faults import Code, Fault, FaultError
from mailcore.log.disk import Disk
from mailcore.maillog import MailLog
from mailcore.nodes import kept
from mailcore.nodes.held_mail import marker_of
from mailcore.nodes.moving import comes_back
from mailcore.nodes.names import name_in, new_owner
from mailcore.nodes.opening import open_or_make
from mailcore.nodes.owned import read_owned, write_owned
from mailcore.nodes.parameters import node_of, parameters_of, shard_of
from mailcore.nodes.taking_in import settle
from mailcore.queue.events_fetched import note_fetched, note_fetching
from mailcore.queue.reserved_time import OF_CONTROL, ReservedFile
from mailcore.queue.restored import NAME as RESTORED
from mailcore.queue.restored import encode_restored, write_restored
from mailcore.queue.shard_copy import ShardCopy, read_copy, write_copy
from mailcore.replication.batch import Batch
from mailcore.replication.confirmed import ConfirmedNumbers
from mailcore.replication.connection import Connection
from mailcore.replication.ending import CLOSED, HELD
from mailcore.replication.faults import Lost, NotReached, ServerError, StoreRefused
from mailcore.replication.lease import BeatWatch
from mailcore.replication.lease_keeper import LeaseKeeper, boot_time_s
from mailcore.replication.node_row import OPEN, node_state
from mailcore.replication.parameters import StoreParameters
from mailcore.replication.shard import (
    ShardRow,
    confirm_owner,
    hand_over,
    read_shard,
    register,
    take_over,
    want,
)
from mailcore.replication.snapshot import Snapshot, snapshot
from mailcore.replication.writer import StoreWriter, is_transient
from mailcore.supervisor.ending import SHARD_GONE

__all__ = ["LOST", "WRITER", "Gone", "OwnerStep", "main"]

LOST = "WAYPOST_SHARD_LOST"  # environment variable, set after children were ended: "lost", or "back"
BACK = "back"
WRITER = "o"  # the name of the owner step's row among the writers
READ_EVERY_S = 0.5  # the beat must be read at least every second
AGAIN_S = 1.0  # after a connection that was lost, or not made
REFUSED_S = 5.0  # after a database that must not be used
# After a failure here: long enough for a spare to see no beat, because this node may never be able to keep the shard.
FAILED_S = 30.0
SAID_S = 60.0  # the same reason is logged this often


class ForeignQueue(FaultError):
    """Raised if the files of the queue directory are not a copy of the shard."""

    default = Code.CONFLICT


class Gone(Exception):
    """Raised if a shard that was adopted is not ours any more."""


class OwnerStep:
    """Becomes the owner. ``lost``: what LOST says. ``say`` gets a line about what it waits for."""

    def __init__(
        self,
        settings: Settings,
        *,
        lost: str = "",
        say: Callable[[str], None],
        disk: Disk | None = None,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = boot_time_s,
    ) -> None:
        self._settings = settings
        self._is_lost = bool(lost)
        self._is_back = lost == BACK
        self._say = say
        self._disk = disk or Disk()
        self._sleep = sleep
        self._clock = clock
        self._shard = shard_of(settings)
        self._node = node_of(settings)
        self.is_in_order = False  # it waits because another node owns the shard; all else needs a person
        self._is_adopted = bool(settings.shard)
        self._me = ""
        self._parameters: StoreParameters | None = None

    def run(self) -> ShardRow:
        """Returns when the shard is ours and its files are here. Raises Gone."""
        while True:
            try:
                return self._run()
            except StoreRefused as error:
                self._wait("; ".join(fault.message for fault in error.faults), REFUSED_S)
            except (NotReached, Lost, ServerError) as error:
                self._wait(f"the database cannot be used now: {error.fault.message}", AGAIN_S)
            except (FaultError, OSError, msgspec.MsgspecError) as error:
                words = error.fault.message if isinstance(error, FaultError) else str(error)
                self._wait(f"shard {self._shard} cannot be kept here: {words}", FAILED_S)

    def _wait(self, why: str, seconds: float) -> None:
        self.is_in_order = False
        self._say(why)
        self._sleep(seconds)

    def _run(self) -> ShardRow:
        self._parameters = parameters_of(self._settings)
        connection, findings = open_or_make(self._parameters)
        try:
            for each in findings.waits:
                self._say(each.message)
            settle(self._disk, self._settings, connection, findings.system)
            self._refuse_foreign()
            self._refuse_orphan(connection, findings.system)
            if not self._me:
                self._me = self._name()
            row = self._claim(connection)
            self._say("")
            return self._make(connection, findings.system, row)
        finally:
            connection.close()

    def _refuse_foreign(self) -> None:
        """Raises ForeignQueue if there are files that would be deleted, and are not a copy of the shard."""
        copy = read_copy(self._disk, str(self._settings.queue_directory))
        if copy is not None and copy.shard == self._shard:
            return
        if next(kept.kept_files(self._disk, self._settings), None) is not None:
            whose = "is not kept by a database" if copy is None else f"is a copy of shard {copy.shard}"
            raise ForeignQueue(
                f"{self._settings.queue_directory} has a queue that {whose}, and not one of shard {self._shard}."
                " waypost shard import takes the mail of a disk into the database. Or let it be delivered with the settings"
                " before, and move the queue and the spool away; or correct shard in [nodes]."
            )

    def _refuse_orphan(self, connection: Connection, system: int) -> None:
        """Raises ForeignQueue if the database that had the shard is lost: the mail in its copy must not get out of sight."""
        copy = read_copy(self._disk, str(self._settings.queue_directory))
        if copy is None or copy.system == system or read_shard(connection, self._shard) is not None:
            return
        if next(kept.kept_files(self._disk, self._settings), None) is not None:
            raise ForeignQueue(
                f"The database is another one and has no shard {self._shard}, and {self._settings.queue_directory} has a"
                f" copy of its mail. Stop Waypost and run waypost shard rebuild {self._shard}, which takes it in and holds it;"
                " or move the queue and the spool away."
            )

    def _name(self) -> str:
        """Returns who we are: the owner that this home was in this boot, unless the shard was lost since."""
        mine = name_in(self._settings, self._disk)
        before = read_owned(self._disk, self._settings)
        # A shard that was adopted is taken over again by the process that watches, and not here.
        is_lost = self._is_lost and not (self._is_adopted and self._is_back)
        if before is not None and not is_lost and before.name == self._shard and before.owner.startswith(mine):
            return before.owner
        return new_owner(self._settings, self._disk)

    # -- becoming the owner

    def _claim(self, connection: Connection) -> ShardRow:
        """Registers the shard, finds it still ours, or takes it over when its owner is silent.

        Returns the row after a write of our own. After Lost the next call finds out what became of it.
        """
        watch = BeatWatch()
        while True:
            self.is_in_order = False
            asked_at = self._clock()
            row = read_shard(connection, self._shard)
            if row is not None and row.owner == self._me and not row.is_released:
                if row.wanted not in ("", self._node):
                    hand_over(connection, row)
                    continue
                confirmed = confirm_owner(connection, self._shard, row.epoch, self._me)
                if confirmed is not None:
                    return confirmed
                continue
            if self._is_adopted:
                raise Gone
            if row is not None:
                watch.reads(row.epoch, row.beat, asked_at, self._clock())
            if row is not None and row.state == HELD:
                self._say(f"shard {self._shard} is being taken in from a disk at {row.node}")
            elif (state := node_state(connection, self._node)) != OPEN and not (
                row is not None and comes_back(row, self._node, state) and watch.is_silent()
            ):
                self.is_in_order = row is not None and self._is_elsewhere(row, watch)
                self._say(f"this node is {state}, and takes no shard; waypost node resume ends that")
            elif row is None:
                return register(connection, self._shard, self._me)
            else:
                taken = self._take(connection, row, watch)
                if taken is not None:
                    return taken
            self._sleep(READ_EVERY_S)

    def _take(self, connection: Connection, row: ShardRow, watch: BeatWatch) -> ShardRow | None:
        """Takes the shard over if its owner is silent, or has handed it over to this node; asks for it if it is adopted."""
        if row.state == CLOSED:
            self._say(
                f"shard {self._shard} is closed for good: it had drained, and its number is not used again. Name another"
                " shard in [nodes], and move the queue and the spool of this one away"
            )
            return None
        if watch.is_silent() or (row.is_released and row.wanted == self._node):
            try:
                taken = take_over(connection, row, self._me)
            except ServerError as error:
                if not is_transient(error):
                    raise
                taken = None  # a commit of the owner before is still under way
            if taken is None:
                watch.fails()
            return taken
        if row.state == "draining" and not row.wanted and not row.is_released and row.placed in ("", self._node):
            want(connection, row, self._node)
        self.is_in_order = self._is_elsewhere(row, watch)
        self._say(f"shard {self._shard} belongs to {row.node}; this node is its spare")
        return None

    def _is_elsewhere(self, row: ShardRow, watch: BeatWatch) -> bool:
        """Returns whether another node owns the shard, and its beat moves."""
        return row.node != self._node and row.state != CLOSED and not row.is_released and not watch.is_silent()

    # -- the files

    def _make(self, connection: Connection, system: int, row: ShardRow) -> ShardRow:
        """Makes the files what the database says, while the lease is kept: no other node takes the shard over meanwhile."""
        assert self._parameters is not None
        lost: list[Fault] = []
        keeper = LeaseKeeper(self._parameters, row, lost.append)
        keeper.start()
        try:
            numbers = ConfirmedNumbers(self._disk, str(self._settings.place))
            copy = read_copy(self._disk, str(self._settings.queue_directory))
            with snapshot(connection, self._shard) as shown:
                if shown is None or (shown.shard.epoch, shown.shard.owner) != (row.epoch, row.owner):
                    raise Lost(f"Shard {self._shard} was taken over meanwhile.")
                confirmed = {each.writer: each.n for each in shown.writers.values()}
                why_not = numbers.judge(system, self._shard, row.epoch, confirmed)
                if why_not is None and copy is not None and copy.system != system:
                    why_not = Fault(Code.CONFLICT, "The database is another one.")
                if why_not is None and self._is_back:
                    why_not = Fault(Code.CONFLICT, "The database had less than it had confirmed.")
                if why_not is not None:
                    aside = time.strftime("aside-%Y%m%dT%H%M%S", time.gmtime())
                    count = kept.set_aside(self._disk, self._settings, aside)
                    self._say(
                        f"{why_not.message} The mail of shard {self._shard} is held; {counted(count, 'file')} of this node in"
                        f" {aside} in the queue and the spool directory"
                    )
                write_copy(self._disk, str(self._settings.queue_directory), ShardCopy(self._shard, system))
                note = note_fetching if self._settings.export.enabled else note_fetched
                note(self._disk, str(self._settings.place))
                kept.make_all(shown, self._disk, self._settings)
                # Segments follow the ids that earlier owners have given out, whose clocks may be ahead of this one.
                ids = os.path.join(self._settings.queue_directory, OF_CONTROL)
                ReservedFile(self._disk, ids).keep(row.ids_after)
                if why_not is not None:
                    self._hold(shown, row)
            if why_not is not None:
                numbers.accept(system, self._shard, row.epoch, confirmed)
                self._is_back = False
            else:
                numbers.note(system, self._shard, row.epoch, confirmed)
            numbers.save()
        finally:
            keeper.stop()
        if lost:
            raise Lost(lost[0].message)
        write_owned(self._disk, self._settings, row, system)
        return row

    def _hold(self, shown: Snapshot, row: ShardRow) -> None:
        """Commits the marker of a restored queue: all mail that the database has is held."""
        assert self._parameters is not None
        queue = str(self._settings.queue_directory)
        marker = marker_of(self._disk, queue, {lane: end for lane, (_, end) in kept.ends_in(shown).items()})
        batch = Batch()
        batch.put(f"{kept.QUEUE}/{RESTORED}", encode_restored(marker))
        writer = StoreWriter(self._parameters, self._shard, WRITER, row.epoch)
        try:
            writer.begin()
            writer.commit(batch, {})
        finally:
            writer.close()
        write_restored(self._disk, queue, marker)


class _Saying:
    """Logs why the step waits, the same reason once in SAID_S; writes each change for the supervisor.

    ``is_in_order``: what the step says of the reason; another answer is a change, too.
    """

    def __init__(self, log: MailLog, tell: Callable[[str], None], is_in_order: Callable[[], bool]) -> None:
        self._log = log
        self._tell = tell
        self._is_in_order = is_in_order
        self._last = ""
        self._was_in_order = False
        self._logged_at = -SAID_S

    def __call__(self, words: str) -> None:
        now = time.monotonic()
        is_in_order = self._is_in_order()
        if (words, is_in_order) != (self._last, self._was_in_order):
            self._tell(words)
        if words and (words != self._last or now - self._logged_at >= SAID_S):
            self._logged_at = now
            self._log.shard_waits(words)
            self._log.flush()
        self._last, self._was_in_order = words, is_in_order


def main(settings: Settings, _: int) -> None:
    """Runs until the shard is ours; the supervisor then starts the other processes."""
    log = MailLog(settings.log_directory)

    with contextlib.suppress(OSError):
        write_waiting(settings.run_directory, "looking at the database")

    def tell(words: str) -> None:
        with contextlib.suppress(OSError):  # for people
            words_or_work = words or "making the files of the shard"
            write_waiting(settings.run_directory, words_or_work, is_in_order=bool(words) and step.is_in_order)
        print(f"waypost: {words}" if words else "waypost: the shard is ours", file=sys.stderr, flush=True)

    began = time.monotonic()
    try:
        step = OwnerStep(settings, lost=os.environ.pop(LOST, ""), say=_Saying(log, tell, lambda: step.is_in_order))
        row = step.run()
    except Gone:
        sys.exit(SHARD_GONE)
    log.shard_owned(row.name, row.epoch, time.monotonic() - began)
    log.flush()
