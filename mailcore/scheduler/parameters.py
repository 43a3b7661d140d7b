"""The scheduler's parameters: names and defaults are Postfix's (DESIGN section 4), with kind, bounds, unit and a line of doc.

Values only. The caller builds ``Parameters`` from the configuration; which value is in force when it is tuned live is said
by ``tuning``. What is allowed in which scope stands here once, for both. A scope is written "" (global), "smtp" (a
transport), "smtp:example.org" or "smtp:.example.org" (a destination, or a pattern of them).
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any

from mailcore.scheduler.feedback import FEEDBACK_FORMS, Feedback

__all__ = [
    "DESTINATION_SCOPE", "GLOBAL_SCOPE", "SUSPENDED_UNTIL", "TRANSPORT_SCOPE", "Bounds", "DestinationParameters",
    "GlobalParameters", "Kind", "Parameters", "TransportParameters", "Value", "allowed_in", "bounds_of",
    "check",
]  # fmt: skip

SUSPENDED_UNTIL = "suspended_until"
DAY_S = 86_400

Value = int | float | bool | Feedback  # what a parameter may be; text is read by ``check``


class Kind(enum.Enum):
    """What a value is, as people are told."""

    WHOLE = "a whole number"
    NUMBER = "a number"
    FEEDBACK = "a feedback"
    FLAG = "yes or no"


_FLAGS = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}


@dataclass(frozen=True, slots=True)
class Bounds:
    """One parameter: what it may be (both ends are allowed), its unit, its default, and what it does."""

    kind: Kind
    low: float
    high: float
    unit: str
    doc: str
    default: Value | None

    def __str__(self) -> str:
        """What is allowed, in words."""
        if self.kind is Kind.FLAG:
            return str(self.kind.value)
        if self.kind is Kind.FEEDBACK:
            return f"{self.kind.value}: {FEEDBACK_FORMS}"
        return f"{self.kind.value} from {self.low:g} to {self.high:.12g}"

    def read(self, given: object) -> Value:
        """What is given, as it will be used. Raises ValueError at what is not allowed."""
        if self.kind is Kind.FEEDBACK:
            return Feedback.parse(given)
        if self.kind is Kind.FLAG:
            flag = _FLAGS.get(str(given).lower()) if isinstance(given, bool | int | str) else None
            if flag is None:
                raise ValueError("it is neither yes nor no")
            return flag
        if isinstance(given, bool) or not isinstance(given, int | float):
            raise ValueError("it is no number")
        # Not a number (nan) fails the comparison; infinity is caught by the bounds wherever whole numbers are asked for.
        if not self.low <= given <= self.high or (self.kind is Kind.WHOLE and given != int(given)):
            raise ValueError("it is out of bounds")
        return int(given) if self.kind is Kind.WHOLE else float(given)


# The settings of the same names take default, bounds and doc from here.


def _whole(default: int, low: int, high: int, unit: str, doc: str) -> Any:
    return field(default=default, metadata={"bounds": Bounds(Kind.WHOLE, low, high, unit, doc, default)})


def _number(default: float | None, low: float, high: float, unit: str, doc: str) -> Any:
    return field(default=default, metadata={"bounds": Bounds(Kind.NUMBER, low, high, unit, doc, default)})


def _feedback(default: float, doc: str) -> Any:
    value = Feedback(default)
    return field(default=value, metadata={"bounds": Bounds(Kind.FEEDBACK, 0, 1, "of a delivery", doc, value)})


def _flag(default: bool, doc: str) -> Any:
    return field(default=default, metadata={"bounds": Bounds(Kind.FLAG, 0, 1, "", doc, default)})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Destinations:
    """What a transport says for all its destinations, and a pattern for some of them."""

    initial_destination_concurrency: int = _whole(
        5, 1, 10_000, "deliveries", "window of a destination that is new, or tried again after it was dead"
    )
    destination_concurrency_limit: int = _whole(
        20, 1, 10_000, "deliveries", "deliveries at once to one destination; its window never gets above it"
    )
    destination_concurrency_positive_feedback: Feedback = _feedback(  # noqa: RUF009  # it does not change
        1, "what a good delivery adds to the window"
    )
    destination_concurrency_negative_feedback: Feedback = _feedback(  # noqa: RUF009
        1, "what a site failure takes from the window"
    )
    destination_concurrency_failed_cohort_limit: int = _whole(
        1, 0, 10_000, "cohorts", "windows of deliveries that failed until the destination is dead; 0: never"
    )
    destination_rate_delay: float = _number(
        0, 0, DAY_S, "seconds", "pause between two deliveries to one destination, then done one at a time; 0: none"
    )
    destination_recipient_limit: int = _whole(
        50, 1, 10_000, "recipients", "recipients of one delivery; 1 for a transport: each recipient is a destination"
    )
    destination_concurrency_feedback_debug: bool = _flag(False, "log every change of a window")


@dataclass(frozen=True, slots=True, kw_only=True)
class DestinationParameters(_Destinations):
    """What is in force for one destination."""

    # A time on the caller's monotonic clock; infinity is "until further notice". Live only, never configured.
    suspended_until: float | None = _number(
        None, -math.inf, math.inf, "seconds of the clock", "no deliveries until then"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportParameters(_Destinations):
    """One transport's values, and by pattern what is different for some of its destinations."""

    process_limit: int = _whole(100, 1, 10_000, "deliveries", "deliveries at once")
    delivery_slot_cost: int = _whole(
        5,
        0,
        10_000,
        "entries",
        "entries of a job that earn one slot for a smaller job to preempt it; below 2: no preemption",
    )
    delivery_slot_loan: int = _whole(3, 0, 10_000, "slots", "slots a preempting job gets in advance")
    delivery_slot_discount: int = _whole(50, 0, 100, "percent", "share of its slots a preempting job gets in advance")
    minimum_delivery_slots: int = _whole(
        3, 0, 1_000_000, "slots", "a job that can't earn so many slots is not preempted"
    )
    recipient_limit: int = _whole(20_000, 1, 1_000_000, "recipients", "recipients in memory")
    extra_recipient_limit: int = _whole(
        1_000, 0, 1_000_000, "recipients", "recipients in memory besides, for jobs that preempt"
    )
    recipient_refill_limit: int = _whole(
        100, 1, 1_000_000, "recipients", "free places from which on more of a message's recipients are read"
    )
    recipient_refill_delay: float = _number(
        5, 0, DAY_S, "seconds", "after which more recipients are read though fewer places are free"
    )
    transport_rate_delay: float = _number(
        0, 0, DAY_S, "seconds", "pause between two deliveries of the transport, then done one at a time; 0: none"
    )
    # pattern (".example.org", "example.org", "[192.0.2.1]:2526") -> parameter -> value; text is read as by ``check``
    destinations: Mapping[str, Mapping[str, Value | str]] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True, kw_only=True)
class GlobalParameters:
    """What holds for all transports. Times are seconds."""

    message_active_limit: int = _whole(20_000, 10, 1_000_000, "messages", "messages in memory")
    message_recipient_limit: int = _whole(20_000, 10, 1_000_000, "recipients", "recipients in memory")
    message_recipient_minimum: int = _whole(
        10, 1, 10_000, "recipients", "recipients every message in memory may have, whatever the limits"
    )
    minimal_backoff_time: float = _number(
        300, 0.1, DAY_S, "seconds", "shortest wait of a deferred message; a dead destination is left alone as long"
    )
    maximal_backoff_time: float = _number(4_000, 0.1, 7 * DAY_S, "seconds", "longest wait of a deferred message")
    maximal_queue_lifetime: float = _number(
        432_000, 0, 100 * DAY_S, "seconds", "age at which a deferred message is returned"
    )
    bounce_queue_lifetime: float = _number(432_000, 0, 100 * DAY_S, "seconds", "the same for a bounce")
    transport_retry_time: float = _number(60, 1, DAY_S, "seconds", "a broken transport is left alone as long")
    idle_destination_limit: int = _whole(
        10_000, 1, 1_000_000, "destinations", "destinations without mail that are remembered: until when dead, counters"
    )
    # Not Postfix's: there a slow destination's deferred mail may fill the active queue, and new mail waits behind it.
    deferred_active_share: float = _number(
        0.5, 0.05, 1, "share", "of message_active_limit that deferred mail may take; the rest is for new mail"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters(GlobalParameters):
    """All configured values: global ones, and those of each transport.

    A transport that is not among ``transports`` (its mail is still in the queue, its section no longer in the file) has
    the defaults.
    """

    transports: Mapping[str, TransportParameters] = field(default_factory=dict)


def _scope(kind: type) -> Mapping[str, Bounds]:
    return MappingProxyType({each.name: each.metadata["bounds"] for each in fields(kind) if each.metadata})


GLOBAL_SCOPE: Mapping[str, Bounds] = _scope(GlobalParameters)
TRANSPORT_SCOPE: Mapping[str, Bounds] = _scope(TransportParameters)
DESTINATION_SCOPE: Mapping[str, Bounds] = _scope(DestinationParameters)


def allowed_in(scope: str) -> Mapping[str, Bounds]:
    """The parameters of a scope, by name."""
    if not scope:
        return GLOBAL_SCOPE
    return DESTINATION_SCOPE if ":" in scope else TRANSPORT_SCOPE


def bounds_of(scope: str, parameter: str) -> Bounds:
    """Raises ValueError, saying which there are, when the scope has no such parameter."""
    allowed = allowed_in(scope)
    if parameter not in allowed:
        there_are = ", ".join(sorted(allowed))
        raise ValueError(f"{parameter} is no parameter of {_where(scope)}; its parameters are {there_are}")
    return allowed[parameter]


def check(scope: str, parameter: str, value: object) -> Value:
    """The value as it will be used. Raises ValueError naming scope, parameter, value and what is allowed."""
    bounds = bounds_of(scope, parameter)
    try:
        return bounds.read(value)
    except ValueError:
        raise ValueError(f"{parameter} = {value!r} in {_where(scope)}: allowed is {bounds}") from None


def _where(scope: str) -> str:
    return f'scope "{scope}"' if scope else "the global scope"
