"""Reads back whether the database keeps what it is given on two servers, and refuses one that does not.

- law: kept-by-two. A store is used only while its database says that a commit waits for a standby's disk.

It is read at each connect and on a timer, and the two settings that matter most with each commit (``statements.KEPT``).

SQL shows: fsync, full_page_writes, checksums of pages, the names of the synchronous standbys, the settings of our session, and
whether a server of a pool serves several sessions. With the role pg_read_all_stats, or pg_monitor, it also shows whether a
synchronous standby is connected now.

SQL does not show whether Patroni is strict, while a standby is there. Without a standby a strict Patroni sets the names to "*"
and another one empties them, which is refused. With an address of its REST API, Patroni is asked. Neither shows whether the
standby's disk keeps what it syncs, nor whether two servers share one machine.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from mailcore.faults import Code, Fault
from mailcore.replication.connection import SESSION, Connection
from mailcore.replication.faults import StoreRefused
from mailcore.replication.parameters import StoreParameters
from mailcore.replication.patroni import PatroniUnread, judge_config, read_config
from mailcore.replication.schema import check_schema

__all__ = ["Findings", "look", "open_checked"]

_TIMEOUT_S = 10.0
_DURABLE = ("fsync", "full_page_writes", "data_checksums")
_REMEDIES = {
    "fsync": "Set fsync = on in postgresql.conf and restart PostgreSQL.",
    "full_page_writes": "Set full_page_writes = on in postgresql.conf and reload PostgreSQL.",
    "data_checksums": "Stop PostgreSQL and run pg_checksums --enable on each server.",
}
_WHAT = {
    "fsync": "a commit may be lost with a power failure",
    "full_page_writes": "a page may be torn by a power failure",
    "data_checksums": "a page that the disk damages would be read as if it were right",
}
_NAMES = "synchronous_standby_names"
_POOLING = "transaction_pooling"


@dataclass
class Findings:
    """The result of a look. ``faults`` refuse the database, ``waits`` let commits wait, ``unseen`` could not be looked at."""

    faults: list[Fault] = field(default_factory=list)
    waits: list[Fault] = field(default_factory=list)
    unseen: list[str] = field(default_factory=list)
    standbys: int | None = None  # synchronous ones that are connected; None: not visible for our role
    system: int = 0  # PostgreSQL's system identifier: equal on all members of a cluster


def open_checked(parameters: StoreParameters) -> tuple[Connection, Findings]:
    """Connects, and reads the tables' version and the guarantees. Raises StoreRefused, NotReached, Lost, ServerError."""
    connection = Connection.open(parameters)
    try:
        check_schema(connection)
        findings = look(connection, parameters)
        if findings.faults:
            raise StoreRefused(findings.faults)
        return connection, findings
    except BaseException:
        connection.close()
        raise


def look(connection: Connection, parameters: StoreParameters) -> Findings:
    """Reads the guarantees of a connection's server. Raises ServerError, Lost."""
    findings = Findings()
    values = _read(connection)
    for name in _DURABLE:
        if values[name] != "on":
            findings.faults.append(
                Fault(Code.INVALID, f"PostgreSQL has {name} off: {_WHAT[name]}. {_REMEDIES[name]}", name)
            )
    if not values[_NAMES].strip():
        words = (
            f"PostgreSQL has no synchronous standby ({_NAMES} is empty): a commit would be on one server only. With Patroni run"
            " patronictl edit-config --set synchronous_mode=true --set synchronous_mode_strict=true; without it, set"
            f" {_NAMES} to the name of the standby."
        )
        findings.faults.append(Fault(Code.INVALID, words, _NAMES))
    _judge_session(values, findings)
    _judge_standbys(values, findings)
    _judge_pool(connection, values, parameters, findings)
    _ask_patroni(parameters, findings)
    findings.system = int(values["system"])
    return findings


def _read(connection: Connection) -> dict[str, str]:
    names = [*_DURABLE, _NAMES, *SESSION]
    columns = ", ".join(f"current_setting('{name}')" for name in names)
    (answer,) = connection.run(
        f"select {columns},"
        " (select reset_val from pg_settings where name = 'default_transaction_isolation'),"
        " current_setting('transaction_isolation'),"
        " pg_backend_pid(), quote_ident(current_user),"
        " (select system_identifier from pg_control_system()),"
        " pg_has_role(current_user, 'pg_read_all_stats', 'usage'),"
        " (select count(*) from pg_stat_replication where sync_state in ('sync', 'quorum') and state = 'streaming')",
        _TIMEOUT_S,
    )
    keys = [*names, "reset", "isolation", "pid", "role", "system", "visible", "standbys"]
    return {key: (value or b"").decode() for key, value in zip(keys, answer.rows[0], strict=True)}


def _judge_session(values: dict[str, str], findings: Findings) -> None:
    wrong = [name for name, value in SESSION.items() if values[name] != value]
    if wrong:
        given = ", ".join(f"{name} is {values[name]}" for name in wrong)
        words = (
            f"The connection did not keep its settings ({given}). Let Waypost connect to PostgreSQL directly, or through a"
            " pooler that gives each client a server of its own (pool_mode = session)."
        )
        findings.faults.append(Fault(Code.INVALID, words, wrong[0]))
    isolation = "default_transaction_isolation"
    for value in (values["reset"], values["isolation"]):
        if value != "read committed":
            words = (
                f"The role's transactions are {value}, and the fence of a shard needs read committed."
                f" Run: ALTER ROLE {values['role']} SET {isolation} = 'read committed'"
            )
            findings.faults.append(Fault(Code.INVALID, words, isolation))
            break


def _judge_standbys(values: dict[str, str], findings: Findings) -> None:
    if values["visible"] != "t":
        findings.unseen.append(
            "Whether a synchronous standby is connected is not visible; run: GRANT pg_monitor TO " + values["role"]
        )
        return
    findings.standbys = int(values["standbys"])
    if not findings.standbys and values[_NAMES].strip():
        words = "No synchronous standby is connected: commits wait until one is. Start the standby, or make a new one."
        findings.waits.append(Fault(Code.UNAVAILABLE, words, "pg_stat_replication"))


def _judge_pool(
    connection: Connection, values: dict[str, str], parameters: StoreParameters, findings: Findings
) -> None:
    """Looks whether the server process behind our session also serves another one while ours is open.

    PostgreSQL names its own process when we connect, and there is nothing to look for. A pooler gives another number. One that
    lends a server for a transaction gives ours to the next session, which keeps it busy: then we get another one.
    """
    pid = int(values["pid"])
    if pid == connection.backend_pid:
        return
    other = Connection.open(parameters)
    try:
        other.run("begin", _TIMEOUT_S)
        shared = _pid(other) == pid
        shared = shared or _pid(connection) != pid
    finally:
        other.close()
    if shared:
        words = (
            "A pooler lends a server process for one transaction only, so settings of a session are not kept. Set"
            " pool_mode = session for Waypost's database, or let Waypost connect to PostgreSQL directly."
        )
        findings.faults.append(Fault(Code.INVALID, words, _POOLING))


def _pid(connection: Connection) -> int:
    (answer,) = connection.run("select pg_backend_pid()", _TIMEOUT_S)
    return int(answer.rows[0][0] or b"0")


def _ask_patroni(parameters: StoreParameters, findings: Findings) -> None:
    if not parameters.patroni:
        findings.unseen.append(
            "Whether Patroni's synchronous_mode_strict is on cannot be seen through SQL; name the addresses of its REST API."
        )
        return
    try:
        fault = judge_config(read_config(parameters.patroni, parameters.connect_timeout_s, parameters.tls_root))
    except PatroniUnread as error:
        findings.unseen.append(f"Patroni could not be asked whether synchronous_mode_strict is on: {error}")
        return
    if fault is not None:
        findings.faults.append(fault)
