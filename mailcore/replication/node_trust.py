"""The rows of the nodes that are in: their certificates, the tokens that let others in, and which authority signs.

Each function raises Lost if its outcome is unknown, and ServerError if it changed nothing.
"""

from __future__ import annotations

from typing import NamedTuple

from mailcore.replication.connection import Connection
from mailcore.replication.shard import TIMEOUT_S, check_kept
from mailcore.replication.statements import (
    AUTHORITY_MAKE,
    AUTHORITY_READ,
    AUTHORITY_REPLACE,
    TOKEN_ADD,
    TOKEN_TAKE,
    TRUST_ADD,
    TRUST_MOVE,
    TRUST_READ,
    TRUST_REMOVE,
)
from mailcore.replication.values import as_bool, as_int, as_text

__all__ = [
    "Token",
    "TrustRow",
    "add_token",
    "add_trust",
    "make_authority",
    "move_trust",
    "read_authority",
    "read_trust",
    "remove_trust",
    "replace_authority",
    "take_token",
]


class TrustRow(NamedTuple):
    """A node that is in."""

    node: str
    address: str
    certificate: bytes  # DER
    joined_s_ago: float  # by the database's clock, for people


class Token(NamedTuple):
    """A token that was taken: it is not in the database any more."""

    node: str
    sealed: bytes
    is_valid: bool  # by the database's clock


def read_authority(connection: Connection, timeout_s: float = TIMEOUT_S) -> bytes | None:
    """Returns the digest of the authority's certificate; None if there is none."""
    rows = connection.execute(AUTHORITY_READ, [], timeout_s).rows
    return rows[0][0] if rows else None


def make_authority(connection: Connection, digest: bytes) -> bool:
    """Makes the row of the authority. Returns False if there is one."""
    return check_kept(connection.execute(AUTHORITY_MAKE, [digest], TIMEOUT_S)) is not None


def replace_authority(connection: Connection, digest: bytes) -> None:
    """Puts another authority in the place of the one before, and removes all nodes and tokens."""
    check_kept(connection.execute(AUTHORITY_REPLACE, [digest], TIMEOUT_S))


def read_trust(connection: Connection, timeout_s: float = TIMEOUT_S) -> list[TrustRow]:
    """Returns the nodes that are in, by name."""
    rows = connection.execute(TRUST_READ, [], timeout_s).rows
    return [
        TrustRow(as_text(node), as_text(address), certificate or b"", as_int(joined) / 1000)
        for node, address, certificate, joined in rows
    ]


def add_trust(connection: Connection, node: str, address: str, certificate: bytes, digest: bytes) -> bool:
    """Adds a node, or replaces its certificate. Returns False if the authority is not that one any more."""
    values = [node, address, certificate, digest]
    return check_kept(connection.execute(TRUST_ADD, values, TIMEOUT_S)) is not None


def move_trust(connection: Connection, node: str, address: str, certificate: bytes) -> bool:
    """Writes another address of a node. Returns False if it has that address, or another certificate."""
    return check_kept(connection.execute(TRUST_MOVE, [node, address, certificate], TIMEOUT_S)) is not None


def remove_trust(connection: Connection, node: str) -> bool:
    """Removes a node and its token. Returns False if the node was not in."""
    return check_kept(connection.execute(TRUST_REMOVE, [node], TIMEOUT_S)) is not None


def add_token(connection: Connection, node: str, token: bytes, sealed: bytes, valid_s: int, digest: bytes) -> bool:
    """Adds the token of a node, instead of one before; ``token`` is its digest, ``digest`` that of the authority.

    Returns False if the authority is not that one any more.
    """
    values = [node, token, sealed, valid_s, digest]
    return check_kept(connection.execute(TOKEN_ADD, values, TIMEOUT_S)) is not None


def take_token(connection: Connection, token: bytes) -> Token | None:
    """Takes a token, which is used then. Returns None if there is none with this digest."""
    written = check_kept(connection.execute(TOKEN_TAKE, [token], TIMEOUT_S))
    if written is None:
        return None
    node, sealed, is_valid = written[:3]
    return Token(as_text(node), sealed or b"", as_bool(is_valid))
