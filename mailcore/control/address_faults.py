"""The faults of addresses to listen on, each at its field: what the reload would refuse, or what would end all receivers.

Opens sockets for a moment, and closes them.
"""

from __future__ import annotations

import errno
import time

from mailcore.config.settings import Settings
from mailcore.config.values import listen_address
from mailcore.control.protocol.settings import KeyFault
from mailcore.supervisor.fresh_addresses import Unusable, fresh_addresses, ports_of, unusable

__all__ = ["address_faults"]

WAIT_S = 3.0  # a receiver that ends for the reload before may still listen
OF_SYSTEMD = (
    "can't be changed here: systemd has the sockets. Change the addresses in waypost.toml and run waypost setup, or change "
    "them in the playbook"
)


def address_faults(old: Settings, new: Settings, *, sockets_are_given: bool) -> list[KeyFault]:
    """Returns a fault for each added address that no receiver could listen on. ``sockets_are_given``: systemd has them."""
    fresh = fresh_addresses(old, new)
    if sockets_are_given:
        is_another = sorted(each.address for each in old.all_listeners) != sorted(
            each.address for each in new.all_listeners
        )
        if not is_another:
            return []
        keys = [_key_of(new, each) for each in fresh] or [
            "receiver.listen" if old.receiver.listen != new.receiver.listen else "listener"
        ]
        return [KeyFault(key=key, reason=OF_SYSTEMD) for key in keys]
    own_ports = ports_of(old)
    found = [(each, why) for each in fresh if (why := _why(each, own_ports)) is not None]
    return [KeyFault(key=_key_of(new, each), reason=f"{each} {why.words}") for each, why in found]


def _why(endpoint: str, own_ports: frozenset[int]) -> Unusable | None:
    """Returns why an address can't be listened on, as far as this process can tell: the supervisor may open more ports."""
    until = time.monotonic() + WAIT_S
    while True:
        why = unusable(endpoint)
        if why is None or why.errno == errno.EACCES:
            return None
        if why.errno != errno.EADDRINUSE:
            return why
        if listen_address(endpoint)[1] in own_ports:
            return None  # our receivers may have it, on another address
        if time.monotonic() > until:
            return why
        time.sleep(0.05)


def _key_of(settings: Settings, endpoint: str) -> str:
    listen = settings.receiver.listen
    if endpoint in listen:
        return f"receiver.listen.{listen.index(endpoint)}"
    number = [each.address for each in settings.listener].index(endpoint)
    return f"listener.{number}.address"
