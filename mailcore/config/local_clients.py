"""The clients of [rewriting] local_header_rewrite_clients: their header fields are ours to complete and to change."""

from __future__ import annotations

from mailcore.config.rewriting import LOGINS, NETWORKS
from mailcore.routing.networks import Networks

__all__ = ["LocalClients"]


class LocalClients:
    """Holds the networks, and the words that stand for clients."""

    def __init__(self, clients: tuple[str, ...]) -> None:
        self._networks = Networks(tuple(each for each in clients if each not in (NETWORKS, LOGINS)))
        self._trusted, self._logins = NETWORKS in clients, LOGINS in clients

    def hold(self, address: str, trusted: bool, login: str) -> bool:
        """Returns whether a client is one of them. ``trusted``: it is in [relay] networks; ``login``: "" without one."""
        return (trusted and self._trusted) or (bool(login) and self._logins) or self._networks.hold(address)
