"""Settings: those that are set with their origin, a check, a change at a revision, earlier states, all as one text.

Law: a change names the revision that its author saw; if other settings are in the files meanwhile, nothing is changed.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from django.http import HttpRequest
from pydantic import AfterValidator, Field, StringConstraints

from appliance.accounts.roles import Role
from appliance.api.bodies import Body, Why
from appliance.api.errors import ApiError
from appliance.api.operation import operation
from appliance.api.scopes import Scope
from appliance.common.door import door
from appliance.managed.applying import Faulty, applied, exported
from appliance.managed.draft import TEXT_MAX, Draft, DraftError, from_form, plain
from mailcore.config.managed import dotted
from mailcore.control.protocol.effects import SettingsEffects
from mailcore.control.protocol.settings import (
    CHANGES_MAX,
    HISTORY_MAX,
    SettingsChanged,
    SettingsHistory,
    SettingsKnown,
)

__all__ = [
    "change_settings",
    "check_settings",
    "effects_of_settings",
    "settings",
    "settings_export",
    "settings_history",
]

STATES = 50
EFFECTS_S = 30.0  # the core looks for ten seconds
KEY_PARTS_MAX, KEY_PART_MAX = 6, 400  # as the core allows
KeyPart = Annotated[str, StringConstraints(min_length=1, max_length=KEY_PART_MAX)]
Revision = Annotated[str, StringConstraints(pattern="^[0-9a-f]{16}$")]


class SettingChangeBody(Body):
    """One setting."""

    key: list[KeyPart] = Field(min_length=1, max_length=KEY_PARTS_MAX, description='such as ["relay", "domains"]')
    value: Annotated[Any, AfterValidator(plain)] = Field(
        description="null undoes a change, so that the configuration file or the default counts again"
    )
    removed: bool = Field(
        default=False,
        description="the value or row of the configuration file at the key does not count until null undoes "
        "that; the value is null",
    )


class SettingsCheckBody(Body):
    """Settings to change, made together or not at all: one by one, as TOML, or a state to return to; one of these."""

    changes: list[SettingChangeBody] | None = Field(default=None, min_length=1, max_length=CHANGES_MAX)
    toml: Annotated[str, StringConstraints(min_length=1, max_length=TEXT_MAX)] | None = Field(
        default=None, description="settings as in the configuration file, such as an export of another Waypost"
    )
    to: Revision | None = Field(default=None, description="the revision of an earlier state")


class SettingsBody(SettingsCheckBody):
    """Settings to change, with the revision that their author saw."""

    revision: Revision
    why: Why


class SettingsExport(msgspec.Struct, kw_only=True):
    """All settings that can be managed, without places, files, keys and users."""

    revision: str
    toml: str


@operation("GET", "/settings", tag="Settings", scopes={Scope.READ}, answer=SettingsKnown)
def settings(request: HttpRequest) -> SettingsKnown:
    """Lists the settings that are set, each with its origin, whether they are in force, and the result of the last reload."""
    return door(request).ask("settings", SettingsKnown)


@operation("GET", "/settings/history", tag="Settings", scopes={Scope.READ}, answer=SettingsHistory)
def settings_history(
    request: HttpRequest, limit: Annotated[int, Field(ge=1, le=HISTORY_MAX)] = STATES
) -> SettingsHistory:
    """Lists earlier states of the managed settings, newest first, each with the change that made it."""
    return door(request).ask("settings_history", SettingsHistory, {"limit": limit})


@operation("GET", "/settings/export", tag="Settings", scopes={Scope.READ}, answer=SettingsExport)
def settings_export(request: HttpRequest) -> SettingsExport:
    """Returns all settings that can be managed as one TOML text, for ``toml`` of a change elsewhere."""
    answer = door(request).ask("settings", SettingsKnown)
    return SettingsExport(revision=answer.revision, toml=exported(answer))


@operation(
    "POST",
    "/settings/check",
    tag="Settings",
    scopes={Scope.SETTINGS},
    least=Role.ADMINISTRATOR,
    answer=SettingsChanged,
)
def check_settings(request: HttpRequest, body: SettingsCheckBody) -> SettingsChanged:
    """Returns what a change would change and restart, or its faults; nothing is changed."""
    core = door(request)
    revision = core.ask("settings", SettingsKnown).revision
    draft = _draft(body, revision)
    return core.ask(draft.operation, SettingsChanged, draft.arguments(check=True))


@operation(
    "POST",
    "/settings/effects",
    tag="Settings",
    scopes={Scope.SETTINGS},
    least=Role.ADMINISTRATOR,
    answer=SettingsEffects,
)
def effects_of_settings(request: HttpRequest, body: SettingsCheckBody) -> SettingsEffects:
    """Returns what a change would do to queued mail, to clients of the last week, and to next hops; nothing is changed.

    It looks for up to ten seconds, and says what it did not reach.
    """
    draft = _draft(body, "")
    given = draft.arguments(check=True)
    question: dict[str, Any] = {name: value for name, value in given.items() if name in ("changes", "to")}
    parts = door(request).ask_parts("settings_effects", SettingsEffects, question, timeout_s=EFFECTS_S)
    return list(parts)[-1]


@operation(
    "POST", "/settings", tag="Settings", scopes={Scope.SETTINGS}, least=Role.ADMINISTRATOR, answer=SettingsChanged
)
def change_settings(request: HttpRequest, body: SettingsBody) -> SettingsChanged:
    """Changes managed settings, or returns to an earlier state. A reload follows.

    They are in force when ``in_force`` of the settings says so; processes that use them start again, and answers may fail
    with 503 meanwhile.
    """
    draft = _draft(body, body.revision)
    try:
        return applied(request, draft, body.why)
    except Faulty as error:
        keys = [dotted(key) for key, _ in draft.changes]
        first = error.faults[0].key
        argument = f"changes[{keys.index(first)}].value" if body.changes and first in keys else _source(body)
        raise ApiError(f"{argument}: {error}; nothing was changed", argument=argument) from error


def _source(body: SettingsCheckBody) -> str:
    return next(name for name in ("changes", "toml", "to") if getattr(body, name) is not None)


def _draft(body: SettingsCheckBody, revision: str) -> Draft:
    if sum(each is not None for each in (body.changes, body.toml, body.to)) != 1:
        raise ApiError("changes, toml, to: give one of them", argument="changes")
    if body.to is not None:
        return Draft(to=body.to, revision=revision)
    if body.changes is not None:
        return Draft(
            changes=[(each.key, each.value) for each in body.changes if not each.removed],
            removed=[each.key for each in body.changes if each.removed],
            revision=revision,
        )
    try:
        draft = from_form({"toml": body.toml})
    except DraftError as error:
        raise ApiError(f"toml: {error}", argument="toml") from error
    return msgspec.structs.replace(draft, revision=revision)
