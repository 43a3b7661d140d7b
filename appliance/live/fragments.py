"""The live parts of pages: the server renders them once a tick for all readers who see the same.

A ``LivePage`` renders the part of the hub's state that a page shows; a ``Channel`` encodes the event that goes to each reader
of the page. Live parts use the templates of the page itself, so that every number has one format.

Law: the cost of rendering depends on the number of different pages that are open, not on the number of readers.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from datetime import tzinfo
from typing import Any

from django.template.loader import render_to_string
from django.utils import timezone

from appliance.alerts.open_alerts import open_alerts
from appliance.live.samples import in_thread

__all__ = ["Channel", "LivePage", "LiveState", "Part", "frame_fragments", "page_in_zone"]

_LINE_BREAK = re.compile(r"\n\s*")  # of a template; in what the core reports, line breaks are written out
_log = logging.getLogger("waypost.live")


@dataclass(frozen=True, slots=True)
class LiveState:
    """Holds the hub's state at one moment: its snapshot, and the last answer to ``destinations`` (None before the first)."""

    snapshot: Mapping[str, Any]
    destinations: Any = None


@dataclass(frozen=True, slots=True)
class Part:
    """Holds the live part of a page. ``fragments``: id of an element -> its HTML. ``values``: numbers for lines."""

    fragments: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class LivePage:
    """Describes a live page. Readers whose pages have the same ``key`` see the same. ``render`` is called in a thread."""

    key: Hashable
    render: Callable[[LiveState], Part] = field(compare=False)


def page_in_zone(name: str, zone: tzinfo, render: Callable[[LiveState], Part] | None = None) -> LivePage:
    """Returns a page whose times are in a reader's time zone; without ``render``, one that shows its frame only."""

    def render_in_zone(state: LiveState) -> Part:
        with timezone.override(zone):
            frame = frame_fragments(state.snapshot)
            try:
                part = render(state) if render is not None else Part()
            except Exception:  # an error of the database must not hide that the core is down
                _log.exception("the live part of %s cannot be rendered", name)
                return Part(frame)
        return Part({**frame, **part.fragments}, part.values)

    return LivePage((name, str(zone)), render_in_zone)


def frame_fragments(snapshot: Mapping[str, Any]) -> dict[str, str]:
    """Renders what every page shows: whether the core runs, the age of the numbers, the size of the queue, and open alerts."""
    context = {"core": snapshot["core"], "queue": snapshot["queue"]}
    return {
        "core-status": render_to_string("live/core_status.html", context),
        "stale": render_to_string("live/stale.html", context),
        "queue-total": render_to_string("live/queue_total.html", context),
        "alerts-count": render_to_string("live/alerts_count.html", {"alerts": open_alerts()}),
    }


class Channel:
    """Encodes the events of one page. ``full`` has all fragments; ``delta`` those that changed since the previous event."""

    def __init__(self, page: LivePage) -> None:
        self.page = page
        self.readers = 0
        self.number = -1  # of the snapshot that was rendered last
        self.previous = -1  # of the one before, on which ``delta`` builds
        self.full = b""
        self.delta = b""
        self._fragments: dict[str, str] = {}

    @in_thread
    def update(self, state: LiveState) -> None:
        """Renders a state and encodes its events. Raises ValueError for a number that JSON cannot hold."""
        part = self.page.render(state)
        rendered = {name: _LINE_BREAK.sub(" ", html) for name, html in part.fragments.items()}
        changed = {name: html for name, html in rendered.items() if self._fragments.get(name) != html}
        fragments = {**self._fragments, **rendered}
        core = state.snapshot["core"]
        head = {
            "at": state.snapshot["at"],
            "number": state.snapshot["number"],
            "core": {"running": core["running"], "as_of": core["as_of"]},
            **part.values,
        }
        self.full, self.delta = (_event(head | {"fragments": each}) for each in (fragments, changed))
        self._fragments = fragments
        self.previous, self.number = self.number, int(state.snapshot["number"])

    def event_after(self, number: int) -> bytes:
        """Returns the newest event for a reader who has the event of snapshot ``number`` (-1: none)."""
        return self.delta if number == self.previous and number >= 0 else self.full


def _event(data: Mapping[str, Any]) -> bytes:
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return f"event: live\ndata: {text}\n\n".encode()
