"""What operators were told about each recipient, by rules of its own: held, deleted, delayed, rerouted, returned."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from mailcore.envelope import Aside, AsideKind
from mailcore.queue.aside import SLACK_S

__all__ = ["Wish", "agreed", "said"]


@dataclass(frozen=True)
class Wish:
    """The answered orders of one recipient, the last word of each kind."""

    held: bool = False
    deleted_at: float | None = None
    until: float = 0.0
    route: str = ""
    returned: bool = False

    def after(self, operation: str, at: float, arguments: Mapping[str, Any]) -> Wish:
        """Returns the wish after one more order; unchanged if it does not fit."""
        if self.returned:
            return self
        if operation == "undelete":
            return replace(self, deleted_at=None)
        if self.deleted_at is not None:
            return self
        if operation == "retry":
            return self if self.held else replace(self, until=0.0)
        return {
            "hold": replace(self, held=True),
            "release": replace(self, held=False),
            "delete": replace(self, deleted_at=at),
            "delay": replace(self, until=arguments.get("until", 0.0)),
            "reroute": replace(self, route=arguments.get("route", "")),
            "bounce": replace(self, returned=True),
        }[operation]

    def may_be_tried(self, now: float) -> bool:
        """Returns True if a next hop may hear of the recipient."""
        return not self.held and self.deleted_at is None and not self.returned and self.until <= now + SLACK_S

    def may_be_gone(self, now: float, undo_s: float) -> bool:
        """Returns True if the recipient may have ended without a word to anybody."""
        return self.deleted_at is not None and now + SLACK_S >= self.deleted_at + undo_s

    def kinds(self, now: float) -> list[tuple[AsideKind, float]]:
        """Returns how the recipient must be put aside, from the outside in."""
        found = [(AsideKind.DELETED, 0.0)] * (self.deleted_at is not None) + [(AsideKind.HELD, 0.0)] * self.held
        return [*found, (AsideKind.DELAYED, self.until)] if self.until > now + SLACK_S else found


def said(aside: Aside | None, now: float) -> list[tuple[AsideKind, float]]:
    """Returns how a recipient is put aside by an operator, from the outside in; a time that is over says nothing."""
    found: list[tuple[AsideKind, float]] = []
    while aside is not None:
        if aside.kind is AsideKind.DELAYED and aside.until > now + SLACK_S:
            found.append((aside.kind, aside.until))
        elif aside.kind in (AsideKind.HELD, AsideKind.DELETED):
            found.append((aside.kind, 0.0))
        aside = aside.before
    return found


def agreed(wishes: Collection[Wish], aside: Aside | None, route: str, now: float) -> bool:
    """Returns True if the state is what one of the wishes asks for."""
    return any(wish.returned or (wish.kinds(now) == said(aside, now) and wish.route == route) for wish in wishes)
