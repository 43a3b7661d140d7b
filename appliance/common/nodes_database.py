"""The portal's place in the database of [nodes]: a schema and a role of its own, on the server that takes writes.

Law: the portal does not have the role of the nodes. That one reads and changes all mail, and receivers, which speak with the
Internet, know its password; this one owns the schema, which the nodes' role cannot read.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from mailcore.config.nodes import Nodes, database_of

__all__ = ["MOVED_IN", "ROLE", "SCHEMA", "SCHEMA_OF", "NoDatabase", "nodes_database"]

ROLE = SCHEMA = "waypost_portal"
SCHEMA_OF = (  # why the tables have no place, for an administrator of the database
    f"the database of [nodes] has no schema {SCHEMA} that the user {ROLE} may use. As its administrator, in that database: "
    f"CREATE SCHEMA {SCHEMA} AUTHORIZATION {ROLE};"
)
MOVED_IN = "portal.move_in"  # in the audit log, once for each node whose former database was taken in
# Of a statement. A commit waits for the standby; while there is none, a page ends with this instead of never. The row is on
# the server's disk then, and PostgreSQL gives it to the standby when it is back.
STATEMENT_S = 15
PASSWORD_BYTES_MAX = 4_096


class NoDatabase(Exception):
    """Says why the portal cannot use the database of [nodes]."""


def nodes_database(nodes: Nodes, password_file: str) -> dict[str, Any]:
    """Returns Django's settings of the database. Raises NoDatabase."""
    if not nodes.is_on:
        raise NoDatabase(
            'the portal\'s database is "nodes", but [nodes] database is not set; set it, or another database_url'
        )
    known = database_of(nodes.database)
    tls = {"sslmode": known.tls_mode} | ({"sslrootcert": known.tls_root} if known.tls_root else {})
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": known.name,
        "USER": ROLE,
        "PASSWORD": _password(password_file),
        "HOST": ",".join(host for host, _ in known.hosts),
        "PORT": ",".join(str(port) for _, port in known.hosts),
        "OPTIONS": {
            **tls,
            "target_session_attrs": "read-write",  # not the standby
            "connect_timeout": max(2, math.ceil(nodes.connect_timeout_s)),  # libpq takes whole seconds, and not one
            "tcp_user_timeout": 10_000,  # ms; as the nodes themselves (mailcore.replication.connection)
            "keepalives_idle": 4,
            "keepalives_interval": 2,
            "keepalives_count": 3,
            "application_name": f"waypost portal {nodes.node}"[:63],
            "options": f"-c search_path={SCHEMA} -c statement_timeout={STATEMENT_S}s",
        },
    }


def _password(path: str) -> str:
    if not path:
        return ""
    try:
        with Path(path).open("rb") as file:
            return file.readline(PASSWORD_BYTES_MAX).decode().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise NoDatabase(
            f"[portal] database_password_file: {path}: {getattr(error, 'strerror', '') or error}"
        ) from None
