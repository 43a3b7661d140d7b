"""Requests to the core's exporter: a count of the queue before a report, and counts at midnight of the reports' time zone; of
several nodes also the events of all, and which of them mails a report (docs/decisions/0105-reports-over-nodes.md).

Without the core, reports are made from the existing events.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from django.conf import settings

from mailcore.config.known_shards import known_shards
from mailcore.control.client import ControlClient, ControlError
from mailcore.counted import counted
from mailcore.faults import Code

__all__ = ["Gathered", "NotAnswered", "claim_letter", "cut", "gather", "letter_sent", "release_letter", "tell_zone"]

CUT_S = 120.0  # reading what a busy hour left takes seconds
ZONE_S = 5.0  # it is sent again each minute
STEP_S = 180.0  # one step of fetching events; the database is waited for
GATHER_S = 3_600.0  # then the report is made without what is missing, and says so
BUSY_S = 2.0
BACK_DAYS = 11  # fetched before the day: a report reads back ten days for what does not add up
AFTER_DAYS = 2  # the counts behind the day, and the zones west of UTC
LETTER_S = 60.0
SENT_TRIES, SENT_AGAIN_S = 12, 5.0
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


class NotAnswered(Exception):
    """Raised if no exporter of this node answers, or the database does not; the message says why."""


def _ask(operation: str, arguments: dict[str, Any], timeout_s: float) -> dict[str, Any]:
    """Asks the exporters of this node in turn, of which each can answer for all nodes. Raises NotAnswered."""
    why = "no exporter runs on this node"
    for path in _sockets().values():
        if not path.exists():
            continue
        until = time.monotonic() + timeout_s
        while True:
            try:
                with ControlClient(path, who="reports", timeout_s=timeout_s) as exporter:
                    answer: dict[str, Any] = exporter.call(operation, arguments)
                    return answer
            except ControlError as error:
                why = " ".join(str(error).split()) or type(error).__name__
                if error.code is not Code.BUSY or time.monotonic() > until:
                    break
            time.sleep(BUSY_S)
    raise NotAnswered(why)


class Gathered(NamedTuple):
    """The result of fetching the events of all nodes: why the database could not be asked, or what it could not give."""

    fault: str = ""
    lacks: str = ""


def gather(day: date, heard: Callable[[], bool] = lambda: True) -> Gathered:
    """Lets the core fetch the events of all nodes that a report of the day reads. ``heard`` is called before each step, and
    returns False to end it."""
    days = {"since": day - timedelta(days=BACK_DAYS), "until": day + timedelta(days=AFTER_DAYS)}
    arguments = {**{name: each.isoformat() for name, each in days.items()}, "keep": days["since"].isoformat()}
    until = time.monotonic() + GATHER_S
    try:
        while True:
            if not heard():
                return Gathered("stopped")
            answer = _ask("gather", arguments, STEP_S)
            if not answer["more"]:
                break
            if time.monotonic() > until:
                raise NotAnswered(f"it takes longer than {GATHER_S:.0f} s")
    except NotAnswered as error:
        log.warning("the events of all nodes could not be fetched: %s", error)
        return Gathered(f"the events of all nodes could not be fetched: {error}")
    many = answer["missing"]
    return Gathered(lacks=f"{counted(many, 'event file')} could not be fetched from the database" if many else "")


def claim_letter(day: date) -> dict[str, Any]:
    """Returns whether this node mails the report of the day now (``ours``), or which ``node`` does, and the queue id if it
    was ``sent``. Raises NotAnswered."""
    return _ask("letter", {"day": day.isoformat()}, LETTER_S)


def release_letter(day: date) -> None:
    """Gives the turn to another node: nothing was handed in. Without an answer the others wait for some minutes."""
    with contextlib.suppress(NotAnswered):
        _ask("letter", {"day": day.isoformat(), "release": True}, LETTER_S)


def letter_sent(day: date, queue_id: str, tries: int = SENT_TRIES) -> str:
    """Notes for the other nodes that the report was mailed; tries for a minute. Returns why that failed; "" if it succeeded."""
    why = ""
    for attempt in range(tries):
        if attempt:
            time.sleep(SENT_AGAIN_S)
        try:
            _ask("letter", {"day": day.isoformat(), "sent": queue_id}, LETTER_S)
        except NotAnswered as error:
            why = str(error)
        else:
            return ""
    return why


def tell_zone(zone: str) -> None:
    """Sends the time zone to the exporters, which store it, and count the queue at midnight in that zone also while
    the portal is not running."""
    for path in _sockets().values():
        try:
            with ControlClient(path, who="reports", timeout_s=ZONE_S) as exporter:
                exporter.call("zone", {"zone": zone})
        except ControlError as error:
            log.info("could not tell the exporter the time zone %s: %s", zone, error)
