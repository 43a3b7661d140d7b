"""The portal's database if it is PostgreSQL: pg_dump dumps it, and pg_restore restores it into an empty one.

Laws
- A password is never on a command line, where any user could read it.
- Only a database without tables is filled, completely or not at all: in one transaction.

Keeps law: database-empty-or-refused (docs/laws.md).
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from pathlib import Path
from typing import IO, Any
from urllib.parse import parse_qsl, unquote, urlsplit

from mailcore.counted import counted

__all__ = ["DUMP", "DatabaseFailed", "Postgresql", "is_postgresql"]

DUMP = "portal.pgdump"  # pg_dump --format=custom, for pg_restore
CONNECT_TIMEOUT_S = "10"
WORDS_CHARACTERS = 400  # of what a program complains about
# Tables, views and sequences in the user's schemas, without those of extensions.
COUNT = """
SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname <> 'information_schema' AND n.nspname !~ '^pg_' AND NOT EXISTS
(SELECT 1 FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e')
"""
_VARIABLES = {  # of libpq, by the name that a URL's query has for them
    "sslmode": "PGSSLMODE",
    "sslrootcert": "PGSSLROOTCERT",
    "sslcert": "PGSSLCERT",
    "sslkey": "PGSSLKEY",
    "options": "PGOPTIONS",
    "connect_timeout": "PGCONNECT_TIMEOUT",
}


class DatabaseFailed(Exception):
    """An operation on the portal's database failed; the message says which and why."""


def is_postgresql(url: str) -> bool:
    """Returns whether the URL names a PostgreSQL database."""
    return url.partition(":")[0] in ("postgres", "postgresql", "pgsql")


class Postgresql:
    """Dumps and restores one PostgreSQL database with its own tools."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        query = dict(parse_qsl(parts.query))
        # Not ``parts.hostname``: that is in small letters, and a socket's directory need not be.
        host = parts.netloc.rpartition("@")[2]
        if parts.port is not None:
            host = host.rpartition(":")[0]
        self.host = unquote(host.strip("[]")) or query.get("host", "")
        self.name = unquote(parts.path.removeprefix("/"))
        self.user = unquote(parts.username or "")
        self._password = unquote(parts.password or "")
        self._environment = {
            "PGHOST": self.host,
            "PGPORT": str(parts.port or query.get("port", "")),
            "PGUSER": self.user,
            "PGPASSWORD": self._password,
            "PGDATABASE": self.name,
        } | {variable: query.get(name, "") for name, variable in _VARIABLES.items()}

    def __str__(self) -> str:
        return f"{self.name or self.user}{f' on {self.host}' if self.host else ''}"

    def dump(self, path: Path) -> None:
        """Dumps the database into a file. Raises DatabaseFailed, OSError."""
        with path.open("wb") as file:
            self._run("pg_dump", "--no-password", "--format=custom", "--no-owner", into=file)

    def refuse_unless_empty(self) -> None:
        """Raises DatabaseFailed if the database has tables, or can't be reached, or pg_restore is missing."""
        _program("pg_restore")
        options = ("--no-psqlrc", "--no-password", "--tuples-only", "--no-align", "--set=ON_ERROR_STOP=1")
        count = self._run("psql", *options, f"--command={COUNT}").strip()
        if count != "0":
            raise DatabaseFailed(
                f"the portal's database, {self}, is not empty: it has {counted(int(count), 'table')} and the like. Only an "
                "empty one is filled: drop and create it again with dropdb and createdb (docs/backup.md), or name another"
            )

    def fill(self, path: Path) -> None:
        """Fills the database with a dump. Raises DatabaseFailed, OSError; then it is still empty."""
        with path.open("rb") as file:
            self._run(
                "pg_restore", "--no-password", "--single-transaction", "--exit-on-error", "--no-owner", "--no-privileges",
                f"--dbname={self.name or self.user}", out_of=file,
            )  # fmt: skip

    def _run(self, program: str, *options: str, out_of: IO[bytes] | None = None, into: IO[bytes] | None = None) -> str:
        """Files are handed over open: who the program runs as may not be allowed to open them."""
        given = {name: value for name, value in self._environment.items() if value}
        done = subprocess.run(  # noqa: S603 - what was found on the path
            [_program(program), *options],
            env={"PGCONNECT_TIMEOUT": CONNECT_TIMEOUT_S} | os.environ | given,
            stdin=out_of or subprocess.DEVNULL,
            stdout=into or subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd="/",
            check=False,
            **self._as_its_user(),
        )
        if done.returncode:
            said = " ".join(done.stderr.decode("utf-8", "replace").split()) or f"exit status {done.returncode}"
            raise DatabaseFailed(f"{program} of the portal's database, {self}, failed: {said[:WORDS_CHARACTERS]}")
        return "" if into is not None else done.stdout.decode("utf-8", "replace")

    def _as_its_user(self) -> dict[str, Any]:
        """Returns the user to run as. Over a socket and without a password PostgreSQL checks the system's user (peer),
        and root is not the portal's."""
        if os.geteuid() != 0 or self._password or (self.host and not self.host.startswith("/")):
            return {}
        try:
            entry = pwd.getpwnam(self.user)
        except KeyError:  # another way of signing in, then
            return {}
        return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise DatabaseFailed(f"the portal's database is PostgreSQL, and there is no {name}; install postgresql-client")
    return found
