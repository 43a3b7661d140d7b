"""Becoming one of the nodes that trust each other, and ending that: what ``waypost node`` does (docs/decisions/0100).

The first node makes the authority. Each that is in can let another one in, by a token that counts once and not for long. The
token is made here, shown once, and opens the authority, which waits encrypted in the database. So what the database has is of
no use to its other users, and what the token is of none without the database.

Keeps law: keys-stay-secret, law: trust-is-a-row (docs/laws.md).
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager

from mailcore.config.nodes import check_name
from mailcore.config.settings import Settings
from mailcore.faults import Code, FaultError
from mailcore.nodes.authority import (
    Authority,
    BadToken,
    NodeKeys,
    digest_of,
    digest_of_token,
    make_authority,
    make_node,
    make_token,
    open_sealed,
    seal,
)
from mailcore.nodes.node_files import CERTIFICATE, directory_of, read_authority, write_files
from mailcore.nodes.parameters import address_of, node_of, parameters_of
from mailcore.replication import node_trust
from mailcore.replication.connection import Connection
from mailcore.replication.node_trust import TrustRow
from mailcore.replication.schema import check_schema

__all__ = ["TOKEN_MINUTES", "NotJoined", "add", "begin", "is_here", "join", "nodes_of", "remove"]

TOKEN_MINUTES = 30
_OTHER = "another authority was made since; let this node join again"


class NotJoined(FaultError):
    """Raised if a node cannot join, or another cannot be let in by it."""

    default = Code.CONFLICT


def begin(settings: Settings, *, again: bool) -> None:
    """Makes the authority, and lets this node in as the first. ``again``: in the place of another one; then others are out.

    Raises StoreError, OSError, NotJoined.
    """
    authority = make_authority(time.time())
    with _connected(settings) as connection:
        if again:
            keys = _prepare(settings, authority)
            node_trust.replace_authority(connection, digest_of(authority.certificate))
        elif node_trust.read_authority(connection) is None:
            keys = _prepare(settings, authority)
            if not node_trust.make_authority(connection, digest_of(authority.certificate)):
                raise NotJoined("another node has made the authority at this moment; run waypost node join")
        else:
            raise NotJoined(
                "there are nodes: run waypost node add on one of them, and waypost node join here. If none of them is there any"
                " more, or one is in other hands, waypost node begin --again makes another authority, and all join again"
            )
        _enter(connection, settings, authority, keys)


def add(settings: Settings, node: str, minutes: int) -> str:
    """Returns a token with which a node may join within minutes, instead of one before.

    Raises BadValue, StoreError, OSError, NotJoined.
    """
    check_name(node)
    with _connected(settings) as connection:
        authority = _own_authority(settings)
        rows = {row.node: row for row in node_trust.read_trust(connection)}
        if not is_here(settings, rows.get(node_of(settings))):
            raise NotJoined(f"node {node_of(settings)} is not in itself; run this on a node that is")
        token = make_token()
        sealed, digest = seal(authority, token, node), digest_of(authority.certificate)
        if not node_trust.add_token(connection, node, digest_of_token(token), sealed, minutes * 60, digest):
            raise NotJoined(_OTHER)
        return token


def join(settings: Settings, token: str) -> None:
    """Lets this node in. Raises StoreError, OSError, NotJoined."""
    node = node_of(settings)
    try:
        digest = digest_of_token(token)
    except BadToken as error:
        raise NotJoined(str(error), code=Code.INVALID) from None
    with _connected(settings) as connection:
        _check_home(settings)
        taken = node_trust.take_token(connection, digest)
        if taken is None:
            raise NotJoined("the database does not know this token: it was used, or replaced by another one")
        if not taken.is_valid:
            raise NotJoined("the time of this token is over; ask for another one")
        if taken.node != node:
            raise NotJoined(
                f"this token is for node {taken.node}, and this is {node}; it is used now, ask for another one"
            )
        try:
            authority = open_sealed(taken.sealed, token, node)
        except BadToken as error:
            raise NotJoined(str(error)) from None
        _enter(connection, settings, authority, _prepare(settings, authority))


def remove(settings: Settings, node: str) -> None:
    """Ends the trust in a node. Raises StoreError, OSError, FaultError."""
    with _connected(settings) as connection:
        if not node_trust.remove_trust(connection, node):
            raise FaultError(f"node {node} is not in", code=Code.NOT_FOUND, argument="node")


def nodes_of(settings: Settings) -> list[TrustRow]:
    """Returns the nodes that are in, by name. Raises StoreError, OSError."""
    with _connected(settings) as connection:
        return node_trust.read_trust(connection)


def is_here(settings: Settings, row: TrustRow | None) -> bool:
    """Returns whether a row is that of this node, with the certificate that is on its disk."""
    try:
        own = ssl.PEM_cert_to_DER_cert((directory_of(settings) / CERTIFICATE).read_text("ascii"))
    except (OSError, ValueError):
        return False
    return row is not None and row.certificate == own


@contextmanager
def _connected(settings: Settings) -> Iterator[Connection]:
    connection = Connection.open(parameters_of(settings))
    try:
        check_schema(connection)
        yield connection
    finally:
        connection.close()


def _own_authority(settings: Settings) -> Authority:
    try:
        return read_authority(settings)
    except FileNotFoundError:
        raise NotJoined(f"node {node_of(settings)} is not in itself; run this on a node that is") from None


def _check_home(settings: Settings) -> None:
    if not settings.home.is_dir():
        raise FaultError(f"{settings.home} is missing: start Waypost here first", code=Code.NOT_FOUND)


def _prepare(settings: Settings, authority: Authority) -> NodeKeys:
    _check_home(settings)
    return make_node(authority, node_of(settings), time.time())


def _enter(connection: Connection, settings: Settings, authority: Authority, keys: NodeKeys) -> None:
    """Writes the files, and then the row that makes them count."""
    write_files(settings, authority, keys)
    certificate = ssl.PEM_cert_to_DER_cert(keys.certificate.decode("ascii"))
    digest = digest_of(authority.certificate)
    if not node_trust.add_trust(connection, node_of(settings), address_of(settings), certificate, digest):
        raise NotJoined(_OTHER)
