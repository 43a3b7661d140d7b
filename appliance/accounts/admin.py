"""The administration pages of users, roles and locks."""

from __future__ import annotations

from typing import Any

from axes.models import AccessAttempt
from django.conf import settings
from django.contrib import admin, messages
from django.contrib.auth.models import Group, User
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import URLPattern, path
from django.utils.decorators import method_decorator
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.views.decorators.debug import sensitive_post_parameters

from appliance.accounts.admin_forms import EndSessionsForm, NewUserForm, PasswordForm, RoleForm, UserForm
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
from appliance.accounts.audited_admin import AuditedAdmin, ReasonForm
from appliance.accounts.first_steps import give_password, has_second_factor
from appliance.accounts.permissions import read_bodies, rights_of, role_name, set_rights
from appliance.accounts.roles import Role
from appliance.accounts.sessions import end_sessions, sessions_of
from appliance.audit.record import record
from appliance.common.templatetags.waypost import clock, plain, shown, when
from mailcore.counted import counted

__all__ = ["LockAdmin", "RoleAdmin", "UserAdmin"]


class UserAdmin(AuditedAdmin):
    """The administration page of users."""

    action = "user"
    title = "Users"
    explanation = "Users who may sign in, and their roles."
    may_add = may_change = may_delete = may_invite = True
    list_display = ("username", "full_name", "role", "is_active", "second_factor", "seen")
    search_fields = ("username", "first_name", "last_name")
    ordering = ("username",)
    readonly_fields = ("second_factor", "seen")
    form = UserForm
    change_form_template = "admin/auth/user/change_form.html"
    _fields = (
        "username",
        "first_name",
        "last_name",
        "email",
        "role",
        "bodies",
        "is_active",
        "second_factor",
        "seen",
        "why",
    )
    _new_fields = ("username", "email", "password1", "password2", "role", "bodies", "why")

    def get_fieldsets(self, request: HttpRequest, obj: User | None = None) -> Any:
        """Returns the fields of the form; a new user has a password as well."""
        return [(None, {"fields": self._fields if obj is not None else self._new_fields})]

    def get_readonly_fields(self, request: HttpRequest, obj: User | None = None) -> Any:
        """Returns the fields that are only shown; none of a new user."""
        return self.readonly_fields if obj is not None else ()

    def get_form(self, request: HttpRequest, obj: User | None = None, change: bool = False, **named: Any) -> Any:
        """Returns the form class, which knows the request: users cannot change their own rights."""
        made = super().get_form(request, obj, change, **{"form": NewUserForm if obj is None else UserForm, **named})
        made.request = request  # type: ignore[attr-defined]
        return made

    @admin.display(description="Name")
    def full_name(self, user: User) -> str:
        """Returns the user's name for the list."""
        return shown(user.get_full_name())

    @admin.display(description="Role")
    def role(self, user: User) -> str:
        """Returns the name of the user's role, or "none"."""
        return role_name(user) or "none"

    @admin.display(description="Second factor", boolean=True)
    def second_factor(self, user: User) -> bool:
        """Returns whether the user has TOTP or a passkey."""
        return has_second_factor(user)

    @admin.display(description="Last sign-in", ordering="last_login")
    def seen(self, user: User) -> str:
        """Returns the time of the last sign-in for the list."""
        return when(user.last_login)

    def subject(self, obj: User) -> str:
        """Returns the user name, as the audit names the user."""
        return obj.get_username()

    def described(self, obj: User) -> dict[str, Any]:
        """Returns the user's rights, as the audit records them before and after a change."""
        return rights_of(obj)

    def finish(self, request: HttpRequest, obj: User, form: Any) -> None:
        """Stores the role and the right to read message bodies. The password of a new user is one to be changed."""
        if form.before is None:
            give_password(obj)
        set_rights(obj, form.cleaned_data["role"], form.cleaned_data["bodies"])

    def refusal(self, request: HttpRequest, obj: User) -> str:
        """Returns why the user cannot be deleted, or ""."""
        return why_not_deleted(request, obj)

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> Any:
        """Returns the objects deleted with a user, without asking for permissions on them; the audit keeps the name."""
        deleted, counts, _, protected = super().get_deleted_objects(objs, request)
        return deleted, counts, set(), protected

    def get_urls(self) -> list[URLPattern]:
        """Adds the pages that set a password, remove TOTP and end sessions."""
        view = self.admin_site.admin_view
        return [
            path("<int:pk>/password/", view(self.password), name="auth_user_password"),
            path("<int:pk>/sessions/", view(self.sessions), name="auth_user_sessions"),
            path("<int:pk>/identity/", view(self.unlink), name="auth_user_unlink"),
            path("<int:pk>/two-factor/", view(self.remove_totp), name="auth_user_remove_totp"),
            *super().get_urls(),
        ]

    @method_decorator(sensitive_post_parameters())
    def password(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Resets another user's password."""
        user = other_user(request, pk)
        form = PasswordForm(user, request.POST or None)
        if request.method == "POST" and form.is_valid():
            reset_password(request, user, form)
            words = f"{user.get_username()} has a new password, and changes it at the next sign-in; all sessions ended."
            messages.success(request, words)
            return redirect("admin:auth_user_change", pk)
        context = {**self.admin_site.each_context(request), "title": f"New password for {user.get_username()}",
                   "form": form, "original": user, "opts": self.opts, "button": "Set the password"}  # fmt: skip
        return render(request, "admin/deed.html", context, status=422 if form.errors else 200)

    def sessions(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Lists another user's sessions, and ends those selected, or all."""
        user = other_user(request, pk)
        form = EndSessionsForm(sessions_of(user), request.POST or None)
        if request.method == "POST" and form.is_valid():
            with transaction.atomic():
                ended = end_sessions({user.pk}, numbers=form.numbers)
                words = (
                    f"all: {counted(ended, 'session')}" if form.numbers is None else "; ".join(map(str, form.selected))
                )
                record(request, "session.end", user.get_username(), why=form.cleaned_data["why"], words=words)
            messages.success(request, f"{counted(ended, 'session')} of {user.get_username()} ended.")
            return redirect("admin:auth_user_sessions", pk)
        context = {**self.admin_site.each_context(request), "title": f"Sessions of {user.get_username()}",
                   "form": form, "original": user, "opts": self.opts, "sessions": form.sessions}  # fmt: skip
        return render(request, "admin/auth/user/sessions.html", context, status=422 if form.errors else 200)

    def remove_totp(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Removes two-factor sign-in, for users who lost the authenticator app and the recovery codes."""
        user = other_user(request, pk)
        form = ReasonForm(request.POST or None)
        if request.method == "POST" and form.is_valid():
            remove_totp(request, user, form.cleaned_data["why"])
            messages.success(
                request, f"{user.get_username()} signs in without a second factor until one is set up again."
            )
            return redirect("admin:auth_user_change", pk)
        context = {**self.admin_site.each_context(request), "title": f"Two-factor sign-in of {user.get_username()}",
                   "form": form, "original": user, "opts": self.opts, "button": "Remove two-factor sign-in", "danger": True,
                   "words": "This removes the authenticator app, all passkeys and the recovery codes. "
                            "Verify the identity of the person who asks for it."}  # fmt: skip
        return render(request, "admin/deed.html", context, status=422 if form.errors else 200)

    def unlink(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Unlinks another user from single sign-on, if there is another way in."""
        user = other_user(request, pk)
        form = ReasonForm(request.POST or None)
        if request.method == "POST" and form.is_valid():
            try:
                unlink(request, user, form.cleaned_data["why"])
            except OnlyWayIn as error:
                form.add_error(None, str(error))
            else:
                messages.success(
                    request, f"{user.get_username()} is not linked with single sign-on; all sessions ended."
                )
                return redirect("admin:auth_user_change", pk)
        words = f"Linked with: {', '.join(plain(str(each)) for each in identities_of(user)) or 'nothing'}."
        if settings.OIDC.link_by_address:
            words += (
                " The next sign-in there with this user's verified address links it again, unless the user is disabled."
            )
        context = {**self.admin_site.each_context(request), "title": f"Single sign-on of {user.get_username()}",
                   "form": form, "original": user, "opts": self.opts, "button": "Unlink", "danger": True,
                   "words": words}  # fmt: skip
        return render(request, "admin/deed.html", context, status=422 if form.errors else 200)


class RoleAdmin(AuditedAdmin):
    """The three roles are what the pages ask for; there are no others."""

    action = "role"
    title = "Roles"
    explanation = "The rights of viewers, operators and administrators."
    may_change = True
    list_display = ("name", "may", "bodies", "members")
    ordering = ("id",)
    form = RoleForm
    fields = ("name", "may", "bodies", "members", "why")
    readonly_fields = ("name", "may", "members")
    _may_words = {
        Role.VIEWER: "sees everything except message bodies",
        Role.OPERATOR: "also changes the queue, destinations and parameters, and sees the audit log",
        Role.ADMINISTRATOR: "also manages users, roles and schedules; reads message bodies",
    }

    def get_queryset(self, request: HttpRequest) -> Any:
        """Returns the groups that are roles."""
        return super().get_queryset(request).filter(name__in=[role.name.lower() for role in Role])

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """Returns the fields of the form."""
        return self.fields

    @admin.display(description="May")
    def may(self, group: Group) -> str:
        """Returns what users of the role may do."""
        return self._may_words[Role[group.name.upper()]]

    @admin.display(description="Reads bodies", boolean=True)
    def bodies(self, group: Group) -> bool:
        """Returns whether users of the role may read message bodies."""
        return group.name == "administrator" or group.permissions.filter(pk=read_bodies().pk).exists()

    @admin.display(description="Users")
    def members(self, group: Group) -> int:
        """Returns the number of users with the role."""
        return group.user_set.count()

    def described(self, obj: Group) -> dict[str, Any]:
        """Returns the role's rights, as the audit records them before and after a change."""
        return {"role": obj.name, "reads bodies": obj.permissions.filter(pk=read_bodies().pk).exists()}

    def finish(self, request: HttpRequest, obj: Group, form: Any) -> None:
        """Stores the right to read message bodies."""
        if form.cleaned_data["bodies"]:
            obj.permissions.add(read_bodies())
        else:
            obj.permissions.remove(read_bodies())


class LockAdmin(AuditedAdmin):
    """The administration page of locked accounts; deleting a lock unlocks the account. Shows no name that is not a user's."""

    action = "sign_in.lock"
    title = "Locks"
    deleted = "unlocked"
    explanation = "Recent wrong passwords and codes, and the accounts they lock."
    may_delete = True
    list_display = ("user", "ip_address", "failures_since_start", "locked", "last", "unlock")
    list_display_links = None
    search_fields = ("username", "ip_address")
    ordering = ("-attempt_time",)
    fields = ("user", "ip_address", "failures_since_start", "locked", "last")

    @admin.display(description="User", ordering="username")
    def user(self, attempt: AccessAttempt) -> str:
        """Returns the user name that was typed, or "(no such user)"."""
        name = user_of_lock(attempt)
        return shown(name) if name else "(no such user)"

    @admin.display(description="Locked until")
    def locked(self, attempt: AccessAttempt) -> str:
        """Returns until when the account is locked for that client, or "not locked"."""
        until = locked_until(attempt)
        return clock(until) if until is not None else "not locked"

    @admin.display(description="Last", ordering="attempt_time")
    def last(self, attempt: AccessAttempt) -> str:
        """Returns the time of the last wrong password."""
        return when(attempt.attempt_time)

    @admin.display(description="")
    def unlock(self, attempt: AccessAttempt) -> SafeString:
        """Returns the button that unlocks the account."""
        return format_html('<a class="button" href="{}/delete/">Unlock</a>', attempt.pk)

    def subject(self, obj: AccessAttempt) -> str:
        """Returns user and address, as the audit names the lock."""
        return f"{self.user(obj)} at {obj.ip_address}"

    def described(self, obj: AccessAttempt) -> dict[str, Any]:
        """Returns what the audit records of the lock that is removed."""
        return describe_lock(obj)

    def response_delete(self, request: HttpRequest, obj_display: str, obj_id: object) -> HttpResponse:
        """Reports that the user is unlocked and returns to the list."""
        return super().response_delete(request, "The user", obj_id)

    def delete(self, obj: AccessAttempt) -> None:
        """Deletes all failures that count towards this lock."""
        same_lock(obj).delete()

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> Any:
        """Returns empty lists: no other object depends on a lock."""
        return [], {}, set(), []

    def delete_view(self, request: HttpRequest, object_id: str, extra_context: Any = None) -> HttpResponse:
        """Asks before it unlocks, in the words of unlocking."""
        words = {
            "title": "Unlock",
            "button": "Unlock",
            "words": "This clears the failed sign-ins and unlocks the account.",
        }
        return super().delete_view(request, object_id, words)


admin.site.register(User, UserAdmin)
admin.site.register(Group, RoleAdmin)
admin.site.register(AccessAttempt, LockAdmin)
