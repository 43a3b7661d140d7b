"""The outcome of a simulation: plain values, ready for JSON. Times are seconds from its start.

Laws
- It balances: recipients_in = delivered + bounced + waiting, and waiting = deferred_waiting + untried.
- Its size is bounded for a simulation of any length: series have at most ``timeline.POINTS_MAX`` points.

Keeps law: simulation-balances (docs/laws.md).
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["DelayClass", "DestinationOutcome", "Outcome", "Series"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Over time: ``at_s`` are the ends of the steps. Counts are of the step that ends there, states are at its end."""

    at_s: list[float]
    arrived: list[int]  # recipients, as the next four
    of_start: list[int]  # of those arrived, the ones that were queued at the start
    delivered: list[int]
    deferred: list[int]
    bounced: list[int]
    waiting: list[int]  # recipients that have no verdict for good
    in_flight: list[int]  # deliveries
    active_messages: list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class DestinationOutcome:
    """The counts and the time series of one destination."""

    name: str
    delivered: int  # recipients, as the next two
    deferred: int  # as often as they were
    bounced: int
    entries: int  # deliveries that were tried
    site_failures: int  # of these
    untried: int  # recipients deferred without a try, as the destination was dead
    concurrency_mean: float  # deliveries at once, seen by each delivery at its end, itself counted
    concurrency_max: int
    window: list[int | None]  # at the times of Series.at_s; None: the scheduler does not know the destination then
    limit: list[int | None]
    busy: list[float]  # deliveries at once, the mean of the step that ends there
    dead: list[tuple[float, float]]  # from the first entry deferred without a try to the next one tried
    dead_s: float  # of all such times, also those that ``dead`` has no room for


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayClass:
    """The delays of the messages of one class of recipients: from arrival until all recipients are finished."""

    recipients: str  # "1", "2-10", ...
    messages: int  # finished ones
    unfinished: int
    p50_s: float | None  # within 3 %; None: no message is finished
    p90_s: float | None
    p99_s: float | None
    max_s: float | None  # exact


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of a simulation: counts, time series, destinations and delays."""

    end: str  # "drained", "until_s", "events_max", "stopped", or "nothing more can happen"
    simulated_s: float
    events: int
    drained_s: float | None  # when the mail of the start was done; None: it was not
    messages_in: int
    messages_finished: int
    recipients_in: int
    delivered: int
    bounced: int
    waiting: int
    deferred_waiting: int  # of these, tried before
    untried: int  # of these, not tried yet
    deferrals: int  # recipients, as often as they were deferred
    deferrals_untried: int  # of these, without a try: destination or transport was dead
    entries: int
    site_failures: int
    first_deferred_share: float  # of the recipients that had a first verdict
    destinations_total: int
    series: Series
    destinations: list[DestinationOutcome]
    transports: dict[str, list[float]]  # deliveries at once, the mean of each step
    delays: list[DelayClass]
