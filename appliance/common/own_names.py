"""The names by which the portal is known: the address of its pages, and the sender of its mail."""

from __future__ import annotations

import functools
import socket

from django.conf import settings

from appliance.common.current_settings import current_settings

__all__ = ["host", "sender_or_own", "site"]


def site() -> str:
    """Returns the address of the portal's pages, without a slash at its end."""
    scheme = "https" if settings.HTTPS else "http"
    return str(settings.PORTAL.public_url or f"{scheme}://{settings.PORTAL.listen}").rstrip("/")


def host() -> str:
    """Returns the name of this host in mail."""
    return str(current_settings().receiver.hostname or _full_name())


@functools.cache
def _full_name() -> str:
    """Returns the name of this host; once, because the name servers may be away later."""
    return socket.getfqdn()


def sender_or_own(given: str) -> str:
    """Returns the sender of the portal's mail: the one of the settings, otherwise waypost@ and the name of this host."""
    return given or f"waypost@{host()}"
