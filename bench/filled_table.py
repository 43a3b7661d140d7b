"""A primary with a synchronous standby whose table of chunks is full from the beginning, for bench.big_table."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.big_table_report import GB, Size, Slice
from bench.processes import cpu_s, machine_cpu_s, own_cpu_s
from bench.stored_queue import StoredQueue, Turn
from tests.replication.cluster import PORT, SUPERUSER, Cluster, Server, Template, programs

__all__ = ["Table", "filled", "say"]

STANDBY_TIMEOUT_S = 1_800.0  # until the big table is copied
# While the table is filled, one server is alone, and nothing of it has to survive a crash.
FILLING = """
wal_level = minimal
max_wal_senders = 0
fsync = off
full_page_writes = off
autovacuum = off
synchronous_standby_names = ''
max_wal_size = 8GB
checkpoint_timeout = 1h
maintenance_work_mem = 256MB
"""


def size_of(server: Server, live_bytes: int) -> Size:
    """Reads it."""
    ((heap, toast, indexes, dead, vacuums),) = server.sql(
        "select pg_relation_size(c.oid), pg_relation_size(t.oid), pg_indexes_size(c.oid) + pg_indexes_size(t.oid),"
        " coalesce(sum(s.n_dead_tup), 0), coalesce(sum(s.autovacuum_count), 0)"
        " from pg_class c join pg_class t on t.oid = c.reltoastrelid"
        " left join pg_stat_all_tables s on s.relid in (c.oid, t.oid)"
        " where c.oid = 'waypost.chunk'::regclass group by c.oid, t.oid"
    )
    return Size(live_bytes, int(heap), int(toast), int(indexes), int(dead), int(vacuums))


def say(words: str) -> None:
    """Prints a line about the progress."""
    print(words, file=sys.stderr, flush=True)


class LogReceiver:
    """A synchronous standby that keeps the log of writes alone, and syncs it. Complete segments of it may be deleted.

    It does not say at once that it has synced a segment that is complete, so a commit that ends one may wait a second.
    """

    def __init__(self, directory: Path, primary: Server) -> None:
        self._directory = directory
        directory.mkdir()
        self.process = subprocess.Popen(
            [
                programs() / "pg_receivewal", "-h", primary.directory, "-p", str(PORT), "-U", SUPERUSER, "-D", directory,
                "--synchronous", "--status-interval", "1",
            ],
        )  # fmt: skip

    def delete_complete(self) -> None:
        """Deletes the segments of the log that are complete, except for the newest one."""
        for path in sorted(path for path in self._directory.iterdir() if not path.suffix)[:-1]:
            path.unlink()

    def stop(self) -> None:
        """Ends it."""
        self.process.terminate()
        self.process.wait()


class Table:
    """A queue and the cluster that keeps it. ``receiver`` is its standby if that keeps the log alone."""

    def __init__(self, name: str, cluster: Cluster, waiting: StoredQueue, receiver: LogReceiver | None) -> None:
        self.name = name
        self.cluster = cluster
        self.queue = waiting
        self._receiver = receiver

    def cpu_s(self) -> float:
        """Returns the CPU time of both servers."""
        processes = [server.process for server in self.cluster.servers]
        processes += [self._receiver.process] if self._receiver is not None else []
        return sum(cpu_s(process.pid) for process in processes if process is not None)

    def turn(self) -> Turn:
        """Lets a segment of mail arrive and one leave."""
        turn = self.queue.turn()
        if self._receiver is not None:
            self._receiver.delete_complete()
        return turn

    def size(self) -> Size:
        """Reads the size of its table."""
        return size_of(self.cluster.primary, self.queue.live_bytes)

    def measure(self, phase: str) -> Slice:
        """Lets one turn pass."""
        mine, own, busy, begun = self.cpu_s(), own_cpu_s(), machine_cpu_s(), time.monotonic()
        turn = self.turn()
        mine = self.cpu_s() - mine
        others = machine_cpu_s() - busy - mine - (own_cpu_s() - own)
        share = others / ((time.monotonic() - begun) * (os.cpu_count() or 1))
        return Slice(self.name, phase, turn.commits, turn.seconds, mine, max(0.0, share))


def _begin_again(server: Server, settings: str) -> None:
    """Restarts a server with other settings."""
    server.stop()
    (server.data / "postgresql.conf").write_text(settings)
    server.start()


@contextmanager
def filled(
    template: Template, name: str, wanted_bytes: int, segment_bytes: int, *, log_only: bool = False
) -> Iterator[Table]:
    """Makes a cluster whose table is full; its standby is made when it is. ``log_only``: that keeps no table."""
    with template.copy(name, standby=False) as cluster, ExitStack() as stack:
        begun = time.monotonic()
        primary = cluster.primary
        settings = (primary.data / "postgresql.conf").read_text()
        _begin_again(primary, settings + FILLING)
        waiting = StoredQueue(cluster, segment_bytes, seed=1)
        waiting.fill(wanted_bytes)
        _begin_again(primary, settings)
        os.sync()
        full_s = time.monotonic() - begun
        receiver = None
        if log_only:
            receiver = LogReceiver(cluster.directory / "log", primary)
            stack.callback(receiver.stop)
            cluster.wait_for_standby(primary)
        else:
            cluster.add_standby(primary, timeout_s=STANDBY_TIMEOUT_S)
            os.sync()
        waiting.open()
        stack.callback(waiting.close)
        made_s = time.monotonic() - begun
        say(f"{name}: {waiting.live_bytes / GB:.2f} GB filled in {full_s:.0f} s; with its standby {made_s:.0f} s")
        yield Table(name, cluster, waiting, receiver)
