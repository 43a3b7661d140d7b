"""From what was measured of a destination to a model of its next hop; and, in sentences, what was assumed.

A delivery's slot is taken from when it begins until its verdict is on disk and acted on. The next hop's part of that is
measured with each delivery (connect_s, transmit_s); the rest, our own, shows between one delivery's end and the beginning
of the next while there was always more to deliver (``overhead_s``).

A row is one of ``service_times``, with sums and samples of hours; ``tried`` are the newest deliveries (``recent``). Pure; times
are seconds.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol

__all__ = ["LARGE_BYTES", "OVERHEAD_S", "UNMEASURED_S", "Tried", "limit_of", "modelled", "overhead_of"]

UNMEASURED_S = 0.2  # a transaction that was not measured: the default of NextHop.transaction_s
OVERHEAD_S = 0.006  # frames, a shared sync, the turn of the loop: bench.deliver on 2 cores, where it was not measured
LARGE_BYTES = 1 << 20  # at 100 Mbit/s it takes 0.08 s: as long as all the rest of a usual delivery
OVERHEAD_S_MAX = 0.1  # a longer gap is not overhead: there was nothing to deliver
GAPS_MIN = 20  # fewer say nothing
QUANTILES = 50  # steps of a distribution
ENOUGH = 30  # of the newest deliveries: then older ones matter no more
FIT_MIN = 10  # deliveries with different numbers of recipients, to tell one recipient's share
FULL = "421"  # RFC 5321 4.5.4.2: what a server says that has too many connections already


class Times(Protocol):
    """The measured deliveries to a destination, as ``modelled`` needs them; samples in seconds."""

    deliveries: int
    recipients: int
    connect_s: list[float]
    transmit_s: list[float]
    site_failures: int
    deferred: int
    bounced: int


class Tried(NamedTuple):
    """A delivery that was tried."""

    ended_at: float  # wall clock
    connect_s: float
    transmit_s: float
    recipients: int
    failed: bool  # the site did: nothing was transmitted
    reply: str  # when it did
    relay: str = ""  # the server; "" if it is not known
    size_bytes: int = 0  # of the message; 0 if it is not known

    @property
    def begun_at(self) -> float:
        """Returns when the delivery began, wall clock."""
        return self.ended_at - self.connect_s - self.transmit_s


def overhead_of(destinations: Iterable[Sequence[Tried]]) -> float | None:
    """Returns our own part of a delivery in seconds; None if unknown. Ignores failures, because they shrink the window."""
    gaps = [gap for tried in destinations for gap in _gaps([each for each in tried if not each.failed])]
    sure = [gap for gap, is_sure in gaps if is_sure]
    known = sure if len(sure) >= GAPS_MIN else [gap for gap, _ in gaps]
    return statistics.median(known) if len(known) >= GAPS_MIN else None


def _gaps(tried: Sequence[Tried]) -> list[tuple[float, bool]]:
    """Returns the time from each end to the beginning that it made room for, and whether no other end can have made it.

    Ends that nothing follows soon, because there was no more mail or the window became smaller, have none.
    """
    times = sorted([(each.begun_at, True) for each in tried] + [(each.ended_at, False) for each in tried])
    ended: deque[float] = deque()
    gaps: list[tuple[float, bool]] = []
    for at, is_begin in times:
        while ended and ended[0] < at - OVERHEAD_S_MAX:
            ended.popleft()
        if not is_begin:
            ended.append(at)
        elif ended:
            is_sure = len(ended) == 1
            gaps.append((at - ended.popleft(), is_sure))
    return gaps


def limit_of(tried: Sequence[Tried]) -> int | None:
    """Returns how many connections the site accepts, from how many were open each time it refused one because of their
    number; None if it never did."""
    good = [each for each in tried if not each.failed]
    counts: list[int] = []
    for refused in tried:
        if refused.failed and FULL in refused.reply:
            counts.append(sum(each.begun_at < refused.ended_at < each.ended_at for each in good))
    seen = [sum(each.begun_at <= one.begun_at < each.ended_at for each in good) for one in good]
    if not counts:
        return None
    return max(1, round(statistics.median(counts)), _common_peak(seen))


def _common_peak(seen: Sequence[int]) -> int:
    """Returns how many were open at once, not counting rare peaks: clocks of two processes blur the ends a little."""
    ordered = sorted(seen)
    return ordered[int(len(ordered) * 0.9)] if ordered else 0


def modelled(row: Times, tried: Sequence[Tried], overhead_s: float) -> tuple[dict[str, Any], str]:
    """Returns values for fields of ``NextHop``, and a note on the model to follow the destination's name, or ""."""
    values: dict[str, Any] = {}
    said: list[str] = []
    good = [each for each in tried if not each.failed and each.transmit_s > 0]
    per_recipient_s = _per_recipient(good)
    if per_recipient_s:
        values["recipient_s"] = _number(per_recipient_s)
        times = [max(each.transmit_s - per_recipient_s * each.recipients, 0.0) for each in good]
    elif len(good) >= ENOUGH:
        times = [each.transmit_s for each in good]
    else:
        times = row.transmit_s or [each.transmit_s for each in good]
    transactions = row.deliveries - row.site_failures
    if not per_recipient_s and transactions and row.recipients / transactions > 1.5:
        said.append("the time for one recipient was not measured; every delivery is assumed to take equally long")
    if times:
        values["transaction_s"] = _distribution([each + overhead_s for each in times])
    if row.connect_s:
        values["connect_s"] = round(statistics.fmean(row.connect_s), 6)
    if any(FULL in each.reply for each in tried):
        limit = limit_of(tried)
        if limit is not None:
            values["connections_max"] = limit
            said.append(f"it refused connections (421) when {limit} were open; this is assumed to be its limit")
    elif row.site_failures and row.site_failures == row.deliveries:
        said.append("no delivery reached it; it is assumed to answer from now on")
    if row.recipients:
        deferred = min(row.deferred / row.recipients, 1.0)
        values["deferred_share"] = round(deferred, 6)
        values["bounced_share"] = round(min(row.bounced / row.recipients, 1 - deferred), 6)
    return values, "; ".join(said)


def _per_recipient(good: Sequence[Tried]) -> float:
    """Returns the slope of time over recipients; 0.0 if it is unknown or nothing."""
    counts = [each.recipients for each in good]
    if len(counts) < FIT_MIN or min(counts) == max(counts):
        return 0.0
    slope, base = statistics.linear_regression(counts, [each.transmit_s for each in good])
    if base < 0:  # then all of it is the recipients'
        slope = sum(each.transmit_s for each in good) / sum(counts)
    return max(slope, 0.0)


def _distribution(times: Sequence[float]) -> str:
    """Returns the distribution of the times as a scenario writes it (DISTRIBUTION_FORMS)."""
    ordered = sorted(times)
    if ordered[0] == ordered[-1]:
        return _number(ordered[0])
    steps = min(QUANTILES, len(ordered) - 1)
    places = [place / steps for place in range(steps + 1)]
    return f"quantiles({', '.join(f'{place:.4f}:{_at(ordered, place):.6f}' for place in places)})"


def _at(ordered: Sequence[float], share: float) -> float:
    """Returns the value at a share of the ordered values, interpolated between two of them if necessary."""
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def _number(value: float) -> str:
    return f"constant({value:.6f})"
