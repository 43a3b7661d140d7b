"""Translates relayhost, relay_transport, default_transport and transport_maps to [routes]."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from mailcore.config import values
from mailcore.counted import counted
from mailcore.import_postfix.draft import Draft
from mailcore.import_postfix.machine import Machine
from mailcore.import_postfix.tables import Table, TableFault
from mailcore.import_postfix.values import ValueFault, next_hop
from mailcore.routing.route import Route, parse_route

__all__ = ["routes"]

FAULTS_MAX = 100  # of one table: each has a line of its own; the rest is counted
_NAMED_MAX = 3  # patterns named in a finding; the rest is counted
_ENDS = ("error", "discard", "retry")  # programs of Postfix for which Waypost has a route of the same name
_NO_ROUTE = "smtp"  # the default: by MX


class _NoRoute(Exception):
    """Mail cannot be routed there. The message gives the reason."""


def routes(machine: Machine, draft: Draft, names: dict[str, str], relay_domains: list[str]) -> None:
    """Sets [routes]. ``names``: our names of transports by Postfix's; ``relay_domains``: as in [relay] domains."""
    roads = _Roads(machine, draft, names)
    roads.defaults(relay_domains)
    roads.maps()
    roads.senders()
    draft.routes.setdefault("*", _NO_ROUTE)
    roads.say()


class _Roads:
    """Law: findings are added when all routes are known, because transport_maps override the other three settings."""

    def __init__(self, machine: Machine, draft: Draft, names: dict[str, str]) -> None:
        self._machine = machine
        self._draft = draft
        self._names = names
        self._relay_host: Route | None = None
        self._relayed: dict[str, str] = {}  # pattern -> route, as without transport_maps
        self._has_relay_domains = False
        self._mapped: dict[str, str] = {}  # pattern -> value in transport_maps
        self._sayings: list[Callable[[], None]] = []

    def defaults(self, relay_domains: list[str]) -> None:
        machine, draft = self._machine, self._draft
        self._has_relay_domains = bool(relay_domains)
        self._relayhost()
        for name, patterns in (("default_transport", ["*"]), ("relay_transport", relay_domains)):
            try:
                route, note = self._route(machine.look(name), by_default=True)
            except (_NoRoute, ValueError) as error:
                self._sayings.append(partial(self._say_no_default, name, patterns, str(error)))
                continue
            for pattern in patterns:
                draft.routes[pattern] = str(route)
            if name in machine.cf:
                self._sayings.append(partial(self._say_default, name, patterns, str(route), note))
        self._relayed = dict(draft.routes)

    def _relayhost(self) -> None:
        text = self._machine.look("relayhost")
        fault, others = "", list[str]()
        try:
            if text:
                self._relay_host, others = next_hop(text)
        except ValueFault as error:
            fault = f"{error}; "
        if "relayhost" in self._machine.cf:
            self._sayings.append(partial(self._say_relayhost, fault, others))

    def _route(self, text: str, by_default: bool) -> tuple[Route, str]:
        """Translates ``transport:nexthop``; ``by_default``: without a next hop it is the relayhost. Raises _NoRoute,
        ValueError."""
        transport, _, hop = text.partition(":")
        if self._command(transport) in _ENDS:
            return parse_route(f"{self._command(transport)}:{hop}"), ""
        ours = self._transport(transport)
        if self._command(transport) == "lmtp" and hop.startswith("unix:"):
            return parse_route(f"{ours}:unix:{self._socket(hop.removeprefix('unix:'))}"), ""
        if self._command(transport) == "lmtp":
            hop = hop.removeprefix("inet:")
        if hop:
            route, others = next_hop(hop)
            note = f"; a route has one next hop, {', '.join(others)} is left out" if others else ""
            return replace(route, transport=ours), note
        if by_default and self._relay_host is not None:
            return replace(self._relay_host, transport=ours), ""
        return Route(ours), ""

    def _command(self, name: str) -> str:
        """Returns the program of a transport; its name if master.cf lacks it."""
        return next((each.command for each in self._machine.services or () if each.name == name), name)

    def _socket(self, path: str) -> str:
        """Returns the absolute path of a socket: in Postfix it begins in the queue directory, also without chroot."""
        return path if path.startswith("/") else f"{self._machine.look('queue_directory')}/{path}"

    def _transport(self, name: str) -> str:
        if name in self._names:
            return self._names[name]
        command = self._command(name)
        if command != name:
            raise _NoRoute(f"{name} is not a transport that delivers over SMTP ({command})")
        raise _NoRoute(f"master.cf has no transport {name!a}")

    # Transport maps

    def maps(self) -> None:
        machine, draft, name = self._machine, self._draft, "transport_maps"
        seen: set[str] = set()
        machine.seen.add(name)
        for given in machine.cf.list(name):
            try:
                table = machine.tables.table(given)
            except TableFault as fault:
                said = f"{fault}; its mail uses the other routes; add it to [routes] manually"
                draft.left(machine.where(name), f"{name} = {given}", said)
                continue
            for line in table.faults:
                draft.left(line.partition(": ")[0], "a line", line.partition(": ")[2])
            self._entries(table, seen)
        self._map_relay_domains(seen)

    def _entries(self, table: Table, seen: set[str]) -> None:
        draft = self._draft
        taken = left = 0
        for key, value, where in table.entries:
            if key in seen:
                continue  # the first table, and the first line, that has the key counts
            seen.add(key)
            try:
                pattern = values.route_pattern(key)
                route, note = self._looked_up(value, pattern)
            except (_NoRoute, ValueError) as error:
                left += 1
                if left <= FAULTS_MAX:
                    self._sayings.append(partial(self._say_no_route, where, key, value, str(error)))
                continue
            draft.routes[pattern] = str(route)
            self._mapped[pattern] = value
            taken += 1
            if note:
                draft.changed(where, f"{key} {value}", f'[routes] "{pattern}" = "{route}"{note}')
        if left > FAULTS_MAX:
            draft.left(table.name, f"{counted(left - FAULTS_MAX, 'more line')}", "for reasons like those above")
        draft.taken(table.name, f"{taken} of {counted(len(table.entries), 'line')}", "[routes]")

    def _map_relay_domains(self, seen: set[str]) -> None:
        """Applies map entries for "*" or for parent domains, which override relay_transport in Postfix."""
        for pattern in self._relayed.keys() - seen:
            value = _closest(self._mapped, pattern)
            if value is not None:
                self._draft.routes[pattern] = str(self._looked_up(value, pattern)[0])

    def _looked_up(self, value: str, pattern: str) -> tuple[Route, str]:
        """Returns the route of a map entry, transport(5): empty fields are taken from the route without the map."""
        transport, _, hop = value.partition(":")
        usual = self._usual(pattern)
        if not transport and not hop:
            return usual, ""
        if transport:
            return self._route(value, by_default=False)
        route, others = next_hop(hop)
        note = f"; a route has one next hop, {', '.join(others)} is left out" if others else ""
        return replace(route, transport=usual.transport), note

    def _usual(self, pattern: str) -> Route:
        """Returns the route of a domain without the map."""
        return parse_route(_closest(self._relayed, pattern) or _NO_ROUTE)

    # Routes by sender

    def senders(self) -> None:
        """Sets [sender_routes] from the two maps: one gives the transport, the other the next hop.

        A line "*" of transport_maps goes before both, transport(5): in Postfix for what it gives, here never.
        """
        all_transport, _, all_hop = self._mapped.get("*", "").partition(":")
        if all_transport:
            self._say_overridden("sender_dependent_default_transport_maps")
        if all_transport or all_hop:
            self._say_overridden("sender_dependent_relayhost_maps")
        transports = {} if all_transport else self._of_senders("sender_dependent_default_transport_maps")
        relayhosts = {} if all_transport or all_hop else self._of_senders("sender_dependent_relayhost_maps")
        usual = parse_route(self._relayed.get("*", _NO_ROUTE))
        for key in {**transports, **relayhosts}:
            text, where = transports.get(key) or relayhosts[key]
            try:
                pattern = values.sender_pattern(key.removeprefix("@"))
                route, note = self._route(text, by_default=True) if key in transports else (usual, "")
                if key in relayhosts:
                    host, others = next_hop(relayhosts[key][0])
                    route = replace(host, transport=route.transport)
                    note = f"; a route has one next hop, {', '.join(others)} is left out" if others else note
                elif all_hop and self._command(text.partition(":")[0]) not in _ENDS:
                    route = replace(next_hop(all_hop)[0], transport=route.transport)
            except (_NoRoute, ValueError) as error:
                self._draft.left(where, f"{key} {text}", f"{error}; mail of this sender goes as that of all others")
                continue
            self._draft.sender_routes[pattern] = str(route)
            if note:
                self._draft.changed(where, f"{key} {text}", f'[sender_routes] "{pattern}" = "{route}"{note}')

    def _of_senders(self, name: str) -> dict[str, tuple[str, str]]:
        """Returns value and place by key, of the first table that has the key."""
        machine, draft = self._machine, self._draft
        found: dict[str, tuple[str, str]] = {}
        machine.seen.add(name)
        for given in machine.cf.list(name):
            try:
                table = machine.tables.table(given)
            except TableFault as fault:
                draft.left(machine.where(name), f"{name} = {given}", f"{fault}; add its senders to [sender_routes]")
                continue
            for line in table.faults:
                draft.left(line.partition(": ")[0], "a line", line.partition(": ")[2])
            for key, value, where in table.entries:
                if value.upper() != "DUNNO":
                    found.setdefault(key, (value, where))
            lines = counted(len(table.entries), "line")
            if self._has_relay_domains and name == "sender_dependent_relayhost_maps":
                said = (
                    "[sender_routes]; in Postfix a relayhost by sender also replaces that of relay_domains, here mail for "
                    "[relay] domains goes by their patterns in [routes] first"
                )
                draft.changed(table.name, lines, said)
            else:
                draft.taken(table.name, lines, "[sender_routes]")
        return found

    # Findings

    def say(self) -> None:
        for each in self._sayings:
            each()

    def _say_default(self, name: str, patterns: list[str], route: str, note: str) -> None:
        draft, routes = self._draft, self._draft.routes
        where, what = self._machine.where(name), self._machine.what(name)
        kept = [each for each in patterns if routes[each] == route]
        others = [f'"{each}" = "{routes[each]}"' for each in patterns if routes[each] != route]
        before = f"transport_maps overrides it, as in Postfix: [routes] {_some(others)}"
        if others and not kept:
            draft.left(where, what, before)
            return
        said = f'[routes] "{route}" for {_some(kept) or "no domain"}{note}' + (f"; {before}" if others else "")
        (draft.changed if note else draft.taken)(where, what, said)

    def _say_no_default(self, name: str, patterns: list[str], error: str) -> None:
        said = f"{error}; this mail {self._way(patterns[0] if patterns else '*')}"
        self._draft.left(self._machine.where(name), self._machine.what(name), said)

    def _say_relayhost(self, fault: str, others: list[str]) -> None:
        draft, routes, host = self._draft, self._draft.routes, self._relay_host
        where, what = self._machine.where("relayhost"), self._machine.what("relayhost")
        if host is None:
            (draft.left if fault else draft.taken)(where, what, f"{fault}mail {self._way('*')}")
            return
        there = [f'"{each}"' for each, route in routes.items() if replace(parse_route(route), transport="x") == host]
        decides = "default_transport" if routes["*"] == self._relayed.get("*", _NO_ROUTE) else "transport_maps"
        rest = f'[routes] "*" = "{routes["*"]}", by {decides}'
        if not there:
            draft.left(where, what, f"no mail goes there: {rest}")
            return
        name = str(host).removeprefix("x:")
        said = f'[routes] "*" goes to {name}' if '"*"' in there else f"[routes] {name} only for {_some(there)}; {rest}"
        if others:
            said += f"; a route has one next hop, {', '.join(others)} is left out"
        (draft.changed if others else draft.taken)(where, what, said)

    def _say_overridden(self, name: str) -> None:
        """Reports maps by sender that decide nothing in Postfix either."""
        machine = self._machine
        machine.seen.add(name)
        if machine.cf.value(name):
            line = f"* {self._mapped['*']}"
            said = f'transport_maps has "{line}", which goes before it, as in Postfix; no [sender_routes] from it'
            self._draft.left(machine.where(name), machine.what(name), said)

    def _say_no_route(self, where: str, key: str, value: str, error: str) -> None:
        """Reports an unusable map entry and the route that its mail uses instead."""
        whole = "+" in key.partition("@")[0] or "@" not in key
        how = "goes" if whole else "goes as that for its domain,"
        route = _closest(self._draft.routes, key) or _NO_ROUTE
        self._draft.left(where, f"{key} {value}", f"{error}; mail for it {how} {route}, unless you add a route")

    def _way(self, pattern: str) -> str:
        route = _closest(self._draft.routes, pattern) or _NO_ROUTE
        return f"goes {route}" if ":" in route else f"goes by {route} to its domain's MX hosts"


def _closest(table: dict[str, str], pattern: str) -> str | None:
    """Returns the entry for a pattern, its parent domains, or "*", in the order of routing.resolve."""
    domain = pattern.rpartition("@")[2]
    labels = domain.removeprefix(".").split(".")
    above = ("." + ".".join(labels[n:]) for n in range(1, len(labels)))
    return next((table[each] for each in (pattern, domain, *above, "*") if each in table), None)


def _some(names: list[str]) -> str:
    more = len(names) - _NAMED_MAX
    return ", ".join(names[:_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
