"""Users and their roles, the tokens of all users, and locks after wrong passwords, as in the administration.

Law: what the administration refuses is refused here: users cannot change their own rights, and there is always an
administrator.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from allauth.mfa.models import Authenticator
from axes.models import AccessAttempt
from django import forms
from django.contrib.auth.models import Group, User
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.http import Http404, HttpRequest
from django.utils import timezone
from ninja import Path
from pydantic import Field

from appliance.accounts.admin_forms import NewUserForm, PasswordForm, RoleForm, UserForm
from appliance.accounts.administering import (
    OnlyWayIn,
    describe_lock,
    identities_of,
    locked_until,
    other_user,
    remove_totp,
    reset_password,
    same_lock,
    unlink,
    user_of_lock,
    why_not_deleted,
)
from appliance.accounts.first_steps import give_password, has_second_factor
from appliance.accounts.permissions import may_read_by_own_right, read_bodies, rights_of, role_name, set_rights
from appliance.accounts.roles import GROUPS, Role
from appliance.api.bodies import Body, Why, optional
from appliance.api.errors import ApiError
from appliance.api.models import ApiToken
from appliance.api.operation import operation
from appliance.api.scopes import Scope
from appliance.audit.record import audited, record
from mailcore.faults import Code

__all__ = [
    "change_role",
    "change_user",
    "create_user",
    "delete_user",
    "locks",
    "remove_second_factor",
    "revoke_token",
    "roles",
    "set_password",
    "tokens",
    "unlink_user",
    "unlock",
    "user",
    "users",
]

PAGE, PAGE_MAX = 100, 500
NAME_MAX = 150  # as Django
PASSWORD_MAX = 1_000
F = TypeVar("F", bound=Callable[..., Any])
Number = Annotated[int, Field(ge=1, le=(1 << 31) - 1)]
RoleName = Literal["viewer", "operator", "administrator"]
RoleOrNone = Literal["", "viewer", "operator", "administrator"]
# Names of fields of the forms that have another name in bodies.
_ARGUMENTS = {
    "password1": "password",
    "password2": "password",
    "new_password1": "password",
    "new_password2": "password",
    "bodies": "reads_bodies",
}


class UserShown(msgspec.Struct, kw_only=True):
    """A user. Times are wall clock, in seconds since 1970."""

    id: int
    username: str
    first_name: str
    last_name: str
    role: str  # "": none, without access
    reads_bodies: bool  # by the user's own right; administrators may in any case
    active: bool
    has_totp: bool
    has_second_factor: bool  # TOTP or a passkey, as [portal] second_factor_for demands one
    linked: bool  # with the provider of single sign-on
    last_login: float | None


class UserList(msgspec.Struct, kw_only=True):
    """Users, in the order in which they were made."""

    users: list[UserShown]
    cursor: int | None  # of the next page; None: this is the last


class RoleShown(msgspec.Struct, kw_only=True):
    """A role. Administrators may read bodies in any case."""

    name: str
    reads_bodies: bool
    users: int


class RoleList(msgspec.Struct, kw_only=True):
    """The roles, the lowest first."""

    roles: list[RoleShown]


class TokenShown(msgspec.Struct, kw_only=True):
    """A token, without its text."""

    id: int
    user: str
    name: str
    beginning: str
    scopes: list[str]
    state: str  # in use, expired or revoked
    created_at: float
    expires_at: float
    revoked_at: float | None
    last_used_at: float | None
    last_address: str  # "": it was not used


class TokenList(msgspec.Struct, kw_only=True):
    """Tokens, newest first."""

    tokens: list[TokenShown]
    cursor: int | None  # of the next page; None: this is the last


class LockShown(msgspec.Struct, kw_only=True):
    """Wrong passwords of a user from an address."""

    id: int
    user: str  # "": no user has the name that was typed
    address: str
    failures: int
    last_at: float
    locked_until: float | None  # None: it is not locked


class LockList(msgspec.Struct, kw_only=True):
    """Recent wrong passwords, newest first."""

    locks: list[LockShown]


class Done(msgspec.Struct, kw_only=True):
    """Says that it was done; False: there was nothing to do."""

    done: bool


class WhyBody(Body):
    """The reason."""

    why: Why


class NewUserBody(Body):
    """A new user."""

    username: str = Field(min_length=1, max_length=NAME_MAX)
    password: str = Field(min_length=1, max_length=PASSWORD_MAX)
    role: RoleOrNone = "viewer"
    reads_bodies: bool = False
    why: Why


class UserBody(Body):
    """Changes of a user; what is left out stays."""

    username: str = optional(min_length=1, max_length=NAME_MAX)
    first_name: str = optional(max_length=NAME_MAX)
    last_name: str = optional(max_length=NAME_MAX)
    role: RoleOrNone = optional(description='"": no access')
    reads_bodies: bool = optional()
    active: bool = optional()
    why: Why


class PasswordBody(Body):
    """A new password."""

    password: str = Field(min_length=1, max_length=PASSWORD_MAX)
    why: Why


class RoleBody(Body):
    """Whether users of a role may read bodies."""

    reads_bodies: bool
    why: Why


def _of_administrators(method: str, path: str, answer: Any, status: int = 200) -> Callable[[F], F]:
    return operation(
        method, path, tag="Users", scopes={Scope.USERS}, least=Role.ADMINISTRATOR, answer=answer, status=status
    )


@_of_administrators("GET", "/users", UserList)
def users(
    request: HttpRequest, cursor: Number | None = None, limit: Annotated[int, Field(ge=1, le=PAGE_MAX)] = PAGE
) -> UserList:
    """Lists users with their roles."""
    found = list(User.objects.filter(pk__gt=cursor or 0).order_by("pk")[: limit + 1])
    return UserList(
        users=[_user(each) for each in found[:limit]], cursor=found[limit - 1].pk if len(found) > limit else None
    )


@_of_administrators("GET", "/users/{number}", UserShown)
def user(request: HttpRequest, number: Path[Number]) -> UserShown:
    """Returns a user."""
    return _user(_of(number))


@_of_administrators("POST", "/users", UserShown, 201)
def create_user(request: HttpRequest, body: NewUserBody) -> UserShown:
    """Creates a user."""
    given = {"username": body.username, "password1": body.password, "password2": body.password}
    form = NewUserForm({**given, "role": body.role, "bodies": body.reads_bodies, "why": body.why})
    _check(form)
    with transaction.atomic():
        made = form.save()
        give_password(made)
        set_rights(made, body.role, body.reads_bodies)
        record(request, "user.add", made.get_username(), after=rights_of(made), why=body.why)
    return _user(_of(made.pk))


@_of_administrators("POST", "/users/{number}", UserShown)
def change_user(request: HttpRequest, number: Path[Number], body: UserBody) -> UserShown:
    """Changes a user's names, role, right to read bodies, or disables the user. Sessions end with other rights."""
    with transaction.atomic():
        it = _of(number)
        before = rights_of(it)
        now = _user(it)
        given = body.model_dump(exclude_unset=True)
        values = {name: given.get(name, getattr(now, name)) for name in ("username", "first_name", "last_name", "role")}
        bodies, active = given.get("reads_bodies", now.reads_bodies), given.get("active", now.active)
        fields = {**values, "email": it.email, "bodies": bodies, "is_active": active, "why": body.why}
        form = UserForm(fields, instance=it)
        form.request = request
        _check(form)
        made = form.save()
        set_rights(made, str(values["role"]), bodies)
        after = rights_of(_of(number))
        record(request, "user.change", made.get_username(), before=before, after=after, why=body.why)
    return _user(_of(number))


@_of_administrators("POST", "/users/{number}/password", Done)
def set_password(request: HttpRequest, number: Path[Number], body: PasswordBody) -> Done:
    """Sets another user's password; the user's sessions end."""
    it = other_user(request, number)
    form = PasswordForm(it, {"new_password1": body.password, "new_password2": body.password, "why": body.why})
    _check(form)
    reset_password(request, it, form)
    return Done(done=True)


@_of_administrators("POST", "/users/{number}/remove-second-factor", Done)
def remove_second_factor(request: HttpRequest, number: Path[Number], body: WhyBody) -> Done:
    """Removes another user's two-factor sign-in, when the authenticator and the recovery codes are lost."""
    return Done(done=remove_totp(request, other_user(request, number), body.why))


@_of_administrators("POST", "/users/{number}/unlink", Done)
def unlink_user(request: HttpRequest, number: Path[Number], body: WhyBody) -> Done:
    """Unlinks another user from single sign-on, and ends the user's sessions; 409 if there is no other way in."""
    try:
        return Done(done=bool(unlink(request, other_user(request, number), body.why)))
    except OnlyWayIn as error:
        raise ApiError(str(error), code=Code.CONFLICT) from error


@_of_administrators("POST", "/users/{number}/delete", Done)
def delete_user(request: HttpRequest, number: Path[Number], body: WhyBody) -> Done:
    """Deletes a user with all tokens; the audit log keeps the name."""
    with transaction.atomic():
        it = _of(number)
        if words := why_not_deleted(request, it):
            raise PermissionDenied(words)
        record(request, "user.delete", it.get_username(), before=rights_of(it), why=body.why)
        it.delete()
    return Done(done=True)


@_of_administrators("GET", "/roles", RoleList)
def roles(request: HttpRequest) -> RoleList:
    """Lists the roles, and whether their users may read bodies."""
    return RoleList(roles=[_role(Group.objects.get(name=name)) for name in GROUPS])


@_of_administrators("POST", "/roles/{name}", RoleShown)
def change_role(request: HttpRequest, name: Path[RoleName], body: RoleBody) -> RoleShown:
    """Lets users of a role read bodies, or not."""
    with transaction.atomic():
        it = Group.objects.select_for_update().get(name=name)
        before = _described(it)
        _check(RoleForm({"bodies": body.reads_bodies, "why": body.why}, instance=it))
        (it.permissions.add if body.reads_bodies else it.permissions.remove)(read_bodies())
        record(request, "role.change", str(it), before=before, after=_described(it), why=body.why)
    return _role(it)


@_of_administrators("GET", "/tokens", TokenList)
def tokens(
    request: HttpRequest, cursor: Number | None = None, limit: Annotated[int, Field(ge=1, le=PAGE_MAX)] = PAGE
) -> TokenList:
    """Lists the tokens of all users, newest first."""
    found = ApiToken.objects.select_related("user")
    if cursor is not None:
        found = found.filter(pk__lt=cursor)
    rows = list(found[: limit + 1])
    return TokenList(
        tokens=[_token(each) for each in rows[:limit]], cursor=rows[limit - 1].pk if len(rows) > limit else None
    )


@_of_administrators("POST", "/tokens/{number}/revoke", TokenShown)
def revoke_token(request: HttpRequest, number: Path[Number], body: WhyBody) -> TokenShown:
    """Revokes a token, at once and permanently."""
    found = ApiToken.objects.select_related("user")
    it = found.filter(pk=number).first()
    if it is None:
        raise Http404(f"{number}: there is no such token")
    if it.revoked_at is None:
        before = it.described() | {"user": it.user.get_username()}
        with audited(request, "token.revoke", it.name, before=before, why=body.why):
            ApiToken.objects.filter(pk=number, revoked_at=None).update(revoked_at=timezone.now())
    return _token(found.get(pk=number))


@_of_administrators("GET", "/locks", LockList)
def locks(request: HttpRequest, limit: Annotated[int, Field(ge=1, le=PAGE_MAX)] = PAGE) -> LockList:
    """Lists recent wrong passwords, and the accounts that are locked because of them."""
    found = AccessAttempt.objects.order_by("-attempt_time")[:limit]
    return LockList(locks=[_lock(each) for each in found])


@_of_administrators("POST", "/locks/{number}/unlock", Done)
def unlock(request: HttpRequest, number: Path[Number], body: WhyBody) -> Done:
    """Forgets the wrong passwords of a user from an address, so that the account is not locked for it."""
    with transaction.atomic():
        it = AccessAttempt.objects.filter(pk=number).first()
        if it is None:
            raise Http404(f"{number}: there is no such lock")
        subject = f"{user_of_lock(it) or '(no such user)'} at {it.ip_address}"
        before = describe_lock(it)
        same_lock(it).delete()
        record(request, "sign_in.lock.delete", subject, before=before, why=body.why)
    return Done(done=True)


def _check(form: forms.Form | forms.ModelForm[Any]) -> None:
    """Raises ApiError with the first error of a form; CONFLICT when the state does not allow it."""
    if form.is_valid():
        return
    name, words = next(iter(form.errors.items()))
    if name == "__all__":
        raise ApiError(str(words[0]), code=Code.CONFLICT)
    argument = _ARGUMENTS.get(name, name)
    raise ApiError(f"{argument}: {words[0]}", argument=argument)


def _of(number: int) -> User:
    found = User.objects.filter(pk=number).first()
    if found is None:
        raise Http404(f"{number}: there is no such user")
    return found


def _user(it: User) -> UserShown:
    return UserShown(
        id=it.pk,
        username=it.get_username(),
        first_name=it.first_name,
        last_name=it.last_name,
        role=role_name(it),
        reads_bodies=may_read_by_own_right(it),
        active=it.is_active,
        has_totp=Authenticator.objects.filter(user_id=it.pk, type=Authenticator.Type.TOTP).exists(),
        has_second_factor=has_second_factor(it),
        linked=identities_of(it).exists(),
        last_login=it.last_login.timestamp() if it.last_login is not None else None,
    )


def _described(it: Group) -> dict[str, Any]:
    return {"role": it.name, "reads bodies": it.permissions.filter(pk=read_bodies().pk).exists()}


def _role(it: Group) -> RoleShown:
    may_read = it.name == "administrator" or it.permissions.filter(pk=read_bodies().pk).exists()
    return RoleShown(name=it.name, reads_bodies=may_read, users=it.user_set.count())


def _token(it: ApiToken) -> TokenShown:
    return TokenShown(
        id=it.pk,
        user=it.user.get_username(),
        name=it.name,
        beginning=it.beginning,
        scopes=list(it.scopes),
        state=it.state,
        created_at=it.created_at.timestamp(),
        expires_at=it.expires_at.timestamp(),
        revoked_at=it.revoked_at.timestamp() if it.revoked_at is not None else None,
        last_used_at=it.last_used_at.timestamp() if it.last_used_at is not None else None,
        last_address=it.last_address or "",
    )


def _lock(it: AccessAttempt) -> LockShown:
    until = locked_until(it)
    return LockShown(
        id=it.pk,
        user=user_of_lock(it),
        address=it.ip_address or "",
        failures=it.failures_since_start,
        last_at=it.attempt_time.timestamp(),
        locked_until=until.timestamp() if until is not None else None,
    )
