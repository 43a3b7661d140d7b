"""Filters audit entries and returns a page of them: newest first, from a cursor that new entries do not move.

Law: a page has a bounded cost. User, action, subject and outcome are found by an index; a search in the text, or for a name
that ends in ``*``, examines at most ``EXAMINED`` entries and says where to continue.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from django import forms
from django.db.models import Q, QuerySet
from django.http import QueryDict
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from appliance.audit.models import Entry, Outcome
from appliance.common.node import NODE_MAX, own_node

__all__ = ["EXAMINED", "PAGE", "FilterForm", "Page", "page"]

PAGE = 100
EXAMINED = 50_000  # some tenths of a second
_NAMES = ("who", "action", "subject")
_YEARS = range(1970, 3001)  # as everywhere in the portal


def _line(label: str, length: int, **attributes: str) -> forms.CharField:
    return forms.CharField(
        label=label,
        required=False,
        max_length=length,
        widget=forms.TextInput(attrs={"autocomplete": "off", **attributes}),
    )


class LocalTime(forms.DateTimeInput):
    """The browser's own input for a time; it is not given what is none."""

    def __init__(self) -> None:
        super().__init__(attrs={"type": "datetime-local"}, format="%Y-%m-%dT%H:%M")

    def format_value(self, value: Any) -> str | None:
        """Returns the value for the input field, None if it is not a time."""
        try:
            known = not isinstance(value, str) or parse_datetime(value) is not None
        except ValueError:  # the thirteenth month
            known = False
        return super().format_value(value) if known else None


class FilterForm(forms.Form):
    """The filter of the audit page."""

    who = _line("User", 150, list="audit-who")
    action = _line("Action", 60, list="audit-action", placeholder="queue.delete, queue.*")
    subject = _line("Subject", 400)
    outcome = forms.ChoiceField(choices=[("", "any"), *Outcome.choices], required=False)
    since = forms.DateTimeField(
        label="From",
        required=False,
        widget=LocalTime(),
    )
    until = forms.DateTimeField(
        label="To",
        required=False,
        widget=LocalTime(),
    )
    node = _line("Node", NODE_MAX)
    text = _line("Text in reason or result", 200)

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        if not own_node():
            del self.fields["node"]

    def clean(self) -> dict[str, Any]:
        """Refuses years outside 1970 to 3000, whose times may not exist in every time zone."""
        cleaned = super().clean() or self.cleaned_data
        for name in ("since", "until"):
            at = cleaned.get(name)
            if at is not None and at.year not in _YEARS:  # at the ends of the calendar no other zone has that time
                self.add_error(name, f"Allowed: a time from {_YEARS.start} to {_YEARS.stop - 1}.")
        return cleaned

    @classmethod
    def of(cls, given: QueryDict) -> FilterForm:
        """Returns the form filled from a query string."""
        return cls(given)

    @property
    def asked(self) -> dict[str, Any]:
        """Returns the fields that are filled in."""
        return {name: value for name, value in self.cleaned_data.items() if value} if self.is_valid() else {}

    @property
    def query(self) -> str:
        """Returns the filter as the query string of a link."""
        return urlencode({name: self.data[name] for name in self.asked})

    def indexed(self) -> QuerySet[Entry]:
        """Returns the entries, filtered by what an index finds; times also limit the ids, which grow with them."""
        entries = Entry.objects.all()
        for name in _NAMES:
            if (value := self.asked.get(name, "")) and not value.endswith("*"):
                entries = entries.filter(**{name: value})
        if outcome := self.asked.get("outcome"):
            entries = entries.filter(outcome=outcome)
        if since := self.asked.get("since"):
            entries = entries.filter(at__gte=since, id__gte=_first(since))
        if until := self.asked.get("until"):
            entries = entries.filter(at__lt=until, id__lte=_last(until))
        return entries

    def read(self) -> Q | None:
        """Returns the conditions that no index serves; None if there are none."""
        wanted = Q()
        for name in _NAMES:
            if (value := self.asked.get(name, "")).endswith("*"):
                wanted &= Q(**{f"{name}__startswith": value[:-1]})
        if node := self.asked.get("node"):
            wanted &= Q(node=node)
        if text := self.asked.get("text"):
            wanted &= Q(why__icontains=text) | Q(words__icontains=text) | Q(subject__icontains=text)
        return wanted or None


_SKEW = timedelta(minutes=5)  # a transaction of that length has an older id than its time suggests


def _first(since: datetime) -> int:
    """Returns an id such that no entry since then has a lower one."""
    found = Entry.objects.filter(at__gte=since - _SKEW).order_by("at").values_list("id", flat=True).first()
    return found if found is not None else 0


def _last(until: datetime) -> int:
    found = (
        Entry.objects.filter(at__lt=min(until, timezone.now()) + _SKEW)
        .order_by("-at")
        .values_list("id", flat=True)
        .first()
    )
    return found if found is not None else 0


@dataclass(frozen=True)
class Page:
    """One page of audit entries, newest first."""

    entries: list[Entry]
    older: int | None  # the cursor of the next page
    examined: int | None  # how many were looked at, when that was the bound


def page(form: FilterForm, before: int | None = None, size: int = PAGE) -> Page:
    """Returns the newest entries that match, with an id below ``before``."""
    entries = form.indexed().order_by("-id")
    if before is not None:
        entries = entries.filter(id__lt=before)
    wanted = form.read()
    if wanted is None:
        found = list(entries[: size + 1])
        return Page(found[:size], found[size - 1].pk if len(found) > size else None, None)
    examined = list(entries.values_list("id", flat=True)[EXAMINED - 1 : EXAMINED])
    floor = examined[0] if examined else 0
    found = list(entries.filter(wanted, id__gte=floor)[: size + 1])
    if len(found) > size:
        return Page(found[:size], found[size - 1].pk, None)
    return Page(found, floor if examined else None, EXAMINED if examined else None)
