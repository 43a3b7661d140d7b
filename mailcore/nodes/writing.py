"""The parts with which a process of a shard writes: its store, the number of the shard, and the keeper of reserved time.

Each function here begins as a writer, and makes the files of the process what the database says, before it returns; it waits
for a database that does not answer. A process whose row is not its own any more ends at once, with a status by which the
supervisor ends the others and goes back to the owner step.

Keeps law: fenced-by-its-row, law: files-as-the-database-says (docs/laws.md).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from threading import Thread

from mailcore.config.settings import Settings
from mailcore.faults import Code, Fault
from mailcore.log.disk import Disk
from mailcore.nodes import kept
from mailcore.nodes.meeting import NodesMeeting
from mailcore.nodes.opening import Opening, end_process
from mailcore.nodes.owned import Owned
from mailcore.queue.lanes import incoming
from mailcore.queue.queue_id import PICKUP
from mailcore.queue.reserved_time import Keeper
from mailcore.replication.confirmed import ConfirmedNumbers
from mailcore.replication.connection import Connection
from mailcore.replication.faults import StoreError
from mailcore.replication.lease_keeper import LeaseKeeper
from mailcore.replication.parameters import StoreParameters
from mailcore.replication.reserved_ids import ReservedInShard
from mailcore.replication.shard import ShardRow, confirm_owner, reserve_ids
from mailcore.replication.snapshot import snapshot
from mailcore.replication.store import ShardStore

__all__ = [
    "ControlWriters",
    "ManagerWriters",
    "ReceiverWriters",
    "open_control",
    "open_manager",
    "open_receiver",
]

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
