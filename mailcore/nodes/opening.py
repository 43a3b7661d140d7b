"""The shard as the owner step left it to a process of it, which begins as a writer, or ends if the shard is not ours any more.

A database that does not answer is waited for. A process whose row is not its own any more ends at once, with a status by which
the supervisor ends the others and goes back to the owner step.

Keeps law: fenced-by-its-row (docs/laws.md).
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from threading import Event, current_thread, main_thread
from typing import NoReturn

from mailcore.config.settings import Settings
from mailcore.faults import Code, Fault
from mailcore.log.disk import Disk
from mailcore.nodes import kept
from mailcore.nodes.owned import Owned, read_owned
from mailcore.nodes.parameters import parameters_of
from mailcore.replication.connection import Connection
from mailcore.replication.faults import BackInTime, Fenced, StoreError, StoreRefused
from mailcore.replication.guarantees import Findings, open_checked
from mailcore.replication.parameters import StoreParameters
from mailcore.replication.reserved_ids import ReservedInShard
from mailcore.replication.schema import make_schema
from mailcore.replication.snapshot import Snapshot, snapshot
from mailcore.replication.store import ShardStore
from mailcore.replication.writer import StoreWriter
from mailcore.supervisor.ending import SHARD_BACK, SHARD_LOST

__all__ = ["Opening", "end_process", "open_or_make"]

AGAIN_S = 0.5


def end_process(fault: Fault, *, status: int = SHARD_LOST) -> NoReturn:
    """Ends this process at once, from any thread."""
    os.write(2, f"waypost: {fault.message}\n".encode())
    sys.stdout.flush()
    os._exit(status)


def open_or_make(parameters: StoreParameters) -> tuple[Connection, Findings]:
    """Returns a checked connection; makes the tables first in a database without them.

    Raises StoreRefused, NotReached, Lost, ServerError.
    """
    try:
        return open_checked(parameters)
    except StoreRefused as error:
        if error.fault.code is not Code.NOT_FOUND:
            raise
    connection = Connection.open(parameters)
    try:
        make_schema(connection)
    finally:
        connection.close()
    return open_checked(parameters)


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
