"""An outcome as the control socket answers it: for all the mail, where only a share of it was simulated."""

from __future__ import annotations

from itertools import accumulate

import msgspec

from mailcore.simulator.outcome import DelayClass, Outcome

__all__ = ["Delay", "Delays", "SimulationResult", "SimulationSeries", "result_of"]

SMALL = ("1", "2-10")  # classes of messages by recipients
BIG = (">1000", "101-1000", "11-100")


class SimulationSeries(msgspec.Struct, kw_only=True):
    """Values for each step; the last step may be shorter."""

    t: list[float]  # the end of each step, in simulated seconds
    backlog: list[int]  # recipients in the queue at its end, also those that are not due yet
    delivered: list[int]  # in the step
    deferred: list[int]  # in the step
    window: dict[str, list[int | None]]  # by destination, at its end; None: the destination has no mail
    busy: dict[str, list[float]]  # by destination, the mean of the step
    transports: dict[str, list[float]] = {}  # deliveries at once by transport, the mean of the step


class Delay(msgspec.Struct, kw_only=True):
    """Quantiles of the time in the queue, in seconds, of the class of messages with the most messages."""

    recipients: str  # of a message of this class, "2-10"; "" if there is no message
    messages: int
    p50: float | None  # None: too few were delivered
    p90: float | None
    p99: float | None


class Delays(msgspec.Struct, kw_only=True):
    """Delays of messages with few recipients, and with many."""

    small: Delay
    big: Delay


class SimulationResult(msgspec.Struct, kw_only=True):
    """The outcome of a simulation, for all the mail."""

    drain_s: float | None  # simulated seconds until the queue was empty; None: it was not
    delivered: int  # recipients
    deferred: int
    bounced: int
    waiting: int
    per: float  # seconds of a step of the series
    series: SimulationSeries
    delay: Delays
    messages: int  # in the queue at the start
    recipients: int | None = None  # of them; None: an older answer does not say
    end: str  # why the simulation ended
    truncated: bool  # it ended before the mail or the time did


def result_of(outcome: Outcome, share: float, messages: int, recipients: int) -> SimulationResult:
    """Returns the result for all mail. ``share`` of the mail was simulated, in that share of the time; ``messages``: in
    the queue, all of them. ``recipients``: in the queue, of those simulated.

    Series have a value for each step of ``per`` seconds, which ends at ``t``; the last step may be shorter. Counts are of the
    step, backlog and window at its end, busy is its mean.
    """
    series = outcome.series
    at_s = [at / share for at in series.at_s]
    destinations = outcome.destinations
    # Mail that was queued and is not taken yet counts as waiting, too: the simulator takes deferred mail when it is due.
    untaken = [max(0, recipients - taken) for taken in accumulate(series.of_start)]
    backlog = [waiting + more for waiting, more in zip(series.waiting, untaken, strict=True)]

    def whole(counts: list[int]) -> list[int]:
        return counts if share >= 1 else [round(count / share) for count in counts]

    return SimulationResult(
        drain_s=None if outcome.drained_s is None else round(outcome.drained_s / share, 3),
        delivered=round(outcome.delivered / share),
        deferred=round(outcome.deferrals / share),
        bounced=round(outcome.bounced / share),
        waiting=round(outcome.waiting / share),
        per=round(at_s[0], 3) if at_s else 0.0,
        series=SimulationSeries(
            t=[round(at, 3) for at in at_s],
            backlog=whole(backlog),
            delivered=whole(series.delivered),
            deferred=whole(series.deferred),
            window={each.name: each.window for each in destinations},
            busy={each.name: each.busy for each in destinations},
            transports=outcome.transports,
        ),
        delay=Delays(small=_delay(outcome, SMALL, share), big=_delay(outcome, BIG, share)),
        messages=messages,
        recipients=whole([recipients])[0],
        end=outcome.end,
        truncated=outcome.end in ("stopped", "events_max"),
    )


def _delay(outcome: Outcome, classes: tuple[str, ...], share: float) -> Delay:
    """Returns the delays of the class that has the most messages; ``recipients`` names the class."""
    known = [each for each in outcome.delays if each.recipients in classes]
    if not known:
        return Delay(recipients="", messages=0, p50=None, p90=None, p99=None)
    most: DelayClass = max(known, key=lambda each: each.messages + each.unfinished)

    def real(simulated_s: float | None) -> float | None:
        return None if simulated_s is None else round(simulated_s / share, 3)

    return Delay(
        recipients=most.recipients,
        messages=most.messages,
        p50=real(most.p50_s),
        p90=real(most.p90_s),
        p99=real(most.p99_s),
    )
