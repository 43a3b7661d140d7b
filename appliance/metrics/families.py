"""The metrics of the portal that its processes count: requests, their times, and streams that are open.

prometheus-client keeps the numbers of each process in files of one directory, and the page adds them up: so any process can
answer for all. The directory is emptied when the portal starts (``manage.py serve``).
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

__all__ = ["REQUESTS", "REQUEST_SECONDS", "STREAMS"]

_OWN = CollectorRegistry()  # the page reads the files; this one is only asked for if there is one process
BOUNDS_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)

REQUESTS = Counter(
    "waypost_portal_requests",
    "Requests to the portal, by page and class of the answer.",
    ("view", "status"),
    registry=_OWN,
)
REQUEST_SECONDS = Histogram(
    "waypost_portal_request_seconds",
    "Time until the portal answered, by page.",
    ("view",),
    buckets=BOUNDS_S,
    registry=_OWN,
)
STREAMS = Gauge("waypost_portal_live_streams", "Live pages that are open.", registry=_OWN, multiprocess_mode="livesum")
