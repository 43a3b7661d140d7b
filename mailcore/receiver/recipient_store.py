"""The receivers' own small store: an SQLite file that all receivers share, read and written in one thread of each.

Nothing in it is mail. It can be deleted at any time; then recipients are asked for again, and clients are new to the greylist.

Laws
- What fails here is None to the caller, and a line in the log; it never stops a session.
- A write survives a killed process; that of the last moments may be lost with the power, which costs one look-up.
- A table has at most as many entries as its setting says; the oldest go.
- A damaged file is set aside, and a new one is used at once (``mailcore.receiver.damaged_file``).

Keeps law: store-never-stops-mail (docs/laws.md).
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol, TypeVar

from mailcore.config.recipients import FILE
from mailcore.receiver.damaged_file import inode_of, is_damage, locked, remove_rest, set_aside

__all__ = ["RecipientStore", "StoreLog", "trim"]

Result = TypeVar("Result")

BUSY_S = 2.0  # for another receiver's write, which takes a millisecond
RETRY_S = 5.0  # after a failure: until then nothing is read or written
TRIM_EVERY = 64  # writes between two counts of a table
_SCHEMA = """
CREATE TABLE IF NOT EXISTS verified (key TEXT PRIMARY KEY, valid INTEGER, at REAL, reply TEXT) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS verified_at ON verified (at);
CREATE TABLE IF NOT EXISTS grey (triplet BLOB PRIMARY KEY, first REAL, at REAL, passed INTEGER) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS grey_at ON grey (at);
CREATE TABLE IF NOT EXISTS grey_clients (network TEXT PRIMARY KEY, passes INTEGER, at REAL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS grey_clients_at ON grey_clients (at);
"""
# Of the content. Before 1, a refusal counted without a witness (probe.py), and may be of us. Before 2, the entries of the
# greylist did not say of which network they are.
VERSION = 2


class StoreLog(Protocol):
    """Logs what happens to the store: ``MailLog``."""

    def recipient_store_failed(self, why: str) -> None:
        """Logs that the store cannot be used."""

    def recipient_store_damaged(self, path: str, aside: str, why: str) -> None:
        """Logs that a damaged store was set aside, and a new one is in use."""


class RecipientStore:
    """The store of one receiver. Its file is opened at the first use."""

    def __init__(self, directory: Path, loop: asyncio.AbstractEventLoop, log: StoreLog) -> None:
        self._path = directory / FILE
        self._loop = loop
        self._log = log
        self._thread = ThreadPoolExecutor(1, "recipients")
        self._database: sqlite3.Connection | None = None
        self._inode = 0  # of the file that is open
        self._broken_until = 0.0

    async def run(self, work: Callable[[sqlite3.Connection], Result]) -> Result | None:
        """Returns what ``work`` returns, called in the thread, in a transaction; None if it failed."""
        if self._loop.time() < self._broken_until:
            return None
        try:
            return await self._loop.run_in_executor(self._thread, self._run, work)
        except (
            sqlite3.Error,
            OSError,
            TypeError,
            ValueError,
        ) as error:  # the last two: of a value that a damaged row has
            self._broken_until = self._loop.time() + RETRY_S
            self._log.recipient_store_failed(f"{self._path}: {error}")
            return None

    def _run(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        try:
            return self._transaction(work)
        except sqlite3.Error as error:
            if not is_damage(error):
                raise
            self._set_aside(str(error))
        return self._transaction(work)

    def _transaction(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        try:
            if self._database is not None and inode_of(self._path) != self._inode:  # set aside by another receiver
                self._close()
            if self._database is None:
                self._database = self._opened()
            with self._database:
                return work(self._database)
        except sqlite3.Error:
            self._close()
            raise

    def _set_aside(self, why: str) -> None:
        """Puts the damaged file out of the way, unless another receiver did. Raises OSError."""
        try:
            aside = set_aside(self._path, self._inode)
        except OSError as error:
            raise OSError(f"{why}, and the file cannot be set aside: {error.strerror}") from None
        if aside is not None:
            self._loop.call_soon_threadsafe(self._log.recipient_store_damaged, str(self._path), str(aside), why)

    def _opened(self) -> sqlite3.Connection:
        self._path.parent.mkdir(mode=0o700, exist_ok=True)
        with locked(self._path):
            self._inode = inode_of(self._path)
            if not self._inode:
                remove_rest(self._path)
            database = sqlite3.connect(self._path, timeout=BUSY_S, isolation_level="IMMEDIATE")
            try:
                database.execute("PRAGMA journal_mode = WAL")
                database.execute("PRAGMA synchronous = NORMAL")
                database.executescript(_SCHEMA)
                _bring_up(database)
            except sqlite3.Error:
                database.close()
                raise
            self._inode = inode_of(self._path)
        return database

    def _close(self) -> None:
        if self._database is not None:
            with contextlib.suppress(sqlite3.Error):
                self._database.close()
            self._database = None

    def close(self) -> None:
        """Closes the file, for tests."""
        self._thread.submit(self._close)
        self._thread.shutdown()


def _bring_up(database: sqlite3.Connection) -> None:
    """Deletes what an older version kept and this one would not, and adds what it did not have."""
    with database:
        database.execute("BEGIN IMMEDIATE")
        (version,) = database.execute("PRAGMA user_version").fetchone()
        if version < 1:
            database.execute("DELETE FROM verified WHERE valid = 0")
        if version < VERSION:
            if "network" not in {column[1] for column in database.execute("PRAGMA table_info(grey)")}:
                database.execute("ALTER TABLE grey ADD COLUMN network TEXT NOT NULL DEFAULT ''")
            database.execute("CREATE INDEX IF NOT EXISTS grey_passed ON grey (passed, at)")
            database.execute("CREATE INDEX IF NOT EXISTS grey_waiting ON grey (network) WHERE passed = 0")
            database.execute(f"PRAGMA user_version = {VERSION}")


def trim(
    database: sqlite3.Connection, table: str, key: Sequence[str], at: str, entries_max: int, which: str = "TRUE"
) -> int:
    """Deletes the oldest entries of a table beyond ``entries_max``; returns how many.

    ``at`` is the column of their time; ``which`` is a condition for those that are meant.
    """
    (count,) = database.execute(f"SELECT count(*) FROM {table} WHERE {which}").fetchone()  # noqa: S608 - names of ours
    over: int = count - entries_max
    if over > 0:
        columns = ", ".join(key)
        database.execute(
            f"DELETE FROM {table} WHERE ({columns}) IN "  # noqa: S608
            f"(SELECT {columns} FROM {table} WHERE {which} ORDER BY {at} LIMIT ?)",
            (over,),
        )
    return max(0, over)
