"""The addresses to listen on that a change adds, and whether a receiver could listen there.

A check before a change and the reload itself ask the same: receivers that listen now end for the change, and if none of the
next ones can open its sockets, no mail is taken at all.
"""

from __future__ import annotations

import contextlib
import errno
import json
import socket
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from mailcore.config.settings import Settings
from mailcore.config.values import listen_address
from mailcore.supervisor.listen import listen

__all__ = ["SOCKETS_GIVEN", "Unusable", "fresh_addresses", "ports_of", "sockets_are_given", "unusable"]

SOCKETS_GIVEN = "sockets_are_given"  # of the supervisor, in children.json
_WORDS = {
    errno.EADDRINUSE: "is in use by another process",
    errno.EADDRNOTAVAIL: "is not an address of this host",
    errno.EACCES: "can't be listened on by this user",
}


class Unusable(NamedTuple):
    """Why a socket can't be opened at an address, as the end of a sentence."""

    errno: int
    words: str


def fresh_addresses(old: Settings, new: Settings) -> list[str]:
    """Returns the addresses that ``new`` listens on and ``old`` does not."""
    known = {each.address for each in old.all_listeners}
    return [each.address for each in new.all_listeners if each.address not in known]


def ports_of(settings: Settings) -> frozenset[int]:
    """Returns the ports that receivers listen on."""
    return frozenset(listen_address(each.address)[1] for each in settings.all_listeners)


def unusable(endpoint: str, own_ports: Collection[int] = frozenset()) -> Unusable | None:
    """Returns why a receiver could not listen on an address; None if it could. ``own_ports``: our receivers have them now, on
    other addresses, and share them."""
    host, port = listen_address(endpoint)
    try:
        listen(endpoint, shared=port in own_ports).close()
    except OSError as error:
        number = error.errno or 0
        if number == errno.EACCES and not _is_of_this_host(host):
            number = errno.EADDRNOTAVAIL
        return Unusable(number, _WORDS.get(number) or f"can't be listened on: {error.strerror or error}")
    return None


def _is_of_this_host(host: str) -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((host, 0))
        except OSError:
            return False
    return True


def sockets_are_given(run_directory: Path) -> bool:
    """Returns whether systemd opened the receivers' sockets, as the supervisor says."""
    with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
        told = json.loads((run_directory / "children.json").read_text())
        return bool(told["supervisor"].get(SOCKETS_GIVEN))
    return False
