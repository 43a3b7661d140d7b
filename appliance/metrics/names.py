"""The names of the portal's metrics, with their kinds, for the documents."""

from __future__ import annotations

__all__ = ["NAMES"]

NAMES = {
    "waypost_portal_requests": "counter",
    "waypost_portal_request_seconds": "histogram",
    "waypost_portal_live_streams": "gauge",
    "waypost_portal_database_up": "gauge",
    "waypost_portal_reports": "gauge",
    "waypost_portal_report_age_seconds": "gauge",
}
