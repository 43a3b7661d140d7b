"""A draft: the requested changes in one scope, and the values that the user saw.

Laws: a draft has only values that differ from those in force; nothing is sent before the core has checked all of it, in the
order in which it would be sent; a value that changed since the user saw it is reported, not overwritten.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any, cast

from django.http import QueryDict

from appliance.common.door import Door
from appliance.common.units import in_units
from appliance.tuning.parameter import Known, Shown, same_shown
from appliance.tuning.value import Value, is_value, read, same, typed
from mailcore.control.protocol.tuning import ChangesChecked

__all__ = ["CHANGES_MAX", "Draft", "DraftError", "Line", "check", "from_form", "from_json", "lines"]

CHANGES_MAX = 50  # in one draft; there are 18 parameters of a transport
_LONGEST, _SHORTEST = "maximal_backoff_time", "minimal_backoff_time"


class DraftError(ValueError):
    """Raised when the request is not a valid draft; the message is for the user."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """One requested change: a parameter, its new value, and the value the user saw."""

    parameter: str
    value: Value  # None: back to the configured one
    seen: Shown
    returns: int | None = None  # the change whose return it is


@dataclass(frozen=True, slots=True)
class Draft:
    """The requested changes in one scope, not applied yet."""

    scope: str
    wanted: tuple[Wanted, ...]

    def as_json(self) -> str:
        """Returns the draft for a hidden form field; ``from_json`` reads it back."""
        wanted = [
            {"parameter": each.parameter, "value": each.value, "seen": each.seen, "returns": each.returns}
            for each in self.wanted
        ]
        return json.dumps({"scope": self.scope, "wanted": wanted})

    def as_changes(self) -> list[dict[str, Any]]:
        """Returns the changes as ``check_changes`` and ``simulate`` take them, in the order of ``in_order``."""
        return [{"scope": self.scope, "parameter": each.parameter, "value": each.value} for each in self.in_order()]

    def in_order(self) -> list[Wanted]:
        """Returns the changes in an order that keeps the shortest backoff at most the longest at each step: if the
        longest rises, it is set first, otherwise the shortest."""
        longest = next((each for each in self.wanted if each.parameter == _LONGEST), None)
        if longest is None or not isinstance(longest.value, int | float):
            return list(self.wanted)
        rises = longest.value >= float(longest.seen.get("value") or 0)
        first = _LONGEST if rises else _SHORTEST
        return sorted(self.wanted, key=lambda each: each.parameter != first)

    def seeing(self, shown: dict[str, Shown]) -> Draft:
        """Returns a copy of the draft whose ``seen`` values are those in force now."""
        return replace(
            self, wanted=tuple(replace(each, seen=shown.get(each.parameter, each.seen)) for each in self.wanted)
        )


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the diff."""

    parameter: str
    unit: str
    before: str
    origin: Shown
    after: str
    takes_back: bool
    error: str = ""
    was: str | None = None  # the value the user saw, if it changed since
    hint: str = ""  # the new value in larger units, "" if it needs none
    hint_before: str = ""


@dataclass(slots=True)
class Checked:
    """The core's message about each wrong parameter; under "" is what is wrong with the scope."""

    errors: dict[str, str] = field(default_factory=dict)


def from_form(form: QueryDict, scope: str, known: Known) -> Draft:
    """Reads the draft from the page's form, with its fields value-NAME, seen-NAME and configured-NAME. Only changed
    parameters are in the draft."""
    wanted = []
    for name, each in known.of(scope).items():
        back = f"configured-{name}" in form
        if not back and f"value-{name}" not in form:
            continue
        seen = _seen(form.get(f"seen-{name}", ""))
        text = str(form.get(f"value-{name}", "")).strip()
        value = read(each.kind, text, each.low, seen["value"])
        if back:
            wanted.append(Wanted(name, None, seen))
        elif text != typed(seen["value"]) and not same(value, seen["value"]):
            wanted.append(Wanted(name, value, seen))
    return Draft(scope, tuple(wanted[:CHANGES_MAX]))


def from_json(text: str) -> Draft:
    """Reads the draft that a dialog sends back. Raises DraftError."""
    try:
        given = json.loads(text[:200_000])
        wanted = tuple(
            Wanted(str(each["parameter"])[:100], each["value"], _shown(each["seen"]), _number(each.get("returns")))
            for each in given["wanted"][:CHANGES_MAX]
        )
        draft = Draft(str(given["scope"])[:400], wanted)
        "".join([draft.scope, *(f"{each.parameter}{each.value}{each.seen}" for each in wanted)]).encode()  # no halves
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DraftError("The request is not a change of parameters. Reload the page.") from error
    if not wanted or not all(is_value(each.value) for each in wanted):
        raise DraftError("The request contains an invalid value. Reload the page.")
    return draft


def lines(draft: Draft, known: Known, shown: dict[str, Shown], checked: Checked) -> list[Line]:
    """Returns the difference between the draft and the values in force now, a line for each parameter."""
    found = []
    of_scope = known.of(draft.scope)
    for each in draft.wanted:
        now = shown.get(each.parameter, each.seen)
        known_one = of_scope.get(each.parameter)
        unit = known_one.unit if known_one else ""
        after = each.value
        if after is None:
            after = known.configured_value(draft.scope, each.parameter)
        found.append(
            Line(
                parameter=each.parameter,
                unit=unit,
                before=typed(now["value"]),
                origin=now,
                after=typed(after),
                takes_back=each.value is None,
                error=checked.errors.get(each.parameter, ""),
                was=None if same_shown(each.seen, now) else typed(each.seen["value"]),
                hint=in_units(each.parameter, after),
                hint_before=in_units(each.parameter, now["value"]),
            )
        )
    return found


def check(door: Door, draft: Draft) -> Checked:
    """Asks the core which values it would refuse, all of them tried in order. Nothing is set. Raises ControlError."""
    checked = Checked()
    changes = draft.as_changes()
    answer = door.ask("check_changes", ChangesChecked, {"changes": changes})
    for at, (change, fault) in enumerate(zip(changes, answer.faults, strict=True)):
        if fault is None:
            continue
        of_all = fault.argument == f"changes[{at}].scope"
        checked.errors["" if of_all else change["parameter"]] = fault.message
    return checked


def _seen(text: str) -> Shown:
    try:
        return _shown(json.loads(text[:2_000]))
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise DraftError("The page is out of date. Reload it.") from error


def _shown(given: Any) -> Shown:
    until = given.get("until")
    if not is_value(given["value"]) or not (until is None or isinstance(until, int | float)):
        raise ValueError("no value")
    return cast(Shown, {name: given[name] for name in ("value", "origin", "until", "scope") if name in given})


def _number(given: Any) -> int | None:
    return given if isinstance(given, int) and not isinstance(given, bool) else None
