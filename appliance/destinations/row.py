"""A destination as the portal shows it: the core's answers about it in one row, and its states as badges.

Law: values only. A value that is missing in the core's answer is None here, never a guess.

Keeps law: one-state (docs/laws.md).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from mailcore.destination_state import IN_TROUBLE, DestinationState
from mailcore.manager_answers import ActiveDestination, Destinations, Outcomes, Reply, StateUntil

__all__ = ["NAMES_MAX", "SORTS", "Badge", "Row", "Table", "badges", "rows_of"]

NAMES_MAX = 1_000  # destinations that the core names in one answer
FULL_METER = 100  # the width of a meter in its own units
_STYLES = {
    DestinationState.TRANSPORT_DEAD: "bad",
    DestinationState.DEAD: "bad",
    DestinationState.SUSPENDED: "warn",
    DestinationState.FAILING: "bad",
    DestinationState.WINDOW_FULL: "accent",
    DestinationState.TRANSPORT_FULL: "accent",
    DestinationState.DELIVERING: "accent",
    DestinationState.READY: "good",
}


@dataclass(frozen=True)
class Badge:
    """Holds one badge: a state as the core calls it. ``kind`` is its style: "", good, warn, bad, accent.

    ``until``: end of the state, on the wall clock.
    """

    words: str
    kind: str = ""
    until: float | None = None


@dataclass
class Row:
    """Holds what the core reported about one destination. None: the core did not report it."""

    name: str
    known: ActiveDestination | Outcomes | None = None  # its outcomes; with mail also the scheduler's state
    queued: int | None = None  # recipients, in all lanes
    states: list[StateUntil] = field(
        default_factory=list
    )  # the first is the one to show; empty: the core does not know it

    @property
    def transport(self) -> str:
        """Returns the name of the transport, the part before the first colon."""
        return self.name.partition(":")[0]

    @property
    def active(self) -> ActiveDestination | None:
        """Returns the scheduler's state; None for a destination without mail."""
        return self.known if isinstance(self.known, ActiveDestination) else None

    @property
    def replies(self) -> list[Reply]:
        """Returns the last replies, the newest first."""
        return self.known.last_replies if self.known else []

    @property
    def last_delivered_at(self) -> float | None:
        """Returns the time of the last delivery, in wall-clock seconds; None if there was none since the manager started."""
        return self.known.last_delivered_at if self.known else None

    @property
    def window(self) -> int | None:
        """Returns the maximum of concurrent deliveries, now."""
        return self.active.window if self.active else None

    @property
    def limit(self) -> int | None:
        """Returns the value that the window never exceeds."""
        return self.active.limit if self.active else None

    @property
    def busy(self) -> int | None:
        """Returns the number of deliveries in progress."""
        return self.active.busy if self.active else None

    @property
    def messages(self) -> int | None:
        """Returns the number of active messages."""
        return self.active.messages if self.active else None

    @property
    def success_share(self) -> float | None:
        """Returns the share delivered: of the attempts of the last minutes or, if these are few, since the manager started."""
        if self.known is None:
            return None
        return self.known.success_share if self.known.recent_share is None else self.known.recent_share

    @property
    def site_failures(self) -> int | None:
        """Returns the number of failures of the site since the manager started."""
        return self.active.site_failures if self.active else None

    @property
    def counts(self) -> dict[str, int]:
        """Returns the recipients by outcome since the manager started."""
        known = self.known or Outcomes()
        return {"delivered": known.delivered, "deferred": known.deferred, "bounced": known.bounced}

    @property
    def dead_until(self) -> float | None:
        """Returns when a dead destination is tried again, in wall-clock seconds; None if it is not dead."""
        return self.active.dead_until if self.active else None

    @property
    def last_reply(self) -> Reply | None:
        """Returns the latest reply that was not a success; None if there is none."""
        return self.replies[0] if self.replies else None

    @property
    def words(self) -> str:
        """Returns why the destination is dead, or else its latest reply that was not a success; "" if there is neither."""
        reason = self.active.reason if self.active else ""
        return reason or (self.last_reply.reply if self.last_reply else "")

    @property
    def suspended(self) -> bool:
        """Returns whether it is suspended, by a suspension of its own or of a pattern."""
        return any(each.state == DestinationState.SUSPENDED for each in self.states)

    @property
    def suspended_until(self) -> float | None:
        """Returns the end of its suspension, in wall-clock seconds; None without an end, and if it is not suspended."""
        return next((each.until for each in self.states if each.state == DestinationState.SUSPENDED), None)

    @property
    def state(self) -> str:
        """Returns its first state; "" if the core does not know it."""
        return self.states[0].state if self.states else ""

    @property
    def in_trouble(self) -> bool:
        """Returns whether it is dead, suspended or failing."""
        return any(each.state in IN_TROUBLE for each in self.states)

    @property
    def meter(self) -> dict[str, float]:
        """Returns the widths of the meter for the window and for the deliveries in progress, in percent of the limit."""
        limit = max(self.limit or 0, self.window or 0, self.busy or 0, 1)
        return {
            "window": round(FULL_METER * (self.window or 0) / limit, 1),
            "busy": round(FULL_METER * (self.busy or 0) / limit, 1),
        }

    @property
    def badges(self) -> list[Badge]:
        """Returns the badges of its states, the first state in front."""
        return badges(self.states)


def badges(states: Iterable[StateUntil]) -> list[Badge]:
    """Returns the badges of a destination's states, in their order."""
    return [Badge(each.state, _STYLES.get(DestinationState(each.state), ""), each.until) for each in states]


@dataclass
class Table:
    """Holds all destinations of an answer to ``destinations``."""

    rows: list[Row]
    unnamed: int  # recipients whose destinations have no name in the core's counts
    may_be_more: bool  # the core named as many as it names at most
    patterns: list[Row]  # suspensions of patterns and of destinations without mail
    unanswered: str  # which shards did not answer, and are not in it; "" if all did


def rows_of(answer: Destinations) -> Table:
    """Returns the table of an answer to ``destinations``: those with mail, with outcomes, and suspended ones, each once."""
    queued = {name: count for name, count in answer.queued.items() if name}
    rows: dict[str, Row] = {}
    for name in dict.fromkeys((*answer.destinations, *queued, *answer.without_mail)):
        known = answer.destinations.get(name) or answer.without_mail.get(name)
        rows[name] = Row(name, known, queued.get(name, 0), answer.states.get(name, []))
    patterns = [Row(name, states=answer.states.get(name, [])) for name in sorted(answer.suspended) if name not in rows]
    full = any(len(each) >= NAMES_MAX for each in (answer.destinations, queued, answer.without_mail))
    return Table(list(rows.values()), answer.queued.get("", 0), full, patterns, answer.unanswered)


def _severity(row: Row) -> int:
    """Returns the rank of its first state: dead before suspended before failing, and all others after these."""
    states = list(DestinationState)
    return next(
        (states.index(DestinationState(each.state)) for each in row.states if each.state in IN_TROUBLE), len(states)
    )


def _number(value: float | None) -> float:
    return -1.0 if value is None else float(value)


# The parameter "sort" of the URL -> key; the biggest first, except for names and shares.
SORTS = {
    "name": lambda row: row.name,
    "trouble": lambda row: (_severity(row), -_number(row.queued)),
    "window": lambda row: -_number(row.window),
    "busy": lambda row: -_number(row.busy),
    "queued": lambda row: -_number(row.queued),
    "messages": lambda row: -_number(row.messages),
    "success": lambda row: 2.0 if row.success_share is None else row.success_share,
    "failures": lambda row: -_number(row.site_failures),
}
