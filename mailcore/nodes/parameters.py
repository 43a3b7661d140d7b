"""The settings of [nodes] as the store takes them."""

from __future__ import annotations

import socket

from mailcore.config.nodes import database_of
from mailcore.config.settings import Settings
from mailcore.replication.parameters import Host, StoreParameters

__all__ = ["address_of", "node_of", "parameters_of", "shard_of"]

PASSWORD_BYTES_MAX = 4096


def node_of(settings: Settings) -> str:
    """Returns the name of this node."""
    return settings.nodes.node or socket.gethostname()


def address_of(settings: Settings) -> str:
    """Returns where other nodes reach this one."""
    return settings.nodes.address or settings.nodes.listen


def shard_of(settings: Settings) -> str:
    """Returns the name of the shard of this home."""
    return settings.nodes.shard or node_of(settings)


def parameters_of(settings: Settings) -> StoreParameters:
    """Returns the parameters of the store. Raises OSError if the password cannot be read."""
    nodes = settings.nodes
    database = database_of(nodes.database)
    return StoreParameters(
        tuple(Host(address, port) for address, port in database.hosts),
        database=database.name,
        user=database.user,
        password=_password(nodes.password_file),
        tls_mode=database.tls_mode,
        tls_root=database.tls_root,
        patroni=nodes.patroni,
        connect_timeout_s=nodes.connect_timeout_s,
        answer_timeout_s=nodes.answer_timeout_s,
        look_every_s=nodes.look_every_s,
    )


def _password(path: str) -> str:
    if not path:
        return ""
    with open(path, encoding="utf-8") as file:
        return file.read(PASSWORD_BYTES_MAX).partition("\n")[0].rstrip("\r")
