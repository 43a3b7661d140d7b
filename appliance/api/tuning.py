"""Parameters: those in force in a scope, the changes that were made, setting and removing values.

Law: a change is checked as a whole before any value is sent, and its caller may say which value it replaces: if another one is
in force meanwhile, nothing is changed.
"""

from __future__ import annotations

import math
import time
import uuid
from typing import Annotated

import msgspec
from django.http import HttpRequest
from pydantic import AfterValidator, Field, StringConstraints

from appliance.accounts.roles import Role
from appliance.api.bodies import ONE_LINE, Body, Why, one_line
from appliance.api.errors import ApiError
from appliance.api.operation import operation
from appliance.api.scopes import Scope
from appliance.common.door import Door, door
from appliance.tuning.applying import Invalid, Stale, apply
from appliance.tuning.draft import CHANGES_MAX, Draft, Wanted, check
from appliance.tuning.models import Change, Prediction
from appliance.tuning.parameter import Known, Shown, in_force, read_known
from appliance.tuning.value import TEXT_MAX, WHOLE_MAX, Value, is_value, same
from mailcore.control.protocol.operation import WALL_CLOCK_MAX
from mailcore.control.protocol.tuning import ParameterKnown
from mailcore.faults import Code

__all__ = ["Given", "ParameterName", "ScopeName", "check_parameters", "parameters", "set_parameters", "tuning_changes"]

FOR_S_MAX = 366 * 86_400  # as the tuning page
CHANGES, CHANGES_SHOWN_MAX = 50, 200
ScopeName = Annotated[
    str,
    StringConstraints(max_length=400),
    AfterValidator(one_line),
    ONE_LINE,
    Field(description='"" is everywhere; a transport; transport:next hop; transport:.domain for all below it'),
]
Whole = Annotated[int, Field(ge=-WHOLE_MAX, le=WHOLE_MAX)]
Number = Annotated[float, Field(allow_inf_nan=False)]
Text = Annotated[str, StringConstraints(max_length=TEXT_MAX), AfterValidator(one_line), ONE_LINE]
ParameterName = Annotated[str, StringConstraints(min_length=1, max_length=100), AfterValidator(one_line), ONE_LINE]
Given = bool | Whole | Number | Text | None


class ParameterShown(msgspec.Struct, kw_only=True):
    """A parameter and the value in force. ``until``: wall clock, in seconds since 1970; None: it lasts."""

    name: str
    kind: str  # whole, number, flag, feedback, choice or text
    unit: str
    low: float | None  # None: without a bound
    high: float | None
    allowed: str
    doc: str
    default: Value
    configured: Value  # None: it is not configured for this very scope
    value: Value
    origin: str  # default, configuration or tuned
    from_scope: str | None  # the wider scope that the value comes from; None: this one
    until: float | None


class ScopeParameters(msgspec.Struct, kw_only=True):
    """The parameters of a scope."""

    scope: str  # as the core spells it
    transports: list[str]
    parameters: list[ParameterShown]


class TuningChange(msgspec.Struct, kw_only=True):
    """A change of a parameter that was made in the portal or by the API."""

    id: int
    at: float
    who: str
    batch: str  # the changes that were made together
    scope: str
    parameter: str
    before: Value
    value: Value  # None: the value was removed
    until: float | None
    why: str
    outcome: str  # applied, refused, not_sent or unknown
    words: str


class TuningChanges(msgspec.Struct, kw_only=True):
    """Changes of parameters, newest first."""

    changes: list[TuningChange]
    cursor: int | None = None  # of the next page; None: this is the last


class CheckedChange(msgspec.Struct, kw_only=True):
    """A value that would be set. ``fault``: why the core would refuse it, "" if it would not."""

    parameter: str
    in_force: Value
    value: Value
    fault: str


class CheckedChanges(msgspec.Struct, kw_only=True):
    """Values that would be set; nothing was."""

    scope: str  # as the core spells it
    fault: str  # of the scope; "": it is valid
    changes: list[CheckedChange]


class ChangeBody(Body):
    """One value. ``before``: the value that the caller saw; if another one is in force, nothing is changed."""

    parameter: ParameterName
    value: Given = Field(description="null removes the value; the wider scope's or the configured one applies")
    before: Given = None


class CheckBody(Body):
    """Values of one scope."""

    scope: ScopeName
    changes: list[ChangeBody] = Field(min_length=1, max_length=CHANGES_MAX)


class SetBody(CheckBody):
    """Values of one scope, and how long they hold: until a time, for a number of seconds, or permanently."""

    until: float | None = Field(default=None, gt=0, le=WALL_CLOCK_MAX, description="seconds since 1970")
    for_s: float | None = Field(default=None, ge=1, le=FOR_S_MAX, description="seconds from now")
    prediction: int | None = Field(default=None, ge=1, le=WHOLE_MAX, description="of a what-if of these very values")
    why: Why


@operation("GET", "/tuning", tag="Tuning", scopes={Scope.READ}, answer=ScopeParameters)
def parameters(request: HttpRequest, scope: ScopeName = "") -> ScopeParameters:
    """Returns the parameters of a scope, with the values in force and where they come from."""
    core = door(request)
    known = read_known(core)
    spelled, shown = in_force(core, scope)
    return ScopeParameters(
        scope=spelled,
        transports=known.transports,
        parameters=[
            _shown(known, spelled, each, shown[name]) for name, each in known.of(spelled).items() if name in shown
        ],
    )


@operation("GET", "/tuning/changes", tag="Tuning", scopes={Scope.READ, Scope.TUNE}, answer=TuningChanges)
def tuning_changes(
    request: HttpRequest,
    cursor: Annotated[int, Field(ge=1, le=WHOLE_MAX)] | None = None,
    limit: Annotated[int, Field(ge=1, le=CHANGES_SHOWN_MAX)] = CHANGES,
    scope: ScopeName | None = None,
    parameter: ParameterName | None = None,
    batch: uuid.UUID | None = None,
) -> TuningChanges:
    """Lists changes of parameters, newest first: all, those of a scope or a parameter, those that were made together."""
    rows = Change.objects.order_by("-pk")
    for name, value in (("scope", scope), ("parameter", parameter), ("batch", batch)):
        rows = rows if value is None else rows.filter(**{name: value})
    if cursor is not None:
        rows = rows.filter(pk__lt=cursor)
    found = list(rows[: limit + 1])
    more = found[limit - 1].pk if len(found) > limit else None
    return TuningChanges(changes=[_change(each) for each in found[:limit]], cursor=more)


@operation("POST", "/tuning", tag="Tuning", scopes={Scope.TUNE}, least=Role.OPERATOR, answer=TuningChanges)
def set_parameters(request: HttpRequest, body: SetBody) -> TuningChanges:
    """Sets and removes values of a scope, all checked before the first is sent.

    Each change has an outcome of its own in the answer: after the first that fails, nothing more is sent.
    """
    until = _until(body)
    draft = _draft(door(request), body)
    predicted = None
    if body.prediction is not None:
        predicted = Prediction.objects.filter(pk=body.prediction).first()
        if predicted is None or predicted.changes != draft.as_changes():
            raise ApiError("prediction: not of these values", code=Code.CONFLICT, argument="prediction")
    try:
        batch = apply(request, draft, why=body.why, until=until, prediction=predicted)
    except Stale:
        raise ApiError("A value was changed at the same moment; nothing was changed.", code=Code.CONFLICT) from None
    except Invalid as error:
        raise _invalid([each.parameter for each in body.changes], error) from error
    return TuningChanges(changes=[_change(each) for each in Change.objects.filter(batch=batch).order_by("pk")])


@operation("POST", "/tuning/check", tag="Tuning", scopes={Scope.TUNE}, least=Role.OPERATOR, answer=CheckedChanges)
def check_parameters(request: HttpRequest, body: CheckBody) -> CheckedChanges:
    """Returns the values in force beside those that would be set, and what the core would refuse. Nothing is changed."""
    core = door(request)
    draft = _draft(core, body)
    found = check(core, draft)
    changes = [
        CheckedChange(
            parameter=each.parameter,
            in_force=each.seen.get("value"),
            value=each.value,
            fault=found.errors.get(each.parameter, ""),
        )
        for each in draft.wanted
    ]
    return CheckedChanges(scope=draft.scope, fault=found.errors.get("", ""), changes=changes)


def _draft(core: Door, body: CheckBody) -> Draft:
    """Returns the draft of the body's changes. Raises ApiError for unknown parameters and other values in force."""
    names = [each.parameter for each in body.changes]
    if len(set(names)) < len(names):
        raise ApiError("changes: a parameter is given twice", argument="changes")
    known = read_known(core)
    scope, shown = in_force(core, body.scope)
    wanted = []
    for at, each in enumerate(body.changes):
        if each.parameter not in shown or each.parameter not in known.of(scope):
            argument = f"changes[{at}].parameter"
            raise ApiError(f"{argument}: this scope has no such parameter", argument=argument)
        now = shown[each.parameter]
        if "before" in each.model_fields_set and not same(each.before, now.get("value")):
            raise _conflict(at, now)
        assert is_value(each.value)
        wanted.append(Wanted(each.parameter, each.value, now))
    return Draft(scope, tuple(wanted))


def _until(body: SetBody) -> float | None:
    if body.until is not None and body.for_s is not None:
        raise ApiError("until and for_s: one of them is allowed", argument="until")
    now = time.time()
    until = body.until if body.for_s is None else now + body.for_s
    if until is not None and not now < until <= now + FOR_S_MAX + 1:
        raise ApiError("until: this time has passed, or is more than a year ahead", argument="until")
    return until


def _conflict(at: int, now: Shown) -> ApiError:
    argument = f"changes[{at}].before"
    return ApiError(
        f"{argument}: another value is in force: {now.get('value')!r}; nothing was changed",
        code=Code.CONFLICT,
        argument=argument,
    )


def _invalid(names: list[str], error: Invalid) -> ApiError:
    name, words = next(iter(error.checked.errors.items()))
    argument = f"changes[{names.index(name)}].value" if name in names else "scope"
    return ApiError(f"{argument}: {words}", argument=argument)


def _shown(known: Known, scope: str, each: ParameterKnown, shown: Shown) -> ParameterShown:
    return ParameterShown(
        name=each.name,
        kind=each.kind,
        unit=each.unit,
        low=each.low if math.isfinite(each.low) else None,
        high=each.high if math.isfinite(each.high) else None,
        allowed=each.allowed,
        doc=each.doc,
        default=each.default,
        configured=known.configured_value(scope, each.name),
        value=shown["value"],
        origin=shown.get("origin", ""),
        from_scope=shown.get("scope"),
        until=shown.get("until"),
    )


def _change(it: Change) -> TuningChange:
    return TuningChange(
        id=it.pk,
        at=it.at.timestamp(),
        who=it.who,
        batch=str(it.batch),
        scope=it.scope,
        parameter=it.parameter,
        before=it.before.get("value"),
        value=it.value,
        until=it.until,
        why=it.why,
        outcome=it.outcome,
        words=it.words,
    )
