"""The routing of a configuration: one place where the settings become a ``Routing``, for all processes that route."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mailcore.config.fallback_lines import configured_fallbacks
from mailcore.config.settings import Settings
from mailcore.routing.fallbacks import Fallbacks
from mailcore.routing.resolve import Routing, RoutingMissing

__all__ = ["missing_routing", "routing_of"]


def routing_of(
    settings: Settings,
    routes: Mapping[str, str] | None = None,
    sender_routes: Mapping[str, str] | None = None,
    login_routes: Mapping[str, str] | None = None,
    fallbacks: Mapping[str, Sequence[str]] | None = None,
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
        _fallbacks(settings, fallbacks),
    )


def missing_routing(settings: Settings) -> Routing:
    """Returns the routing while there is none, because the files of [route_maps] could not be read since the start."""
    fallbacks = _fallbacks(settings, {} if settings.route_maps.fallback_relay else None)
    return RoutingMissing(
        {}, settings.transports, settings.deliverer.port, settings.lmtp_transports, fallbacks=fallbacks
    )


def _fallbacks(settings: Settings, by_scope: Mapping[str, Sequence[str]] | None) -> Fallbacks:
    return Fallbacks(
        configured_fallbacks(settings.transports) if by_scope is None else by_scope,
        settings.deliverer.port,
        settings.lmtp_transports,
    )
