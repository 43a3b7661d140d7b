"""The parameters of the store: how it reaches its database, and its times.

A frozen value without a default for what only an operator knows. The settings of the configuration file are made into it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Host", "StoreParameters"]


@dataclass(frozen=True)
class Host:
    """One member of the database's cluster: a name or an address, or the directory of a Unix socket."""

    address: str
    port: int = 5432

    def __str__(self) -> str:
        return f"{self.address}:{self.port}"


@dataclass(frozen=True)
class StoreParameters:
    """Names the database and the role, and how long each thing may take."""

    hosts: tuple[Host, ...]  # all members: the one that takes writes is found by asking each
    database: str = "waypost"
    user: str = "waypost"
    password: str = field(default="", repr=False)  # "": none is needed
    tls_mode: str = "prefer"  # libpq's sslmode; "verify-full" wants tls_root
    tls_root: str = ""  # PEM file of the authority that signed the servers' certificates
    patroni: tuple[str, ...] = ()  # addresses of Patroni's REST API, "http://db1.example:8008"; (): it is not asked
    connect_timeout_s: float = 3.0  # to one host: three members are tried in less than two lease times
    # Of one statement. It closes the socket and cancels nothing, so what it leaves behind on the server may wait for a standby
    # for as long as there is none. Each further time-out in a row is twice as long, up to the maximum.
    answer_timeout_s: float = 15.0
    answer_timeout_s_max: float = 480.0
    pause_s: float = 0.1  # before the second attempt to connect; each further one twice as long
    pause_s_max: float = 2.0
    look_every_s: float = 60.0  # the guarantees of the database are read again this often

    def __post_init__(self) -> None:
        if not self.hosts:
            raise ValueError("hosts: name at least one member of the database's cluster")
