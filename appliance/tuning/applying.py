"""Applies a draft: checks again what is in force, checks all values, then sets one after the other; each is recorded and
audited.

Laws
- Nothing is sent if a value changed since the user saw it, or if the core would refuse any value.
- Each value has its row before it is sent, so that an interruption leaves a record of what was set and what was not.
- After the first failure nothing more is sent. Values that were set stay, are named, and can be reverted.
- Two drafts of this process are applied one after the other. Changes from outside are detected by the previous value in the
  core's answer.

Keeps law: draft-checked-whole (docs/laws.md).
"""

from __future__ import annotations

import threading
import time
import uuid

from django.contrib.auth.models import User
from django.http import HttpRequest

from appliance.audit.record import audited
from appliance.common.door import Door, door
from appliance.tuning.draft import Checked, Draft, Wanted, check
from appliance.tuning.models import Change, Outcome, Prediction
from appliance.tuning.parameter import Shown, in_force, is_own, same_shown
from appliance.tuning.scope import said
from appliance.tuning.value import readable, same
from mailcore.control.client import ControlError, NotRunning, Refused
from mailcore.manager_answers import ValueSet

__all__ = ["Invalid", "Stale", "apply", "one_at_a_time", "settle"]

HANDOVER_S = 3.0  # a lasting value takes the place of one for a time; see _set
one_at_a_time = threading.Lock()  # held from the last look until the value is set, wherever in this process


class Stale(Exception):
    """Raised when a value changed since the user saw it; nothing was sent."""


class Invalid(Exception):
    """The core would refuse it; nothing was sent."""

    def __init__(self, checked: Checked) -> None:
        super().__init__("; ".join(checked.errors.values()))
        self.checked = checked


def apply(
    request: HttpRequest, draft: Draft, *, why: str, until: float | None, prediction: Prediction | None
) -> uuid.UUID:
    """Applies the draft and returns its batch, also after a failure. Raises Stale, Invalid, ControlError: nothing was sent."""
    core = door(request)
    with one_at_a_time:
        _, shown = in_force(core, draft.scope)
        if any(not same_shown(each.seen, shown.get(each.parameter, {})) for each in draft.wanted):
            raise Stale
        checked = check(core, draft)
        if checked.errors:
            raise Invalid(checked)
        batch = uuid.uuid4()
        made = [
            (each, _planned(request, batch, draft.scope, each, why, until, prediction)) for each in draft.in_order()
        ]
        for each, change in made:
            if not _make(request, core, each, change):
                break
        _look(core, draft.scope, [change for _, change in made])
    return batch


def settle(core: Door, changes: list[Change], shown: dict[str, Shown]) -> None:
    """Settles changes without an answer: the values in force show whether they were applied. Others stay as they are."""
    for change in changes:
        now = shown.get(change.parameter)
        if change.outcome != Outcome.UNKNOWN or now is None or (change.until or time.time() + 60) < time.time():
            continue
        is_made = not is_own(now) if change.value is None else is_own(now) and same(now["value"], change.value)
        if not is_made and not same_shown(now, change.before):
            continue  # another user changed it since
        change.outcome = Outcome.APPLIED if is_made else Outcome.NOT_SENT
        change.after = now if is_made else None
        change.words = (
            f"The core did not answer; the value in force shows that the change was {'' if is_made else 'not '}applied."
        )
        change.save()


def _planned(
    request: HttpRequest,
    batch: uuid.UUID,
    scope: str,
    each: Wanted,
    why: str,
    until: float | None,
    prediction: Prediction | None,
) -> Change:
    user = request.user
    return Change.objects.create(
        user=user if isinstance(user, User) else None,
        who=user.get_username(),
        batch=batch,
        scope=scope,
        parameter=each.parameter,
        before=each.seen,
        value=each.value,
        until=None if each.value is None else until,
        why=why,
        returns=Change.objects.filter(pk=each.returns, scope=scope, parameter=each.parameter).first()
        if each.returns
        else None,
        prediction=prediction,
    )


def _make(request: HttpRequest, core: Door, each: Wanted, change: Change) -> bool:
    subject = f"{change.scope or 'global'} {change.parameter}"
    after = {"value": change.value, "until": change.until}
    change.outcome = Outcome.UNKNOWN  # should we end now
    change.save()
    try:
        with audited(request, "tuning.set", subject, before=change.before, after=after, why=change.why):
            answer = _set(core, each, change)
    except Refused as error:
        change.outcome, change.words = Outcome.REFUSED, str(error)[:1000]
    except NotRunning as error:
        change.outcome, change.words = Outcome.NOT_SENT, str(error)[:1000]
    except ControlError as error:
        change.words = str(error)[:1000]
    else:
        change.outcome = Outcome.APPLIED
        if not same(answer.before, each.seen.get("value")):
            change.before = {"value": answer.before, "origin": "tuned"}
            change.words = (
                f"Another user changed it at the same moment from {readable(each.parameter, each.seen.get('value'))} to "
                f"{readable(each.parameter, answer.before)}, which this change replaced."
            )
    change.save()
    return change.outcome == Outcome.APPLIED


def _set(core: Door, each: Wanted, change: Change) -> ValueSet:
    """Sets one value. A lasting value does not replace one that is set for a time: to end that one without another
    value in between, the new value is also set for a moment."""
    arguments = {"scope": change.scope, "parameter": change.parameter, "value": change.value}
    if change.until is not None:
        arguments["until"] = change.until
    answer = core.ask_change("set", ValueSet, arguments, why=change.why)
    if change.until is None and change.value is not None and is_own(each.seen) and "until" in each.seen:
        core.ask_change("set", ValueSet, arguments | {"for_s": HANDOVER_S}, why=change.why)
    return answer


def _look(core: Door, scope: str, changes: list[Change]) -> None:
    """Stores the values now in force, as the core writes them; without an answer the rows stay as they are."""
    made = [change for change in changes if change.outcome == Outcome.APPLIED]
    if not made:
        return
    try:
        _, shown = in_force(core, scope)
    except ControlError:
        return
    for change in made:
        change.after = shown.get(change.parameter)
        change.save(update_fields=["after"])


def summary(changes: list[Change]) -> str:
    """Returns a text on which parameters were applied and which were not."""
    made = [change.parameter for change in changes if change.outcome == Outcome.APPLIED]
    unknown = [change.parameter for change in changes if change.outcome == Outcome.UNKNOWN]
    rest = [change.parameter for change in changes if change.outcome in (Outcome.NOT_SENT, Outcome.REFUSED)]
    words = [f"{said(changes[0].scope)}:"]
    words.append(f"applied: {', '.join(made)}." if made else "nothing was applied.")
    if unknown:
        words.append(f"Whether {', '.join(unknown)} was applied is unknown: the core did not answer.")
    if rest:
        words.append(f"Not applied: {', '.join(rest)}.")
    return " ".join(words)
