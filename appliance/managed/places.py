"""The settings that maps are for, in the words of the pages. Values only."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["FORMS", "MAP_PLACES", "PLACES", "Place"]


class Place(NamedTuple):
    """A setting that names maps; ``patterns``: they may be regular expressions."""

    key: str
    title: str
    about: str
    patterns: bool = False


PLACES = (
    Place("rewriting.virtual_alias_maps", "Aliases", "One address stands for others.", True),
    Place("recipients.relay_recipient_maps", "Valid recipients", "Addresses that mail is accepted for."),
    Place("rewriting.canonical_maps", "Canonical addresses", "Senders and recipients get another address.", True),
    Place("rewriting.sender_canonical_maps", "Canonical senders", "Senders get another address.", True),
    Place("rewriting.recipient_canonical_maps", "Canonical recipients", "Recipients get another address.", True),
    Place("rewriting.sender_bcc_maps", "Copies by sender", "The address that gets a copy of a sender's mail.", True),
    Place(
        "rewriting.recipient_bcc_maps",
        "Copies by recipient",
        "The address that gets a copy of a recipient's mail.",
        True,
    ),
    Place("rewriting.header_checks", "Header checks", "Patterns that are compared with each header field."),
    Place("route_maps.routes", "Routes by recipient", "A pattern and a route."),
    Place("route_maps.sender_routes", "Routes by sender", "A pattern and a route."),
    Place("route_maps.login_routes", "Routes by login", "A user and a route."),
    Place("route_maps.fallback_relay", "Fallback next hops", "A transport or a destination, and next hops."),
)
MAP_PLACES = {each.key: each for each in PLACES}
FORMS = {  # setting -> the form of the lines, as the core names it
    "rewriting.header_checks": "header_checks",
    "recipients.relay_recipient_maps": "recipients",
    "route_maps.routes": "routes",
    "route_maps.sender_routes": "sender_routes",
    "route_maps.login_routes": "login_routes",
    "route_maps.fallback_relay": "fallback_relay",
}
