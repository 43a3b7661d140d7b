"""Makes, upgrades and checks the tables of the store. Their version is in the database.

One version of Waypost knows one of them, and how the ones before become it. Nodes of an earlier Waypost refuse the tables from
then on: their shards go to nodes that know them.
"""

from __future__ import annotations

from pathlib import Path

from mailcore.faults import Code, Fault
from mailcore.replication.connection import Connection
from mailcore.replication.faults import StoreRefused

__all__ = ["VERSION", "check_schema", "make_schema"]

VERSION = 3
_FILE = Path(__file__).with_name("schema.sql")
_UPGRADES = {  # by the version that each one begins with
    version: Path(__file__).with_name(f"schema_{version + 1}.sql") for version in range(1, VERSION)
}
_LOCK = 0x57415950  # of two nodes that make the tables at once; "WAYP"
_TIMEOUT_S = 60.0
_ARGUMENT = "schema_version"


def make_schema(connection: Connection) -> None:
    """Makes the tables in a database that lacks them, upgrades earlier ones, and checks them.

    Raises StoreRefused, ServerError, Lost.
    """
    connection.run(f"begin; select pg_advisory_xact_lock({_LOCK})", _TIMEOUT_S)
    version = _version(connection)
    if version is None:
        connection.run(_FILE.read_text(encoding="utf-8"), _TIMEOUT_S)
    while version in _UPGRADES:
        connection.run(_UPGRADES[version].read_text(encoding="utf-8"), _TIMEOUT_S)
        version += 1
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
        remedy = "upgrade this node" if version > VERSION else "upgrade the tables"
        if version in _UPGRADES:
            remedy = "start it, which upgrades the tables"
        words = f"The database has version {version} of Waypost's tables, this Waypost needs {VERSION}: {remedy}."
        raise StoreRefused([Fault(Code.NOT_FOUND if version in _UPGRADES else Code.INVALID, words, _ARGUMENT)])


def _version(connection: Connection) -> int | None:
    """Returns None if there are no tables; 0 if their version cannot be read."""
    (answer,) = connection.run("select to_regclass('waypost.schema_version') is not null", _TIMEOUT_S)
    if answer.rows[0][0] != b"t":
        return None
    (answer,) = connection.run("select max(version) from waypost.schema_version", _TIMEOUT_S)
    return int(answer.rows[0][0] or b"0")
