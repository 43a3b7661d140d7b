"""The state of a recipient that is not tried with the others, and what an operator's change makes of it.

A change applies to recipients, so a message may have some that are held while others are delivered. No message is split: it
rests where its first recipient is due, and each pass tries those recipients that are due then.

- law: held-until-released. Only a release ends a hold. A reroute, a delay, added recipients, an undelete and a restore keep it.
- law: change-of-its-recipients. A change touches the recipients that it names; the others keep their time and their route.
- law: aside-is-copied. Every rewrite of a message copies the state of each recipient.

Pure: no I/O, no clock.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from mailcore.change_rules import MessageState, refusal
from mailcore.envelope import Aside, AsideKind, Envelope, Recipient
from mailcore.mail_state import MailState, states_at_rest
from mailcore.queue.lanes import AT_ONCE, DELETED, HOLD, Ladder, interval_of, retry_lane
from mailcore.queue.records import Administrative

__all__ = [
    "CODE",
    "DATA_DAMAGED",
    "HELD",
    "MOVE",
    "NUMBERS",
    "OURSELVES",
    "PAUSES",
    "RANGES_MAX",
    "SLACK_S",
    "Change",
    "Place",
    "Tally",
    "counts_of",
    "has_more_to_say",
    "is_due",
    "named",
    "numbers_in",
    "paused_s",
    "ranges_of",
    "state_of",
    "state_with_message",
    "states_of",
    "with_its_state",
]

NUMBERS = "numbers"  # argument of a change: [[first, last], ...] of the recipients it applies to; without it, to all
HELD = "held_because"  # argument of an undelete: what is undeleted is held for this reason
CODE = "code"  # argument of a hold that Waypost ordered itself: why, for programs
DATA_DAMAGED = "data_damaged"
OURSELVES = "waypost"  # orders a change that no operator ordered
MOVE = "move"  # of ours, without a record: the message is written again, and nothing of it changes
RANGES_MAX = 1_000  # of one record, so that it stays small
SLACK_S = 1.0  # a recipient may be tried this long before its time: a pass of its own would cost more

PAUSES = (AsideKind.HELD, AsideKind.DELAYED, AsideKind.DELETED)  # time that does not count for the queue lifetime


def is_due(aside: Aside | None, now: float) -> bool:
    """Returns True if a pass that runs now takes the recipient: to try it, or to end a deletion."""
    return aside is None or (aside.kind is not AsideKind.HELD and aside.until <= now + SLACK_S)


def counts_of(envelope: Envelope, lane: str) -> tuple[int, int]:
    """Returns how many recipients count as queued in this lane, and how many are deleted and can be undeleted."""
    if lane == DELETED:  # the lane has a count of its own
        return envelope.recipient_count, 0
    deleted = envelope.aside.get("deleted", 0)
    return envelope.recipient_count - deleted, deleted


def with_its_state(recipient: Recipient, envelope: Envelope, lane: str, now: float) -> Recipient:
    """Returns the recipient with the state that the message has as a whole: as older versions wrote it, and as injected."""
    if recipient.aside is not None:
        return recipient
    aside: Aside | None = None
    at = envelope.written_at
    if envelope.not_before > now:
        aside = Aside(AsideKind.DELAYED, envelope.not_before, envelope.age_s, at=at)
    if lane == DELETED:
        if envelope.held_before is not None:
            aside = Aside(AsideKind.HELD, 0.0, envelope.age_s, envelope.held_before, at, aside)
        aside = Aside(AsideKind.DELETED, envelope.due_at, envelope.age_s, envelope.held_because, at, aside)
    elif lane == HOLD or envelope.held_because:
        aside = Aside(AsideKind.HELD, 0.0, envelope.age_s, envelope.held_because, at, aside)
    return recipient if aside is None else msgspec.structs.replace(recipient, aside=aside)


def has_more_to_say(envelope: Envelope) -> bool:
    """Returns True if some recipient of a message in a retry lane waits for more than its next attempt."""
    return bool(envelope.aside or envelope.not_before or envelope.first_due_at or envelope.held_because)


def states_of(envelope: Envelope, lane: str, now: float) -> dict[str, int]:
    """Returns the recipients of a message that rests in ``lane``, by state."""
    return states_at_rest(envelope.recipient_count, envelope.aside, state_with_message(envelope, lane, now))


def state_with_message(envelope: Envelope, lane: str, now: float) -> MailState:
    """Returns the state of those recipients of a message at rest that have none of their own, as ``with_its_state``."""
    if lane == DELETED:
        return MailState.DELETED
    if lane == HOLD or envelope.held_because:
        return MailState.HELD
    if envelope.not_before > now:
        return MailState.DELAYED
    return MailState.DEFERRED if interval_of(lane, 0) else MailState.QUEUED


def state_of(aside: Aside | None, otherwise: MessageState) -> MessageState:
    """Returns a recipient's state; ``otherwise`` is that of what is neither held nor deleted nor waits for a time."""
    if aside is None:
        return otherwise
    if aside.kind is AsideKind.HELD:
        return MessageState.HELD
    return MessageState.DELETED if aside.kind is AsideKind.DELETED else MessageState.WAITING


class Change:
    """Applies one operator's change to recipients."""

    def __init__(self, order: Administrative, *, age_s: float, undo_time_s: float) -> None:
        """Prepares the change; ``age_s`` is the message's age."""
        self.operation = order.operation
        self._order = order
        self._age_s = age_s
        self._undo_time_s = undo_time_s
        self._numbers = numbers_in(order.arguments.get(NUMBERS))

    def covers(self, number: int) -> bool:
        """Returns True if the change applies to the recipient of this number."""
        if self._numbers is None:
            return True
        firsts, lasts = self._numbers
        at = bisect.bisect_right(firsts, number) - 1
        return at >= 0 and number <= lasts[at]

    def refusal(self, recipient: Recipient, otherwise: MessageState) -> str:
        """Returns why the change does not fit the recipient's state; "" if it fits."""
        if self.operation in (MOVE, "add_recipients"):
            return ""
        return refusal(self.operation, state_of(recipient.aside, otherwise))

    def bounces(self, recipient: Recipient) -> bool:
        """Returns True if the change returns the recipient to the sender."""
        return self.operation == "bounce" and self.covers(recipient.number) and not self.refusal(recipient, _DUE)

    def __call__(self, recipient: Recipient) -> Recipient:
        """Returns the recipient as the change leaves it; unchanged if it does not apply to it, or does not fit."""
        operation = self.operation
        if operation in _OTHERS or not self.covers(recipient.number) or self.refusal(recipient, _DUE):
            return recipient
        order, aside = self._order, recipient.aside
        replace = msgspec.structs.replace
        if operation == "hold":
            held = Aside(AsideKind.HELD, 0.0, self._since(aside), order.why, order.at, _delayed(aside))
            return replace(recipient, aside=held)
        if operation == "delete":
            until = order.at + self._undo_time_s
            # Older versions wrote what was held before into the order.
            if HELD in order.arguments and (aside is None or aside.kind is not AsideKind.HELD):
                aside = self._held(order, aside)
            # A wait between two attempts is not restored: what is undeleted is due at once.
            before = aside if aside is not None and aside.kind in PAUSES else None
            return replace(recipient, aside=Aside(AsideKind.DELETED, until, self._age_s, order.why, order.at, before))
        if operation == "delay":
            delayed = Aside(AsideKind.DELAYED, float(order.arguments["until"]), self._since(aside), order.why, order.at)
            if aside is not None and aside.kind is AsideKind.HELD:
                return replace(recipient, aside=msgspec.structs.replace(aside, before=delayed))
            return replace(recipient, aside=delayed)
        if operation == "reroute":
            route = str(order.arguments["route"])
            moved = replace(recipient, route=route)
            return self._back(moved, None) if aside is not None and aside.kind is AsideKind.DEFERRED else moved
        if operation == "undelete":
            assert aside is not None
            before = aside.before
            if HELD in order.arguments and (before is None or before.kind is not AsideKind.HELD):
                before = self._held(order, before)
            return self._back(recipient, before)
        if operation == "release":
            assert aside is not None
            return self._back(recipient, aside.before)
        assert operation == "retry", operation
        return self._back(recipient, None)

    def _held(self, order: Administrative, aside: Aside | None) -> Aside:
        return Aside(AsideKind.HELD, 0.0, self._since(aside), str(order.arguments[HELD]), order.at, _delayed(aside))

    def _since(self, aside: Aside | None) -> float:
        """Returns the age at which the recipient was put aside: now, unless it was aside before."""
        return aside.age_s if aside is not None and aside.kind in PAUSES else self._age_s

    def _back(self, recipient: Recipient, before: Aside | None) -> Recipient:
        aside = recipient.aside
        if before is not None or aside is None or aside.kind not in PAUSES:
            return msgspec.structs.replace(recipient, aside=before)
        return msgspec.structs.replace(recipient, aside=None, paused_s=paused_s(recipient, self._age_s))


def paused_s(recipient: Recipient, age_s: float) -> int:
    """Returns the seconds of the message's age that do not count for a recipient that is due again."""
    aside = recipient.aside
    if aside is None or aside.kind not in PAUSES:
        return recipient.paused_s
    return recipient.paused_s + max(round(age_s - aside.age_s), 0)


def _delayed(aside: Aside | None) -> Aside | None:
    return aside if aside is not None and aside.kind is AsideKind.DELAYED else None


class Place(NamedTuple):
    """Describes where a message comes to rest.

    ``interval_s`` is the lane's. ``due_at`` is for recipients that are not aside: 0.0 is at once. ``first_due_at`` and
    ``not_before`` are the fields of the envelope.
    """

    lane: str
    interval_s: int
    first_due_at: float = 0.0
    not_before: float = 0.0


class Tally:
    """Counts the recipients of a message by their state, and tells where the message rests: where the first one is due."""

    def __init__(self, now: float) -> None:
        self._now = now
        self.recipients = 0
        self.kinds = [0] * len(AsideKind)
        self.due = 0  # recipients that the next pass takes
        self.first: float | None = None  # the time of the first that it does not take
        self.last = 0.0
        self.why = ""  # the reason of the last one that is held or deleted
        self.held_before: str | None = None  # the reason for which the last one was held when it was deleted

    def add(self, recipient: Recipient) -> None:
        """Counts one recipient."""
        self.recipients += 1
        aside = recipient.aside
        if aside is not None:
            self.kinds[aside.kind] += 1
            if aside.kind in (AsideKind.HELD, AsideKind.DELETED):
                self.why = aside.why
                before = aside.before
                self.held_before = before.why if before is not None and before.kind is AsideKind.HELD else None
        if is_due(aside, self._now) and not (aside is not None and aside.kind is AsideKind.DELETED):
            self.due += 1
        elif aside is not None and aside.kind is not AsideKind.HELD:
            self.first = aside.until if self.first is None else min(self.first, aside.until)
            self.last = max(self.last, aside.until)

    @property
    def together(self) -> bool:
        """Returns True if all recipients wait for the same retry, as those of a message that was never changed."""
        return self.kinds[AsideKind.DEFERRED] == self.recipients and self.first == self.last

    def of_all(self, at: float, age_s: float) -> Aside | None:
        """Returns the state of a recipient that is added: that of the message if it is held, or delayed, as a whole."""
        if not self.recipients:
            return None
        if self.kinds[AsideKind.HELD] == self.recipients:
            return Aside(AsideKind.HELD, 0.0, age_s, self.why, at)
        if self.kinds[AsideKind.DELAYED] == self.recipients and self.first is not None:
            return Aside(AsideKind.DELAYED, self.first, age_s, "", at)
        return None

    def place(self, ladder: Ladder, undo_time_s: int) -> Place:
        """Returns where the message rests. Some recipient must have been counted."""
        assert self.recipients
        if self.due:
            return Place(AT_ONCE, 0)
        if self.kinds[AsideKind.HELD] == self.recipients:
            return Place(HOLD, 0)
        if self.kinds[AsideKind.DELETED] == self.recipients:
            return Place(DELETED, undo_time_s)
        assert self.first is not None
        interval = ladder.towards(round(self.first - self._now, 3))  # a step of the ladder stays that step
        if self.kinds[AsideKind.DEFERRED]:
            return Place(retry_lane(interval), interval, self.first)
        return Place(retry_lane(interval), interval, self.first, self.first)


def numbers_in(ranges: object) -> tuple[list[int], list[int]] | None:
    """Returns the first and the last numbers of the ranges, ascending; None: all recipients. Raises ValueError."""
    if ranges is None:
        return None
    if not isinstance(ranges, list | tuple):
        raise ValueError("numbers are a list of [first, last]")
    firsts: list[int] = []
    lasts: list[int] = []
    for each in ranges:
        if not (
            isinstance(each, list | tuple)
            and len(each) == 2
            and all(isinstance(number, int) for number in each)
            and 0 <= each[0] <= each[1]
            and (not lasts or each[0] > lasts[-1])
        ):
            raise ValueError("numbers are ascending ranges [first, last] that do not overlap")
        firsts.append(each[0])
        lasts.append(each[1])
    return firsts, lasts


def ranges_of(numbers: Iterable[int]) -> list[list[int]]:
    """Returns ascending numbers as ranges [first, last]."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ranges


def named(kinds: Sequence[int]) -> dict[str, int]:
    """Returns the counts by the name of their kind, without those that are 0."""
    return {kind.name.lower(): kinds[kind] for kind in AsideKind if kinds[kind]}


_DUE = MessageState.ACTIVE
_OTHERS = (MOVE, "add_recipients", "bounce")
