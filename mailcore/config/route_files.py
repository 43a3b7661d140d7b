"""The files of [route_maps]: more routes, as in Postfix's transport(5), beside those of the configuration file.

A line is a pattern and a route, the same as in the tables of the configuration file:

    example.org            relay:[smtp.provider.example]:587
    old@example.org        error:5.1.6 This person has a new address

``mailcore.config.fallback_lines`` has the lines of the files of fallback next hops. A line that begins with a space continues
the one before; ``#`` begins a comment.

Laws
- All files are read, and all lines are valid, or none of them is used; a fault names file and line.
- For the same pattern, the first file goes before the others, and the files before the configuration file.
- All files together make one set of tables: a process uses either the routes and the fallbacks of now, or those of before.

Keeps law: routes-stay-good (docs/laws.md).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar

from mailcore.bounds import BadValue
from mailcore.config import values
from mailcore.config.fallback_lines import configured_fallbacks, fallback_hops_of, fallback_scope
from mailcore.config.routes import checked_route
from mailcore.config.routing_of import routing_of
from mailcore.config.settings import Settings, Transport
from mailcore.counted import counted
from mailcore.rewriting.map_text import MapFault, logical_lines, read_text
from mailcore.routing.address import comparable
from mailcore.routing.own_addresses import OwnAddresses
from mailcore.routing.resolve import Routing

__all__ = [
    "FALLBACKS",
    "FAULT_MEANS",
    "TABLES",
    "Place",
    "RouteTables",
    "read_tables",
    "route_faults",
    "with_route_files",
]

FAULTS_MAX = 20  # lines of a file that are named; the rest is counted

TABLES: dict[str, Callable[[str], str]] = {
    "routes": values.route_pattern,
    "sender_routes": values.sender_pattern,
    "login_routes": values.login_name,
}
# The consequence of a fault, for a command that reads the files and does not know which routes are in use.
FAULT_MEANS = "the routes read before stay in use; after a start, mail waits until it is corrected"
FALLBACKS = "fallback_relay"  # the list of files with fallback next hops, and their key in RouteTables.places

Value = TypeVar("Value")


class Place(NamedTuple):
    """Where a route is written."""

    path: str
    line: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"


class RouteTables(NamedTuple):
    """The routes of the files and of the configuration file together, and the places of those of the files, by table.

    ``fallbacks``: next hops by scope, as ``mailcore.routing.fallbacks.Fallbacks`` takes them.
    """

    routes: Mapping[str, str]
    sender_routes: Mapping[str, str]
    login_routes: Mapping[str, str]
    fallbacks: Mapping[str, tuple[str, ...]]
    places: Mapping[str, Mapping[str, Place]]

    def routing(self, settings: Settings) -> Routing:
        """Returns the routing by these tables."""
        return routing_of(settings, self.routes, self.sender_routes, self.login_routes, self.fallbacks)


def read_tables(settings: Settings) -> RouteTables:
    """Reads all files. Raises MapFault, one line for each fault."""
    merged: dict[str, dict[str, str]] = {}
    places: dict[str, dict[str, Place]] = {}
    faults: list[str] = []
    check = functools.cache(functools.partial(_checked, settings=settings))  # many lines have the same route
    for table, read_pattern in TABLES.items():
        files = getattr(settings.route_maps, table)
        merged[table], places[table] = _merged(files, read_pattern, lambda _, text: check(text), faults)
        for pattern, route in getattr(settings, table).items():
            merged[table].setdefault(_key(pattern), route)
    fallbacks, places[FALLBACKS] = _fallbacks(settings, faults)
    if faults:
        raise MapFault("\n".join(dict.fromkeys(faults)))
    return RouteTables(**merged, fallbacks=fallbacks, places=places)


def _fallbacks(settings: Settings, faults: list[str]) -> tuple[dict[str, tuple[str, ...]], dict[str, Place]]:
    """Returns the fallback next hops of the files and of the transports together, and the places of those of the files."""
    files, transports, port = settings.route_maps.fallback_relay, settings.transports, settings.deliverer.port
    configured = configured_fallbacks(transports)
    if not files:
        return configured, {}
    own = OwnAddresses(values.listen_address(each.address) for each in settings.all_listeners)
    lmtp = settings.lmtp_transports
    found, places = _merged(
        files,
        lambda text: fallback_scope(text, transports, lmtp),
        lambda scope, text: fallback_hops_of(scope, text, port, lmtp, own.hold),
        faults,
    )
    return configured | found, places


def _merged(
    paths: Sequence[str],
    read_pattern: Callable[[str], str],
    check: Callable[[str, str], Value],
    faults: list[str],
) -> tuple[dict[str, Value], dict[str, Place]]:
    """Returns what the files of a table say, and where. Adds their faults."""
    merged: dict[str, Value] = {}
    places: dict[str, Place] = {}
    for path in paths:
        try:
            found = _entries(path, read_pattern, check)
        except MapFault as fault:
            faults += str(fault).splitlines()
            continue
        for pattern, (value, line) in found.items():
            if pattern not in merged:
                merged[pattern], places[pattern] = value, Place(path, line)
    return merged, places


def route_faults(settings: Settings) -> list[str]:
    """Returns a line for each fault of the files, with file and line; empty if all of them can be used."""
    try:
        read_tables(settings)
    except MapFault as fault:
        return str(fault).splitlines()
    return []


def with_route_files(settings: Settings) -> Settings:
    """Returns settings that have the routes of the files in their tables, too, for checks of the whole. Raises MapFault."""
    tables = read_tables(settings)
    return replace(
        settings,
        routes=dict(tables.routes),
        sender_routes=dict(tables.sender_routes),
        login_routes=dict(tables.login_routes),
        transports=_with_fallbacks(settings.transports, tables.fallbacks),
    )


def _with_fallbacks(
    transports: Mapping[str, Transport], fallbacks: Mapping[str, tuple[str, ...]]
) -> dict[str, Transport]:
    """Returns the transports with all next hops that are a fallback of one of their destinations."""
    hops: dict[str, dict[str, None]] = {}
    for scope, texts in fallbacks.items():
        hops.setdefault(scope.partition(":")[0], {}).update(dict.fromkeys(texts))
    return {name: replace(each, fallback_relay=tuple(hops.get(name, ()))) for name, each in transports.items()}


def _checked(route: str, settings: Settings) -> str:
    if not route:
        raise BadValue("", route, "must have a route behind it")
    return checked_route(route, settings.transports, settings.lmtp_transports)


def _key(pattern: str) -> str:
    return comparable(pattern) if "@" in pattern else pattern


def _entries(
    path: str, read_pattern: Callable[[str], str], check: Callable[[str, str], Value]
) -> dict[str, tuple[Value, int]]:
    """Returns the value and the line of each pattern of a file. Raises MapFault."""
    found: dict[str, tuple[Value, int]] = {}
    faults: list[str] = []
    for number, line in logical_lines(read_text(path)):
        written, *rest = line.split(None, 1)
        try:
            pattern = _key(read_pattern(written))
            value = check(pattern, rest[0].strip() if rest else "")
            if pattern in found:
                raise BadValue("", written, f"must not be there twice; it is also in line {found[pattern][1]}")
            found[pattern] = value, number
        except BadValue as error:
            faults.append(f"{path}:{number}: {written!a} {error.reason}")
    if faults:
        more = [f"{path}: and {counted(len(faults) - FAULTS_MAX, 'more line')}"] if len(faults) > FAULTS_MAX else []
        raise MapFault("\n".join(faults[:FAULTS_MAX] + more))
    return found
