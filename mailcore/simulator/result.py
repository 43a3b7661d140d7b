"""An outcome as the control socket answers it: for all the mail, where only a share of it was simulated."""

from __future__ import annotations

from typing import Any

from mailcore.simulator.outcome import DelayClass, Outcome

__all__ = ["result_of"]

SMALL = ("1", "2-10")  # classes of messages by recipients
BIG = (">1000", "101-1000", "11-100")


def result_of(outcome: Outcome, share: float, messages: int) -> dict[str, Any]:
    """``share`` of the mail was simulated, in that share of the time; ``messages``: in the queue, all of them.

    Series have a value for each step of ``per`` seconds, which ends at ``t``; the last step may be shorter. Counts are of the
    step, backlog and window at its end, busy is its mean.
    """
    series = outcome.series
    at_s = [at / share for at in series.at_s]
    destinations = outcome.destinations

    def whole(counts: list[int]) -> list[int]:
        return counts if share >= 1 else [round(count / share) for count in counts]

    return {
        "drain_s": None if outcome.drained_s is None else round(outcome.drained_s / share, 3),
        "delivered": round(outcome.delivered / share),
        "deferred": round(outcome.deferrals / share),
        "bounced": round(outcome.bounced / share),
        "waiting": round(outcome.waiting / share),
        "per": round(at_s[0], 3) if at_s else 0.0,
        "series": {
            "t": [round(at, 3) for at in at_s],
            "backlog": whole(series.waiting),
            "delivered": whole(series.delivered),
            "deferred": whole(series.deferred),
            "window": {each.name: each.window for each in destinations},
            "busy": {each.name: each.busy for each in destinations},
        },
        "delay": {"small": _delay(outcome, SMALL, share), "big": _delay(outcome, BIG, share)},
        "messages": messages,
        "end": outcome.end,
        "truncated": outcome.end in ("stopped", "events_max"),
    }


def _delay(outcome: Outcome, classes: tuple[str, ...], share: float) -> dict[str, Any]:
    """Of the class that has the most messages; ``recipients`` says which that is."""
    known = [each for each in outcome.delays if each.recipients in classes]
    if not known:
        return {"recipients": "", "messages": 0, "p50": None, "p90": None, "p99": None}
    most: DelayClass = max(known, key=lambda each: each.messages + each.unfinished)
    quantiles = {"p50": most.p50_s, "p90": most.p90_s, "p99": most.p99_s}
    found = {name: None if value is None else round(value / share, 3) for name, value in quantiles.items()}
    return {"recipients": most.recipients, "messages": most.messages, **found}
