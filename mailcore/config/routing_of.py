"""The routing of a configuration: one place where the settings become a ``Routing``, for all processes that route."""

from __future__ import annotations

from collections.abc import Mapping

from mailcore.config.settings import Settings
from mailcore.routing.resolve import Routing, RoutingMissing

__all__ = ["missing_routing", "routing_of"]


def routing_of(
    settings: Settings,
    routes: Mapping[str, str] | None = None,
    sender_routes: Mapping[str, str] | None = None,
    login_routes: Mapping[str, str] | None = None,
) -> Routing:
    """Returns the routing by these tables; None: by those of the configuration file."""
    return Routing(
        settings.routes if routes is None else routes,
        settings.transports,
        settings.deliverer.port,
        settings.lmtp_transports,
        settings.sender_routes if sender_routes is None else sender_routes,
        settings.login_routes if login_routes is None else login_routes,
        settings.rewriting.recipient_delimiter,
    )


def missing_routing(settings: Settings) -> Routing:
    """Returns the routing while there is none, because the files of [route_maps] could not be read since the start."""
    return RoutingMissing({}, settings.transports, settings.deliverer.port, settings.lmtp_transports)
