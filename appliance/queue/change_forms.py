"""The forms before a change: they ask for a reason, for a route if one is needed, and for the number if it is big."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from django import forms

from appliance.queue.models import Change
from mailcore.control.protocol.operation import selects_all

__all__ = ["TYPED_FROM", "ChosenForm", "CountForm", "GoForm", "RetryCountForm", "chosen"]

WHY_MAX = 900  # the core takes 1 000 characters, the change's tag included
CHOSEN_MAX = 1_000  # messages of one request to the core
TYPED_FROM = 1_000  # for more messages, the operator must type their number: this shows that the number was read
_MESSAGE = re.compile(r"([0-9A-Z]{13,20})(?::([^\s:]{1,100}):(\d{1,19}))?")


class WhyForm(forms.Form):
    """Asks for the reason of a change."""

    why = forms.CharField(
        label="Reason", min_length=3, max_length=WHY_MAX, widget=forms.TextInput(attrs={"autocomplete": "off"})
    )


class RouteForm(forms.Form):
    """Asks for a route. ``transports``: the existing ones; None if they are not known here, then the core checks the route."""

    route = forms.CharField(
        label="New route",
        max_length=400,
        help_text="transport:next hop, such as relay:[192.0.2.1]:25 or smtp:example.net",
    )

    def __init__(self, *given: Any, transports: Iterable[str] | None = None, **named: Any) -> None:
        super().__init__(*given, **named)
        self._transports = None if transports is None else sorted(transports)

    def clean_route(self) -> str:
        """Returns the route. Raises ValidationError for a transport that does not exist."""
        route = str(self.cleaned_data["route"]).strip()
        transport, colon, next_hop = route.partition(":")
        if not colon or not next_hop or any(character.isspace() for character in route):
            raise forms.ValidationError("Write transport:next hop.")
        if self._transports is not None and transport not in self._transports:
            raise forms.ValidationError(
                f"There is no transport “{transport[:50]}”; there are {', '.join(self._transports)}."
            )
        return route


class ChosenForm(WhyForm):
    """Asks for the reason to change the selected messages."""


class CountForm(forms.Form):
    """Asks for nothing: all matching messages can be counted at once."""


class RetryCountForm(CountForm):
    """Asks whether a retry of all matching messages includes delayed recipients."""

    scheduled = forms.BooleanField(
        label="Scheduled mail, too",
        required=False,
        help_text="Recipients that their sender or an operator delayed are retried now, too. Otherwise they keep their time.",
    )


class GoForm(WhyForm):
    """Asks for the reason to change all matching messages, after they were counted."""

    def __init__(self, change: Change, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._matched = change.matched
        if must_be_typed(change):
            self.fields["typed"] = forms.CharField(
                label=f"Type the number of messages, {change.matched}, to confirm it",
                max_length=30,
                widget=forms.TextInput(attrs={"inputmode": "numeric", "autocomplete": "off"}),
            )

    def clean_typed(self) -> str:
        """Returns the number that was typed. Raises ValidationError unless it is the number of messages."""
        typed = "".join(character for character in self.cleaned_data["typed"] if character.isdigit())
        if typed != str(self._matched):
            raise forms.ValidationError(f"This is not {self._matched}.")
        return typed


def must_be_typed(change: Change) -> bool:
    """Returns whether the operator must type the number: for many messages, and for a filter that selects the whole queue."""
    return change.matched > TYPED_FROM or selects_all(change.filter)


def chosen(values: Iterable[str]) -> tuple[list[str], list[tuple[str, str, int]]]:
    """Returns the selected messages: queue ids, and queue ids with their positions. Raises ValueError."""
    queue_ids: dict[str, None] = {}
    messages: dict[str, tuple[str, str, int]] = {}
    for value in values:
        match = _MESSAGE.fullmatch(value)
        if match is None:
            raise ValueError("A selected value is not a message. Reload the page and select again.")
        if match[2]:
            messages[match[1]] = (match[1], match[2], int(match[3]))
        else:
            queue_ids[match[1]] = None
    if not messages and not queue_ids:
        raise ValueError("No message is selected.")
    if len(messages) + len(queue_ids) > CHOSEN_MAX:
        raise ValueError(f"More than {CHOSEN_MAX} messages are selected.")
    return [each for each in queue_ids if each not in messages], list(messages.values())
