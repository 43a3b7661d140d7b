"""Finds recorded changes: the last ones, those before and after, and values that were changed elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from appliance.tuning.history import Key, Outside, key_of, latest, outside
from appliance.tuning.models import Change, Outcome
from appliance.tuning.parameter import Shown

__all__ = ["all_outside", "earlier_than", "last_of", "later_of", "outside_names", "shown_by_key"]

LOOKED_AT = 2_000  # changes; for parameters without a change among these, the value in force is enough
EARLIER = 20


def last_of(scope: str | None = None) -> dict[Key, Change]:
    """Returns the last applied change of each parameter, in the scope or in all scopes."""
    made = Change.objects.filter(outcome=Outcome.APPLIED)
    if scope is not None:
        made = made.filter(scope=scope)
    return latest(made[:LOOKED_AT])


def outside_names(scope: str, shown: dict[str, Shown]) -> dict[str, Outside]:
    """Returns by parameter the values of this scope that were changed elsewhere."""
    found = outside(last_of(scope), {(scope, name): each for name, each in shown.items()}, time.time())
    return {each.parameter: each for each in found}


def all_outside(everything: dict[str, dict[str, Shown]]) -> list[Outside]:
    """Returns values in any scope that were changed outside the portal. ``everything``: the answer to
    ``transports``."""
    return outside(last_of(), shown_by_key(everything), time.time())


def shown_by_key(everything: dict[str, dict[str, Any]]) -> dict[Key, Shown]:
    """Returns what is in force, by scope and parameter."""
    return {(scope, name): each for scope, values in everything.items() for name, each in values.items()}


def later_of(changes: Iterable[Change]) -> dict[int, Change]:
    """Returns, by the key of each change, the next applied change of the same parameter, if there is one."""
    wanted = list(changes)
    if not wanted:
        return {}
    scopes, names = {each.scope for each in wanted}, {each.parameter for each in wanted}
    oldest = min(each.pk for each in wanted)
    made = Change.objects.filter(
        outcome=Outcome.APPLIED, scope__in=scopes, parameter__in=names, pk__gt=oldest
    ).order_by("pk")[:LOOKED_AT]
    found: dict[int, Change] = {}
    for change in wanted:
        for each in made:
            if each.pk > change.pk and key_of(each) == key_of(change):
                found[change.pk] = each
                break
    return found


def earlier_than(change: Change) -> list[Change]:
    """Changes made of the same parameter before it, newest first."""
    return list(
        Change.objects.filter(
            outcome=Outcome.APPLIED, scope=change.scope, parameter=change.parameter, pk__lt=change.pk
        )[:EARLIER]
    )
