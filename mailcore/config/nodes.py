"""The section [nodes]: the queue of this home is a shard that a database keeps, so that another node can take it over."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from mailcore.bounds import bad, flag, number, text, texts
from mailcore.config import values

__all__ = ["Database", "Nodes", "check_name", "database_of", "following", "peer_address", "settle"]

PORT = 5432
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,62}[A-Za-z0-9])?")
_WORD = re.compile(r"\s*([a-z_]+)\s*=\s*(?:'((?:[^'\\]|\\.)*)'|((?:[^\s'\\]|\\.)+))(?=\s|\Z)")
_ESCAPED = re.compile(r"\\(.)")
_MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
_KNOWN = ("host", "port", "dbname", "user", "sslmode", "sslrootcert")
_FORM = (
    'must be a connection string of libpq that names all members, such as "host=db1.example.org,db2.example.org dbname=waypost'
    ' user=waypost sslmode=verify-full sslrootcert=/etc/waypost/db.pem"'
)
_HOSTS_MAX = 16
_PEER = re.compile(r"(?:\[(?P<six>[0-9a-fA-F:.]+)\]|(?P<name>[A-Za-z0-9][A-Za-z0-9._-]{0,252})):(?P<port>[0-9]{1,5})")
_WILDCARDS = ("0.0.0.0:", "[::]:")


class Database(NamedTuple):
    """A connection string, taken apart. ``hosts``: (name, address or directory of a socket; port)."""

    hosts: tuple[tuple[str, int], ...]
    name: str
    user: str
    tls_mode: str
    tls_root: str


def database_of(given: str) -> Database:
    """Returns what a connection string says. Raises BadValue."""
    found: dict[str, str] = {}
    at = 0
    while given[at:].strip():
        word = _WORD.match(given, at)
        if word is None or word[1] in found:
            raise bad(given if "password" not in given else "…", _FORM)
        found[word[1]] = _ESCAPED.sub(r"\1", word[2] if word[2] is not None else word[3])
        at = word.end()
    if "password" in found or "passfile" in found:
        raise bad("…", "must have no password; put it into a file that password_file names")
    if unknown := [name for name in found if name not in _KNOWN]:
        raise bad(unknown[0], f"must have no other words than {', '.join(_KNOWN)}")
    hosts = found.get("host", "").split(",")
    ports = found.get("port", str(PORT)).split(",")
    if len(ports) == 1:
        ports *= len(hosts)
    wrong_port = any(not port.isdecimal() or not 1 <= int(port) <= 65_535 for port in ports)
    if not all(hosts) or len(hosts) > _HOSTS_MAX or len(ports) != len(hosts) or wrong_port:
        raise bad(given, _FORM)
    mode = found.get("sslmode", "prefer")
    if mode not in _MODES:
        raise bad(mode, f"must have an sslmode of {', '.join(_MODES)}")
    return Database(
        tuple(zip(hosts, map(int, ports), strict=True)),
        found.get("dbname", "waypost"),
        found.get("user", "waypost"),
        mode,
        found.get("sslrootcert", ""),
    )


def _database(given: str) -> str:
    database_of(given)
    return given


def check_name(given: str) -> str:
    """Returns the name of a node or a shard. Raises BadValue."""
    if not _NAME.fullmatch(given):
        raise bad(given, "must be of letters, digits, dots and hyphens, up to 64 characters")
    return given


def peer_address(given: str) -> tuple[str, int]:
    """Reads the name or address, and the port, of another node. Raises BadValue."""
    match = _PEER.fullmatch(given)
    if match is None or not 1 <= int(match["port"]) <= 65_535:
        raise bad(
            given,
            'must be "name or address:port", such as "mx1.example.org:2526", with brackets around an IPv6 address',
        )
    return match["six"] or match["name"], int(match["port"])


def following(address: str) -> str:
    """Returns an address with the next port: where a node answers what the others ask, beside the one in ``listen``."""
    host, _, port = address.rpartition(":")
    return f"{host}:{int(port) + 1}"


def _peer(given: str) -> str:
    peer_address(given)
    return given


def _patroni(given: str) -> str:
    if not re.fullmatch(r"https?://[^\s/?#@]+(:[0-9]{1,5})?/?", given):
        raise bad(given, 'must be an address of Patroni, such as "http://db1.example.org:8008"')
    return given


@dataclass(frozen=True, kw_only=True)
class Nodes:
    """[nodes]: the queue is a shard that PostgreSQL with a synchronous standby keeps; another node takes it over when this one
    is gone (docs/nodes.md)."""

    database: str = text(
        "",
        "connection string of libpq that names all members of the database's cluster: host, port, dbname, user, sslmode, "
        "sslrootcert",
        _database,
        special={"": "one node: the queue is on this disk alone"},
    )
    password_file: str = text(
        "",
        "file with the password of the database's user in its first line; receivers must be able to read it",
        special={"": "none is needed"},
    )
    node: str = text("", "name of this node, which no other one has", check_name, special={"": "the host's name"})
    shard: str = text(
        "",
        "name of the shard that is this home's queue; a node whose shard another living node has is its spare, and waits",
        check_name,
        special={"": "the node's name"},
    )
    takes_over: bool = flag(
        True,
        "takes over the shards of other nodes that are gone, and delivers their mail beside its own; it takes none in for them",
    )
    hand_over_s: float = number(
        10.0,
        0,
        600,
        "seconds",
        "how long deliveries of a shard that moves to another node may take to end; then they are cut",
    )
    listen: str = text(
        "",
        "address and port for the other nodes, which must reach it and the next port: the limits of destinations are divided "
        "at the first, commands and portals of others show and change the mail of this node at the second; needs waypost node "
        "join",
        values.endpoint,
        special={"": "limits hold for each node alone, and each shows its own mail"},
    )
    address: str = text(
        "",
        "name or address, and port, by which the other nodes reach this one, if it is not that of listen",
        _peer,
        special={"": "as listen"},
    )
    patroni: tuple[str, ...] = texts(
        (),
        "addresses of Patroni's REST API, which is asked whether synchronous_mode_strict is on; the authority in sslrootcert "
        "must have signed the certificate of an https address, if the database has one",
        _patroni,
        values.distinct,
        special={"": "Patroni is not asked"},
    )
    commit_wait_s: float = number(
        30.0, 1, 600, "seconds", "how long a client waits for the database; then it hears 421, and may send again"
    )
    commit_delay_ms: float = number(
        12.0,
        0,
        100,
        "milliseconds",
        "under load, how long a commit waits so that it covers more records; it replaces commit_delay_ms of [queue]",
    )
    connect_timeout_s: float = number(
        3.0, 0.5, 60, "seconds", "time for a connection to one member of the database's cluster"
    )
    answer_timeout_s: float = number(
        15.0, 1, 600, "seconds", "time for an answer of the database; then another connection asks what became of it"
    )
    look_every_s: float = number(
        60.0, 5, 3600, "seconds", "time between two looks whether the database still keeps mail on two servers"
    )

    @property
    def is_on(self) -> bool:
        """Returns True if a database keeps the queue."""
        return bool(self.database)


def settle(section: dict[str, Any], base: Path, fault: Callable[[tuple[str, str], str], None]) -> None:
    """Makes the path of the password absolute; a relative one starts at ``base``. Reports settings that lack another one."""
    if section.get("password_file"):
        section["password_file"] = str(base / section["password_file"])
    for name in ("password_file", "node", "shard", "listen", "patroni"):
        if section.get(name) and not section.get("database"):
            fault(("nodes", name), "needs database")
    listen, address = section.get("listen", ""), section.get("address", "")
    for name, given in (("listen", listen), ("address", address)):
        if isinstance(given, str) and given.endswith(":65535"):
            fault(("nodes", name), "must have a port below 65535: the next one is used, too")
    if address and not listen:
        fault(("nodes", "address"), "needs listen")
    if not address and isinstance(listen, str) and listen.startswith(_WILDCARDS):
        fault(("nodes", "address"), "is needed: other nodes cannot connect to the address in listen")
