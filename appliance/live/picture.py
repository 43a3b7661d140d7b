"""From the core's answers to what live pages show. Values only: no clock, no I/O.

Law: a name or reply that a page shows as text has gone through ``visible``; keys of ``destinations`` are the names as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from appliance.core.templatetags.waypost import visible

__all__ = ["COUNTS", "DESTINATIONS_MAX", "Trouble", "counts_of", "destinations_of", "processes_of", "queue_of"]

DESTINATIONS_MAX = 100  # with the most mail; a picture of them is some 15 kB, and goes to every reader once a second
REASON_CHARACTERS = 300
# what a picture calls it -> the core's counter; all count recipients, since the manager's start
COUNTS = {
    "accepted": "recipients_accepted",
    "delivered": "recipients_delivered",
    "deferred": "recipients_deferred",
    "bounced": "recipients_bounced",
    "expired": "recipients_expired",
    "deleted": "recipients_deleted",
    "undeleted": "recipients_undeleted",
}
LOW_SHARE = 0.75  # of the tries of the last minutes; below, a destination is in trouble
TRIES_MIN = 10  # fewer say nothing


def counts_of(state: Mapping[str, Any]) -> dict[str, int]:
    counters = state["counters"]
    return {name: int(counters[counter]) for name, counter in COUNTS.items()}


def queue_of(state: Mapping[str, Any], size: Mapping[str, Any]) -> dict[str, Any]:
    lanes: dict[str, Any] = {}
    for lane in sorted({*state["lanes"], *size["lanes"]} - {"deleted"}, key=_lane_order):
        there = size["lanes"].get(lane, {"messages": 0, "recipients": 0})
        interval = state["lanes"].get(lane, {}).get("interval_s")
        lanes[lane] = {"messages": there["messages"], "recipients": there["recipients"], "interval_s": interval}
    return {
        "messages": size["messages"],
        "recipients": size["recipients"],
        "active": state["active_messages"],
        "in_flight": sum(each["in_flight"] for each in state["deliverers"]),
        "destinations": len(size["destinations"]),
        "lanes": lanes,
    }


def _lane_order(lane: str) -> tuple[int, float, str]:
    kind, _, rest = lane.partition(".")
    order = {"incoming": 0, "local": 1, "retry": 2}.get(kind, 3)
    return order, float(rest) if rest.isdecimal() else 0.0, lane


def destinations_of(answer: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Those with the most mail, then the suspended ones; numbers only."""
    rows, idle = answer["destinations"], answer["without_mail"]
    queued, suspended = answer["queued"], answer["suspended"]
    by_mail = sorted({*queued, *rows} - {""}, key=lambda name: -queued.get(name, 0))
    told: dict[str, dict[str, Any]] = {}
    for name in [*by_mail[:DESTINATIONS_MAX], *(name for name in [*suspended, *idle] if name not in by_mail)]:
        if len(told) >= 2 * DESTINATIONS_MAX:
            break
        row = rows.get(name, {})
        known = row or idle.get(name, {})
        told[name] = {
            "queued": queued.get(name, 0),
            "window": row.get("window"),
            "limit": row.get("limit"),
            "busy": row.get("busy", 0),
            "dead_until": row.get("dead_until"),
            "suspended": name in suspended or bool(row.get("suspended")),
            "suspended_until": suspended.get(name) or row.get("suspended_until"),
            "delivered": known.get("delivered", 0),
            "deferred": known.get("deferred", 0),
            "bounced": known.get("bounced", 0),
            "success": known.get("success_share"),
        }
    return told


def reason_of(answer: Mapping[str, Any], name: str) -> tuple[str, float | None]:
    """In the remote's own words, made harmless; and when it said so."""
    row = answer["destinations"].get(name) or answer["without_mail"].get(name) or {}
    replies: Iterable[Mapping[str, Any]] = row.get("last_replies") or ()
    for reply in replies:
        return visible(reply["reply"])[:REASON_CHARACTERS], reply["at"]
    return visible(row.get("reason") or "")[:REASON_CHARACTERS], None


class Trouble:
    """Which destinations are in trouble, and how."""

    MOST = 20  # on one page

    @staticmethod
    def kind(row: Mapping[str, Any], tries: float, share: float | None) -> str:
        """ "" for none. ``tries`` and ``share`` are of the last minutes."""
        if row["suspended"]:
            return "suspended"
        if row["dead_until"] is not None:
            return "dead"
        if share is not None and tries >= TRIES_MIN and share < LOW_SHARE:
            return "low success"
        if row["window"] == 1 and (row["limit"] or 0) > 1 and row["queued"]:
            return "window collapsed"
        return ""


def processes_of(pids: Mapping[str, int], seen: dict[str, list[Any]], now: float) -> list[dict[str, Any]]:
    """``seen``: name -> [pid, since, restarts], kept by who calls; a process that is gone stays, with pid None."""
    for name, pid in pids.items():
        known = seen.setdefault(name, [pid, now, 0])
        if known[0] != pid:
            seen[name] = [pid, now, known[2] + 1]
    return [
        {"name": name, "pid": pids.get(name), "since": since, "restarts": restarts}
        for name, (_, since, restarts) in seen.items()
    ]
