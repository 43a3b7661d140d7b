"""Scopes and destinations of a scenario, and of --set, in the one spelling that the routes give them: lower case, and without
the port that is the deliverer's own. Else a value set for ``smtp:MX.example`` would quietly hold for nobody.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from mailcore.config.values import destination_pattern
from mailcore.simulator.backlog import Backlog, Listed, Mail
from mailcore.simulator.next_hop import NextHop
from mailcore.simulator.scenario import Change

__all__ = ["Names"]


@dataclass(frozen=True, slots=True)
class Names:
    port: int  # the deliverer's
    transports: Collection[str] | None = None  # those there are; None: any

    def scope(self, text: str) -> str:
        """Raises ValueError at a transport that is not there, and at what is no destination."""
        transport, colon, rest = text.partition(":")
        if transport and self.transports is not None and transport not in self.transports:
            there_are = ", ".join(sorted(self.transports))
            raise ValueError(f"{text!r}: there is no transport {transport!r}; there are {there_are}")
        return f"{transport}:{destination_pattern(rest, self.port)}" if colon else text

    def changes(self, changes: Iterable[Change]) -> tuple[Change, ...]:
        return tuple(dataclasses.replace(change, scope=self.scope(change.scope)) for change in changes)

    def next_hops(self, next_hops: Iterable[tuple[str, NextHop]]) -> dict[str, NextHop]:
        named: dict[str, NextHop] = {}
        for text, next_hop in next_hops:
            scope = self.scope(text)
            if scope in named:
                raise ValueError(f"{text!r}: there are two next hops {scope!r}")
            named[scope] = next_hop
        return named

    def backlog(self, backlog: Backlog) -> Backlog:
        """What is of the live queue has its names already."""
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
            raise ValueError(f"{text!r} is a pattern; mail goes to one destination")
        return name
