"""The routing of a configuration: one place where the settings become a ``Routing``, for manager and control."""

from __future__ import annotations

from mailcore.config.settings import Settings
from mailcore.routing.resolve import Routing

__all__ = ["routing_of"]


def routing_of(settings: Settings) -> Routing:
    """Returns the routing that the settings describe."""
    return Routing(
        settings.routes,
        settings.transports,
        settings.deliverer.port,
        settings.lmtp_transports,
        settings.sender_routes,
        settings.login_routes,
        settings.rewriting.recipient_delimiter,
    )
