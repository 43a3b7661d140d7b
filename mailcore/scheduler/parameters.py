"""The scheduler's parameters: each with its kind, bounds, unit, default and a line of doc. Names and defaults are Postfix's.

Values only. The caller builds ``Parameters`` from the configuration; ``tuning`` finds the value in force where one is set
live. A scope is "" (global), "smtp" (a transport), "smtp:example.org" or "smtp:.example.org" (a destination, or a pattern of
destinations).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from mailcore.bounds import DAY_S, BadValue, Bounds, Kind, bounds_by_name, custom, flag, number, whole
from mailcore.scheduler.feedback import FEEDBACK_FORMS, Feedback

__all__ = [
    "DESTINATION_SCOPE", "GLOBAL_SCOPE", "SUSPENDED_UNTIL", "TRANSPORT_SCOPE", "DestinationParameters", "GlobalParameters",
    "Parameters", "TransportParameters", "Value", "allowed_in", "bounds_of", "check",
    "check_backoff",
]  # fmt: skip

SUSPENDED_UNTIL = "suspended_until"

Value = int | float | bool | Feedback  # the types of a parameter; ``check`` reads text


def _feedback(default: float, doc: str) -> Any:
    value = Feedback(default)
    return custom(value, FEEDBACK_FORMS, doc, Feedback.parse, kind=Kind.FEEDBACK, unit="of a delivery")


# The settings of the same names take default, bounds and doc from here.


@dataclass(frozen=True, slots=True, kw_only=True)
class _Destinations:
    """The parameters that a transport has for all its destinations, and a pattern for some of them."""

    initial_destination_concurrency: int = whole(
        5, 1, 10_000, "deliveries", "first window of a new destination, and of one that was dead"
    )
    destination_concurrency_limit: int = whole(
        20, 1, 10_000, "deliveries", "maximum concurrent deliveries to one destination; its window never exceeds it"
    )
    destination_concurrency_positive_feedback: Feedback = _feedback(  # noqa: RUF009  # it does not change
        1, "how much a successful delivery adds to the window"
    )
    destination_concurrency_negative_feedback: Feedback = _feedback(  # noqa: RUF009
        1, "how much a site failure takes from the window"
    )
    destination_concurrency_failed_cohort_limit: int = whole(
        1, 0, 10_000, "cohorts", "failed cohorts after which the destination is declared dead", special={0: "never"}
    )
    destination_rate_delay: float = number(
        0,
        0,
        DAY_S,
        "seconds",
        "pause between two deliveries to one destination, which are then made one at a time",
        special={0: "no pause"},
    )
    destination_recipient_limit: int = whole(
        50,
        1,
        10_000,
        "recipients",
        "maximum recipients of one delivery",
        special={1: "of a transport: each recipient is a destination of its own"},
    )
    destination_concurrency_feedback_debug: bool = flag(False, "log every change of a window")


@dataclass(frozen=True, slots=True, kw_only=True)
class DestinationParameters(_Destinations):
    """The values in force for one destination."""

    # A time on the caller's monotonic clock; infinity is "until further notice". Live only, never configured.
    suspended_until: float | None = number(
        None, -math.inf, math.inf, "seconds of the clock", "no deliveries until then"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportParameters(_Destinations):
    """The values of one transport, and by pattern those that differ for some of its destinations."""

    process_limit: int = whole(100, 1, 10_000, "deliveries", "maximum concurrent deliveries of the transport")
    delivery_slot_cost: int = whole(
        5,
        0,
        10_000,
        "entries",
        "a job earns one delivery slot for this many entries selected",
        special={0: "no preemption", 1: "no preemption"},
    )
    delivery_slot_loan: int = whole(3, 0, 10_000, "slots", "delivery slots that a preempting job gets in advance")
    delivery_slot_discount: int = whole(
        50, 0, 100, "percent", "share of its delivery slots that a preempting job gets in advance"
    )
    minimum_delivery_slots: int = whole(
        3, 0, 1_000_000, "slots", "a job that cannot earn this many delivery slots is not preempted"
    )
    recipient_limit: int = whole(20_000, 1, 1_000_000, "recipients", "maximum recipients of the transport in memory")
    extra_recipient_limit: int = whole(
        1_000, 0, 1_000_000, "recipients", "additional recipients in memory, for jobs that preempt"
    )
    recipient_refill_limit: int = whole(
        100, 1, 1_000_000, "recipients", "free places at which more recipients of a message are read"
    )
    recipient_refill_delay: float = number(
        5, 0, DAY_S, "seconds", "time after which more recipients are read even if fewer places are free"
    )
    transport_rate_delay: float = number(
        0,
        0,
        DAY_S,
        "seconds",
        "pause between two deliveries of the transport, which are then made one at a time",
        special={0: "no pause"},
    )
    # pattern (".example.org", "example.org", "[192.0.2.1]:2526") -> parameter -> value; text is read as by ``check``
    destinations: Mapping[str, Mapping[str, Value | str]] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True, kw_only=True)
class GlobalParameters:
    """The values that hold for all transports. Times are seconds."""

    message_active_limit: int = whole(20_000, 10, 1_000_000, "messages", "maximum messages in memory")
    message_recipient_limit: int = whole(
        20_000, 10, 1_000_000, "recipients", "maximum recipients in memory, of all first batches"
    )
    message_recipient_minimum: int = whole(
        10, 1, 10_000, "recipients", "recipients that every message may have in memory, even above the limits"
    )
    minimal_backoff_time: float = number(
        300, 0.1, DAY_S, "seconds", "shortest wait of a deferred message; also how long a dead destination is not tried"
    )
    maximal_backoff_time: float = number(4_000, 0.1, 7 * DAY_S, "seconds", "longest wait of a deferred message")
    maximal_queue_lifetime: float = number(
        432_000, 0, 100 * DAY_S, "seconds", "age at which a deferred message is returned to its sender"
    )
    bounce_queue_lifetime: float = number(
        432_000, 0, 100 * DAY_S, "seconds", "age at which a deferred bounce is deleted"
    )
    transport_retry_time: float = number(60, 1, DAY_S, "seconds", "how long a broken transport is not tried")
    idle_destination_limit: int = whole(
        10_000, 1, 1_000_000, "destinations", "destinations without mail whose state and counters are kept"
    )
    # Not Postfix's: there a slow destination's deferred mail may fill the active queue, and new mail waits behind it.
    deferred_active_share: float = number(
        0.5, 0.05, 1, "of message_active_limit", "share that deferred mail may take; the rest is for new mail"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters(GlobalParameters):
    """All configured values: global ones, and those of each transport.

    A transport that is not among ``transports`` (its mail is still in the queue, its section no longer in the file) has
    the defaults.
    """

    transports: Mapping[str, TransportParameters] = field(default_factory=dict)


GLOBAL_SCOPE: Mapping[str, Bounds] = bounds_by_name(GlobalParameters)
TRANSPORT_SCOPE: Mapping[str, Bounds] = bounds_by_name(TransportParameters)
DESTINATION_SCOPE: Mapping[str, Bounds] = bounds_by_name(DestinationParameters)


def allowed_in(scope: str) -> Mapping[str, Bounds]:
    """Returns the parameters of a scope, by name."""
    if not scope:
        return GLOBAL_SCOPE
    return DESTINATION_SCOPE if ":" in scope else TRANSPORT_SCOPE


def bounds_of(scope: str, parameter: str) -> Bounds:
    """Returns the bounds of a parameter. Raises BadValue, with the parameters of the scope, if there is no such parameter."""
    allowed = allowed_in(scope)
    if parameter not in allowed:
        where = f'scope "{scope}"' if scope else "the global scope"
        raise BadValue(
            parameter, None, f"is not a parameter of {where}; its parameters are {', '.join(sorted(allowed))}"
        )
    return allowed[parameter]


def check(scope: str, parameter: str, value: object) -> Value:
    """Returns the value as the scheduler uses it. Raises BadValue with the sentence of ``Bounds.error``.

    A whole number may be written 7.0, a flag also "yes", "no", 1 or 0: so the control socket and tuned.toml have them.
    """
    bounds = bounds_of(scope, parameter)
    given = value
    if bounds.kind is Kind.WHOLE and isinstance(value, float) and value.is_integer():
        given = int(value)
    elif bounds.kind is Kind.FLAG and isinstance(value, int | str):
        flag = bounds.from_text(str(value))
        given = flag if isinstance(flag, bool) else value
    read: Value = bounds.read(given)
    return read


def check_backoff(shortest: float, longest: float, name: str = "minimal_backoff_time") -> None:
    """Raises BadValue for ``name``, the one that is set, if the shortest wait is longer than the longest."""
    if shortest > longest:
        is_shortest = name == "minimal_backoff_time"
        rule = "greater than maximal_backoff_time" if is_shortest else "less than minimal_backoff_time"
        values = (shortest, longest) if is_shortest else (longest, shortest)
        raise BadValue(name, values[0], f"must not be {rule} (got {values[0]:.12g} and {values[1]:.12g} seconds)")
