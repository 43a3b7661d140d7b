"""The portal's database: SQLite copied by its own backup, also while it is written; PostgreSQL by pg_dump."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import subprocess
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

__all__ = ["DUMP", "SQLITE", "DatabaseFailed", "copy_database", "is_postgresql", "sqlite_path"]

SQLITE = "portal.sqlite3"
DUMP = "portal.pgdump"  # pg_dump --format=custom, for pg_restore
PAGES = 1_000  # copied in one step; a writer waits no longer than for these
BUSY_S = 20.0  # as the portal's own time-out


class DatabaseFailed(Exception):
    """The message says what could not be copied."""


def is_postgresql(url: str) -> bool:
    return url.partition(":")[0] in ("postgres", "postgresql", "pgsql")


def sqlite_path(url: str, home: Path) -> Path:
    """Where it lies; ``url`` is empty for the usual place."""
    if url.startswith("sqlite:"):
        return Path(unquote(urlsplit(url).path.removeprefix("/")))
    return home / "portal" / SQLITE


def copy_database(url: str, home: Path, into: Path) -> Path | None:
    """A consistent copy below ``into``; None when there is no database yet. Raises DatabaseFailed."""
    if is_postgresql(url):
        return _dump(url, into / DUMP)
    if url and not url.startswith("sqlite:"):
        raise DatabaseFailed(f"a database of {url.partition(':')[0]!r} can't be copied; allowed: postgresql, sqlite")
    path = sqlite_path(url, home)
    if not path.exists():
        return None
    copy = into / SQLITE
    try:
        with (
            contextlib.closing(
                sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=BUSY_S)
            ) as source,
            contextlib.closing(sqlite3.connect(copy)) as target,
        ):
            source.backup(target, pages=PAGES)
            target.execute("PRAGMA journal_mode=DELETE")  # one file, whole by itself
            found = target.execute("PRAGMA quick_check").fetchone()[0]
    except sqlite3.Error as error:
        raise DatabaseFailed(f"{path} can't be copied: {error}") from error
    if found != "ok":
        raise DatabaseFailed(f"{path} is damaged: {found}")
    return copy


def _dump(url: str, path: Path) -> Path:
    program = shutil.which("pg_dump")
    if program is None:
        raise DatabaseFailed("the portal's database is PostgreSQL, and there is no pg_dump; install postgresql-client")
    done = subprocess.run(  # noqa: S603 - what was found above
        [program, "--format=custom", "--no-owner", "--file", str(path)],
        env=os.environ | _environment(url),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        said = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        raise DatabaseFailed(f"pg_dump of the portal's database failed: {said}")
    return path


def _environment(url: str) -> dict[str, str]:
    """libpq's variables: on a command line everybody could read the password."""
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query))
    found = {
        "PGHOST": unquote(parts.hostname or query.get("host", "")),
        "PGPORT": str(parts.port or query.get("port", "")),
        "PGUSER": unquote(parts.username or ""),
        "PGPASSWORD": unquote(parts.password or ""),
        "PGDATABASE": unquote(parts.path.removeprefix("/")),
        "PGSSLMODE": query.get("sslmode", ""),
    }
    return {name: value for name, value in found.items() if value}
