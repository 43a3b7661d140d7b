"""The paths of the pages that alerts link to. A test compares them with the tables of addresses.

They are written here, because ``reverse`` would load all pages of the portal into the watch.
"""

from __future__ import annotations

from datetime import date
from urllib.parse import quote

__all__ = ["AGES", "ALERTS", "DESTINATIONS", "OVERVIEW", "REPORTS", "destination", "report", "rule"]

OVERVIEW, DESTINATIONS, AGES, REPORTS, ALERTS = "/", "/destinations/", "/queue/ages/", "/reports/", "/alerts/"
_SAFE = "!*'();:@&=+$,/~"  # as reverse leaves them


def destination(name: str) -> str:
    """Returns the path of the page of a destination."""
    return f"{DESTINATIONS}{quote(name, safe=_SAFE)}/"


def report(day: date) -> str:
    """Returns the path of the report of a day."""
    return f"{REPORTS}day/{day.isoformat()}/"


def rule(name: str) -> str:
    """Returns the path of the page of a rule."""
    return f"{ALERTS}rules/{name}/"
