"""The forms of alerts: a reason, and how long a silence lasts."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django import forms

from appliance.accounts.audited_admin import reason_field

__all__ = ["AcknowledgeForm", "SilenceForm"]

SPANS = {
    "1h": ("1 hour", timedelta(hours=1)),
    "4h": ("4 hours", timedelta(hours=4)),
    "1d": ("1 day", timedelta(days=1)),
    "7d": ("7 days", timedelta(days=7)),
    "30d": ("30 days", timedelta(days=30)),
}


class AcknowledgeForm(forms.Form):
    """Asks for a reason."""

    why = reason_field()

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **{"label_suffix": "", **named})


class SilenceForm(AcknowledgeForm):
    """Asks how long nothing is sent, and for a reason."""

    span = forms.ChoiceField(label="For", choices=[(name, words) for name, (words, _) in SPANS.items()])
    field_order = ("span", "why")

    @property
    def lasts(self) -> timedelta:
        """Returns how long the silence lasts."""
        return SPANS[self.cleaned_data["span"]][1]
