"""Where mail goes: relayhost, relay_transport, default_transport and the transport maps become [routes]."""

from __future__ import annotations

from dataclasses import replace

from mailcore import config_values as values
from mailcore.postfix.draft import Draft
from mailcore.postfix.machine import Machine
from mailcore.postfix.tables import Table, TableFault
from mailcore.postfix.values import ValueFault, next_hop
from mailcore.routing.route import Route, parse_route

__all__ = ["routes"]

FAULTS_MAX = 100  # of one table: each has a line of its own; the rest is counted


class _NoRoute(Exception):
    """Why mail can't go there, and what that means."""


def routes(machine: Machine, draft: Draft, names: dict[str, str], relay_domains: list[str]) -> None:
    """``names``: transports, Postfix's name to ours; ``relay_domains`` as in [relay] domains."""
    roads = _Roads(machine, draft, names)
    roads.defaults(relay_domains)
    roads.maps()
    draft.routes.setdefault("*", "smtp")


class _Roads:
    def __init__(self, machine: Machine, draft: Draft, names: dict[str, str]) -> None:
        self._machine = machine
        self._draft = draft
        self._names = names
        self._relay_host: Route | None = None
        self._relayed: dict[str, str] = {}

    def defaults(self, relay_domains: list[str]) -> None:
        machine, draft = self._machine, self._draft
        self._relay_host = self._relayhost()
        for name, patterns in (("default_transport", ["*"]), ("relay_transport", relay_domains)):
            text = machine.look(name)
            where, what = machine.where(name), machine.what(name)
            try:
                route, note = self._route(text, by_default=True)
            except (_NoRoute, ValueFault) as error:
                draft.left(where, what, f"{error}; this mail goes by smtp to its domain's MX hosts")
                continue
            for pattern in patterns:
                draft.routes[pattern] = str(route)
            if name in machine.cf:
                say = draft.changed if note else draft.taken
                say(where, what, f'[routes] "{route}" for {", ".join(patterns[:3]) or "no domain"}{note}')
        self._relayed = dict(draft.routes)

    def _relayhost(self) -> Route | None:
        machine, name = self._machine, "relayhost"
        text = machine.look(name)
        if not text:
            if name in machine.cf:
                self._draft.taken(machine.where(name), machine.what(name), "mail goes to its domain's MX hosts")
            return None
        try:
            route, others = next_hop(text)
        except ValueFault as fault:
            self._draft.left(machine.where(name), machine.what(name), f"{fault}; mail goes to its domain's MX hosts")
            return None
        said = f'[routes] "*" goes to {str(route).removeprefix("x:")}'
        if others:
            said += f"; a route has one next hop, {', '.join(others)} is left out"
        (self._draft.changed if others else self._draft.taken)(machine.where(name), machine.what(name), said)
        return route

    def _route(self, text: str, by_default: bool) -> tuple[Route, str]:
        """Of ``transport:nexthop``; ``by_default``: without a next hop it is the relayhost. Raises _NoRoute, ValueFault."""
        transport, _, hop = text.partition(":")
        ours = self._transport(transport)
        if hop:
            route, others = next_hop(hop)
            note = f"; a route has one next hop, {', '.join(others)} is left out" if others else ""
            return replace(route, transport=ours), note
        if by_default and self._relay_host is not None:
            return replace(self._relay_host, transport=ours), ""
        return Route(ours), ""

    def _transport(self, name: str) -> str:
        if name in self._names:
            return self._names[name]
        command = next((each.command for each in self._machine.services or () if each.name == name), "")
        what = {"error": "refuses", "discard": "throws away", "retry": "defers"}.get(command or name)
        if what:
            raise _NoRoute(f"Waypost has no route that {what} mail")
        if command:
            raise _NoRoute(f"{name} is no transport that speaks SMTP ({command})")
        raise _NoRoute(f"there is no transport {name!a} in master.cf")

    # Transport maps

    def maps(self) -> None:
        machine, draft, name = self._machine, self._draft, "transport_maps"
        seen: set[str] = set()
        machine.seen.add(name)
        for given in machine.cf.list(name):
            try:
                table = machine.tables.table(given)
            except TableFault as fault:
                said = f"{fault}; what it routes goes by the other routes: add it to [routes] by hand"
                draft.left(machine.where(name), f"{name} = {given}", said)
                continue
            for line in table.faults:
                draft.left(line.partition(": ")[0], "a line", line.partition(": ")[2])
            self._entries(table, seen)

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
            except (_NoRoute, ValueFault, ValueError) as error:
                left += 1
                if left <= FAULTS_MAX:
                    draft.left(where, f"{key} {value}", f"{error}; {self._otherwise(key)}")
                continue
            draft.routes[pattern] = str(route)
            taken += 1
            if note:
                draft.changed(where, f"{key} {value}", f'[routes] "{pattern}" = "{route}"{note}')
        if left > FAULTS_MAX:
            draft.left(table.name, f"{left - FAULTS_MAX} more lines", "for reasons such as those above")
        draft.taken(table.name, f"{taken} of {len(table.entries)} lines", "[routes]")

    def _looked_up(self, value: str, pattern: str) -> tuple[Route, str]:
        """transport(5): nothing at all is what held without the table, no transport is the domain's own."""
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
        """What the domain's mail took without the table."""
        domain = pattern.rpartition("@")[2]
        above = domain.removeprefix(".")
        for each in (domain, "." + above, *("." + above.split(".", n)[-1] for n in range(1, above.count(".") + 1))):
            if each in self._relayed:
                return parse_route(self._relayed[each])
        return parse_route(self._relayed.get("*", "smtp"))

    def _otherwise(self, key: str) -> str:
        """What happens to the mail instead; that may be worse than nothing."""
        if "+" in key.partition("@")[0] or "@" not in key:
            return f"mail for it goes {self._usual(key)}, unless you add a route"
        return f"mail for it goes as that for its domain, {self._usual(key)}, unless you add a route"
