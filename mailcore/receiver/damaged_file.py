"""Sets a damaged database of the receivers aside, so that a new one takes its place.

Laws
- One lock is for all that opens or renames the file. Only the file that was found damaged is renamed: another receiver may
  have put a new one in its place.
- SQLite's two files beside a database belong to that database alone. They go before another one is made, also after a kill
  between the renaming and their removal.
- One file is kept, the last one.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

from mailcore.config.recipients import SUFFIX

__all__ = ["inode_of", "is_damage", "locked", "remove_rest", "set_aside"]

RESTS = ("-wal", "-shm")  # of a database with journal_mode = WAL
LOCK_S = 2.0  # for another receiver, which holds the lock for milliseconds
LOCK_STEP_S = 0.01


def is_damage(error: sqlite3.Error) -> bool:
    """Tells whether an error says that the file is not a database, or that a part of it is damaged."""
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT)


def inode_of(path: Path) -> int:
    """Returns the number of a file; 0 if there is none. Raises OSError."""
    try:
        return os.stat(path).st_ino
    except FileNotFoundError:
        return 0


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds the lock of a file, which is on its directory. Raises OSError, also if another process keeps it for too long."""
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for _ in range(round(LOCK_S / LOCK_STEP_S)):
            try:
                fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(LOCK_STEP_S)
        else:
            fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(directory)


def remove_rest(path: Path) -> None:
    """Removes what SQLite has beside a database that is gone. Call it with the lock. Raises OSError."""
    for rest in RESTS:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{path}{rest}")


def set_aside(path: Path, inode: int) -> Path | None:
    """Renames the damaged file with this number; returns its new path, or None if it is gone already. Raises OSError."""
    with locked(path):
        if not inode or inode_of(path) != inode:
            return None
        aside = path.with_name(path.name + SUFFIX)
        os.rename(path, aside)
        remove_rest(path)
    return aside
