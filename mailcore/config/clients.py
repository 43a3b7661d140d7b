"""The section [clients]: what receivers believe of a client, and how much it may do.

Keeps law: client-address-believed (docs/laws.md).
"""

from __future__ import annotations

from dataclasses import dataclass

from mailcore.bounds import flag, texts
from mailcore.config import values

__all__ = ["Clients"]


@dataclass(frozen=True, kw_only=True)
class Clients:
    """[clients]: the hosts that may name a client of the receivers, and limits of what each client may do."""

    xclient_networks: tuple[str, ...] = texts(
        (),
        "networks of proxies that may name the client with XCLIENT, which then counts in everything, also as one that may send "
        "to any domain; as Postfix's smtpd_authorized_xclient_hosts",
        values.network,
        values.refuse_open_relay,
    )
    xforward_networks: tuple[str, ...] = texts(
        (),
        "networks of content filters that may name the original client for the log with XFORWARD; as Postfix's "
        "smtpd_authorized_xforward_hosts",
        values.network,
        values.refuse_open_relay,
    )
    reverse_names: bool = flag(
        False,
        "look up the names of client addresses, for Received and the log: the PTR record, if it leads back to the address, as "
        "Postfix's smtpd_peername_lookup. No session waits for the answer",
    )
