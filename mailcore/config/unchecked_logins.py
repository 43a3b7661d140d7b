"""Names the logins to next hops whose level checks no certificate, so that a man in the middle would get the password.

Looks for the level as a deliverer does. Which transport has the mail for a next hop is read from the routes, also those in
files.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from mailcore.config.client_auth import LoginFileError, parse_logins, read_secret
from mailcore.config.protocol import fallback_hops
from mailcore.config.route_files import with_route_files
from mailcore.config.settings import Settings
from mailcore.config.tls import level_of
from mailcore.rewriting.map_text import MapFault
from mailcore.routing.next_hop import next_hop_of
from mailcore.routing.route import Route, RouteError, parse_route, route_to

__all__ = ["login_warnings", "unchecked_logins"]

UNCHECKED = ("none", "may", "encrypt")  # levels that look at no certificate


def login_warnings(settings: Settings) -> Iterator[str]:
    """Yields a sentence for each such login."""
    auth = settings.client_auth
    effect = "its mail is deferred (4.7.11)"
    if auth.without_verification or auth.without_tls:
        effect = "any server that answers in its place gets the password"
    for name, level in unchecked_logins(settings):
        yield (
            f"[client_auth] password_file: {name} has the level {level}, which checks no certificate, so {effect}; "
            f'set [tls_policy."{name}"] level = "verify"'
        )


def unchecked_logins(settings: Settings) -> Iterator[tuple[str, str]]:
    """Yields next hop and level of each such login; nothing if this user cannot read the file of logins."""
    with contextlib.suppress(MapFault):  # check-config and doctor report the faults of the files
        settings = with_route_files(settings)
    port = settings.deliverer.port
    path = settings.client_auth.password_file
    try:
        logins = parse_logins(read_secret(path, None), path, port) if path else None
    except LoginFileError:
        return
    for name in logins.by_hop if logins is not None else ():
        try:
            route = route_to("x", name)
        except RouteError:
            continue  # not reached: the file has names of next hops
        hop = next_hop_of(route, port)
        levels = {
            level_of(settings.tls_policy, settings.transports[each].tls, hop, port)
            for each in _transports_of(settings, route)
        }
        found = next((level for level in UNCHECKED if level in levels), "")
        if found:
            yield name, found


def _transports_of(settings: Settings, hop: Route) -> set[str]:
    """Returns the transports whose mail goes to a next hop; if no route names it, that of all other mail."""
    texts = [*settings.routes.values(), *settings.sender_routes.values(), *settings.login_routes.values()]
    routes = [parse_route(text) for text in texts]
    routes += [parse_route(route.text) for route in routes if route.transport == "hold" and route.text]
    routes += [route for hops in fallback_hops(settings.transports).values() for route in hops]
    found = {route.transport for route in routes if (route.next_hop, route.mx) == (hop.next_hop, hop.mx)}
    return (found or {parse_route(settings.routes["*"]).transport}) & set(settings.transports)
