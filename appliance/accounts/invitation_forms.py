"""The forms of invitations: one invites, one takes the code, one sets the password."""

from __future__ import annotations

from typing import Any

from django import forms
from django.conf import settings
from django.contrib.auth.forms import SetPasswordForm
from django.contrib.auth.models import User
from django.contrib.auth.validators import UnicodeUsernameValidator
from django.core.exceptions import ValidationError

from appliance.accounts.admin_forms import free_address
from appliance.accounts.audited_admin import reason_field
from appliance.accounts.invitations import CODE_MAX, open_invitations
from appliance.accounts.permissions import ROLE_CHOICES
from mailcore.config.values import mailbox

__all__ = ["AcceptForm", "CodeForm", "InviteForm"]


class InviteForm(forms.Form):
    """Invites a person by mail."""

    address = forms.EmailField(
        label="Mail address", max_length=254, widget=forms.EmailInput(attrs={"autocomplete": "off"})
    )
    username = forms.CharField(
        label="User name",
        max_length=150,
        validators=[UnicodeUsernameValidator()],
        help_text="The person signs in with it, and the audit log names it.",
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
    )
    role = forms.ChoiceField(choices=[choice for choice in ROLE_CHOICES if choice[0]], initial="viewer")
    why = reason_field()

    def clean_address(self) -> str:
        """Refuses an address that a user has, or that the core would not take. Raises ValidationError."""
        address = str(self.cleaned_data["address"])
        try:
            mailbox(address)
        except ValueError as error:
            raise ValidationError(str(error)) from error
        if open_invitations().filter(address__iexact=address).exists():
            raise ValidationError("There is an open invitation to this address.")
        return free_address(address)

    def clean_username(self) -> str:
        """Refuses a name that is taken. Raises ValidationError."""
        name = User.normalize_username(self.cleaned_data["username"])
        if (
            User.objects.filter(username__iexact=name).exists()
            or open_invitations().filter(username__iexact=name).exists()
        ):
            raise ValidationError("A user or an open invitation has this name.")
        return str(name)

    def clean(self) -> dict[str, Any]:
        """Refuses more than ``invitations_max`` open invitations. Raises ValidationError."""
        if open_invitations().count() >= settings.PORTAL.invitations_max:
            raise ValidationError("Too many invitations are open ([portal] invitations_max). Withdraw some first.")
        return super().clean() or self.cleaned_data


class CodeForm(forms.Form):
    """Takes the code, which the page's script fills in from the link."""

    code = forms.CharField(
        label="Code", max_length=CODE_MAX, widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}),
        help_text="The part of the link in the mail after #.",
    )  # fmt: skip


class AcceptForm(SetPasswordForm):  # type: ignore[type-arg]
    """Sets the password of the invited user, who does not exist yet."""
