"""The scheduler's parameters: names and defaults are Postfix's (DESIGN section 4), bounds are the settings'.

Values only. The caller builds ``Parameters`` from the configuration; the scheduler changes its own copies when it is
tuned live. What is allowed in which scope stands here once, for both.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = [
    "DESTINATION_SCOPE", "GLOBAL_SCOPE", "SUSPENDED_UNTIL", "TRANSPORT_SCOPE", "Bounds", "Parameters",
    "TransportParameters", "check",
]  # fmt: skip

SUSPENDED_UNTIL = "suspended_until"


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a parameter may be; both ends are allowed."""

    low: float
    high: float
    whole: bool  # only whole numbers

    def __str__(self) -> str:
        return f"{'a whole number' if self.whole else 'a number'} from {self.low:g} to {self.high:.12g}"


DAY_S = 86_400

# The same bounds as in mailcore.config (a test compares them): the scheduler knows no settings.
GLOBAL_SCOPE: Mapping[str, Bounds] = {
    "message_active_limit": Bounds(10, 1_000_000, True),
    "message_recipient_limit": Bounds(10, 1_000_000, True),
    "message_recipient_minimum": Bounds(1, 10_000, True),
    "minimal_backoff_time": Bounds(0.1, DAY_S, False),
    "maximal_backoff_time": Bounds(0.1, 7 * DAY_S, False),
    "maximal_queue_lifetime": Bounds(0, 100 * DAY_S, False),
    "bounce_queue_lifetime": Bounds(0, 100 * DAY_S, False),
    "transport_retry_time": Bounds(1, DAY_S, False),
}
_DESTINATION: Mapping[str, Bounds] = {
    "destination_concurrency_limit": Bounds(1, 10_000, True),
    "destination_recipient_limit": Bounds(1, 10_000, True),
}
TRANSPORT_SCOPE: Mapping[str, Bounds] = {"process_limit": Bounds(1, 10_000, True), **_DESTINATION}
# A time on the caller's monotonic clock; infinity is "until further notice".
DESTINATION_SCOPE: Mapping[str, Bounds] = {**_DESTINATION, SUSPENDED_UNTIL: Bounds(-math.inf, math.inf, False)}


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportParameters:
    """One transport's configured values."""

    process_limit: int = 100  # deliveries at once
    destination_concurrency_limit: int = 20  # deliveries at once to one destination
    destination_recipient_limit: int = 50  # recipients of one entry


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """All configured values: global ones, and those of each transport. Times are seconds.

    A transport that is not among ``transports`` (its mail is still in the queue, its section no longer in the file) has
    the defaults.
    """

    message_active_limit: int = 20_000
    message_recipient_limit: int = 20_000
    message_recipient_minimum: int = 10
    minimal_backoff_time: float = 300.0
    maximal_backoff_time: float = 4_000.0
    maximal_queue_lifetime: float = 432_000.0
    bounce_queue_lifetime: float = 432_000.0
    transport_retry_time: float = 60.0
    transports: Mapping[str, TransportParameters] = field(default_factory=dict)
    destinations_idle_max: int = 1_000  # destinations without mail whose counters are kept; [queue] names_counted


def check(scope: str, parameter: str, value: float | None, allowed: Mapping[str, Bounds]) -> float:
    """The value as it will be used. Raises ValueError naming scope, parameter, value and what is allowed."""
    where = f'scope "{scope}"' if scope else "the global scope"
    bounds = allowed.get(parameter)
    if bounds is None:
        raise ValueError(f"{parameter} is no parameter of {where}; its parameters are {', '.join(sorted(allowed))}")
    number = isinstance(value, int | float) and not isinstance(value, bool)
    # Not a number (nan) fails the comparison; infinity is caught by the bounds wherever whole numbers are asked for.
    if not number or value is None or not bounds.low <= value <= bounds.high or (bounds.whole and value != int(value)):
        raise ValueError(f"{parameter} = {value!r} in {where}: allowed is {bounds}")
    return int(value) if bounds.whole else float(value)
