"""Says, before a portal gets the database of [nodes], what would become of its users.

``python -m appliance.common.before_sharing`` reads a question from standard input and prints the answer, both JSON. Ansible
asks as the portal's user.

Law: nothing is changed, neither here nor in a database. The portal need not be configured yet, so Django is not.
"""

from __future__ import annotations

import contextlib
import json
import shlex
import sqlite3
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from appliance.common.nodes_database import MOVED_IN, ROLE, SCHEMA_OF, NoDatabase, nodes_database
from appliance.common.secret import key_digest
from mailcore.bounds import BadValue
from mailcore.config.nodes import Nodes

__all__ = ["Answer", "Question", "before_sharing"]

BUSY_S = 20.0  # as the portal's own time-out
ONCE_STARTED = 1  # users of a portal into which no person has signed in: the first administrator


@dataclass(frozen=True, kw_only=True)
class Question:
    """``database``, ``node`` and ``password_file`` as in the settings; ``key``: with which the portal is to sign, "" for a new
    one. ``former``: the SQLite database that the portal has or had; ``environment``: the file that may name another one."""

    database: str
    node: str
    password_file: str
    key: str
    former: str
    environment: str


@dataclass
class Answer:
    """``fault``: why the database of [nodes] cannot be used. ``users``: in it. ``other_key_at``: nodes whose portals sign with
    another key. ``left_behind``: users of the former database, if this node has not moved in. ``elsewhere``: the portal has a
    PostgreSQL database of its own."""

    fault: str = ""
    users: int = 0
    other_key_at: list[str] = field(default_factory=list)
    left_behind: int = 0
    elsewhere: bool = False


def before_sharing(question: Question) -> Answer:
    """Returns what the database of [nodes] and the former one have."""
    answer = Answer(elsewhere=_is_elsewhere(Path(question.environment)))
    try:
        has_moved = _look_at_nodes(question, answer)
        if not has_moved:
            answer.left_behind = _users_of(Path(question.former))
    except NoDatabase as error:
        answer.fault = str(error)
    return answer


def _look_at_nodes(question: Question, answer: Answer) -> bool:
    """Fills in what the database of [nodes] has; returns whether this node has moved in. Raises NoDatabase."""
    try:
        made = nodes_database(Nodes(database=question.database, node=question.node), question.password_file)
    except BadValue as error:
        raise NoDatabase(f"[nodes] database: {error}") from None
    words = {name.lower(): made[name] for name in ("HOST", "PORT", "USER", "PASSWORD")}
    try:
        with psycopg.connect(dbname=made["NAME"], **words, **made["OPTIONS"]) as connection:
            return _read(connection, question, answer)
    except psycopg.Error as error:
        raise NoDatabase(
            f"the user {ROLE} cannot use the database of [nodes]: {' '.join(str(error).split())}. If there is no such user, or "
            f"it has another password, its administrator gives: CREATE ROLE {ROLE} LOGIN PASSWORD '…'; and its servers must "
            "take this user from the nodes, with its password, in pg_hba.conf"
        ) from None


def _read(connection: psycopg.Connection[Any], question: Question, answer: Answer) -> bool:
    def one(statement: str, *values: object) -> Any:
        row = connection.execute(statement, values).fetchone()
        return row[0] if row else None

    if one("SELECT current_schema()") is None:
        raise NoDatabase(SCHEMA_OF)
    if one("SELECT to_regclass('accounts_portalkey')") is None:
        return False
    answer.users = one("SELECT count(*) FROM auth_user")
    digest = key_digest(question.key) if question.key else ""
    # Of this node, too: second factors of users who are there are encrypted with the key that it had. A new key is made where
    # no node has one; then only a node that was not asked can have another.
    own = "" if question.key else question.node
    answer.other_key_at = [
        name
        for (name,) in connection.execute(
            "SELECT node FROM accounts_portalkey WHERE digest <> %s AND node <> %s ORDER BY node", (digest, own)
        )
    ]
    return bool(one("SELECT count(*) FROM audit_entry WHERE action = %s AND node = %s", MOVED_IN, question.node))


def _users_of(path: Path) -> int:
    """Returns how many users an SQLite database has; 0 if it is the first administrator, who has never signed in. Raises
    NoDatabase."""
    if not path.is_file():
        return 0
    try:
        with contextlib.closing(
            sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=BUSY_S)
        ) as connection:
            tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
            if "auth_user" not in tables:
                return 0
            (users,) = connection.execute("SELECT count(*) FROM auth_user").fetchone()
            if users != ONCE_STARTED or "accounts_givenpassword" not in tables:
                return int(users)
            (unused,) = connection.execute(
                "SELECT count(*) FROM accounts_givenpassword JOIN auth_user ON auth_user.id = user_id WHERE last_login IS NULL"
            ).fetchone()
            return 0 if unused else int(users)
    except sqlite3.Error as error:
        raise NoDatabase(f"{path}: the former database of the portal cannot be read: {error}") from None


def _is_elsewhere(environment: Path) -> bool:
    with contextlib.suppress(OSError, ValueError):
        for line in environment.read_text().splitlines():
            name, _, value = line.partition("=")
            if name == "DATABASE_URL" and "".join(shlex.split(value)).startswith("postgres"):
                return True
    return False


if __name__ == "__main__":
    print(json.dumps(asdict(before_sharing(Question(**json.load(sys.stdin))))))
