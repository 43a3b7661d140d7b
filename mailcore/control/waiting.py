"""Explains why a message at rest waits: in one sentence for people, and as data. The manager explains active messages; of
those, this module explains the recipients that the pass does not take, whose state only the envelope has.

The explanation is read from the message's lane, as of now: the message is held, deleted, scheduled, due at a time, or due and
not taken up yet. Recipients that changes put into states of their own have reasons of their own. Times are wall-clock seconds
in the data, local time in the sentence. Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any

import msgspec

from mailcore.envelope import Aside, AsideKind, Envelope, Recipient
from mailcore.lookup.browse import REASON_CHARACTERS, Found, Stretch
from mailcore.manager_answers import Progress, Reason
from mailcore.queue.lanes import DELETED, HOLD, interval_of

__all__ = ["NOT_READ", "why_at_rest", "why_not_in_pass"]

GROUPS_MAX = 20  # groups listed one by one; all others are one sum
NOT_READ = ("due", "queued")  # states of a message that the manager could take up now
_ORDER = ("deferred", "delayed", "held", "deleted")


def why_at_rest(
    found: Found, stretch: Stretch | None, now: float, manager_away: bool, not_read: str = ""
) -> list[Reason]:
    """Returns one reason for each group of recipients. ``not_read``: why the manager reads no mail that is due.

    States: held, deleted, delayed, deferred, due, queued, ending, more.
    """
    envelope, lane = found.envelope, found.lane
    if envelope.aside:
        return _by_recipient(found, stretch, now, manager_away, not_read)
    if lane == HOLD:
        return [_held(envelope)]
    if lane == DELETED:
        return [_deleted(envelope)]
    interval = interval_of(lane, 0) or 0.0
    # As the runner does: no clock makes anything wait longer than its lane.
    due_at = min(envelope.due_at, now + interval) if interval else 0.0
    if due_at > now:
        if envelope.not_before > now:
            return [_delayed(envelope, due_at)]
        return _deferred(envelope, due_at)
    return [_due(found, stretch, due_at, manager_away, not_read)]


def _by_recipient(found: Found, stretch: Stretch | None, now: float, manager_away: bool, not_read: str) -> list[Reason]:
    """Returns a reason for each group of recipients whose states differ; recipients in RECIPIENTS records are only in the
    sums."""
    envelope, lane = found.envelope, found.lane
    reasons = _aside(envelope, dict(envelope.aside))
    with_the_message = envelope.recipient_count - sum(envelope.aside.values())
    if with_the_message > 0:
        interval = interval_of(lane, 0) or 0.0
        due_at = min(envelope.due_at, now + interval) if interval else 0.0
        due = _due(found, stretch, due_at, manager_away, not_read)
        reasons.insert(0, msgspec.structs.replace(due, recipients=with_the_message))
    return reasons


def why_not_in_pass(envelope: Envelope, progress: Progress, explained: Collection[Reason]) -> list[Reason]:
    """Returns the reasons of recipients of an active message that its pass does not take: held, delayed, deleted, or
    deferred for longer than others.

    ``explained``: the manager's reasons, which have all others. How many there are is what ``progress.states`` has.
    """
    if any(each.state == "ending" for each in explained):
        return []  # it is of all recipients
    left = {name: progress.states.get(name, 0) for name in _ORDER}
    left["deferred"] -= sum(each.recipients for each in explained if each.state == "deferred")
    if not any(count > 0 for count in left.values()):
        return []
    taken = {*progress.done, *progress.replies, *progress.recipient_states}
    return _aside(envelope, left, taken)


def _aside(envelope: Envelope, left: dict[str, int], taken: Collection[int] = ()) -> list[Reason]:
    """Returns the reasons of recipients with a state of their own. ``left``: how many there are of each state, by its name;
    it is used up. ``taken``: numbers of recipients to leave out."""
    groups: dict[tuple[Any, ...], Reason] = {}
    for recipient in envelope.recipients:
        aside = recipient.aside
        if aside is None or recipient.number in taken:
            continue
        name = aside.kind.name.lower()
        if left.get(name, 0) <= 0:
            continue
        if aside.kind is AsideKind.DEFERRED:
            destination = recipient.route or recipient.destination
            key: tuple[Any, ...] = (name, aside.until, destination, bool(recipient.reply))
        else:
            key = (name, aside.until, aside.at, aside.why, aside.before)
        if key not in groups and len(groups) == GROUPS_MAX:
            continue
        there = groups.get(key)
        groups[key] = _of_aside(recipient, aside, 1 if there is None else there.recipients + 1)
        left[name] = left.get(name, 0) - 1
    reasons = sorted(groups.values(), key=lambda group: _ORDER.index(group.state))
    for name in _ORDER:
        if (more := left.get(name, 0)) > 0:
            others = "more " if any(group.state == name for group in reasons) else ""
            sentence = f"{others}{name}; each recipient of the message shows since when, until when and why"
            reasons.append(Reason(state=name, recipients=more, sentence=sentence))
    return reasons


def _of_aside(recipient: Recipient, aside: Aside, count: int) -> Reason:
    """Returns the reason of ``count`` recipients with this state."""
    if aside.kind is AsideKind.DEFERRED:
        reply = recipient.reply[:REASON_CHARACTERS]
        return _waiting_for_try(count, recipient.route or recipient.destination, aside.until, reply)
    since, before = aside.at or None, aside.before
    began = f" since {_shown(aside.at)}" if aside.at else ""
    if aside.kind is AsideKind.HELD:
        later = ""
        if before is not None and before.kind is AsideKind.DELAYED:
            later = f"; then it is not sent before {_shown(before.until)}"
        sentence = f"held{began} until an operator releases it{_because(aside.why)}{later}"
        return Reason(state="held", recipients=count, sentence=sentence, since=since, reason=aside.why)
    if aside.kind is AsideKind.DELAYED:
        sentence = f"delayed{began}: not to be sent before {_shown(aside.until)}{_because(aside.why)}"
        return Reason(
            state="delayed", recipients=count, sentence=sentence, since=since, until=aside.until, reason=aside.why
        )
    held = before is not None and before.kind is AsideKind.HELD
    again = f", and is held again then{_because(before.why)}" if before is not None and held else ""
    sentence = f"deleted{began}{_because(aside.why)}; it can be undeleted until {_shown(aside.until)}{again}"
    return Reason(
        state="deleted", recipients=count, sentence=sentence, since=since, until=aside.until, reason=aside.why
    )


def _held(envelope: Envelope) -> Reason:
    sentence = f"held{_since(envelope)} until an operator releases it{_because(envelope.held_because)}"
    since = envelope.written_at or None
    return msgspec.structs.replace(_whole(envelope, "held", sentence), since=since, reason=envelope.held_because)


def _deleted(envelope: Envelope) -> Reason:
    until = f"; it can be undeleted until {_shown(envelope.due_at)}" if envelope.due_at else ""
    if until and envelope.held_before is not None:
        until += f", and is held again then{_because(envelope.held_before)}"
    sentence = f"deleted{_since(envelope)}{_because(envelope.held_because)}{until}"
    since, until_at = envelope.written_at or None, envelope.due_at or None
    deleted = _whole(envelope, "deleted", sentence)
    return msgspec.structs.replace(deleted, since=since, until=until_at, reason=envelope.held_because)


def _delayed(envelope: Envelope, due_at: float) -> Reason:
    sentence = f"delayed: not to be sent before {_shown(envelope.not_before)}"
    delayed = _whole(envelope, "delayed", sentence)
    return msgspec.structs.replace(delayed, until=envelope.not_before, looked_at=due_at)


def _deferred(envelope: Envelope, due_at: float) -> list[Reason]:
    """Returns a reason for each destination, with its last reply; recipients in RECIPIENTS records are only in the
    sum."""
    by_destination: dict[tuple[str, bool], list[Any]] = {}  # and whether it was tried -> [recipients, last reply]
    for recipient in envelope.recipients:
        key = (recipient.route or recipient.destination, bool(recipient.reply))
        if key not in by_destination and len(by_destination) == GROUPS_MAX:
            continue
        there = by_destination.setdefault(key, [0, ""])
        there[0] += 1
        there[1] = recipient.reply or there[1]
    groups = []
    for (destination, _), (count, said) in by_destination.items():
        groups.append(_waiting_for_try(count, destination, due_at, str(said)[:REASON_CHARACTERS]))
    more = envelope.recipient_count - sum(group.recipients for group in groups)
    if more > 0:
        sentence = f"more, due at the same time, {_shown(due_at)}"
        groups.append(Reason(state="more", recipients=more, sentence=sentence, until=due_at))
    return groups


def _waiting_for_try(count: int, destination: str, due_at: float, reply: str) -> Reason:
    """Returns the reason of recipients that wait for their time. The attempts of the message may not be theirs; a recipient
    has a reply from its first attempt on."""
    last = f"; last: {reply}" if reply else ""
    what = "deferred: the next attempt" if reply else "not tried yet: the first attempt"
    return Reason(
        state="deferred",
        recipients=count,
        sentence=f"{what} is due at {_shown(due_at)}{last}",
        destination=destination,
        until=due_at,
        reply=reply,
    )


def _due(found: Found, stretch: Stretch | None, due_at: float, manager_away: bool, not_read: str) -> Reason:
    lane, offset = found.lane, found.offset
    since = f"due since {_shown(due_at)}" if due_at else "due at once"
    state = "due" if due_at else "queued"
    if manager_away:
        return _in_lane(found, state, f"{since}, but the manager is not running")
    if stretch is not None and offset < stretch.runner:
        return _in_lane(found, "ending", "pass finished; its result can be read after the next checkpoint")
    if stretch is not None and stretch.end is not None and offset >= stretch.end:
        return _in_lane(found, state, f"{since}; the manager reads it after its next checkpoint")
    ahead = max(offset - stretch.runner, 0) if stretch is not None else 0
    if not_read:
        sentence = f"{since}, and not taken up yet: {not_read}"
        return msgspec.structs.replace(_in_lane(found, state, sentence), bytes_ahead=ahead)
    behind = f"{ahead} bytes of it are ahead" if ahead else "it is the next one"
    sentence = f"{since}, and not taken up yet: the manager has not read so far in lane {lane}, {behind}"
    return msgspec.structs.replace(_in_lane(found, state, sentence), bytes_ahead=ahead)


def _whole(envelope: Envelope, state: str, sentence: str) -> Reason:
    """Returns a reason for all recipients."""
    return Reason(state=state, recipients=envelope.recipient_count, sentence=sentence)


def _in_lane(found: Found, state: str, sentence: str) -> Reason:
    return msgspec.structs.replace(_whole(found.envelope, state, sentence), lane=found.lane)


def _since(envelope: Envelope) -> str:
    return f" since {_shown(envelope.written_at)}" if envelope.written_at else ""


def _because(reason: str) -> str:
    return f": {reason}" if reason else ""


def _shown(at: float) -> str:
    try:
        return datetime.fromtimestamp(at).astimezone().isoformat(" ", "seconds")
    except (OverflowError, OSError, ValueError):  # the clock was once set to a wrong time
        return f"{at:.0f} s after 1970"
