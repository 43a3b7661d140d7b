"""Answers from the configuration of this installation: parameters, routes, the route of an address, disks, certificates.

Law: nothing here asks the manager, so that these operations work while the manager is away.

Keeps law: works-without-manager (docs/laws.md).
"""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from mailcore.bounds import Bounds
from mailcore.config.certificates import CertificateError, not_after
from mailcore.config.host_finder_of import host_finder_of
from mailcore.config.live_routes import LiveRoutes
from mailcore.config.route_files import FALLBACKS, Place, RouteTables
from mailcore.config.settings import DEFAULT_ROUTE, Settings
from mailcore.control.operations import Answers
from mailcore.control.protocol.operation import Arguments
from mailcore.control.protocol.routing import Fallback, Host, ResolveArguments, Resolved, Route, Routes
from mailcore.control.protocol.state import Certificate, Certificates, Disk, Disks
from mailcore.control.protocol.tuning import ParameterKnown, ParametersKnown
from mailcore.control.session import Session
from mailcore.control.view import View
from mailcore.envelope import Status
from mailcore.frames import NextHop
from mailcore.log.disk import Disk as DiskCalls
from mailcore.routing.resolve import Refused
from mailcore.routing.route import BUILT_IN, parse_route
from mailcore.scheduler.explanations import explanation
from mailcore.scheduler.feedback import Feedback
from mailcore.scheduler.parameters import (
    DESTINATION_SCOPE,
    GLOBAL_SCOPE,
    SUSPENDED_UNTIL,
    TRANSPORT_SCOPE,
    Value,
)
from mailcore.scheduler.snapshot import PlainValue
from mailcore.supervisor.room import ballast_of

__all__ = ["Tables"]

DNS_S = 5.0  # a user waits for the page; a deliverer waits longer
ROUTES_SHOWN_MAX = 10_000  # a page with more is of no use, and a frame is bounded
SCOPES = {"global": GLOBAL_SCOPE, "transport": TRANSPORT_SCOPE, "destination": DESTINATION_SCOPE}


class Tables:
    """Answers ``parameters``, ``disks``, ``certificates``, ``routes`` and ``resolve``."""

    def __init__(self, view: View, settings: Settings, routes: LiveRoutes) -> None:
        self._view = view
        self._settings = settings
        self._live = routes
        self._finder = host_finder_of(settings, time.monotonic)
        self.answers: dict[str, Answers] = {
            "parameters": self._parameters,
            "disks": self._disks,
            "certificates": self._certificates,
            "routes": self._routes,
            "resolve": self._resolve,
        }

    async def _parameters(self, session: Session, arguments: Arguments) -> AsyncGenerator[Any, None]:
        yield ParametersKnown(
            scopes={
                scope: [_parameter(name, bounds) for name, bounds in parameters.items() if name != SUSPENDED_UNTIL]
                for scope, parameters in SCOPES.items()
            },
            transports=sorted(self._settings.transports),
            configured=self._configured(),
        )

    def _configured(self) -> dict[str, dict[str, PlainValue | None]]:
        """Returns, by scope and parameter, the values of the configuration file, which are in force if none is set
        live."""
        settings = self._settings
        values: dict[str, dict[str, PlainValue | None]] = {
            "": {name: getattr(settings.scheduler, name) for name in GLOBAL_SCOPE}
        }
        for name, transport in sorted(settings.transports.items()):
            values[name] = {each: _plain(getattr(transport, each)) for each in TRANSPORT_SCOPE}
            for pattern, own in sorted(transport.destinations.items()):
                values[f"{name}:{pattern}"] = {each: _plain(value) for each, value in own.items()}
        return values

    async def _disks(self, session: Session, arguments: Arguments) -> AsyncGenerator[Any, None]:
        yield Disks(disks=await self._view.in_thread(_disks, self._settings))

    async def _certificates(self, session: Session, arguments: Arguments) -> AsyncGenerator[Any, None]:
        yield Certificates(
            certificates=await self._view.in_thread(_certificates, self._settings),
            key_records=_key_records(self._settings),
        )

    async def _routes(self, session: Session, arguments: Arguments) -> AsyncGenerator[Any, None]:
        """Answers with the routes in the order of their precedence: addresses, domains, all below a domain (the longest
        first), the rest."""
        tables = self._live.tables
        routes, places = tables.routes, tables.places.get("routes", {})
        patterns = sorted((pattern for pattern in routes if pattern != "*"), key=_specific)
        yield Routes(
            routes=[_route(pattern, routes[pattern], places) for pattern in patterns[:ROUTES_SHOWN_MAX]],
            default=_route("*", routes.get("*", DEFAULT_ROUTE), places) if self._live.in_force else None,
            transports=sorted(self._settings.transports),
            more=max(0, len(patterns) - ROUTES_SHOWN_MAX),
            fallbacks=[_fallback(scope, tables) for scope in sorted(tables.fallbacks)[:ROUTES_SHOWN_MAX]],
            more_fallbacks=max(0, len(tables.fallbacks) - ROUTES_SHOWN_MAX),
            faults=list(self._live.faults),
        )

    async def _resolve(self, session: Session, arguments: ResolveArguments) -> AsyncGenerator[Any, None]:
        address = arguments.address
        routing, tables = self._live.routing, self._live.tables
        sender = arguments.sender if arguments.sender is not None else "anyone"
        resolved = routing.of_message(sender, arguments.login)(address, "")
        table, pattern = routing.deciding(address, sender, arguments.login)
        place = tables.places.get(table, {}).get(pattern)
        answer = Resolved(
            address=address,
            transport="",
            destination="",
            next_hop="",
            matched=pattern,
            refused="",
            hosts=[],
            dns_error="",
            written=str(place) if place is not None else f"[{table}]" if table else "",
        )
        if isinstance(resolved, Refused):
            if resolved.released or resolved.status is Status.DELIVERED:
                answer.becomes = resolved.reply
            else:
                answer.refused = resolved.reply
            yield answer
            return
        answer.transport, answer.destination = resolved.transport, resolved.destination
        answer.next_hop = resolved.destination.partition(":")[2]
        scope = answer.fallback_scope = routing.fallbacks.deciding(resolved.destination)
        if scope:
            answer.fallbacks = list(tables.fallbacks[scope]) if routing.fallbacks.of(resolved.destination) else []
            at = tables.places.get(FALLBACKS, {}).get(scope)
            answer.fallback_written = str(at) if at is not None else f"[transports.{scope}]"
        answer.hosts, answer.dns_error = await self._hosts(resolved.next_hop)
        yield answer

    async def _hosts(self, next_hop: NextHop) -> tuple[list[Host], str]:
        """Returns the hosts, and "" or why there is none."""
        try:
            async with asyncio.timeout(DNS_S):
                hosts = await self._finder.hosts(next_hop)
        except TimeoutError:
            return [], f"no answer in {DNS_S:g} s"
        if isinstance(hosts, Refused):
            return [], hosts.reply
        return [Host(preference=p, name=name, addresses=list(found)) for p, name, found in hosts], ""


def _disks(settings: Settings) -> list[Disk]:
    """Returns the disks. The log may use all that is left; space for delivery is set aside where the queue and the spool
    are."""
    places = (("queue", settings.queue_directory), ("spool", settings.spool_directory), ("log", settings.log_directory))
    return [_disk(settings, what, path) for what, path in places]


def _certificates(settings: Settings) -> list[Certificate]:
    found = []
    for pair in settings.certificate_pairs:
        at, fault = None, ""
        try:
            at = not_after(pair.certificate)
        except CertificateError as error:
            fault = str(error)
        found.append(Certificate(path=pair.certificate, names=list(pair.names), not_after=at, fault=fault))
    return found


def _key_records(settings: Settings) -> list[str]:
    keys = [(each.selector, each.domain) for each in settings.dkim]
    if settings.arc.key:
        keys.append((settings.arc.selector, settings.arc.domain))
    return list(dict.fromkeys(f"{selector}._domainkey.{domain}" for selector, domain in keys))


def _disk(settings: Settings, what: str, path: Path) -> Disk:
    usage, status = shutil.disk_usage(path), os.stat(path)
    disk = Disk(
        what=what,
        path=str(path),
        total_bytes=usage.total,
        free_bytes=usage.free,
        reserve_bytes=0,
        device=status.st_dev,
        free_inodes=os.statvfs(path).f_favail if os.statvfs(path).f_files else None,
    )
    if what == "log":
        return disk
    limits = settings.queue
    ballast = ballast_of(settings, DiskCalls()).room(str(path)).ballast
    return msgspec.structs.replace(
        disk,
        reserve_bytes=limits.reserve_bytes,
        reserve_inodes=limits.reserve_inodes,
        ballast_bytes=ballast.space_bytes,
        ballast_inodes=ballast.inodes,
        ballast_bytes_whole=limits.ballast_bytes,
        ballast_inodes_whole=limits.ballast_inodes,
    )


def _specific(pattern: str) -> tuple[int, int, str]:
    """Returns a sort key: the most specific pattern first, in the order in which ``Routing`` looks."""
    kind = 0 if "@" in pattern else 2 if pattern.startswith(".") else 1
    return kind, -pattern.count(".") if kind == 2 else 0, pattern


def _route(pattern: str, text: str, places: Mapping[str, Place]) -> Route:
    """Returns a route. The line in the configuration file is not known here."""
    route = parse_route(text)
    next_hop, becomes = str(route).partition(":")[2], BUILT_IN.get(route.transport, "")
    place = places.get(pattern)
    return Route(
        pattern=pattern,
        transport=route.transport,
        next_hop=next_hop,
        line=place.line if place is not None else None,
        becomes=becomes,
        file=place.path if place is not None else "",
    )


def _fallback(scope: str, tables: RouteTables) -> Fallback:
    place = tables.places.get(FALLBACKS, {}).get(scope)
    return Fallback(
        scope=scope,
        next_hops=list(tables.fallbacks[scope]),
        line=place.line if place is not None else None,
        file=place.path if place is not None else "",
    )


def _parameter(name: str, bounds: Bounds) -> ParameterKnown:
    return ParameterKnown(
        name=name,
        kind=bounds.kind.value,
        low=bounds.low,
        high=bounds.high,
        unit=bounds.unit,
        doc=bounds.description,
        allowed=str(bounds),
        explanation=explanation(name),
        default=_plain(bounds.default),
    )


def _plain(value: Value | None) -> PlainValue | None:
    return str(value) if isinstance(value, Feedback) else value
