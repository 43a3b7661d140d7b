"""The filter of a page of messages: as in the URL, as the core takes it, and in words.

Law: the URL holds the filter, so that an operator can send it to another; empty fields are left out. Links may also use the
core's names (older_than_s, larger_than_bytes). Forms send all their fields, so an empty field is not given; blanks, and any
other value that the core would refuse, are errors at the field.

Keeps law: empty-is-an-error (docs/laws.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from django import forms
from django.http import QueryDict

from appliance.common.templatetags.waypost import visible
from appliance.queue.amounts import duration_of, moment_of, size_of
from mailcore.control.client import Refused
from mailcore.control.protocol.operation import refusal
from mailcore.faults import Code

__all__ = ["FIELDS", "FilterForm", "sentence"]

TEXT_MAX = 1_000  # as the core allows
AMOUNT_MAX = 40
TEXTS = ("sender", "recipient", "destination", "lane", "reason")
# name here -> (name of the core, how it is read)
AMOUNTS: dict[str, tuple[str, Callable[[str], float]]] = {
    "older_than": ("older_than_s", duration_of),
    "younger_than": ("younger_than_s", duration_of),
    "larger_than": ("larger_than_bytes", size_of),
    "smaller_than": ("smaller_than_bytes", size_of),
    "arrived_before": ("arrived_before", moment_of),
}
FIELDS = (*TEXTS, *AMOUNTS)
DELETED = "deleted"  # the lane of deleted messages that can still be restored
HOLD = "hold"


def sentence(error: str) -> str:
    """Returns an error of the core as the portal writes them: with a capital and a full stop."""
    return f"{error[:1].upper()}{error[1:].removesuffix('.')}."


class TextField(forms.CharField):
    """Removes blanks around a text; a text of nothing but blanks is not the same as an empty field."""

    def __init__(self, **named: Any) -> None:
        super().__init__(required=False, strip=False, **{"max_length": TEXT_MAX, **named})

    def to_python(self, value: Any) -> str:
        """Returns the text without blanks around it. Raises ValidationError for nothing but blanks."""
        text = str(super().to_python(value))
        if text.isspace():
            raise forms.ValidationError("Only blanks. Leave the field empty for any value.")
        return text.strip()


class AmountField(TextField):
    """Keeps the text that was typed; ``read`` checks it."""

    def __init__(self, read: Callable[[str], float], **named: Any) -> None:
        super().__init__(max_length=AMOUNT_MAX, **named)
        self._read = read

    def validate(self, value: Any) -> None:
        """Raises ValidationError for an amount that cannot be read."""
        super().validate(value)
        if value:
            try:
                self._read(value)
            except ValueError as error:
                raise forms.ValidationError(str(error)) from None


class FilterForm(forms.Form):
    """Holds a filter. ``of`` reads it from a request; then use ``is_valid``, ``core``, ``query`` and ``words``."""

    sender = TextField(help_text="<> is the sender of bounces")
    recipient = TextField()
    destination = TextField()
    lane = TextField()
    reason = TextField(help_text="a part of the last reply")
    older_than = AmountField(duration_of, help_text="2h, 1d12h")
    younger_than = AmountField(duration_of, help_text="15m")
    larger_than = AmountField(size_of, help_text="20k, 1.5 MB")
    smaller_than = AmountField(size_of, help_text="1 MB")
    arrived_before = AmountField(moment_of, help_text="2026-11-21T10:00")

    twice: Sequence[str] = ()  # fields of the request with two values

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> FilterForm:
        """Returns a form with the filter of a URL; fields that are missing are empty."""
        data = {name: given.get(name, "") for name in FIELDS}
        for name, (alias, _) in AMOUNTS.items():
            data[name] = data[name] or given.get(alias, "")
        form = cls(data, label_suffix="", prefix=None)
        if isinstance(given, QueryDict):
            form.twice = [name for name in FIELDS if len(set(given.getlist(name))) > 1]
        return form

    def clean(self) -> dict[str, Any]:
        """Refuses what the core would refuse."""
        cleaned = super().clean() or self.cleaned_data
        for name in self.twice:
            self.add_error(name, "Given twice, with two values.")
        for name in TEXTS:
            if (value := cleaned.get(name)) and (error := refusal(name, value)):
                self.add_error(name, sentence(error))
        return cleaned

    def take_refusal(self, error: Refused) -> bool:
        """Shows a refusal of the core at the field that it names; returns False if it names none of them."""
        where, _, what = error.argument.partition(".")
        name = next((name for name, (theirs, _) in AMOUNTS.items() if theirs == what), what)
        if error.code is not Code.INVALID or where != "filter" or name not in FIELDS:
            return False
        self.add_error(name, sentence(error.fault.at_field))
        return True

    @property
    def wrong(self) -> str:
        """Returns the errors as one text: "sender: ...", in the order of the fields."""
        return " ".join(f"{name.replace('_', ' ')}: {each}" for name, errors in self.errors.items() for each in errors)

    @property
    def given(self) -> dict[str, str]:
        """Returns the fields that are not empty, by name; for a URL, and for hidden fields."""
        return {name: value for name in FIELDS if (value := self.cleaned_data.get(name, ""))}

    @property
    def core(self) -> dict[str, Any]:
        """Returns the filter as the core's operations take it."""
        core: dict[str, Any] = {name: self.given[name] for name in TEXTS if name in self.given}
        for name, (theirs, read) in AMOUNTS.items():
            if name in self.given:
                core[theirs] = read(self.given[name])
        return core

    @property
    def query(self) -> str:
        """Returns the filter as the query of a URL."""
        return urlencode(self.given)

    @property
    def words(self) -> str:
        """Returns the filter in words, for pages and the audit log; harmless to show."""
        parts = [f"{name.replace('_', ' ')} {visible(value)}" for name, value in self.given.items()]
        return " · ".join(parts) or "the whole queue"

    @property
    def lane_kind(self) -> str:
        """Returns the quick choice that is active: "", "new", "deferred", "hold", "deleted", or "other"."""
        lane = self.given.get("lane", "")
        return {"": "", "incoming.*": "new", "retry.*": "deferred", HOLD: HOLD, DELETED: DELETED}.get(lane, "other")

    @property
    def more_given(self) -> bool:
        """Returns whether one of the less common fields is in use."""
        return any(name in self.given for name in AMOUNTS)
