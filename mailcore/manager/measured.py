"""Counts of the manager and of the receivers for the metrics: refusals, syncs, and delays of deliveries.

They exist only if the metrics can be read ([metrics] listen), and begin with the manager. Bounded: one histogram of delays for
each transport, REASONS_MAX reasons of refusals, and one more for each class.
"""

from __future__ import annotations

from collections.abc import Collection

from mailcore.envelope import Verdict
from mailcore.frames import Measured as Report
from mailcore.histogram import DELAY_BOUNDS_S, SYNC_BOUNDS_S, Histogram
from mailcore.manager_answers import HistogramAnswer, MeasuredAnswer

__all__ = ["Measured"]

REASONS_MAX = 256
_OTHER = "other"  # of a class, as in mailcore.receiver.measuring


class Measured:
    """The counts of this process."""

    def __init__(self) -> None:
        self.syncs = Histogram(SYNC_BOUNDS_S)  # of the manager
        self._syncs_of_receivers = Histogram(SYNC_BOUNDS_S)
        self._refusals: dict[str, int] = {}
        self._delays: dict[str, Histogram] = {}

    def report(self, report: Report) -> None:
        """Adds what a receiver reports."""
        refusals = self._refusals
        for given, count in report.refusals.items():
            reason = given if given in refusals or len(refusals) < REASONS_MAX else f"{given[:3]} {_OTHER}"
            refusals[reason] = refusals.get(reason, 0) + count
        self._syncs_of_receivers.add(report.syncs, report.syncs_s)

    def delivered(self, transport: str, verdicts: Collection[Verdict], delay_s: float) -> None:
        """Counts the delay of each recipient that a transaction delivered. This is on the hot path."""
        times = sum(verdict.status == 0 for verdict in verdicts)  # DELIVERED
        if times:
            histogram = self._delays.get(transport)
            if histogram is None:
                histogram = self._delays[transport] = Histogram(DELAY_BOUNDS_S)
            histogram.observe(delay_s, times)

    def answer(self) -> MeasuredAnswer:
        """Returns all counts."""
        return MeasuredAnswer(
            refusals=dict(self._refusals),
            syncs={"manager": _answer(self.syncs), "receiver": _answer(self._syncs_of_receivers)},
            delays={transport: _answer(each) for transport, each in self._delays.items()},
        )


def _answer(histogram: Histogram) -> HistogramAnswer:
    return HistogramAnswer(bounds=list(histogram.bounds), counts=list(histogram.counts), total=histogram.total)
