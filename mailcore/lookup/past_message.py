"""A message as it was at a moment, from the records about it up to then: who was left, and in which state.

The records are those that events keep: arrival, verdicts, REPLACED and operators' changes. They do not say when a pass
began, so a recipient that is due is ``queued``: whether it was in the active set, or waited for its destination, is not known.

Pure: no I/O, no clock. Must not know: where the records come from.

Keeps law: past-from-records (docs/laws.md).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping

import msgspec

from mailcore.envelope import Aside, AsideKind, Envelope, Recipient, Status
from mailcore.lookup.answers import DESTINATIONS_SHOWN, RECIPIENTS_SHOWN, PastItem
from mailcore.lookup.next_due import next_due
from mailcore.mail_state import MailState, main_state
from mailcore.queue.aside import NUMBERS, SLACK_S, Change, is_due, named, numbers_in
from mailcore.queue.lanes import DELETED, HOLD, interval_of
from mailcore.queue.records import Administrative

__all__ = ["ADD_RECIPIENTS", "REASON_CHARACTERS", "PastMessage"]

ADD_RECIPIENTS = "add_recipients"
REASON_CHARACTERS = 500  # as browse.REASON_CHARACTERS: of a reply line
_UNCHANGED = frozenset({"bounce", "move"})  # verdicts and REPLACED say what became of them
_UNKNOWN = math.inf  # a time that no record says
_TIMED = (AsideKind.DEFERRED, AsideKind.DELAYED)
_DUE = Recipient(-1, "")
_STATES = {
    AsideKind.DEFERRED: MailState.DEFERRED,
    AsideKind.DELAYED: MailState.DELAYED,
    AsideKind.HELD: MailState.HELD,
    AsideKind.DELETED: MailState.DELETED,
}


class PastMessage:
    """Takes the records of one message, oldest first, and tells its state. Times are wall clock, in seconds."""

    __slots__ = (
        "_gone",
        "_others",
        "_own",
        "_tried",
        "_untried",
        "added",
        "attempts",
        "generation",
        "lane",
        "total",
        "undo_s",
    )

    def __init__(self, recipients: int, lane: str, arrived_at: float, undo_s: float) -> None:
        """``lane``: where it was received; ``undo_s``: how long a deletion can be undone."""
        self.total = recipients  # ever; added ones included
        self.lane = lane
        self.undo_s = undo_s
        self.generation = 0
        self.attempts = 0  # passes
        self.added: dict[int, str] = {}  # number -> address, by operators
        self._own: dict[int, Recipient] = {}  # recipients of which something is known
        self._gone: set[int] = set()
        self._tried = False  # a recipient was deferred in this pass
        self._untried = True
        wait = _wait(lane)
        # Mail that is handed in for later goes into a retry lane; the time itself is in no event, that of the lane is.
        self._others = Recipient(-1, "", aside=Aside(AsideKind.DELAYED, arrived_at + wait)) if wait else _DUE

    # -- the records

    def verdict(self, number: int, status: Status, destination: str, reply: str, at: float) -> None:
        """Adds the verdict of one recipient."""
        self._untried = False
        if status is not Status.DEFERRED:
            self._own.pop(number, None)
            self._gone.add(number)
            return
        known = self._known(number)
        aside = known.aside
        if aside is None or is_due(aside, at):
            aside = Aside(AsideKind.DEFERRED, _UNKNOWN)  # until the pass ends
        self._own[number] = msgspec.structs.replace(known, destination=destination, reply=reply, aside=aside)
        self._tried = True

    def replaced(self, lane: str, at: float) -> None:
        """Adds a REPLACED: the message came to rest in ``lane``."""
        self.generation += 1
        self.attempts += self._tried
        self._tried = False
        self.lane = lane
        if len(self._own) + len(self._gone) < self.total:
            self._others = self._resting(self._others, lane, at)
        self._own = {number: self._resting(each, lane, at) for number, each in self._own.items()}

    def order(self, order: Administrative) -> None:
        """Adds an operator's change. One that cannot be understood changes nothing: the records after it say what it did."""
        if order.operation in _UNCHANGED:
            return
        try:
            if order.operation == ADD_RECIPIENTS:
                self._add(order)
                return
            change = Change(order, age_s=0.0, undo_time_s=self.undo_s)
            numbers = numbers_in(order.arguments.get(NUMBERS))
            if numbers is None:
                self._others = change(self._others)
            else:
                for first, last in zip(*numbers, strict=True):
                    for number in range(first, min(last + 1, self.total)):
                        if number not in self._gone:
                            self._own.setdefault(number, self._known(number))
            self._own = {number: change(each) for number, each in self._own.items()}
        except (ValueError, KeyError, TypeError, AssertionError):
            return

    def _add(self, order: Administrative) -> None:
        addresses = order.arguments.get("recipients", ())
        kinds = {None if each.aside is None else each.aside.kind for each, _ in self._groups()}
        aside = next((each.aside for each, _ in self._groups()), None) if kinds == {AsideKind.HELD} else None
        for address in addresses if isinstance(addresses, list | tuple) else ():
            self._own[self.total] = Recipient(self.total, str(address), aside=aside)
            self.added[self.total] = str(address)
            self.total += 1

    def _known(self, number: int) -> Recipient:
        known = self._own.get(number)
        return msgspec.structs.replace(self._others, number=number) if known is None else known

    def _resting(self, recipient: Recipient, lane: str, at: float) -> Recipient:
        """Returns the recipient as it waits in the lane."""
        aside = recipient.aside
        kind = None if aside is None else aside.kind
        if lane == HOLD:
            if kind is not AsideKind.HELD:
                aside = Aside(AsideKind.HELD, at=at)
        elif lane == DELETED:
            if kind is not AsideKind.DELETED:
                aside = Aside(AsideKind.DELETED, at + self.undo_s, at=at)
        else:
            if aside is not None and aside.kind in _TIMED and is_due(aside, at):
                aside = None
            if wait := _wait(lane):
                if aside is None:
                    aside = Aside(AsideKind.DELAYED if self._untried else AsideKind.DEFERRED, at + wait)
                elif aside.until == _UNKNOWN:
                    aside = msgspec.structs.replace(aside, until=at + wait)
        return recipient if aside is recipient.aside else msgspec.structs.replace(recipient, aside=aside)

    # -- what they say

    @property
    def left(self) -> int:
        """Returns how many recipients are not finished; deleted ones that can be undeleted are among them."""
        return self.total - len(self._gone)

    def _groups(self) -> Iterator[tuple[Recipient, int]]:
        """Yields recipients that are left, and how many are like them."""
        for each in self._own.values():
            yield each, 1
        if (others := self.left - len(self._own)) > 0:
            yield self._others, others

    def states(self, moment: float) -> dict[str, int]:
        """Returns the recipients that are left by state, ``mailcore.mail_state``."""
        states: dict[str, int] = {}
        for each, count in self._groups():
            state = str(_state(each.aside, moment))
            states[state] = states.get(state, 0) + count
        return states

    def destinations(self) -> dict[str, int]:
        """Returns the recipients that are left and not deleted by destination; "" of those that were never tried."""
        found: dict[str, int] = {}
        for each, count in self._groups():
            if each.aside is None or each.aside.kind is not AsideKind.DELETED:
                name = each.route or each.destination
                found[name] = found.get(name, 0) + count
        return found

    def remaining(self, numbers: range) -> list[int]:
        """Returns which of these numbers are not finished."""
        return [number for number in numbers if number not in self._gone]

    def recipients(self, names: Mapping[int, str], moment: float) -> Iterator[Recipient]:
        """Yields the recipients that are left, ascending; ``names``: their addresses, as far as they are known."""
        for number in range(self.total):
            if number not in self._gone:
                known = self._known(number)
                aside = None if _state(known.aside, moment) is MailState.QUEUED else known.aside
                address = known.address or self.added.get(number) or names.get(number, "")
                yield msgspec.structs.replace(known, address=address, aside=aside)

    def item(self, envelope: Envelope, recipients: list[Recipient], moment: float, matching: str = "") -> PastItem:
        """Returns the message as a list shows it. ``envelope``: as received; ``recipients``: those that are left.

        ``matching``: the recipient that was asked for, which is then in front.
        """
        states = self.states(moment)
        kinds = [0] * len(AsideKind)
        for each in recipients:
            if each.aside is not None:
                kinds[each.aside.kind] += 1
        due = next_due(
            msgspec.structs.replace(
                envelope, recipients=tuple(recipients), recipient_count=self.left, aside=named(kinds), due_at=0.0
            )
        )
        shown = [each.address for each in recipients[:RECIPIENTS_SHOWN]]
        if matching:
            shown = [matching, *(each for each in shown if each != matching)][:RECIPIENTS_SHOWN]
        waits = main_state(states) in (MailState.DEFERRED, MailState.DELAYED, MailState.DELETED)
        names = dict.fromkeys(name for each in recipients if (name := each.route or each.destination))
        return PastItem(
            queue_id=envelope.queue_id,
            lane=self.lane,
            generation=self.generation,
            state=main_state(states),
            states=states,
            sender=envelope.sender,
            recipients=shown,
            recipient_count=self.left,
            size_bytes=envelope.size_bytes,
            arrived_at=envelope.arrived_at,
            due_at=due.at if waits and math.isfinite(due.at) else 0.0,
            attempts=self.attempts,
            reason=due.reason[:REASON_CHARACTERS],
            destinations=list(names)[:DESTINATIONS_SHOWN],
        )


@functools.lru_cache(1_000)
def _wait(lane: str) -> float:
    """Returns how long mail waits in a retry lane; 0.0 in others."""
    try:
        return (interval_of(lane, 0) or 0.0) if lane.startswith("retry.") else 0.0
    except ValueError:  # events are not believed
        return 0.0


def _state(aside: Aside | None, moment: float) -> MailState:
    if aside is None or (aside.kind in _TIMED and aside.until <= moment):
        return MailState.QUEUED
    return _STATES[aside.kind]


assert SLACK_S < 60.0  # a pass takes what is due a moment later; the state at that moment is uncertain by this much
