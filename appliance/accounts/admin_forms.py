"""Forms of the administration for users and roles. Users cannot change their own rights; another administrator can."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django import forms
from django.contrib.auth.forms import SetPasswordForm, UserCreationForm
from django.contrib.auth.models import Group, User
from django.core.exceptions import ValidationError
from django.http import HttpRequest, QueryDict

from appliance.accounts.audited_admin import ReasonForm, reason_field
from appliance.accounts.permissions import (
    ROLE_CHOICES,
    is_last_administrator,
    may_read_by_own_right,
    read_bodies,
    role_name,
)
from appliance.accounts.sessions import SignedIn

__all__ = ["EndSessionsForm", "NewUserForm", "PasswordForm", "RoleForm", "UserForm", "free_address"]

_BODIES = "Each view is recorded in the audit log. Administrators always have this right."


def free_address(address: str, own: int | None = None) -> str:
    """Returns the mail address if no other user has it: single sign-on finds a user by it. Raises ValidationError."""
    others = User.objects.exclude(pk=own) if own is not None else User.objects.all()
    if address and others.filter(email__iexact=address).exists():
        raise ValidationError("Another user has this mail address.")
    return address


class UserForm(forms.ModelForm):  # type: ignore[type-arg]
    """The form that changes a user."""

    request: HttpRequest  # put there by UserAdmin.get_form
    role = forms.ChoiceField(choices=ROLE_CHOICES, required=False)
    bodies = forms.BooleanField(label="May read message bodies", required=False, help_text=_BODIES)
    why = reason_field()

    class Meta:
        """Names the fields that Django makes from the model."""

        model = User
        fields = ("username", "first_name", "last_name", "email", "is_active")
        help_texts = {"is_active": "Inactive users cannot sign in; their sessions end."}

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.fields["role"].initial = role_name(self.instance)
        self.fields["bodies"].initial = may_read_by_own_right(self.instance)

    def clean_email(self) -> str:
        """Refuses the mail address of another user. Raises ValidationError."""
        return free_address(self.cleaned_data["email"], self.instance.pk)

    def clean(self) -> dict[str, Any]:
        """Refuses changes of one's own rights and of the last active administrator. Raises ValidationError."""
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        rights = {"role", "bodies", "is_active"}.intersection(self.changed_data)
        if rights and self.instance.pk == self.request.user.pk:
            raise ValidationError("You cannot change your own rights. Ask another administrator.")
        demoted = cleaned.get("role") != "administrator" or not cleaned.get("is_active")
        if demoted and is_last_administrator(self.instance):
            raise ValidationError("This is the last active administrator. Create another one first.")
        return cleaned


class NewUserForm(UserCreationForm):  # type: ignore[type-arg]
    """The form that creates a user, who changes the password at the first sign-in."""

    role = forms.ChoiceField(choices=ROLE_CHOICES, required=False, initial="viewer")
    bodies = forms.BooleanField(label="May read message bodies", required=False, help_text=_BODIES)
    why = reason_field()

    class Meta(UserCreationForm.Meta):  # type: ignore[name-defined,misc]
        """Adds the mail address to the fields that Django has."""

        fields = ("username", "email")

    def clean_email(self) -> str:
        """Refuses the mail address of another user. Raises ValidationError."""
        return free_address(self.cleaned_data["email"])


class PasswordForm(SetPasswordForm):  # type: ignore[type-arg]
    """The form by which an administrator sets a user's password."""

    why = reason_field()


class EndSessionsForm(ReasonForm):
    """The form by which an administrator ends sessions of a user: those selected in the list, or all.

    ``numbers``: those to end; None: all, also one that began after the page was made.
    """

    def __init__(self, sessions: Sequence[SignedIn], data: QueryDict | None = None) -> None:
        super().__init__(data)
        self.sessions = sessions
        selected = set(data.getlist("session")) if data is not None else set()
        self.selected = [each for each in sessions if each.number in selected]
        is_all = data is not None and data.get("which") == "all"
        self.numbers = None if is_all else {each.number for each in self.selected}

    def clean(self) -> dict[str, Any]:
        """Raises ValidationError if there is nothing to end."""
        if self.numbers is not None and not self.numbers:
            raise ValidationError("Select the sessions to end. One that is no longer listed has ended already.")
        return super().clean() or self.cleaned_data


class RoleForm(forms.ModelForm):  # type: ignore[type-arg]
    """The form that changes a role."""

    bodies = forms.BooleanField(label="May read message bodies", required=False, help_text=_BODIES)
    why = reason_field()

    class Meta:
        """Names no fields: the only one is not the model's."""

        model = Group
        fields = ()

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.fields["bodies"].initial = self.instance.permissions.filter(pk=read_bodies().pk).exists()
