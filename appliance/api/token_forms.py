"""The form that makes a token: name, scopes, and how long it is valid."""

from __future__ import annotations

from typing import Any

from django import forms
from django.conf import settings
from django.contrib.auth.models import User

from appliance.accounts.roles import role_of
from appliance.api.models import NAME_MAX
from appliance.api.scopes import LEAST_ROLE, SCOPE_CHOICES, Scope
from appliance.api.tokens import tokens_in_use

__all__ = ["TokenForm"]

DAYS = 90  # offered at first


class TokenForm(forms.Form):
    """Asks for a token. Scopes that the user's role cannot use are not offered."""

    name = forms.CharField(
        label="Name",
        max_length=NAME_MAX,
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
        help_text="The program that uses it. The audit log names it with each change.",
    )
    scopes = forms.MultipleChoiceField(label="Scopes", widget=forms.CheckboxSelectMultiple())
    days = forms.IntegerField(label="Valid for (days)", min_value=1)

    def __init__(self, user: User, *given: Any, **named: Any) -> None:
        super().__init__(*given, **{"label_suffix": "", **named})
        self._user = user
        role = role_of(user)
        scopes = self.fields["scopes"]
        assert isinstance(scopes, forms.MultipleChoiceField)
        scopes.choices = [
            choice for choice in SCOPE_CHOICES if role is not None and role >= LEAST_ROLE[Scope(choice[0])]
        ]
        days = self.fields["days"]
        assert isinstance(days, forms.IntegerField)
        longest = settings.PORTAL.api_token_days_max
        days.max_value = longest
        days.validators.append(_at_most(longest))
        days.widget.attrs["max"] = longest
        days.initial = min(DAYS, longest)
        days.help_text = f"At most {longest}. It stops working then; make a new one before."

    def clean_name(self) -> str:
        """Refuses the name of another token in use: the audit log names tokens by it."""
        name = str(self.cleaned_data["name"])
        if tokens_in_use(self._user).filter(name=name).exists():
            raise forms.ValidationError(
                "You have a token in use with this name. Choose another one, or revoke that one first."
            )
        return name

    def clean(self) -> dict[str, Any]:
        """Refuses a token beyond the number that a user may have."""
        cleaned = super().clean() or self.cleaned_data
        most = settings.PORTAL.api_tokens_max
        if tokens_in_use(self._user).count() >= most:
            raise forms.ValidationError(f"You have {most} tokens in use, as many as a user may have. Revoke one first.")
        return cleaned


def _at_most(longest: int) -> Any:
    def check(days: int) -> None:
        if days > longest:
            raise forms.ValidationError(f"Allowed: {longest} days at most.")

    return check
