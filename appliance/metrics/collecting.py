"""Collects the portal's metrics for one scrape: the numbers of all its processes, and the reports' from the database.

A number that is not known is left out, never 0. Without an answer of the database its numbers are missing, and
``waypost_portal_database_up`` is 0.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from django.db import DatabaseError
from django.db.models import Count, Max
from django.utils import timezone
from prometheus_client import CollectorRegistry, generate_latest, multiprocess
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from appliance.reports.models import Run, State

__all__ = ["DIRECTORY", "text"]

DIRECTORY = "PROMETHEUS_MULTIPROC_DIR"  # in the environment, as prometheus-client reads it when it is imported
_OF_A_PROCESS = re.compile(r"_([0-9]+)\.db\Z")


class _Reports(Collector):
    """Reads the runs of the reports, which Celery's tasks make."""

    def collect(self) -> Iterator[Metric]:
        up = GaugeMetricFamily("waypost_portal_database_up", "1 if the portal's database answers, else 0.")
        runs = GaugeMetricFamily(
            "waypost_portal_reports", "Reports that were requested, by the state of their task.", labels=("state",)
        )
        age = GaugeMetricFamily("waypost_portal_report_age_seconds", "Time since a report was last made.")
        try:
            counts = dict(Run.objects.order_by().values_list("state").annotate(Count("id")))
            made_at = Run.objects.filter(state__in=(State.DONE, State.RED)).aggregate(Max("ended_at"))["ended_at__max"]
        except DatabaseError:
            up.add_metric((), 0)
            yield up
            return
        up.add_metric((), 1)
        for state in State.values:
            runs.add_metric((state,), counts.get(state, 0))
        yield up
        yield runs
        if made_at is not None:
            age.add_metric((), (timezone.now() - made_at).total_seconds())
            yield age


def text() -> bytes:
    """Returns the metrics of all portal processes."""
    registry = CollectorRegistry()
    directory = os.environ[DIRECTORY]
    _forget_dead(Path(directory))
    multiprocess.MultiProcessCollector(registry, path=directory)  # type: ignore[no-untyped-call]
    registry.register(_Reports())
    return generate_latest(registry)


def _forget_dead(directory: Path) -> None:
    """Removes the gauges of processes that have ended; their counters stay."""
    for file in directory.glob("gauge_live*.db"):
        match = _OF_A_PROCESS.search(file.name)
        if match is not None and not Path(f"/proc/{match[1]}").exists():
            file.unlink(missing_ok=True)
