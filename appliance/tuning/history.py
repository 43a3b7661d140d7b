"""The state of changes made in the portal: in force, expired, replaced, reverted; and changes made elsewhere.

Pure: takes the recorded changes and the values that the core reports now.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from appliance.tuning.models import Change, Outcome
from appliance.tuning.parameter import Shown, is_own
from appliance.tuning.value import Value, same

__all__ = ["Outside", "Past", "Target", "key_of", "latest", "outside", "past_of", "target_of"]

Key = tuple[str, str]  # scope, parameter
SLACK_S = 2.0  # the core ends a value when it looks at its clock, and so do we


@dataclass(frozen=True, slots=True)
class Past:
    """A change and what became of it. ``state``: of the list in ``WORDS``."""

    change: Change
    state: str
    by: Change | None = None  # the change that replaced or reverted it

    @property
    def words(self) -> str:
        """Returns the state of the change in words."""
        return WORDS[self.state]


WORDS = {
    "in_force": "in force",
    "ended": "expired",
    "replaced": "replaced",
    "returned": "returned",
    "outside": "changed outside the portal",
    "unseen": "applied",  # the core was not asked
    Outcome.NOT_SENT: "not applied",
    Outcome.REFUSED: "refused",
    Outcome.UNKNOWN: "unknown",
}


@dataclass(frozen=True, slots=True)
class Outside:
    """A value in force that is not the last one recorded here."""

    scope: str
    parameter: str
    shown: Shown
    last: Change | None


@dataclass(frozen=True, slots=True)
class Target:
    """The value that a revert sets: lasting, until a future time, or None for the configured one."""

    value: Value
    until: float | None = None


def key_of(change: Change) -> Key:
    """Returns scope and parameter of a change."""
    return change.scope, change.parameter


def latest(changes: Iterable[Change]) -> dict[Key, Change]:
    """Returns the last applied change of each key; ``changes`` are the newest first."""
    found: dict[Key, Change] = {}
    for change in changes:
        if change.outcome == Outcome.APPLIED:
            found.setdefault(key_of(change), change)
    return found


def past_of(change: Change, later: Change | None, shown: dict[Key, Shown] | None, now: float) -> Past:
    """Returns the state of a change. ``later``: the next change of the key; ``shown``: the values in force, None if unknown."""
    if change.outcome != Outcome.APPLIED:
        return Past(change, change.outcome)
    over_at = change.until
    if later is not None and (over_at is None or later.at.timestamp() < over_at):
        return Past(change, "returned" if later.returns_id == change.pk else "replaced", later)
    if over_at is not None and over_at <= now:
        return Past(change, "ended")
    if shown is None:
        return Past(change, "unseen")
    return Past(change, "in_force" if _stands(change, shown.get(key_of(change)), now) else "outside")


def outside(last: dict[Key, Change], shown: dict[Key, Shown], now: float) -> list[Outside]:
    """Returns values set outside the portal, and values set here and changed elsewhere since."""
    found = []
    for key, each in sorted(shown.items()):
        change = last.get(key)
        if change is None:
            if is_own(each):
                found.append(Outside(*key, each, None))
        elif not _stands(change, each, now):
            found.append(Outside(*key, each, change))
    gone = [change for key, change in last.items() if key not in shown and not _stands(change, None, now)]
    return found + [Outside(*key_of(change), {}, change) for change in gone]


def target_of(change: Change, earlier: Iterable[Change], now: float) -> Target:
    """Returns the target of a revert. ``earlier``: earlier changes of the same key, newest first.

    What was for a time that is over by now has ended: then what was before that.
    """
    before: Shown = change.before
    for each in earlier:
        until = before.get("until")
        if until is None or until > now:
            break
        before = each.before
    until = before.get("until")
    if not is_own(before) or (until is not None and until <= now):
        return Target(None)
    return Target(before["value"], until)


def _stands(change: Change, shown: Shown | None, now: float) -> bool:
    """Returns whether the value in force is the one that the change set; close to its end it may be there or not."""
    if change.until is not None and change.until <= now + SLACK_S and _stands_lasting(change.before, shown):
        return True
    if change.until is not None and change.until <= now - SLACK_S:
        return False
    if change.value is None:
        return not is_own(shown)
    if shown is None or not is_own(shown):
        return False
    wanted: Value = (change.after or {}).get("value", change.value)
    return same(shown["value"], wanted) and (change.until is None or "until" in shown)


def _stands_lasting(before: Shown, shown: Shown | None) -> bool:
    """Returns whether, after a value for a time has ended, the value before it is in force; True if that one was for a
    time, too, as its successor is unknown."""
    if "until" in before:
        return True
    if not is_own(before):
        return not is_own(shown)
    return shown is not None and is_own(shown) and same(shown["value"], before["value"])
