"""The files of [route_maps]: more routes, as in Postfix's transport(5), beside those of the configuration file.

A line is a pattern and a route, the same as in the tables of the configuration file:

    example.org            relay:[smtp.provider.example]:587
    old@example.org        error:5.1.6 This person has a new address

A line that begins with a space continues the one before; ``#`` begins a comment.

Laws
- All files are read, and all lines are valid, or none of them is used; a fault names file and line.
- For the same pattern, the first file goes before the others, and the files before the configuration file.

Keeps law: routes-stay-good (docs/laws.md).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

from mailcore.bounds import BadValue
from mailcore.config import values
from mailcore.config.routes import checked_route
from mailcore.config.routing_of import routing_of
from mailcore.config.settings import Settings
from mailcore.counted import counted
from mailcore.rewriting.map_text import MapFault, logical_lines, read_text
from mailcore.routing.address import comparable
from mailcore.routing.resolve import Routing

__all__ = ["TABLES", "Place", "RouteTables", "read_tables", "route_faults", "with_route_files"]

FAULTS_MAX = 20  # lines of a file that are named; the rest is counted

TABLES: dict[str, Callable[[str], str]] = {
    "routes": values.route_pattern,
    "sender_routes": values.sender_pattern,
    "login_routes": values.login_name,
}


class Place(NamedTuple):
    """Where a route is written."""

    path: str
    line: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"


class RouteTables(NamedTuple):
    """The routes of the files and of the configuration file together, and the places of those of the files, by table."""

    routes: Mapping[str, str]
    sender_routes: Mapping[str, str]
    login_routes: Mapping[str, str]
    places: Mapping[str, Mapping[str, Place]]

    def routing(self, settings: Settings) -> Routing:
        """Returns the routing by these tables."""
        return routing_of(settings, self.routes, self.sender_routes, self.login_routes)


def read_tables(settings: Settings) -> RouteTables:
    """Reads all files. Raises MapFault, one line for each fault."""
    merged: dict[str, dict[str, str]] = {}
    places: dict[str, dict[str, Place]] = {}
    faults: list[str] = []
    check = functools.cache(functools.partial(_checked, settings=settings))  # many lines have the same route
    for table, read_pattern in TABLES.items():
        routes, at = merged.setdefault(table, {}), places.setdefault(table, {})
        for path in getattr(settings.route_maps, table):
            try:
                found = _entries(path, read_pattern, check)
            except MapFault as fault:
                faults += str(fault).splitlines()
                continue
            for pattern, (route, line) in found.items():
                if pattern not in routes:
                    routes[pattern], at[pattern] = route, Place(path, line)
        for pattern, route in getattr(settings, table).items():
            routes.setdefault(_key(pattern), route)
    if faults:
        raise MapFault("\n".join(dict.fromkeys(faults)))
    return RouteTables(**merged, places=places)


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
    )


def _checked(route: str, settings: Settings) -> str:
    return checked_route(route, settings.transports, settings.lmtp_transports)


def _key(pattern: str) -> str:
    return comparable(pattern) if "@" in pattern else pattern


def _entries(path: str, read_pattern: Callable[[str], str], check: Callable[[str], str]) -> dict[str, tuple[str, int]]:
    """Returns the route and the line of each pattern of a file. Raises MapFault."""
    found: dict[str, tuple[str, int]] = {}
    faults: list[str] = []
    for number, line in logical_lines(read_text(path)):
        written, *rest = line.split(None, 1)
        try:
            if not rest:
                raise BadValue("", written, "must have a route behind it")
            pattern, route = _key(read_pattern(written)), check(rest[0].strip())
            if pattern in found:
                raise BadValue("", written, f"must not be there twice; it is also in line {found[pattern][1]}")
            found[pattern] = route, number
        except BadValue as error:
            faults.append(f"{path}:{number}: {written!a} {error.reason}")
    if faults:
        more = [f"{path}: and {counted(len(faults) - FAULTS_MAX, 'more line')}"] if len(faults) > FAULTS_MAX else []
        raise MapFault("\n".join(faults[:FAULTS_MAX] + more))
    return found
