"""The section [route_maps]: files with more routes.

Values only: ``mailcore.config.route_files`` reads the files.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from mailcore.bounds import texts
from mailcore.config import values
from mailcore.config.map_file import route_file

__all__ = ["RouteMaps", "absolute"]


@dataclass(frozen=True, kw_only=True)
class RouteMaps:
    """[route_maps]: files with more routes, a pattern and a route in each line, which are read again when they change. For the
    same pattern, the first file goes before the others, and all files before what this file says under the same name."""

    routes: tuple[str, ...] = texts(
        (), "files with more [routes], as Postfix's transport_maps; each a path", route_file, values.distinct
    )
    sender_routes: tuple[str, ...] = texts(
        (),
        "files with more [sender_routes], as Postfix's sender_dependent_default_transport_maps",
        route_file,
        values.distinct,
    )
    login_routes: tuple[str, ...] = texts((), "files with more [login_routes]", route_file, values.distinct)
    fallback_relay: tuple[str, ...] = texts(
        (),
        "files with fallback next hops, which go before `fallback_relay` of a transport; a line is a transport or a "
        "destination, such as smtp:example.org, and next hops, as in Postfix's smtp_fallback_relay, or none",
        route_file,
        values.distinct,
    )

    @property
    def files(self) -> tuple[str, ...]:
        """Returns the paths of all files, each once."""
        return tuple(dict.fromkeys((*self.routes, *self.sender_routes, *self.login_routes, *self.fallback_relay)))


def absolute(section: dict[str, Any], base: Path) -> None:
    """Makes the paths of a section absolute."""
    for each in fields(RouteMaps):
        if each.name in section:
            section[each.name] = tuple(str(base / path) for path in section[each.name])
