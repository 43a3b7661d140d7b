"""Converts scopes and destinations of a scenario, and of --set, to the spelling of the routes: lower case, and without the
deliverer's own port. Otherwise a value set for ``smtp:MX.example`` would match no destination.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from mailcore.bounds import BadValue
from mailcore.config.values import destination_pattern
from mailcore.simulator.backlog import Backlog, Listed, Mail
from mailcore.simulator.next_hop import NextHop
from mailcore.simulator.scenario import Change

__all__ = ["Names"]


@dataclass(frozen=True, slots=True)
class Names:
    """The spelling of names, for a deliverer's port and a set of transports."""

    port: int  # the deliverer's own
    transports: Collection[str] | None = None  # those that exist; None: any name is accepted

    def scope(self, text: str) -> str:
        """Returns a scope in its one spelling. Raises BadValue at an unknown transport, or a rest that is not a destination."""
        transport, colon, rest = text.partition(":")
        if transport and self.transports is not None and transport not in self.transports:
            names = ", ".join(sorted(self.transports))
            raise BadValue("", text, f"{text!r} must begin with a transport; the transports are {names}")
        return f"{transport}:{destination_pattern(rest, self.port)}" if colon else text

    def changes(self, changes: Iterable[Change]) -> tuple[Change, ...]:
        """Returns the changes with their scopes in one spelling. Raises BadValue."""
        return tuple(dataclasses.replace(change, scope=self.scope(change.scope)) for change in changes)

    def next_hops(self, next_hops: Iterable[tuple[str, NextHop]]) -> dict[str, NextHop]:
        """Returns the next hops by scope. Raises BadValue, also if a scope is there twice."""
        named: dict[str, NextHop] = {}
        for text, next_hop in next_hops:
            scope = self.scope(text)
            if scope in named:
                raise BadValue("", text, f"{text!r} must not be there twice; it is the same next hop as {scope!r}")
            named[scope] = next_hop
        return named

    def backlog(self, backlog: Backlog) -> Backlog:
        """Returns the mail with its destinations in one spelling; mail of the live queue has it already. Raises BadValue."""
        return dataclasses.replace(
            backlog,
            listed=tuple(self._listed(each) for each in backlog.listed),
            mail={name: self._mail(each) for name, each in backlog.mail.items()},
        )

    def _listed(self, listed: Listed) -> Listed:
        named = tuple((self._destination(name), count) for name, count in listed.recipients)
        return dataclasses.replace(listed, recipients=named)

    def _mail(self, mail: Mail) -> Mail:
        weights: dict[str, float] = {}
        for text, weight in mail.destinations:
            name = self._destination(text)
            weights[name] = weights.get(name, 0.0) + weight
        return dataclasses.replace(mail, destinations=tuple(weights.items()))

    def _destination(self, text: str) -> str:
        name = self.scope(text)
        if name.partition(":")[2].startswith("."):
            raise BadValue("", text, f"{text!r} must be one destination, not a pattern")
        return name
