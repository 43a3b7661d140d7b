"""The paths of the pages that alerts link to. A test compares them with the tables of addresses.

They are written here, because ``reverse`` would load all pages of the portal into the watch.
"""

from __future__ import annotations

from datetime import date
from urllib.parse import quote

__all__ = [
    "AGES", "ALERTS", "DESTINATIONS", "LOG", "OVERVIEW", "REPORTS", "bounces_of", "destination", "log_of_host",
    "report", "rule", "webhook",
]  # fmt: skip

OVERVIEW, DESTINATIONS, AGES, REPORTS, ALERTS = "/", "/destinations/", "/queue/ages/", "/reports/", "/alerts/"
LOG = "/log/"
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


def bounces_of(domain: str) -> str:
    """Returns the path of the log with the bounces of mail from a domain."""
    return f"{LOG}?sender={quote(f'*@{_literal(domain)}', safe='')}&status=bounced"


def log_of_host(relay: str) -> str:
    """Returns the path of the log with the deliveries to a host, ``name[address]:port``."""
    return f"{LOG}?event=delivery&destination={quote(_literal(relay), safe='')}"


def _literal(text: str) -> str:
    """Returns text as a pattern that matches it alone."""
    return "".join(f"\\{each}" if each in "*?\\" else each for each in text)


def webhook(number: int) -> str:
    """Returns the path of the page of a webhook."""
    return f"/webhooks/{number}/"
