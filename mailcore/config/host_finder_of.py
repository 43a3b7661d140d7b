"""The search for hosts that a configuration describes: of deliverers, and as theirs in processes that send no mail."""

from __future__ import annotations

import random
import socket
from collections.abc import Callable

from mailcore.config.settings import Settings
from mailcore.routing.mx import HostFinder
from mailcore.routing.own_addresses import OwnAddresses

__all__ = ["host_finder_of", "our_name"]


def host_finder_of(
    settings: Settings, clock: Callable[[], float], own_addresses: OwnAddresses | None = None
) -> HostFinder:
    """Returns a search for hosts; ``clock`` is a monotonic one, ``own_addresses`` as ``HostFinder``'s."""
    limits = settings.deliverer
    return HostFinder(
        limits.nameservers,
        addresses_max=limits.addresses_max,
        own_name=our_name(settings),
        chance=random.Random(),  # noqa: S311  which of two equal hosts comes first need not be secret
        clock=clock,
        own_addresses=own_addresses,
    )


def our_name(settings: Settings) -> str:
    """Returns the name that we give to other servers: it is ours in the greeting, too, unless it is set."""
    return settings.deliverer.hostname or settings.receiver.hostname or socket.gethostname()
