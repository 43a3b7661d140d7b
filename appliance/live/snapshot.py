"""Turns the core's answers into the values that live pages show. Values only: no clock, no I/O.

Law: a name or reply that a page shows as text has passed ``visible``; the keys of ``destinations`` are the unchanged names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from django.urls import reverse
from django.utils.http import urlencode

from appliance.common.templatetags.waypost import visible
from appliance.destinations.row import SORTS, rows_of
from mailcore.control.protocol.messages import Oldest
from mailcore.control.protocol.state import Child
from mailcore.manager_answers import Destinations, Outcomes, Size, State

__all__ = [
    "COUNTS",
    "DESTINATIONS_MAX",
    "counts_of",
    "destinations_of",
    "oldest_of",
    "processes_of",
    "queue_of",
    "shards_of",
    "trouble_of",
]

DESTINATIONS_MAX = 100  # those with the most mail; some 15 kB in a snapshot, sent to every reader once a second
REASON_CHARACTERS = 300
# name in a snapshot -> the core's counter; all count recipients since ``counted_since``
COUNTS = {
    "accepted": "recipients_accepted",
    "delivered": "recipients_delivered",
    "deferred": "recipients_deferred",
    "bounced": "recipients_bounced",
    "expired": "recipients_expired",
    "deleted": "recipients_deleted",
    "undeleted": "recipients_undeleted",
    "lost": "recipients_lost",
}
TROUBLE_MAX = 20  # on one page


def counts_of(state: State) -> dict[str, int]:
    """Returns the recipients that were counted, over restarts of the manager."""
    return {name: state.totals[counter] for name, counter in COUNTS.items()}


def shards_of(state: State, size: Size) -> list[dict[str, Any]]:
    """Returns a row for each of several shards, with its node; what is None is not known."""
    sizes = {each.number: each.messages for each in size.by_shard}
    return [
        {
            "number": row.number,
            "name": row.name,
            "node": row.node,
            "is_here": row.is_here,
            "why": "" if row.answers else visible(row.why),
            "messages": sizes.get(row.number),
            "in_flight": row.entries_in_flight,
        }
        for row in state.shards
    ]


def queue_of(state: State, size: Size) -> dict[str, Any]:
    """Returns the size of the queue in all and by lane; lanes in the order in which mail passes through them."""
    lanes: dict[str, Any] = {}
    for lane in sorted({*state.lanes, *size.lanes} - {"deleted"}, key=_lane_order):
        there, known = size.lanes.get(lane), state.lanes.get(lane)
        lanes[lane] = {
            "messages": there.messages if there else 0,
            "recipients": there.recipients if there else 0,
            "interval_s": known.interval_s if known else None,
        }
    return {
        "messages": size.messages,
        "recipients": size.recipients,
        "active": state.active_messages,
        "in_flight": sum(each.in_flight for each in state.deliverers),
        "destinations": len(size.destinations),
        "lanes": lanes,
    }


def _lane_order(lane: str) -> tuple[int, float, str]:
    kind, _, rest = lane.partition(".")
    order = {"incoming": 0, "local": 1, "retry": 2}.get(kind, 3)
    return order, float(rest) if rest.isdecimal() else 0.0, lane


def destinations_of(answer: Destinations) -> dict[str, dict[str, Any]]:
    """Returns the numbers of destinations: those with the most mail first, then suspended ones, then those without mail."""
    queued = answer.queued
    by_mail = sorted({*queued, *answer.destinations} - {""}, key=lambda name: -queued.get(name, 0))
    others = [name for name in [*answer.suspended, *answer.without_mail] if name not in by_mail]
    rows: dict[str, dict[str, Any]] = {}
    for name in [*by_mail[:DESTINATIONS_MAX], *others]:
        if len(rows) >= 2 * DESTINATIONS_MAX:
            break
        active = answer.destinations.get(name)
        rows[name] = {
            "queued": queued.get(name, 0),
            "window": active.window if active else None,
            "limit": active.limit if active else None,
            "busy": active.busy if active else 0,
            "success": active.success if active else None,
            "failure": active.failure if active else None,
        }
    return rows


def oldest_of(oldest: Oldest | None) -> dict[str, Any] | None:
    """Returns the oldest message of an answer to ``ages``, harmless to show."""
    if oldest is None:
        return None
    return {
        "queue_id": oldest.queue_id,
        "arrived_at": oldest.arrived_at,
        "sender": visible(oldest.sender),
        "destination": visible(oldest.destination),
        "url": f"{reverse('queue:search')}?{urlencode({'q': oldest.queue_id})}",
    }


def trouble_of(answer: Destinations) -> list[dict[str, Any]]:
    """Returns the destinations that are in trouble, ``TROUBLE_MAX`` at most: the worst state first, then the most mail."""
    rows = [row for row in rows_of(answer).rows if row.in_trouble]
    rows.sort(key=SORTS["trouble"])
    found: list[dict[str, Any]] = []
    for row in rows[:TROUBLE_MAX]:
        reason, reason_at = _reason(answer, row.name)
        found.append(
            {
                "name": row.name,
                "text": visible(row.name),
                "url": reverse("destinations:one", args=[row.name]),
                "badges": [asdict(badge) for badge in row.badges],
                "queued": row.queued,
                "success_share": row.success_share,
                "reason": reason,
                "reason_at": reason_at,
            }
        )
    return found


def _reason(answer: Destinations, name: str) -> tuple[str, float | None]:
    """Returns the latest reply of the next hop, or else the reason in the core's answer, harmless to show; and its time."""
    active = answer.destinations.get(name)
    outcomes = active or answer.without_mail.get(name) or Outcomes()
    for reply in outcomes.last_replies:
        return visible(reply.reply)[:REASON_CHARACTERS], reply.at
    return visible(active.reason if active else "")[:REASON_CHARACTERS], None


def processes_of(children: Mapping[str, Child]) -> list[dict[str, Any]]:
    """Returns the processes of an answer to ``processes``; empty before the supervisor has recorded them."""
    return [
        {"name": name, "pid": each.pid, "since": each.started_at, "restarts": each.restarts}
        for name, each in children.items()
    ]
