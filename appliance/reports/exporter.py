"""Requests to the core's exporter: a count of the queue before a report, and counts at midnight of the reports' time zone.

Without the core, reports are made from the existing events.
"""

from __future__ import annotations

import logging

from django.conf import settings

from mailcore.control.client import ControlClient, ControlError

__all__ = ["cut", "tell_zone"]

CUT_S = 120.0  # reading what a busy hour left takes seconds
ZONE_S = 5.0  # it is sent again each minute
log = logging.getLogger(__name__)


def cut(who: str, zone: str) -> str:
    """Exports all events up to now and counts the queue, so that a report includes them. Returns why that failed; "" if
    it succeeded or there is no core."""
    if not settings.EXPORTER_SOCKET.exists():
        return ""
    tell_zone(zone)
    try:
        with ControlClient(settings.EXPORTER_SOCKET, who=who, timeout_s=CUT_S) as exporter:
            exporter.call("cut", {"ids": False})
    except ControlError as error:
        log.warning("the core could not export events: %s", error)
        return " ".join(str(error).split()) or type(error).__name__
    return ""


def tell_zone(zone: str) -> None:
    """Sends the time zone to the exporter, which stores it, and counts the queue at midnight in that zone also while
    the portal is not running."""
    if not settings.EXPORTER_SOCKET.exists():
        return
    try:
        with ControlClient(settings.EXPORTER_SOCKET, who="reports", timeout_s=ZONE_S) as exporter:
            exporter.call("zone", {"zone": zone})
    except ControlError as error:
        log.info("could not tell the exporter the time zone %s: %s", zone, error)
