"""Names the patterns of [tls_policy] that no mail can reach, because [routes] sends the mail of these domains elsewhere.

A policy belongs to a next hop. With ``"*" = "smtp:[192.0.2.1]"`` a policy for a recipient's domain is never asked for, though
it looks as if its mail were encrypted. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator

from mailcore.config.protocol import fallback_hops
from mailcore.config.settings import Settings
from mailcore.routing.resolve import Refused, Routing
from mailcore.routing.route import parse_route

__all__ = ["policies_without_mail"]

_BELOW = "any-name-below"  # a name that no route has


def policies_without_mail(settings: Settings) -> Iterator[tuple[str, str]]:
    """Yields each such pattern, and where the mail of the domain goes instead."""
    routing = Routing(settings.routes, settings.transports, settings.deliverer.port)
    routes = {pattern: parse_route(text) for pattern, text in settings.routes.items()}
    others = [parse_route(text) for text in (*settings.sender_routes.values(), *settings.login_routes.values())]
    others += [hop for hops in fallback_hops(settings.transports).values() for hop in hops]
    for pattern in settings.tls_policy:
        if pattern.startswith("["):
            continue  # a host is only ever reached by a route, which may be an operator's
        name = pattern.partition(":")[0]
        below = name.startswith(".")
        resolved = routing.resolve(f"postmaster@{_BELOW if below else ''}{name}")
        if isinstance(resolved, Refused) or _fits(name, resolved.next_hop.host):
            continue
        hops = [route.next_hop or given.rpartition("@")[2].removeprefix(".") for given, route in routes.items()]
        if not any(_fits(name, hop) for hop in (*hops, *(route.next_hop or name for route in others))):
            yield pattern, resolved.destination


def _fits(name: str, host: str) -> bool:
    return host.endswith(name) if name.startswith(".") else host == name
