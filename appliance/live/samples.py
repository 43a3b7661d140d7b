"""Keeps the samples in the database, and makes the lines of a day from them.

All functions are synchronous; the hub calls them in a thread, and they close the thread's database connection at once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from django.conf import settings
from django.db import connections

from appliance.accounts.remembered import forget_ended
from appliance.common.node import own_node
from appliance.live.models import LastSnapshot, Sample
from appliance.live.snapshot import COUNTS, counts_of
from mailcore.control.unanswered import unanswered
from mailcore.manager_answers import Size, State

__all__ = ["LINES", "DatabaseKeeper", "day_lines", "keep_sample"]

LINES = ("accepted", "delivered", "deferred", "bounced")
DAY_MINUTES = 24 * 60
GAP_MINUTES = 3  # longer without a sample, and the line is interrupted
KEPT_NAMES = ("at", "core", "totals", "queue", "destinations", "trouble", "oldest", "oldest_as_of", "disks")
P = ParamSpec("P")
R = TypeVar("R")


def in_thread(function: Callable[P, R]) -> Callable[P, R]:
    """Closes the database connection after each call: outside a request it would stay open as long as the thread."""

    @functools.wraps(function)
    def called(*arguments: P.args, **named: P.kwargs) -> R:
        try:
            return function(*arguments, **named)
        finally:
            connections.close_all()

    return called


class DatabaseKeeper:
    """Keeps samples and the last snapshot in the database."""

    @in_thread
    def load(self) -> dict[str, Any] | None:
        """Returns the last snapshot; None if there is none."""
        row = LastSnapshot.objects.first()
        return None if row is None else dict(row.snapshot)

    @in_thread
    def keep(self, snapshot: dict[str, Any]) -> None:
        """Keeps the sample of a minute, which the first of several portal processes writes, and the snapshot. Forgets sessions
        that were ended.

        Nothing is kept while a shard does not answer: a part would look like a queue that shrank.
        """
        forget_ended()
        if snapshot["core"].get("unanswered"):
            return
        at, totals, queue = snapshot["core"]["as_of"], snapshot["totals"], snapshot["queue"]
        sample = Sample(
            minute=int(at // 60),
            at=at,
            started_at=totals["started_at"],
            messages=queue["messages"],
            recipients=totals["queued"],
            **{name: totals[name] for name in COUNTS},
        )
        Sample.objects.bulk_create([sample], ignore_conflicts=True)
        kept = {name: snapshot[name] for name in KEPT_NAMES}
        LastSnapshot.objects.update_or_create(node=own_node(), defaults={"at": at, "snapshot": kept})
        if sample.minute % 60 == 0:
            Sample.objects.filter(minute__lt=sample.minute - settings.PORTAL.sample_days * DAY_MINUTES).delete()


def keep_sample(at: float, state: State, size: Size) -> None:
    """Keeps the sample of a minute as ``DatabaseKeeper`` does, from the core's answers; not if the minute has one."""
    if unanswered(state, size):
        return
    sample = Sample(
        minute=int(at // 60),
        at=at,
        started_at=state.counted_since,
        messages=size.messages,
        recipients=state.balance.recipients["queued"],
        **counts_of(state),
    )
    Sample.objects.bulk_create([sample], ignore_conflicts=True)


def day_lines(now: float) -> dict[str, list[float | None]]:
    """Returns recipients a minute, and queued messages and recipients, over the last 24 hours; None where no sample exists."""
    told: dict[str, list[float | None]] = {name: [] for name in ("t", *LINES, "messages", "recipients")}
    before: Sample | None = None
    for sample in Sample.objects.filter(minute__gte=int(now // 60) - DAY_MINUTES).order_by("minute"):
        if before is not None:
            if sample.minute - before.minute > GAP_MINUTES:
                _row(told, before.at + 1, None, dict.fromkeys(LINES))
            _row(told, sample.at, sample, _rates(before, sample))
        before = sample
    return told


def _rates(before: Sample, sample: Sample) -> dict[str, float | None]:
    if before.started_at == sample.started_at:
        seconds = sample.at - before.at
        # A bounce that a killed manager wrote last is counted again when it is written again.
        gains = {name: max(getattr(sample, name) - getattr(before, name), 0) for name in LINES}
    else:  # the counts began again between the samples
        seconds = sample.at - max(before.at, sample.started_at)
        gains = {name: getattr(sample, name) for name in LINES}
    return {name: round(gain * 60 / seconds, 1) if seconds > 0 else None for name, gain in gains.items()}


def _row(told: dict[str, list[float | None]], at: float, sample: Sample | None, rates: dict[str, float | None]) -> None:
    told["t"].append(at)
    for name, value in rates.items():
        told[name].append(value)
    for name in ("messages", "recipients"):
        told[name].append(None if sample is None else getattr(sample, name))
