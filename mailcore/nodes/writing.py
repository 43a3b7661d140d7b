"""The parts with which a process of a shard writes: its store, the number of the shard, and the keeper of reserved time.

Each function here begins as a writer, and makes the files of the process what the database says, before it returns; it waits
for a database that does not answer. A process whose row is not its own any more ends at once, with a status by which the
supervisor ends the others and goes back to the owner step.

Keeps law: fenced-by-its-row, law: files-as-the-database-says (docs/laws.md).
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from threading import Event, Thread, current_thread, main_thread
from typing import NoReturn

from mailcore.config.settings import Settings
from mailcore.faults import Code, Fault
from mailcore.log.disk import Disk
from mailcore.nodes import kept
from mailcore.nodes.meeting import NodesMeeting
from mailcore.nodes.owned import Owned, read_owned
from mailcore.nodes.parameters import parameters_of
from mailcore.queue.lanes import incoming
from mailcore.queue.queue_id import PICKUP
from mailcore.queue.reserved_time import Keeper
from mailcore.replication.confirmed import ConfirmedNumbers
from mailcore.replication.connection import Connection
from mailcore.replication.faults import BackInTime, Fenced, StoreError
from mailcore.replication.lease_keeper import LeaseKeeper
from mailcore.replication.parameters import StoreParameters
from mailcore.replication.reserved_ids import ReservedInShard
from mailcore.replication.shard import ShardRow, confirm_owner, reserve_ids
from mailcore.replication.snapshot import Snapshot, snapshot
from mailcore.replication.store import ShardStore
from mailcore.replication.writer import StoreWriter
from mailcore.supervisor.ending import SHARD_BACK, SHARD_LOST

__all__ = [
    "ControlWriters",
    "ManagerWriters",
    "Opening",
    "ReceiverWriters",
    "open_control",
    "open_manager",
    "open_receiver",
]

AGAIN_S = 0.5
NOTED_S = 60.0  # between two notes of what the database has confirmed
MANAGER = "m"
CONTROL, PICKUPS = "c", "p"


@dataclass(frozen=True)
class ReceiverWriters:
    """Of a receiver: ``end_at`` is the end of its lane's records, None for a lane without any."""

    lane: ShardStore
    uploads: ShardStore
    end_at: int | None
    reserved: ReservedInShard
    number: int


@dataclass(frozen=True)
class ManagerWriters:
    """Of the manager."""

    store: ShardStore
    lease: LeaseKeeper
    meeting: NodesMeeting | None  # None: this node divides its limits alone


@dataclass(frozen=True)
class ControlWriters:
    """Of the control process: ``store`` of the messages that are handed in there, ``pickup`` of the lane of the pickup."""

    store: ShardStore
    pickup: ShardStore
    end_at: int | None
    reserved: Keeper
    number: int


def end_process(fault: Fault, *, status: int = SHARD_LOST) -> NoReturn:
    """Ends this process at once, from any thread."""
    os.write(2, f"waypost: {fault.message}\n".encode())
    sys.stdout.flush()
    os._exit(status)


class Opening:
    """The shard as the owner step left it to this process."""

    def __init__(self, settings: Settings, disk: Disk | None = None) -> None:
        self.settings = settings
        self.disk = disk or Disk()
        owned = read_owned(self.disk, settings)
        if owned is None:
            end_process(Fault(Code.CONFLICT, "no shard is owned by this home"))
        self.owned: Owned = owned
        self.parameters: StoreParameters = parameters_of(settings)

    def store(self, name: str) -> ShardStore:
        """Begins as the writer ``name``."""
        writer = StoreWriter(self.parameters, self.owned.name, name, self.owned.epoch)
        store = ShardStore(writer, kept.directories_of(self.settings), lambda fault: self.end(writer, fault))
        store.begin()
        return store

    def end(self, writer: StoreWriter, fault: Fault) -> NoReturn:
        """Ends the process; says if the database has less than this writer saw."""
        end_process(fault, status=SHARD_BACK if writer.state.back_in_time else SHARD_LOST)

    def reserved(self) -> ReservedInShard:
        """Returns the keeper of reserved time, connected. The loop is in the main thread, and is not to wait for it."""
        running = Event()
        keeper = ReservedInShard(
            self.parameters,
            self.owned.name,
            self.owned.epoch,
            hurried=lambda: running.is_set() and current_thread() is main_thread(),
        )
        while True:
            try:
                keeper.read()
            except OSError:
                time.sleep(AGAIN_S)
            else:
                running.set()
                return keeper

    def make(self, work: Callable[[Snapshot], object]) -> None:
        """Calls ``work`` with a snapshot, again if the connection is lost."""

        def once(connection: Connection) -> None:
            with snapshot(connection, self.owned.name) as shown:
                if shown is None or shown.shard.epoch != self.owned.epoch:
                    end_process(Fault(Code.CONFLICT, f"Shard {self.owned.name} is not ours any more."))
                work(shown)

        self.insist(once)

    def insist(self, work: Callable[[Connection], object]) -> None:
        """Calls ``work`` with a connection until it does not fail for the database."""
        while True:
            try:
                connection = Connection.open(self.parameters)
                try:
                    work(connection)
                finally:
                    connection.close()
            except (Fenced, BackInTime) as error:
                end_process(error.fault)
            except StoreError:
                time.sleep(AGAIN_S)
            else:
                return


def open_receiver(settings: Settings, number: int) -> ReceiverWriters:
    """Returns the parts of a receiver. Raises StoreRefused, OSError."""
    opening = Opening(settings)
    lane = opening.store(f"r{number}")
    uploads = opening.store(f"u{number}")
    name = incoming(number)
    opening.make(lambda shown: kept.make_lane(shown, opening.disk, settings, name))
    return ReceiverWriters(lane, uploads, _end_of(lane, name), opening.reserved(), opening.owned.number)


def open_control(settings: Settings) -> ControlWriters:
    """Returns the parts of the control process. Raises StoreRefused, OSError."""
    opening = Opening(settings)
    store, pickup = opening.store(CONTROL), opening.store(PICKUPS)
    name = incoming(PICKUP)
    opening.make(lambda shown: kept.make_lane(shown, opening.disk, settings, name))
    return ControlWriters(store, pickup, _end_of(pickup, name), opening.reserved(), opening.owned.number)


def open_manager(settings: Settings) -> ManagerWriters:
    """Returns the parts of the manager. The lease is kept from the first moment. Raises StoreRefused, OSError."""
    opening = Opening(settings)
    owned = opening.owned
    rows: list[ShardRow] = []

    def confirm(connection: Connection) -> None:
        row = confirm_owner(connection, owned.name, owned.epoch, owned.owner)
        if row is None:
            end_process(Fault(Code.CONFLICT, f"Shard {owned.name} is not ours any more."))
        rows.append(row)

    opening.insist(confirm)
    lease = LeaseKeeper(opening.parameters, rows[-1], end_process)
    lease.start()
    store = opening.store(MANAGER)
    opening.make(lambda shown: kept.make_managers(shown, opening.disk, settings))
    Thread(target=_note_forever, args=(opening,), name="confirmed", daemon=True).start()
    meeting = NodesMeeting(settings, opening.parameters) if settings.nodes.listen else None
    return ManagerWriters(store, lease, meeting)


def _end_of(store: ShardStore, lane: str) -> int | None:
    end = store.ends.get(lane)
    return None if end is None else end[1]


def _note_forever(opening: Opening) -> None:
    """Keeps the node's memory of what the database has confirmed (law: never-back-in-time)."""
    while True:
        time.sleep(NOTED_S)
        try:
            note_once(opening.disk, opening.settings, opening.parameters, opening.owned)
        except (StoreError, OSError):  # the lease and the writers say it
            continue


def note_once(disk: Disk, settings: Settings, parameters: StoreParameters, owned: Owned) -> None:
    """Notes the numbers of all writers, read behind a write of our own that has returned. Raises StoreError, OSError."""
    numbers = ConfirmedNumbers(disk, str(settings.place))
    connection = Connection.open(parameters)
    try:
        reserve_ids(connection, owned.name, owned.epoch, 0)
        with snapshot(connection, owned.name) as shown:
            if shown is not None and shown.shard.epoch == owned.epoch:
                confirmed = {row.writer: row.n for row in shown.writers.values()}
                numbers.note(owned.system, owned.name, owned.epoch, confirmed)
    finally:
        connection.close()
    numbers.save()
