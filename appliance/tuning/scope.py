"""Scopes: where a value holds: everywhere (""), for a transport ("smtp"), for some destinations ("smtp:.example.org")."""

from __future__ import annotations

__all__ = ["kind_of", "said", "touches"]


def kind_of(scope: str) -> str:
    """Returns the kind of the scope as the core names it: global, transport or destination."""
    return "destination" if ":" in scope else "transport" if scope else "global"


def said(scope: str) -> str:
    """Returns the scope in words."""
    transport, colon, rest = scope.partition(":")
    if not scope:
        return "all transports"
    if not colon:
        return f"transport {transport}"
    return f"{transport}: all below {rest[1:]}" if rest.startswith(".") else scope


def touches(scope: str, destination: str) -> bool:
    """Returns whether a value of the scope may be in force for the destination (patterns: docs/configuration.md)."""
    if not scope:
        return True
    name, colon, pattern = scope.partition(":")
    transport, _, rest = destination.partition(":")
    if name != transport:
        return False
    if not colon or pattern == rest:
        return True
    next_hop = rest.rpartition("@")[2]
    host = next_hop if next_hop.endswith("]") else next_hop.rpartition(":")[0] or next_hop
    if pattern.startswith("."):
        return not host.startswith("[") and host.endswith(pattern)
    local, at, _ = rest.rpartition("@")
    return pattern in (next_hop, host, f"{local}{at}{host}")
