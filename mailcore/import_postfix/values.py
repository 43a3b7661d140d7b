"""Parses values of Postfix: times with units, numbers, next hops with ports."""

from __future__ import annotations

import re
import socket

from mailcore.routing.route import ROUTE_FORMS, Route, RouteError, route_to

__all__ = ["ValueFault", "next_hop", "number", "port", "seconds", "truth"]

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}  # postconf(5)
_TIME = re.compile(r"([0-9]{1,12})([smhdw]?)")
_SERVICES = {"smtp": 25, "smtps": 465, "submissions": 465, "submission": 587}  # also where /etc/services lacks them


class ValueFault(ValueError):
    """A value cannot be parsed. The message is for the operator."""


def seconds(text: str, unit: str = "s") -> int:
    """Parses a time to seconds; ``unit`` is the parameter's default unit. Raises ValueFault."""
    match = _TIME.fullmatch(text.strip())
    if match is None:
        raise ValueFault(f"{text!a} is not a time")
    return int(match[1]) * _UNITS[match[2] or unit]


def number(text: str) -> int:
    """Parses a number. Raises ValueFault."""
    if not re.fullmatch(r"[0-9]{1,18}", text.strip()):
        raise ValueFault(f"{text!a} is not a number")
    return int(text)


def truth(text: str) -> bool:
    """Tells whether a value is "yes"."""
    return text.strip().lower() == "yes"


def port(text: str) -> int:
    """Parses a port number or service name. Raises ValueFault."""
    if text.isascii() and text.isdigit() and 1 <= int(text[:6]) <= 65_535:
        return int(text)
    if text in _SERVICES:
        return _SERVICES[text]
    try:
        return socket.getservbyname(text, "tcp")
    except (OSError, ValueError):
        raise ValueFault(f"{text!a} is not a port") from None


def next_hop(text: str) -> tuple[Route, list[str]]:
    """Parses ``host`` or ``[host]``, each with ``:port`` or ``:service``, to a route with transport "x".

    Also returns the hosts after a comma, which Postfix tries if the first fails. Raises ValueFault.
    """
    hosts = [part for part in re.split(r"[,\s]+", text.strip()) if part]
    if not hosts:
        raise ValueFault("the next hop is missing")
    first = hosts[0]
    host, colon, service = first.rpartition(":")
    in_brackets = host.startswith("[") and host.endswith("]")
    if colon and not service.endswith("]") and (in_brackets or not set(host) & set("[]:")):
        first = f"{host}:{port(service)}"
    try:
        return route_to("x", first), hosts[1:]
    except RouteError as error:
        raise ValueFault(f"{first!r}: {error}; allowed: {ROUTE_FORMS}") from None
