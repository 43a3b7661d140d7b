"""Route: where the routes table or an operator sends mail, as written: ``transport[:next hop[:port]]``.

Laws: parsing and ``str`` are inverse up to spelling (case, a final dot, the short form of an IPv6 address). An address
is only ever written in brackets, because without them the next hop is a domain whose MX hosts are looked up
(transport(5)).
Knows neither the settings nor DNS: whether the transport exists is asked elsewhere.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

__all__ = [
    "BUILT_IN",
    "DISCARD",
    "LMTP_PORT",
    "ROUTE_FORMS",
    "TRANSPORT_NAME",
    "UNIX",
    "Route",
    "RouteError",
    "code_and_text",
    "domain_name",
    "is_address",
    "parse_route",
    "route_to",
]

ROUTE_FORMS = (
    '"transport", "transport:domain", "transport:domain:port", "transport:[host]", "transport:[host]:port" '
    '(host: a name, an IPv4 or an IPv6 address), "transport:unix:/path" for LMTP; '
    '"discard", "error:5.7.1 text", "retry:4.3.0 text", "hold", or "hold:" and the route of mail that is released'
)

TRANSPORT_NAME = re.compile(r"[a-z][a-z0-9_-]{0,31}")  # 32: one service name of master(5) is never longer in practice
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")  # RFC 1035 2.3.4: 63 octets; "_" occurs in the wild
_DOMAIN_MAX = 253  # RFC 1035 2.3.4: 255 octets on the wire
DISCARD = "discard"
# Routes that hand mail to no deliverer: it is thrown away, returned to the sender, held, or deferred. Postfix has the
# transports discard, error and retry.
BUILT_IN = {
    DISCARD: "thrown away",
    "error": "returned to the sender",
    "hold": "held until an operator releases it",
    "retry": "not tried; it waits",
}
_CODE = re.compile(r"([245])\.[0-9]{1,3}\.[0-9]{1,3}(?= |$)")  # RFC 3463 2
_KINDS = {"error": "5", "retry": "4"}  # class of the code
TEXT_MAX = 200  # characters of the text of such a route: it is recorded with each recipient
LMTP_PORT = 24  # as Postfix's lmtp_tcp_port; RFC 2033 names no port and forbids 25
UNIX = "unix:"  # before the path of a socket, as in transport(5)
_SOCKET = re.compile(r"(?:/[A-Za-z0-9._+=-]+)+")  # none of the characters that separate the parts of a destination
SOCKET_BYTES_MAX = 107  # unix(7): sun_path has 108, one of them a null
_PORT = re.compile(r"[0-9]{1,5}")


class RouteError(ValueError):
    """The text of a route is wrong; the message is for the operator."""


@dataclass(frozen=True, slots=True)
class Route:
    """``next_hop`` is "" for the recipient's domain, else a domain, or (``mx`` false) a host or address taken as it is, or the
    path of a Unix socket, which alone begins with a slash.

    ``port`` None is the deliverer's own (25, unless the settings say otherwise). ``text`` is of a route that is BUILT_IN: what
    the sender reads, or for "hold" the route of mail that is released; "" without one.
    """

    transport: str
    next_hop: str = ""
    port: int | None = None
    mx: bool = True
    text: str = ""

    def __str__(self) -> str:
        if self.text:
            return f"{self.transport}:{self.text}"
        if not self.next_hop:
            return self.transport
        if self.next_hop.startswith("/"):
            return f"{self.transport}:{UNIX}{self.next_hop}"
        host = self.next_hop if self.mx else f"[{self.next_hop}]"
        return f"{self.transport}:{host}" if self.port is None else f"{self.transport}:{host}:{self.port}"


def domain_name(text: str) -> str:
    """Returns a domain or host name in lower case, without the final dot. Raises RouteError when it is not one."""
    name = text.lower().removesuffix(".")
    if not name.isascii():
        raise RouteError(f"{text!r} is not ASCII: write the domain as DNS has it (xn--...)")
    if len(name) > _DOMAIN_MAX or not all(_LABEL.fullmatch(label) for label in name.split(".")):
        raise RouteError(f"{text!r} is not a domain name")
    return name


def parse_route(text: str) -> Route:
    """Reads one route. Raises RouteError naming what is wrong and the forms allowed."""
    try:
        return _route(text)
    except RouteError as error:
        raise RouteError(f"{error}; allowed: {ROUTE_FORMS}") from None


def _route(text: str) -> Route:
    """Reads one route. Raises RouteError, which does not name the forms: a route may be part of another one."""
    transport, colon, rest = text.partition(":")
    if not TRANSPORT_NAME.fullmatch(transport):
        raise RouteError(f"{text!r} does not begin with a transport's name")
    if not colon:
        return Route(transport)
    try:
        return _built_in(transport, rest.strip()) if transport in BUILT_IN else route_to(transport, rest)
    except RouteError as error:
        raise RouteError(f"{text!r}: {error}") from None


def route_to(transport: str, next_hop: str) -> Route:
    """Reads a next hop, what stands behind the transport. Raises RouteError, which names neither text nor forms."""
    if next_hop.startswith(UNIX):
        return Route(transport, _socket(next_hop.removeprefix(UNIX)), mx=False)
    if next_hop.startswith("["):
        host, closed, behind = next_hop[1:].partition("]")
        if not closed or (behind and not behind.startswith(":")):
            raise RouteError("the bracket is not closed before the port")
        return Route(transport, _host(host), _port(behind[1:]) if behind else None, mx=False)
    if next_hop.count(":") > 1:
        raise RouteError("write an IPv6 address in brackets, such as [2001:db8::1]")
    domain, colon, port = next_hop.partition(":")
    if is_address(domain):
        raise RouteError(f"write an address in brackets: [{domain}]")
    return Route(transport, domain_name(domain), _port(port) if colon else None)


def _socket(path: str) -> str:
    """Returns the path of a socket. Raises RouteError when it is not one."""
    if not _SOCKET.fullmatch(path):
        raise RouteError("the path of a socket begins with / and has only letters, digits and . _ + = - in its names")
    if len(path) > SOCKET_BYTES_MAX:
        raise RouteError(f"the path of a socket has at most {SOCKET_BYTES_MAX} bytes")
    return path


def _built_in(name: str, text: str) -> Route:
    """Reads the text of a route that hands mail to no deliverer. Raises RouteError."""
    if not text.isprintable() or len(text) > TEXT_MAX:
        raise RouteError(f"the text has at most {TEXT_MAX} characters, none of them a control character")
    if name == "hold" and text:
        released = _route(text)
        if released.transport in BUILT_IN:
            raise RouteError(f"mail that is released cannot go to {released.transport}")
        return Route(name, text=str(released))
    code = _CODE.match(text)
    if code is not None and code[1] != _KINDS.get(name, code[1]):
        raise RouteError(f"the code of {name} begins with {_KINDS[name]} (got {code[0]})")
    return Route(name, text=text)


def code_and_text(route: Route, otherwise: str) -> tuple[str, str]:
    """Returns the enhanced status code and the text of a route "error" or "retry"; ``otherwise`` is the text without one."""
    code = _CODE.match(route.text)
    if code is None:
        return f"{_KINDS[route.transport]}.0.0", route.text or otherwise
    return code[0], route.text[code.end() :].strip() or otherwise


def is_address(text: str) -> bool:
    """Tells whether a text is an IPv4 or an IPv6 address."""
    if ":" not in text and not text.replace(".", "").isdigit():  # most are names, and an exception is slow
        return False
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _host(text: str) -> str:
    """Returns the text in brackets: an address, in its short form, or a host name."""
    literal = (
        text[5:] if text.lower().startswith("ipv6:") else text
    )  # RFC 5321 4.1.3 writes [IPv6:...], transport(5) too
    if is_address(literal):
        return ipaddress.ip_address(literal).compressed
    if ":" in text or re.fullmatch(r"[0-9.]+", text):
        raise RouteError(f"[{text}] is not a valid address")
    return domain_name(text)


def _port(text: str) -> int:
    if not _PORT.fullmatch(text) or not 1 <= int(text) <= 65_535:
        raise RouteError(f"port {text!r} is not in 1..65535")
    return int(text)
