"""Which recipients of a message a change selects: those that match the filter, are not finished, and that the change fits.

The manager decides again when it makes the change; here the same rules count what it would touch. Pure: no I/O, no clock.

Keeps law: change-of-its-recipients (docs/laws.md).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TypeVar

from mailcore.change_rules import MessageState, refusal
from mailcore.envelope import Aside, AsideKind, Envelope, Recipient
from mailcore.lookup.answers import Selected
from mailcore.queue.aside import numbers_in, ranges_of, state_of, with_its_state
from mailcore.queue.lanes import DELETED, HOLD, state_in

__all__ = ["Selection", "states_in", "without"]

T = TypeVar("T")


class Selection:
    """Selects recipients for one change."""

    def __init__(self, change: str, now: float, *, scheduled: bool = False) -> None:
        """``scheduled``: a retry also selects recipients that are delayed."""
        self.change = change
        self._now = now
        self._no_delayed = change == "retry" and not scheduled

    def lanes(self, lanes: Mapping[str, T]) -> dict[str, T]:
        """Returns the lanes in which the change may fit a recipient.

        In all lanes but two, a message may have recipients in any state: it rests where the first of them is due.
        """
        return {
            lane: value
            for lane, value in lanes.items()
            if lane not in (HOLD, DELETED) or not refusal(self.change, state_in(lane))
        }

    def may_fit(self, envelope: Envelope, lane: str) -> bool:
        """Returns False if the envelope alone says that the change fits none of its recipients."""
        return any(not refusal(self.change, state) for state in states_in(envelope, lane))

    def fits_all(self, envelope: Envelope, lane: str) -> bool:
        """Returns True if the envelope alone says that the change fits each of its recipients."""
        if self._no_delayed and (envelope.not_before > self._now or "delayed" in envelope.aside):
            return False
        return all(not refusal(self.change, state) for state in states_in(envelope, lane))

    def fits(self, recipient: Recipient, envelope: Envelope, lane: str) -> bool:
        """Returns True if the change fits this recipient."""
        aside = with_its_state(recipient, envelope, lane, self._now).aside
        if self._no_delayed and aside is not None and aside.kind is AsideKind.DELAYED:
            return False
        return not refusal(self.change, state_of(aside, state_in(lane)))


def states_in(envelope: Envelope, lane: str, otherwise: MessageState | None = None) -> set[MessageState]:
    """Returns the states that recipients of a message have; ``otherwise`` replaces the state that the lane says."""
    base = otherwise or state_in(lane)
    states = {_STATES[name] for name in envelope.aside if name in _STATES}
    if sum(envelope.aside.values()) < envelope.recipient_count:
        states.add(base)
    return states


_STATES = {kind.name.lower(): state_of(Aside(kind), MessageState.WAITING) for kind in AsideKind}


def without(ranges: Iterable[Iterable[int]], done: Collection[int]) -> Selected:
    """Returns the selected recipients that are not done."""
    gone = frozenset(done)
    numbers = numbers_in(list(ranges))
    assert numbers is not None
    left = [
        number for first, last in zip(*numbers, strict=True) for number in range(first, last + 1) if number not in gone
    ]
    return Selected(len(left), ranges_of(left))
