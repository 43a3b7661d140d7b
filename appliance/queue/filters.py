"""The filter of a page of messages: as in the URL, as the core takes it, and in words.

Law: the URL holds the filter, so that an operator can send it to another; empty fields are left out. Links may also use the
core's names (older_than_s, larger_than_bytes).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlencode

from django import forms

from appliance.common.templatetags.waypost import visible
from appliance.queue.amounts import duration_of, moment_of, size_of

__all__ = ["FIELDS", "FilterForm"]

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


class AmountField(forms.CharField):
    """Keeps the text that was typed; ``read`` checks it."""

    def __init__(self, read: Callable[[str], float], **named: Any) -> None:
        super().__init__(required=False, max_length=AMOUNT_MAX, **named)
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

    sender = forms.CharField(required=False, max_length=TEXT_MAX, help_text="<> is the sender of bounces")
    recipient = forms.CharField(required=False, max_length=TEXT_MAX)
    destination = forms.CharField(required=False, max_length=TEXT_MAX)
    lane = forms.CharField(required=False, max_length=TEXT_MAX)
    reason = forms.CharField(required=False, max_length=TEXT_MAX, help_text="a part of the last reply")
    older_than = AmountField(duration_of, help_text="2h, 1d12h")
    younger_than = AmountField(duration_of, help_text="15m")
    larger_than = AmountField(size_of, help_text="20k, 1.5 MB")
    smaller_than = AmountField(size_of, help_text="1 MB")
    arrived_before = AmountField(moment_of, help_text="2026-11-21T10:00")

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> FilterForm:
        """Returns a form with the filter of a URL; fields that are missing are empty."""
        data = {name: given.get(name, "") for name in FIELDS}
        for name, (alias, _) in AMOUNTS.items():
            data[name] = data[name] or given.get(alias, "")
        return cls(data, label_suffix="", prefix=None)

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
