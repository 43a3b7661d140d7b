"""The receivers' own small store: an SQLite file that all receivers share, read and written in one thread of each.

Nothing in it is mail. It can be deleted at any time; then recipients are asked for again, and clients are new to the greylist.

Laws
- What fails here is None to the caller, and a line in the log; it never stops a session.
- A write survives a killed process; that of the last moments may be lost with the power, which costs one look-up.
- A table has at most as many entries as its setting says; the oldest go.

Keeps law: store-never-stops-mail (docs/laws.md).
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

__all__ = ["RecipientStore", "trim"]

Result = TypeVar("Result")

FILE = "recipients.sqlite3"
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


class RecipientStore:
    """The store of one receiver. ``failed`` gets the reason of a failure. ``open`` is left to the first use."""

    def __init__(self, directory: Path, loop: asyncio.AbstractEventLoop, failed: Callable[[str], None]) -> None:
        self._path = directory / FILE
        self._loop = loop
        self._failed = failed
        self._thread = ThreadPoolExecutor(1, "recipients")
        self._database: sqlite3.Connection | None = None
        self._broken_until = 0.0

    async def run(self, work: Callable[[sqlite3.Connection], Result]) -> Result | None:
        """Returns what ``work`` returns, called in the thread, in a transaction; None if it failed."""
        if self._loop.time() < self._broken_until:
            return None
        try:
            return await self._loop.run_in_executor(self._thread, self._run, work)
        except (sqlite3.Error, OSError) as error:
            self._broken_until = self._loop.time() + RETRY_S
            self._failed(f"{self._path}: {error}")
            return None

    def _run(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        try:
            if self._database is None:
                self._database = self._opened()
            with self._database:
                return work(self._database)
        except sqlite3.Error:
            self._close()
            raise

    def _opened(self) -> sqlite3.Connection:
        self._path.parent.mkdir(mode=0o700, exist_ok=True)
        database = sqlite3.connect(self._path, timeout=BUSY_S, isolation_level="IMMEDIATE")
        try:
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("PRAGMA synchronous = NORMAL")
            database.executescript(_SCHEMA)
        except sqlite3.Error:
            database.close()
            raise
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


def trim(database: sqlite3.Connection, table: str, key: Sequence[str], at: str, entries_max: int) -> int:
    """Deletes the oldest entries of a table beyond ``entries_max``; returns how many. ``at`` is the column of their time."""
    (count,) = database.execute(f"SELECT count(*) FROM {table}").fetchone()  # noqa: S608 - names of ours
    over: int = count - entries_max
    if over > 0:
        columns = ", ".join(key)
        database.execute(
            f"DELETE FROM {table} WHERE ({columns}) IN (SELECT {columns} FROM {table} ORDER BY {at} LIMIT ?)",  # noqa: S608
            (over,),
        )
    return max(0, over)
