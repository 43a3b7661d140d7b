"""The rows of the nodes and of their shards, read twice a second by a thread, because the database may take its time.

While the database does not answer, the rows stay as they were read: a shard is asked for where it was last, for as long as the
other node is trusted (``Trust``). A fault of our own ends the process, so that it is started again: rows that are not read any
more would be believed until then, and nothing would be passed on after it.
"""

from __future__ import annotations

import os
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from mailcore.config.known_shards import Others, OtherShard, read_others, write_others
from mailcore.config.settings import Settings
from mailcore.faults import FaultError
from mailcore.nodes.parameters import node_of, parameters_of, shard_of
from mailcore.nodes.trust import Trust
from mailcore.replication.connection import Connection
from mailcore.replication.faults import StoreError
from mailcore.replication.shard import read_shards

__all__ = ["READ_EVERY_S", "Rows"]

READ_EVERY_S = 0.5
AGAIN_S = 1.0
WRITE_EVERY_S = 10.0  # the same again: an old file is not believed
CLOSED = "closed"  # state of a shard without an owner and mail


class Rows:
    """Reads the rows. ``read`` is called in the thread after each reading, ``say`` with why there is none."""

    def __init__(self, settings: Settings, trust: Trust, read: Callable[[], None], say: Callable[[str], None]) -> None:
        self.node = node_of(settings)
        self._settings = settings
        self._trust = trust
        self._read = read
        self._say = say
        self._run: Path = settings.run_directory
        self._written = read_others(self._run)
        self._written_at = -WRITE_EVERY_S
        last = self._written
        self.others = last if last is not None and last.node == self.node else Others(self.node, -1, [])

    def node_of(self, number: int) -> str:
        """Returns the node that owns a shard; "" if there is no such shard."""
        return next((row.node for row in self.others.shards if row.number == number), "")

    def start(self) -> None:
        """Begins to read."""
        threading.Thread(target=self._run_or_end, name="rows", daemon=True).start()

    def _run_or_end(self) -> None:
        try:
            self.run()
        except BaseException:
            traceback.print_exc()
            os._exit(1)  # the loop may be in a long turn

    def run(self) -> None:
        """Reads until the process ends."""
        connection: Connection | None = None
        while True:
            try:
                if connection is None:
                    connection = Connection.open(parameters_of(self._settings))
                self.look(connection)
                pause_s = READ_EVERY_S
            except (StoreError, FaultError, OSError) as error:
                words = error.fault.message if isinstance(error, FaultError) else str(error)
                self._say(f"the rows of the nodes cannot be read: {words}")
                if connection is not None:
                    connection.close()
                    connection = None
                pause_s = AGAIN_S
            time.sleep(pause_s)

    def look(self, connection: Connection) -> None:
        """Reads the rows once, and writes down where the shards are. Raises StoreError, OSError."""
        self._trust.read(connection)
        rows = sorted(read_shards(connection).values(), key=lambda row: row.number)
        own = next((row.number for row in rows if row.name == shard_of(self._settings)), -1)
        shards = [OtherShard(row.number, row.name, row.node) for row in rows if row.state != CLOSED]
        self.others = Others(self.node, own, shards)
        if self.others != self._written or time.monotonic() >= self._written_at + WRITE_EVERY_S:
            write_others(self._run, self.others)
            self._written, self._written_at = self.others, time.monotonic()
        self._read()
