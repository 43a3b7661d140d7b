"""Makes and checks the tables of the store. Their version is in the database, and one version of Waypost knows one of them."""

from __future__ import annotations

from pathlib import Path

from mailcore.faults import Code, Fault
from mailcore.replication.connection import Connection
from mailcore.replication.faults import StoreRefused

__all__ = ["VERSION", "check_schema", "make_schema"]

VERSION = 1
_FILE = Path(__file__).with_name("schema.sql")
_LOCK = 0x57415950  # of two nodes that make the tables at once; "WAYP"
_TIMEOUT_S = 60.0
_ARGUMENT = "schema_version"


def make_schema(connection: Connection) -> None:
    """Makes the tables in a database that lacks them, and checks them in another. Raises StoreRefused, ServerError, Lost."""
    connection.run(f"begin; select pg_advisory_xact_lock({_LOCK})", _TIMEOUT_S)
    if _version(connection) is None:
        connection.run(_FILE.read_text(encoding="utf-8"), _TIMEOUT_S)
    connection.run("commit", _TIMEOUT_S)
    check_schema(connection)


def check_schema(connection: Connection) -> None:
    """Raises StoreRefused if the tables are missing or of another version."""
    version = _version(connection)
    if version is None:
        raise StoreRefused(
            [Fault(Code.NOT_FOUND, "The database has no tables of Waypost; make them first.", _ARGUMENT)]
        )
    if version != VERSION:
        older = "upgrade this node" if version > VERSION else "upgrade the tables"
        words = f"The database has version {version} of Waypost's tables, this Waypost needs {VERSION}: {older}."
        raise StoreRefused([Fault(Code.INVALID, words, _ARGUMENT)])


def _version(connection: Connection) -> int | None:
    """Returns None if there are no tables; 0 if their version cannot be read."""
    (answer,) = connection.run("select to_regclass('waypost.schema_version') is not null", _TIMEOUT_S)
    if answer.rows[0][0] != b"t":
        return None
    (answer,) = connection.run("select max(version) from waypost.schema_version", _TIMEOUT_S)
    return int(answer.rows[0][0] or b"0")
