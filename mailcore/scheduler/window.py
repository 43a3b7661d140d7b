"""A destination's window: how many deliveries may run at once, moved by feedback; and when the destination is dead.

The pseudocode of Postfix's SCHEDULER_README ("Pseudocode for the Postfix 2.5 concurrency scheduler"), a method a paragraph. Two
hysteresis cycles: a positive one that raises the window at the end of 1/g(N) good deliveries, and a negative one, reversed,
that lowers it at the beginning of 1/f(N) bad ones. Death is counted apart from both, in failed pseudo-cohorts.

Laws
- 1 <= concurrency <= the limit given with the last change.
- Each transition of one cycle starts the other one anew, nothing else does.
- Must not know: time, entries, what a failure was.

Keeps law: window-bounded (docs/laws.md).
"""

from __future__ import annotations

from mailcore.scheduler.parameters import DestinationParameters

__all__ = ["Window"]

ROUNDING = 1e-9  # ten times 1/10 is not quite 1; no feedback worth setting is so small


class Window:
    __slots__ = ("concurrency", "fail_cohorts", "failure", "success")

    def __init__(self, parameters: DestinationParameters, limit: int) -> None:
        self.open(min(parameters.initial_destination_concurrency, limit))

    def open(self, concurrency: int) -> None:
        """Begins anew with so many deliveries at once."""
        self.concurrency = concurrency
        self.success = 0.0
        self.failure = 0.0
        self.fail_cohorts = 0.0

    def clamp(self, limit: int) -> None:
        """The limit was changed live: the feedback gathered so far is kept."""
        self.concurrency = min(self.concurrency, limit)

    def succeeded(self, busy: int, parameters: DestinationParameters, limit: int) -> None:
        """After a delivery without connection or handshake failure; ``busy`` counts it and those still in flight."""
        self.fail_cohorts = 0.0
        concurrency = self.concurrency
        # A window far above what is in use would delay the effect of negative feedback.
        if concurrency >= limit or concurrency >= busy + parameters.initial_destination_concurrency:
            return
        self.success += parameters.destination_concurrency_positive_feedback.amount(concurrency)
        while self.success >= 1 - ROUNDING:
            self.concurrency += 1
            self.success -= 1
            self.failure = 0.0

    def failed(self, parameters: DestinationParameters) -> bool:
        """After a connection or handshake failure; True when that makes the destination dead."""
        concurrency = self.concurrency
        self.fail_cohorts += 1 / concurrency
        cohorts = parameters.destination_concurrency_failed_cohort_limit
        if cohorts > 0 and self.fail_cohorts >= cohorts - ROUNDING:
            return True
        self.failure -= parameters.destination_concurrency_negative_feedback.amount(concurrency)
        while self.failure < -ROUNDING:
            self.concurrency -= 1
            self.failure += 1
            self.success = 0.0
        self.concurrency = max(self.concurrency, 1)
        return False
