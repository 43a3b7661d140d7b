"""Users who log in to send mail: added, changed, disabled and removed, each at once in force.

Laws
- A password goes to the core, which keeps a verifier; it is in no log, and not in the database.
- A password that is made here is in the first answer, once: a repeated request with its key does not get it.

Keeps law: secrets-stay-out (docs/laws.md).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import msgspec
from django.http import HttpRequest
from django.views.decorators.debug import sensitive_variables
from pydantic import Field, StringConstraints

from appliance.accounts.roles import Role
from appliance.api.bodies import Body, Why, optional
from appliance.api.errors import ApiError
from appliance.api.kept import as_error
from appliance.api.operation import operation
from appliance.api.scopes import Scope
from appliance.common.door import door
from appliance.managed.handing_in import WrongFields, made_password, user_put, user_removed
from mailcore.control.protocol.users import LIMIT_MAX, KnownUser, Users

__all__ = ["add_mail_user", "change_mail_user", "mail_users", "remove_mail_user"]

NAME_MAX, SENDER_MAX, SENDERS_MAX, PASSWORD_MAX = 128, 320, 1_000, 1_024  # as the core allows
F = TypeVar("F", bound=Callable[..., Any])
Name = Annotated[str, StringConstraints(min_length=1, max_length=NAME_MAX)]
Sender = Annotated[str, StringConstraints(min_length=1, max_length=SENDER_MAX)]
Limit = Annotated[int, Field(ge=0, le=LIMIT_MAX)]
Revision = Annotated[str, StringConstraints(pattern="^[0-9a-f]{16}$")]
SENDERS = "addresses, domains, .example.org for its subdomains, or any"
LIMIT = "in an hour; 0: no limit; null: the one of [auth]"


class MailUserPut(msgspec.Struct, kw_only=True):
    """The user as it is now."""

    user: KnownUser
    password: str | None  # that was made here, once; None: none was made, or this is a repeated answer


class MailUserRemoved(msgspec.Struct, kw_only=True):
    """A user that is not there any more."""

    name: str


class _PasswordBody(Body):
    password: str = optional(min_length=1, max_length=PASSWORD_MAX)
    make_password: bool = Field(default=False, description="make a password, which this answer has, once")
    scram: bool = Field(default=False, description="keep a SCRAM-SHA-256 verifier of the password")
    enabled: bool = optional()
    messages_per_hour: Limit | None = Field(default=None, description=LIMIT)
    recipients_per_hour: Limit | None = Field(default=None, description=LIMIT)
    why: Why


class NewMailUserBody(_PasswordBody):
    """A new user, with a password that is given or made."""

    name: Name
    senders: list[Sender] = optional(
        max_length=SENDERS_MAX, description=f"{SENDERS}; left out: the name, if it is an address"
    )


class MailUserBody(_PasswordBody):
    """Changes of a user; what is left out stays."""

    name: Name
    revision: Revision = optional(description="of the user that you saw; another one is a conflict")
    senders: list[Sender] = optional(max_length=SENDERS_MAX, description=SENDERS)


class RemoveMailUserBody(Body):
    """A user to remove."""

    name: Name
    revision: Revision = optional(description="of the user that you saw; another one is a conflict")
    why: Why


def _change(path: str, answer: Any, status: int = 200, told_once: tuple[str, ...] = ()) -> Callable[[F], F]:
    return operation(
        "POST", path, tag="Mail users", scopes={Scope.USERS}, least=Role.ADMINISTRATOR, answer=answer, status=status,
        told_once=told_once,
    )  # fmt: skip


@operation("GET", "/mail-users", tag="Mail users", scopes={Scope.READ, Scope.USERS}, answer=Users)
def mail_users(request: HttpRequest) -> Users:
    """Lists the users who log in to send mail, with the limits of [auth]."""
    return door(request).ask("users", Users)


@_change("/mail-users", MailUserPut, 201, ("password",))
@sensitive_variables("body")
def add_mail_user(request: HttpRequest, body: NewMailUserBody) -> MailUserPut:
    """Adds a user. It can log in within two seconds."""
    return _put(request, body, is_new=True)


@_change("/mail-users/change", MailUserPut, 200, ("password",))
@sensitive_variables("body")
def change_mail_user(request: HttpRequest, body: MailUserBody) -> MailUserPut:
    """Changes a user: its password, senders or limits, or whether it is enabled. With another password its sessions end."""
    return _put(request, body, is_new=False)


@_change("/mail-users/remove", MailUserRemoved)
def remove_mail_user(request: HttpRequest, body: RemoveMailUserBody) -> MailUserRemoved:
    """Removes a user."""
    try:
        user_removed(request, body.name, body.model_dump(exclude_unset=True).get("revision", ""), body.why)
    except WrongFields as error:
        raise as_error(error, type(body).model_fields, {}) from None
    return MailUserRemoved(name=body.name)


@sensitive_variables("body", "given", "made")
def _put(request: HttpRequest, body: NewMailUserBody | MailUserBody, *, is_new: bool) -> MailUserPut:
    given = body.model_dump(exclude_unset=True, exclude={"why", "make_password"}) | {"new": is_new}
    if body.make_password and "password" in given:
        raise ApiError("password, make_password: give one of them", argument="make_password")
    if is_new and not body.make_password and "password" not in given:
        raise ApiError("password: give one, or ask for one with make_password", argument="password")
    if not is_new and not given.keys() - {"name", "new", "revision", "scram"} and not body.make_password:
        raise ApiError("give what is to change: password, senders, enabled or a limit", argument="name")
    made = made_password() if body.make_password else None
    if made is not None:
        given["password"] = made
    try:
        answer = user_put(request, given, body.why)
    except WrongFields as error:
        raise as_error(error, type(body).model_fields, {}) from None
    assert answer.user is not None
    return MailUserPut(user=answer.user, password=made)
