"""Parameters as the page shows them: bounds and explanation, the value in force and where it comes from, in groups.

with the core's answers:  parameters {}                   names, bounds, explanations, configured values
                          transports {} or {destination}  what is in force: {value, origin[, until][, scope]}
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypedDict, cast

import msgspec

from appliance.common.door import Door
from appliance.common.templatetags.waypost import number
from appliance.common.units import duration, in_units
from appliance.tuning.scope import kind_of
from appliance.tuning.value import Value, same, typed
from mailcore.control.client import Refused
from mailcore.control.protocol.tuning import ParameterKnown, ParametersKnown
from mailcore.faults import Code
from mailcore.manager_answers import Transports

__all__ = [
    "Known",
    "Parameter",
    "Shown",
    "grouped",
    "in_force",
    "is_own",
    "of_transport",
    "read_known",
    "same_shown",
    "shown_of",
]


class Shown(TypedDict, total=False):
    """A value in force as pages, forms and the database keep it: ``InForce`` as a map."""

    value: Value
    origin: str  # default, configuration or tuned
    until: float  # only while it is for a time
    scope: str  # only if it comes from a wider one


UNTIL_S = 1.0  # two clocks are in it, and a millisecond is rounded

GROUPS = (
    ("Concurrency", (
        "destination_concurrency_limit", "initial_destination_concurrency", "process_limit",
        "destination_concurrency_positive_feedback", "destination_concurrency_negative_feedback",
        "destination_concurrency_failed_cohort_limit", "destination_concurrency_feedback_debug",
    )),
    ("Pace and size of deliveries", ("destination_rate_delay", "transport_rate_delay", "destination_recipient_limit")),
    ("Small mail in front of big mail", (
        "delivery_slot_cost", "delivery_slot_loan", "delivery_slot_discount", "minimum_delivery_slots",
    )),
    ("Retrying", ("minimal_backoff_time", "maximal_backoff_time", "transport_retry_time")),
    ("Giving up", ("maximal_queue_lifetime", "bounce_queue_lifetime")),
    ("Memory", (
        "message_active_limit", "deferred_active_share", "message_recipient_limit", "message_recipient_minimum",
        "recipient_limit", "extra_recipient_limit", "recipient_refill_limit", "recipient_refill_delay",
        "idle_destination_limit",
    )),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Known:
    """The core's descriptions of its parameters, independent of the values in force."""

    scopes: dict[str, list[ParameterKnown]]
    transports: list[str]
    configured: dict[str, dict[str, Value]]

    def of(self, scope: str) -> dict[str, ParameterKnown]:
        """Returns the descriptions of the parameters that a scope has, by name."""
        return {each.name: each for each in self.scopes[kind_of(scope)]}

    def configured_value(self, scope: str, parameter: str) -> Value:
        """Returns the value after a removal, if no wider scope is set live; None if only a wider scope has a value."""
        return self.configured.get(scope, {}).get(parameter)


@dataclass(frozen=True, slots=True)
class Parameter:
    """One row of the page."""

    name: str
    kind: str
    unit: str
    allowed: str
    doc: str
    paragraphs: list[str]
    default: Value
    shown: Shown
    configured: Value

    @property
    def value(self) -> str:
        """Returns the value in force, as a user would type it."""
        return typed(self.shown["value"])

    @property
    def seen(self) -> str:
        """Returns the value that the user saw, as JSON for a field of the form."""
        return json.dumps(self.shown)

    @property
    def human(self) -> str:
        """Returns seconds in larger units, exactly, from one minute on; otherwise ""."""
        return in_units(self.name, self.shown["value"])

    @property
    def until(self) -> float | None:
        """Returns until when the value is set, seconds since 1970, None if it lasts."""
        return self.shown.get("until")

    @property
    def wider(self) -> str:
        """Returns the wider scope that the value comes from, or ""."""
        return self.shown.get("scope", "")

    @property
    def is_tuned(self) -> bool:
        """Returns whether the value was set for this very scope while Waypost runs."""
        return is_own(self.shown)

    @property
    def is_default(self) -> bool:
        """Returns whether the value in force is the default."""
        return self.value == typed(self.default)


def read_known(door: Door) -> Known:
    """Raises ControlError."""
    answer = door.ask("parameters", ParametersKnown)
    return Known(answer.scopes, answer.transports, answer.configured)


def shown_of(answer: Transports) -> dict[str, dict[str, Shown]]:
    """Returns the values in force by scope and parameter, as pages and the database keep them."""
    return cast(dict[str, dict[str, Shown]], msgspec.to_builtins(answer.scopes))


def in_force(door: Door, scope: str) -> tuple[str, dict[str, Shown]]:
    """Returns the scope as the core spells it, and the values in force there. Raises ControlError; Refused if there is
    no such transport."""
    if ":" not in scope:
        return scope, of_transport(shown_of(door.ask("transports", Transports)), scope)
    answer = shown_of(door.ask("transports", Transports, {"destination": scope}))
    spelled = next(iter(answer))
    return spelled, {name: shown for name, shown in answer[spelled].items() if name != "suspended_until"}


def of_transport(everything: Mapping[str, dict[str, Shown]], scope: str) -> dict[str, Shown]:
    """Returns a transport's values from the answer to ``transports``; "" is all transports. Raises Refused if the
    transport is not there: it may have been removed since the page was rendered."""
    if scope not in everything:
        there_are = ", ".join(name for name in everything if name and ":" not in name)
        raise Refused(
            f"unknown transport {scope!r}; known transports: {there_are}", code=Code.NOT_FOUND, argument="scope"
        )
    return dict(everything[scope])


def is_own(shown: Shown | None) -> bool:
    """Returns whether the value was set live, in the scope itself."""
    return bool(shown) and shown is not None and shown.get("origin") == "tuned" and "scope" not in shown


def same_shown(one: Shown, other: Shown) -> bool:
    """Returns whether value, origin, scope and end are the same."""
    if not same(one.get("value"), other.get("value")) or one.get("origin") != other.get("origin"):
        return False
    if one.get("scope") != other.get("scope"):
        return False
    ends = one.get("until"), other.get("until")
    return ends[0] == ends[1] or (None not in ends and abs(float(ends[0] or 0) - float(ends[1] or 0)) <= UNTIL_S)


def grouped(known: Known, scope: str, shown: dict[str, Shown]) -> list[tuple[str, list[Parameter]]]:
    """Returns every parameter of the scope once, in groups with titles; parameters that GROUPS does not name are in the
    last group."""
    rows = {name: _row(known, scope, each, shown[name]) for name, each in known.of(scope).items() if name in shown}
    groups = [(title, _take(rows, names)) for title, names in GROUPS]
    return [(title, each) for title, each in [*groups, ("Other", list(rows.values()))] if each]


def _take(rows: dict[str, Parameter], names: Iterable[str]) -> list[Parameter]:
    return [rows.pop(name) for name in names if name in rows]


def _row(known: Known, scope: str, each: ParameterKnown, shown: Shown) -> Parameter:
    return Parameter(
        name=each.name,
        kind=each.kind,
        unit=each.unit,
        allowed=_allowed(each),
        doc=each.doc,
        paragraphs=[part for part in each.explanation.split("\n\n") if part],
        default=each.default,
        shown=shown,
        configured=known.configured_value(scope, each.name),
    )


def _allowed(each: ParameterKnown) -> str:
    """Returns the bounds in words; those of a time in units that people read, other numbers in groups of three digits."""
    if each.kind not in ("whole", "number") or not (math.isfinite(each.low) and math.isfinite(each.high)):
        return each.allowed
    if each.unit == "seconds":
        return f"{duration(each.low)} to {duration(each.high)}"
    return f"{'a whole number from ' if each.kind == 'whole' else ''}{number(each.low)} to {number(each.high)}"
