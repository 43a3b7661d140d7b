"""Defines the operations about routes: the routes table, and where mail for an address would go."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from mailcore.control.protocol.operation import Access, Address, Answerer, Arguments, Operation, Result

__all__ = ["OPERATIONS", "Fallback", "Host", "ResolveArguments", "Resolved", "Route", "Routes"]


class ResolveArguments(Arguments, frozen=True, kw_only=True):
    """The address to look up."""

    address: Address
    sender: Annotated[str, Meta(max_length=512)] | None = (
        None  # "" of a bounce; None: a sender without a route of its own
    )
    login: Annotated[str, Meta(max_length=255)] = ""  # under which the mail was sent


class Route(Result):
    """A row of the routes table."""

    pattern: str
    transport: str
    next_hop: str  # "": the recipient's domain
    line: int | None  # in ``file``; None: not known here
    becomes: str = ""  # the fate of mail that no deliverer gets, such as "thrown away"; "" of other routes
    file: str = ""  # of [route_maps]; "": the configuration file


class Fallback(Result):
    """The fallback next hops of a transport, or of some of its destinations."""

    scope: str  # "transport", "transport:destination" or "transport:.domain"
    next_hops: list[str]  # []: there is no fallback
    line: int | None  # in ``file``; None: not known here
    file: str = ""  # of [route_maps]; "": the configuration file


class Routes(Result):
    """The routes table, in the order in which its rows count."""

    routes: list[Route]
    default: (
        Route | None
    )  # None: no routes are in force, because the files could not be used since the start; mail waits
    transports: list[str]
    more: int = 0  # routes that are not in ``routes``, because there are too many
    fallbacks: list[Fallback] = []
    more_fallbacks: int = 0  # those that are not in ``fallbacks``, because there are too many
    faults: list[str] = []  # of the files of [route_maps] as they are now; [] if they are in use


class Host(Result):
    """A host that takes mail for a next hop."""

    preference: int | None  # of its MX; None: it was not found by MX
    name: str
    addresses: list[str]


class Resolved(Result):
    """Where mail for an address would go; ``refused`` when it would go nowhere."""

    address: str
    transport: str
    destination: str
    next_hop: str
    matched: str  # the pattern that decides: of the recipient, the sender or the login; "" without one
    refused: str  # "" or the SMTP reply
    hosts: list[Host]
    dns_error: str  # "" or why no host was found, for a person
    becomes: str = ""  # the fate of mail whose route discards or holds it; "" of other mail
    written: str = (
        ""  # the route: "FILE:LINE" in a file of [route_maps], or "[routes]", the table of the configuration file
    )
    fallbacks: list[str] = []  # next hops that are tried when no host can be found or reached, in this order
    fallback_scope: str = ""  # the transport or "transport:destination" that decides about them; "": nothing is set
    fallback_written: str = ""  # where that is written: "FILE:LINE", or "[transports.NAME]"


_READ = Access.READ
_CONTROL = Answerer.CONTROL

OPERATIONS = (
    Operation("routes", Arguments, _READ, _CONTROL, "the routes table", Routes),
    Operation("resolve", ResolveArguments, _READ, _CONTROL, "where mail for an address would go", Resolved),
)
