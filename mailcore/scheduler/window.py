"""A destination's window: the maximum concurrent deliveries, changed by feedback; and the count that declares it dead.

The pseudocode of Postfix's SCHEDULER_README ("Pseudocode for the Postfix 2.5 concurrency scheduler"), a method a paragraph. Two
hysteresis cycles: a positive one that raises the window at the end of 1/g(N) good deliveries, and a negative one, reversed,
that lowers it at the beginning of 1/f(N) bad ones. Death is counted apart from both, in failed pseudo-cohorts.

Laws
- 1 <= concurrency <= the limit given with the last change.
- Each transition of one cycle resets the other one; nothing else does.
- Must not know: time, entries, the cause of a failure.

Keeps law: window-bounded (docs/laws.md).
"""

from __future__ import annotations

from mailcore.scheduler.parameters import DestinationParameters

__all__ = ["Window"]

ROUNDING = 1e-9  # ten times 1/10 is not quite 1; a useful feedback is larger than this


class Window:
    """The window of one destination, and the counters of its two hysteresis cycles."""

    __slots__ = ("concurrency", "fail_cohorts", "failure", "success")

    def __init__(self, parameters: DestinationParameters, limit: int) -> None:
        self.open(min(parameters.initial_destination_concurrency, limit))

    def open(self, concurrency: int) -> None:
        """Sets the window and resets both cycles and the failed cohorts."""
        self.concurrency = concurrency
        self.success = 0.0
        self.failure = 0.0
        self.fail_cohorts = 0.0

    def clamp(self, limit: int) -> None:
        """Applies a limit that was changed live; the feedback so far is kept."""
        self.concurrency = min(self.concurrency, limit)

    def succeeded(self, busy: int, parameters: DestinationParameters, limit: int) -> None:
        """Counts a delivery without connection or handshake failure; ``busy`` is it and those still in flight."""
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
        """Counts a connection or handshake failure. Returns whether the destination is dead now."""
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
