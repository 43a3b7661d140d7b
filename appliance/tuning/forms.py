"""The form that applies a draft: reason and duration."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Any

from django import forms
from django.utils import timezone

__all__ = ["UNITS", "ApplyForm"]

UNITS = {"s": (1, "seconds"), "min": (60, "minutes"), "h": (3_600, "hours"), "d": (86_400, "days")}
FOR_S_MAX = 366 * 86_400
SOON_S = 1.0  # an end before the start is a typing error
FOREVER, FOR, UNTIL = "forever", "for", "until"


class ApplyForm(forms.Form):
    """The reason for a change and how long it is to last."""

    why = forms.CharField(min_length=3, max_length=1000, strip=True)
    ends = forms.ChoiceField(choices=[(each, each) for each in (FOREVER, FOR, UNTIL)], required=False)
    amount = forms.FloatField(required=False, min_value=0)
    unit = forms.ChoiceField(choices=[(name, words) for name, (_, words) in UNITS.items()], required=False)
    clock = forms.DateTimeField(
        required=False, input_formats=["%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S"]
    )  # in the reader's zone, which TimeZoneMiddleware has set

    def clean(self) -> dict[str, Any]:
        """Computes ``until``, seconds since 1970, None for a lasting change. Refuses a time that is past."""
        values = super().clean() or self.cleaned_data
        now = time.time()
        values["until"] = None
        if values.get("ends") == FOR:
            amount = values.get("amount")
            seconds = (amount or 0) * UNITS[values.get("unit") or "min"][0]
            if not amount or not SOON_S <= seconds <= FOR_S_MAX:
                self.add_error("amount", "Enter a duration of at most a year.")
            else:
                values["until"] = now + seconds
        elif values.get("ends") == UNTIL:
            clock = values.get("clock")
            if not isinstance(clock, datetime):
                if "clock" not in self.errors:
                    self.add_error("clock", "Enter a time.")
            elif not now + SOON_S <= clock.timestamp() <= now + FOR_S_MAX:
                zone = timezone.localtime(clock)
                self.add_error("clock", f"{zone:%Y-%m-%d %H:%M:%S %Z} is in the past, or more than a year ahead.")
            else:
                values["until"] = clock.timestamp()
        return values
