"""The forms for suspending a destination, resuming it, and overriding its parameters.

Law: the forms check syntax only; the core checks values, and the page shows its message.
"""

from __future__ import annotations

import time
from typing import Any

from django import forms
from django.http import QueryDict

from appliance.destinations.seen import SEEN_MAX
from appliance.queue.amounts import duration_of, moment_of
from mailcore.bounds import Bounds, Kind
from mailcore.control.protocol.tuning import ParameterKnown

__all__ = ["OverrideForm", "ReasonForm", "SeenForm", "SuspendForm", "value_of"]

WHY_MIN, WHY_MAX = 3, 1_000
VALUE_MAX = 100  # characters, as the control socket takes them


def value_of(text: str, kind: str) -> int | float | str:
    """Returns the value that was typed, for the core. "50%", and text that is not of the kind, stay text."""
    value: int | float | str = Bounds(kind=Kind(kind), doc="", default=None).from_text(text)
    return value


class ReasonForm(forms.Form):
    """Asks for a reason. All forms of a destination build on it: every change needs a reason."""

    why = forms.CharField(
        label="Reason",
        min_length=WHY_MIN,
        max_length=WHY_MAX,
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
        help_text="stored in the audit log and in the journal",
        error_messages={
            "required": "Enter a reason; it is stored in the audit log.",
            "min_length": "Enter a reason of at least three characters.",
        },
    )
    field_order: Any = None

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **{"label_suffix": "", **named})


class SeenForm(ReasonForm):
    """Replaces a value; it carries the values that were in force when it was opened (``appliance.destinations.seen``)."""

    seen = forms.CharField(required=False, max_length=SEEN_MAX, widget=forms.HiddenInput())

    def changed_meanwhile(self, words: str, now: str) -> None:
        """Shows ``words`` as an error. If the form is sent again, it replaces the values that are in force ``now``."""
        self.add_error(None, f"{words} Nothing was changed. To change it anyway, send the form again.")
        given = self.data.dict() if isinstance(self.data, QueryDict) else self.data
        self.data = {**given, "seen": now}


class SuspendForm(ReasonForm):
    """Asks how long a destination is to be suspended: for a duration, until a time, or until it is resumed."""

    how = forms.ChoiceField(
        label="How long",
        choices=[("for", "for a duration"), ("until", "until a time"), ("open", "until it is resumed")],
        initial="for",
    )
    duration = forms.CharField(
        label="For", required=False, max_length=40, initial="1h", help_text='15m, 2h, 1d12h; for "for a duration"'
    )
    moment = forms.CharField(
        label="Until",
        required=False,
        max_length=40,
        widget=forms.TextInput(attrs={"type": "datetime-local"}),
        help_text='in your time zone; for "until a time"',
    )
    field_order = ["how", "duration", "moment", "why"]

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.fields["why"].widget.attrs["autofocus"] = True  # all else has a value that is often right

    def clean(self) -> dict[str, Any]:
        """Adds ``until``, in wall-clock seconds; None means until it is resumed."""
        cleaned = super().clean() or {}
        how = cleaned.get("how")
        name, read = {"for": ("duration", duration_of), "until": ("moment", moment_of)}.get(str(how), ("", None))
        cleaned["until"] = None
        if read is None:
            return cleaned
        try:
            given = read(cleaned.get(name) or "")
        except ValueError as error:
            self.add_error(name, str(error))
            return cleaned
        now = time.time()
        cleaned["until"] = now + given if how == "for" else given
        if cleaned["until"] <= now:
            self.add_error(name, "This time has passed.")
        return cleaned


class OverrideForm(SeenForm):
    """Asks for a parameter, its value and a duration. ``parameters``: the core's list of the parameters of destinations."""

    parameter = forms.ChoiceField(label="Parameter")
    value = forms.CharField(
        label="Value",
        max_length=VALUE_MAX,
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
        help_text="a value the parameter accepts; 50% is half of the effective value",
    )
    duration = forms.CharField(
        label="For",
        required=False,
        max_length=40,
        initial="2h",
        help_text="15m, 2h, 1d12h; empty: until it is removed",
    )
    field_order = ["parameter", "value", "duration", "why"]

    def __init__(self, parameters: list[ParameterKnown], *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._kinds = {each.name: each.kind for each in parameters}
        choice = self.fields["parameter"]
        assert isinstance(choice, forms.ChoiceField)
        choice.choices = [(name, name.replace("_", " ")) for name in self._kinds]
        self.fields["value"].widget.attrs["autofocus"] = True

    def clean(self) -> dict[str, Any]:
        """Adds ``for_s``, None without an end, and converts the value to the kind of its parameter."""
        cleaned = super().clean() or {}
        cleaned["for_s"] = None
        if text := cleaned.get("duration"):
            try:
                cleaned["for_s"] = duration_of(text)
            except ValueError as error:
                self.add_error("duration", str(error))
        if "value" in cleaned and "parameter" in cleaned:
            cleaned["value"] = value_of(cleaned["value"], self._kinds[cleaned["parameter"]])
        return cleaned
