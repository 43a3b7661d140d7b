"""The section [relay]: the clients and domains that mail is accepted from and for."""

from __future__ import annotations

from dataclasses import dataclass

from mailcore.bounds import texts
from mailcore.config import values

__all__ = ["Relay"]


@dataclass(frozen=True, kw_only=True)
class Relay:
    """[relay]: the clients and domains that mail is accepted from and for."""

    networks: tuple[str, ...] = texts(
        ("127.0.0.0/8", "::1/128"),
        "networks of clients that may send to any domain",
        values.network,
        values.refuse_open_relay,
    )
    domains: tuple[str, ...] = texts(
        (),
        "recipient domains that mail is accepted for from any client; .example.org stands for all its subdomains",
        values.domain_pattern,
    )
