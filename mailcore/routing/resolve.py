"""Routing: from a recipient's address to transport, next hop and destination, without DNS.

The most specific pattern wins: ``user+extension@example.org``, ``user@example.org``, then
``example.org``, then ``.example.org`` and ``.org`` (all
below, not the domain itself), then ``*``; without a match it is transport ``smtp``. Case does not matter, in the local
part of a pattern either. An operator's reroute of one recipient goes above them all. A route without a next hop sends to
the recipient's domain by MX, or straight to an address literal (``user@[192.0.2.1]``, ``user@[IPv6:2001:db8::1]``). A
login or a sender may have a route of its own. It takes the place of the route of ``*``, as Postfix's sender-dependent maps
take that of default_transport and relayhost, so patterns of recipients go before it; a login goes before the sender. A
transport that speaks LMTP looks up no MX: its next hop is a host, or a Unix socket.

Laws: pure, no I/O, no clock; what cannot be routed is a value (``Refused``), never an exception. Runs in the manager
for every recipient: an answer is remembered by domain, in bounded memory.

Keeps law: unroutable-is-a-value (docs/laws.md).
"""

from __future__ import annotations

import functools
import ipaddress
import itertools
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping

import msgspec

from mailcore.envelope import Status
from mailcore.frames import NextHop
from mailcore.routing.address import a_labels, comparable, is_mailbox, split, split_extension
from mailcore.routing.fallbacks import Fallbacks
from mailcore.routing.route import (
    BUILT_IN,
    DISCARD,
    LMTP_PORT,
    Route,
    RouteError,
    code_and_text,
    domain_name,
    parse_route,
)

__all__ = ["Refused", "Resolve", "Resolved", "Routing", "RoutingMissing"]

DOMAINS_REMEMBERED = 10_000  # about 5 MB; when it is full it is cleared
DEFAULT_TRANSPORT = "smtp"  # always there (config.Settings.transports)


class Resolved(msgspec.Struct, frozen=True):
    """Where a recipient goes. ``destination`` is "transport:next hop": what owns a concurrency window."""

    transport: str
    destination: str
    next_hop: NextHop


class Refused(msgspec.Struct, frozen=True):
    """Why no deliverer gets a recipient, with what its Verdict needs: it cannot be routed, or its route says so."""

    status: Status  # BOUNCED; DEFERRED for a mistake in the configuration, or by the route; DELIVERED to nothing, by the route
    dsn: str
    reply: str
    ours: bool = False  # an error of this host, the same for any recipient
    released: str = ""  # of mail that its route holds: the route that it takes once it is released; "" of other mail


Resolve = Callable[[str, str], Resolved | Refused]  # of an address and ``Recipient.route``


class Routing:
    """The routes table, in the form in which it is searched.

    ``routes`` maps patterns to routes as in the configuration file, ``transports`` are the names there are, ``port`` is
    that of hosts found by MX, ``lmtp`` are the transports that speak LMTP, ``delimiter`` separates
    extensions. ``fallbacks`` belong to the same set of files, so that both are replaced at once. Raises RouteError at a route
    that cannot be read (the configuration refuses it before).
    """

    def __init__(
        self,
        routes: Mapping[str, str],
        transports: Iterable[str],
        port: int = 25,
        lmtp: Collection[str] = (),
        sender_routes: Mapping[str, str] = {},
        login_routes: Mapping[str, str] = {},
        delimiter: str = "",
        fallbacks: Fallbacks | None = None,
    ) -> None:
        self.fallbacks = fallbacks if fallbacks is not None else Fallbacks({})
        self._delimiter = delimiter
        self._transports = frozenset(transports)
        self._lmtp = frozenset(lmtp)
        self._port = port
        self._users: dict[str, Route] = {}
        self._domains: dict[str, Route] = {}  # "example.org", ".example.org" and "*"
        parsed = functools.cache(parse_route)  # many patterns have the same route
        for pattern, text in routes.items():
            table = self._users if "@" in pattern else self._domains
            table[comparable(pattern)] = parsed(text)
        self._senders = {comparable(pattern): text for pattern, text in sender_routes.items()}
        self._logins = dict(login_routes)
        self.by_sender = bool(sender_routes or login_routes)  # then ``of_message`` must be used
        self._known: dict[str, Resolved | Refused] = {}  # by the domain as written
        self._overrides: dict[tuple[str, str], Resolved | Refused] = {}  # by route and domain

    def resolve(self, address: str, override: str = "") -> Resolved | Refused:
        """Returns where the address goes. ``override`` is Recipient.route: "" or an operator's "transport:next hop"."""
        if not is_mailbox(address):
            return Refused(Status.BOUNCED, "5.1.3", f"bad address syntax: {address!a}")
        domain = split(address)[1]
        if override:
            known = self._overrides.get((override, domain))
            if known is None:
                if len(self._overrides) >= DOMAINS_REMEMBERED:
                    self._overrides.clear()
                known = self._overrides[override, domain] = self._override(override, domain)
            return known
        if self._users:
            pattern = self._user(address, self._users)
            if pattern:
                return self._follow(self._users[pattern], domain)
        known = self._known.get(domain)
        if known is None:
            if len(self._known) >= DOMAINS_REMEMBERED:
                self._known.clear()
            known = self._known[domain] = self._follow(self._match(domain), domain)
        return known

    def of_message(self, sender: str, login: str) -> Resolve:
        """Returns ``resolve`` for the recipients of a message of this sender and login."""
        route = self._of_sender(sender, login)
        return functools.partial(self._resolve_by, route) if route else self.resolve

    def deciding(self, address: str, sender: str, login: str) -> tuple[str, str]:
        """Returns the table and the pattern in it that decide about a message's recipient; "" and "" if it is none.

        Tables are named as in the configuration file.
        """
        if not is_mailbox(address):
            return "", ""
        pattern = self.matched(address)
        if pattern in ("", "*"):
            if login in self._logins:
                return "login_routes", login
            if by := self._sender_pattern(sender):
                return "sender_routes", by
        return ("routes", pattern) if pattern else ("", "")

    def _of_sender(self, sender: str, login: str) -> str:
        """Returns the route of a login or sender; "" without one."""
        if login in self._logins:
            return self._logins[login]
        return self._senders.get(self._sender_pattern(sender), "")

    def _sender_pattern(self, sender: str) -> str:
        """Returns the most specific pattern of a sender; "" without one."""
        if not sender:
            return "<>" if "<>" in self._senders else ""
        domain = split(sender)[1]
        user = self._user(sender, self._senders)
        patterns = itertools.chain([user] if user else [], self._patterns(domain) if domain else [])
        return next((pattern for pattern in patterns if pattern in self._senders), "")

    def _resolve_by(self, route: str, address: str, override: str = "") -> Resolved | Refused:
        if override or self.matched(address) not in ("", "*") or not is_mailbox(address):
            return self.resolve(address, override)
        return self.resolve(address, route)

    def matched(self, address: str) -> str:
        """Returns the pattern that ``resolve`` uses for the address; "" when none matches."""
        if not is_mailbox(address):
            return ""
        return self._user(address, self._users) or self._pattern(split(address)[1])

    def _user(self, address: str, patterns: Container[str]) -> str:
        """Returns the pattern of an address: as it is, or without its extension; "" if there is none."""
        key = comparable(address)
        if key in patterns:
            return key
        local_part, domain = split(key)
        user, extension = split_extension(local_part, self._delimiter)
        return f"{user}@{domain}" if extension and f"{user}@{domain}" in patterns else ""

    def _override(self, text: str, domain: str) -> Resolved | Refused:
        try:
            return self._follow(parse_route(text), domain)
        except RouteError as error:
            return Refused(Status.DEFERRED, "4.3.5", f"rerouted to an invalid route: {error}")

    def _match(self, domain: str) -> Route:
        return self._domains.get(self._pattern(domain)) or Route(DEFAULT_TRANSPORT)

    def _pattern(self, domain: str) -> str:
        return next((pattern for pattern in self._patterns(domain) if pattern in self._domains), "")

    def _patterns(self, domain: str) -> Iterator[str]:
        """Yields the patterns that fit a domain, the most specific first."""
        try:
            name = _ascii(domain)
        except RouteError:
            name = domain.lower()  # refused later, unless a route takes it elsewhere
        yield name
        above = name
        while above:
            above = above.partition(".")[2]
            yield "." + above
        yield "*"

    def _built_in(self, route: Route, domain: str) -> Refused:
        if route.transport == DISCARD:
            return Refused(Status.DELIVERED, "2.0.0", f"discarded: {route.text}" if route.text else "discarded")
        if route.transport == "hold":
            released = route.text or str(self._beyond(domain))
            return Refused(
                Status.DEFERRED, "4.0.0", f"held; when it is released it goes to {released}", released=released
            )
        if route.transport == "error":
            return Refused(Status.BOUNCED, *code_and_text(route, "mail for this recipient is refused"))
        return Refused(Status.DEFERRED, *code_and_text(route, "mail for this recipient waits"))

    def _beyond(self, domain: str) -> Route:
        """Returns the route of the domain without routes that are BUILT_IN."""
        for pattern in self._patterns(domain):
            route = self._domains.get(pattern)
            if route is not None and route.transport not in BUILT_IN:
                return route
        return Route(DEFAULT_TRANSPORT)

    def _follow(self, route: Route, domain: str) -> Resolved | Refused:
        if route.transport in BUILT_IN:
            return self._built_in(route, domain)
        if route.transport not in self._transports:
            return Refused(Status.DEFERRED, "4.3.5", f"there is no transport {route.transport}")
        host, mx = route.next_hop, route.mx
        if not host:
            try:
                if domain.startswith("["):
                    host, mx = _literal(domain), False
                else:
                    host = _ascii(domain)
            except RouteError as error:
                return Refused(Status.BOUNCED, "5.1.2", f"bad recipient domain: {error}")
        if route.transport in self._lmtp:
            return self._by_lmtp(route, host)
        if host.startswith("/"):
            words = f"transport {route.transport} does not speak LMTP, so it cannot use a Unix socket"
            return Refused(Status.DEFERRED, "4.3.5", words)
        port = route.port if route.port is not None else self._port
        named = Route(route.transport, host, port if port != self._port else None, mx)
        return Resolved(route.transport, str(named), NextHop(host, port, mx))

    def _by_lmtp(self, route: Route, host: str) -> Resolved:
        if host.startswith("/"):
            return Resolved(route.transport, str(route), NextHop(host, 0, False))
        port = route.port if route.port is not None else LMTP_PORT
        named = Route(route.transport, host, port if port != self._port else None, mx=False)
        return Resolved(route.transport, str(named), NextHop(host, port, False))


class RoutingMissing(Routing):
    """Stands for routes that cannot be read: mail waits, except where an operator has rerouted it."""

    def resolve(self, address: str, override: str = "") -> Resolved | Refused:
        """Returns where the address goes."""
        if override or not is_mailbox(address):
            return super().resolve(address, override)
        return Refused(Status.DEFERRED, "4.3.5", "the files of [route_maps] cannot be used", ours=True)


def _ascii(domain: str) -> str:
    """Returns the domain as in DNS: lower case, A-labels (RFC 5890). Raises RouteError for an invalid domain."""
    try:
        return domain_name(a_labels(domain))
    except UnicodeError:
        raise RouteError(f"{domain!a} is not a domain name") from None


def _literal(domain: str) -> str:
    """Returns the address of a domain literal, RFC 5321 4.1.3. Raises RouteError if it is invalid."""
    text = domain[1:-1]
    try:
        if text[:5].lower() == "ipv6:":
            return ipaddress.IPv6Address(text[5:]).compressed
        return str(ipaddress.IPv4Address(text))
    except ValueError:
        raise RouteError(f"{domain!a} is not a valid address literal") from None
