"""The overview: what needs an operator now, rates, destinations in trouble, the queue by lane, the day's balance, and so on."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.template.loader import render_to_string

from appliance.accounts.roles import viewer
from appliance.alerts.open_alerts import open_alerts
from appliance.common.templatetags.waypost import size
from appliance.live.balance import balance_of
from appliance.live.fragments import LiveState, Part
from appliance.live.hub import nothing_known
from appliance.live.listening import hub
from appliance.live.samples import LINES
from appliance.live.views import for_viewers, stream_of
from appliance.queue.moment import given_moment
from appliance.status.needs import needs_of
from appliance.status.past_views import past_overview

__all__ = ["overview", "stream"]

# templates/status/overview/
FRAGMENTS = ("needs", "rates", "first", "trouble", "shards", "lanes", "balance", "processes", "disks")
NOTHING_QUEUED: dict[str, Any] = {
    "messages": None,
    "recipients": None,
    "active": None,
    "in_flight": None,
    "lanes": {},
}


@viewer
def overview(request: HttpRequest) -> HttpResponse:
    """Renders the overview with what is known now, or as it was at a moment."""
    if (moment := given_moment(request)) is not None:
        return past_overview(request, moment)
    listened = hub()
    snapshot = listened.snapshot if listened is not None else nothing_known(time.time())
    return render(request, "status/overview.html", _context(snapshot))


@for_viewers
async def stream(request: HttpRequest) -> HttpResponseBase:
    """Streams the overview."""
    return await stream_of(request, "overview", live_part)


def live_part(state: LiveState) -> Part:
    """Renders the sections of the overview, each by the template of the page; the values are those of the lines."""
    context = _context(state.snapshot)
    fragments = {name: render_to_string(f"status/overview/{name}.html", context) for name in FRAGMENTS}
    return Part(fragments, {"pace": state.snapshot["pace"]})


def _context(snapshot: Mapping[str, Any]) -> dict[str, Any]:
    disks = [
        disk | {"used_share": _used_share(disk), "full": _is_full(disk), "ballast_used": _ballast_used(disk)}
        for disk in snapshot["disks"]
    ]
    balance, known = balance_of(snapshot), {**snapshot, "disks": disks}
    needs, more = needs_of(known, open_alerts(), _fault(snapshot["core"]), balance.difference)
    return {
        "snapshot": {**snapshot, "disks": disks, "queue": snapshot["queue"] or NOTHING_QUEUED},
        "rates": [(name, name.capitalize()) for name in LINES],
        "balance": balance,
        "needs": needs,
        "more_needs": more,
        "is_new": _is_new(snapshot),
    }


def _is_new(snapshot: Mapping[str, Any]) -> bool:
    """Returns True if the core runs and has had no mail since its queue was made; what to do first is shown then.

    Counts that began again later have a note: nothing is known of the time before.
    """
    totals = snapshot["totals"]
    if totals is None or not snapshot["core"]["running"] or totals.get("note", ""):
        return False
    return not any(totals.get(name, 0) for name in ("accepted", "queued_at_start", "queued"))


def _is_full(disk: Mapping[str, Any]) -> bool:
    """Returns True if new mail is refused because of this disk."""
    inodes = disk.get("free_inodes")
    few = inodes is not None and inodes <= disk.get("reserve_inodes", 0)
    return bool(disk["free_bytes"] <= disk["reserve_bytes"]) or few


def _ballast_used(disk: Mapping[str, Any]) -> str:
    """Returns how much of the space for deliveries is left, if they use it; "" if the ballast is whole."""
    left, whole = disk.get("ballast_bytes", 0), disk.get("ballast_bytes_whole", 0)
    inodes, inodes_whole = disk.get("ballast_inodes", 0), disk.get("ballast_inodes_whole", 0)
    if left >= whole and inodes >= inodes_whole:
        return ""
    return f"Deliveries use the ballast: {size(left)} of {size(whole)} and {inodes} of {inodes_whole} inodes left"


def _used_share(disk: Mapping[str, Any]) -> str:
    """Returns the used share of a disk in per cent, as an attribute of SVG."""
    return f"{100 * (1 - disk['free_bytes'] / max(1, disk['total_bytes'])):.1f}"


def _fault(core: Mapping[str, Any]) -> str:
    """Returns what needs an operator's action, as the manager reports it; empty if nothing does."""
    if core["stalled"]:
        return f"Deliveries go out one at a time: {core['stalled']}"
    if core["restored"]:
        return f"Mail is held: {core['restored']}. To release it, filter the queue by this reason."
    if full := core.get("active_full"):
        return f"Mail waits: {full}."
    return f"tuned.toml is damaged: {core['tuned_damage']}" if core["tuned_damage"] else ""
