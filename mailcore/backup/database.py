"""Finds the portal's database and copies it: SQLite with its own backup, also while it is written; PostgreSQL with pg_dump."""

from __future__ import annotations

import contextlib
import shlex
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from mailcore.backup.postgresql import DUMP, DatabaseFailed, Postgresql, is_postgresql
from mailcore.config.portal import OF_NODES
from mailcore.config.settings import Settings

__all__ = ["SQLITE", "copy_database", "database_url", "portal_environment", "sqlite_path"]

SQLITE = "portal.sqlite3"
ENVIRONMENT = (
    "portal.env"  # beside the configuration file on a server: what the portal's service has in its environment
)
PAGES = 1_000  # copied in one step; a writer waits at most for one step
BUSY_S = 20.0  # as the portal's own time-out


def portal_environment(config: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Returns ``environment`` with the variables that the portal's service adds: a user who runs a command does not
    have them. Raises DatabaseFailed."""
    path = config.absolute().parent / ENVIRONMENT
    found: dict[str, str] = {}
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        lines = []
    except (OSError, ValueError) as error:
        raise DatabaseFailed(f"{path} says which database the portal has, and can't be read: {error}") from error
    for line in lines:
        name, equals, value = line.strip().partition("=")
        if equals and not name.startswith("#"):
            with contextlib.suppress(ValueError):  # a quotation mark without its other
                found[name] = "".join(shlex.split(value)) if value[:1] in ("'", '"') else value
    return found | dict(environment)


def database_url(settings: Settings, environment: Mapping[str, str]) -> str:
    """Returns the database's URL as the portal determines it; "" is SQLite in the default place."""
    return environment.get("DATABASE_URL") or settings.portal.database_url


def sqlite_path(url: str, home: Path) -> Path:
    """Returns the path of the SQLite database; ``url`` is "" for the default place."""
    if url.startswith("sqlite:"):
        return Path(unquote(urlsplit(url).path.removeprefix("/")))
    return home / "portal" / SQLITE


def copy_database(url: str, home: Path, into: Path) -> Path | None:
    """Makes a consistent copy of the database below ``into``; returns its path, None if there is no database yet, or if it
    is that of [nodes], of which one node must not bring back an earlier state. Raises DatabaseFailed."""
    if url == OF_NODES:
        return None
    if is_postgresql(url):
        Postgresql(url).dump(into / DUMP)
        return into / DUMP
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
            target.execute("PRAGMA journal_mode=DELETE")  # so that one file has everything
            found = target.execute("PRAGMA quick_check").fetchone()[0]
    except sqlite3.Error as error:
        raise DatabaseFailed(f"{path} can't be copied: {error}") from error
    if found != "ok":
        raise DatabaseFailed(f"{path} is damaged: {found}")
    return copy
