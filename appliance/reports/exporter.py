"""Requests to the core's exporter: a count of the queue before a report, and counts at midnight of the reports' time zone.

Without the core, reports are made from the existing events.
"""

from __future__ import annotations

import logging
from pathlib import Path

from django.conf import settings

from mailcore.config.known_shards import known_shards
from mailcore.control.client import ControlClient, ControlError

__all__ = ["cut", "tell_zone"]

CUT_S = 120.0  # reading what a busy hour left takes seconds
ZONE_S = 5.0  # it is sent again each minute
log = logging.getLogger(__name__)


def _sockets() -> dict[int, Path]:
    """Returns the sockets of the exporters of all shards, by number; none if there is no core."""
    own: Path = settings.EXPORTER_SOCKET
    paths = {shard.number: shard.run_directory / own.name for shard in known_shards(own.parent)} or {0: own}
    return paths if any(path.exists() for path in paths.values()) else {}


def cut(who: str, zone: str) -> str:
    """Exports all events up to now and counts the queue, so that a report includes them. Returns why that failed, or what
    the report lacks; "" if it succeeded or there is no core."""
    tell_zone(zone)
    failed = []
    sockets = _sockets()
    for shard, path in sockets.items():
        try:
            with ControlClient(path, who=who, timeout_s=CUT_S) as exporter:
                exporter.call("cut", {"ids": False})
        except ControlError as error:  # the others are counted all the same
            log.warning("the core could not export events: %s", error)
            why = " ".join(str(error).split()) or type(error).__name__
            failed.append(f"shard {shard}: {why}" if len(sockets) > 1 else why)
    return "; ".join(failed)


def tell_zone(zone: str) -> None:
    """Sends the time zone to the exporters, which store it, and count the queue at midnight in that zone also while
    the portal is not running."""
    for path in _sockets().values():
        try:
            with ControlClient(path, who="reports", timeout_s=ZONE_S) as exporter:
                exporter.call("zone", {"zone": zone})
        except ControlError as error:
            log.info("could not tell the exporter the time zone %s: %s", zone, error)
