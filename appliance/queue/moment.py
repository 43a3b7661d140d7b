"""The moment in the past that a page shows: ``?at=`` of its address, a time as in a filter, or seconds since 1970.

Law: a page with a moment has no button that changes something, and its links keep the moment.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime

from django.http import HttpRequest
from django.utils import timezone

from appliance.queue.amounts import moment_of

__all__ = ["Moment", "given_moment"]

TEXT_MAX = 40


@dataclass(frozen=True)
class Moment:
    """Holds a moment. ``error``: why the text is none, for the field."""

    at: float
    text: str  # as it was typed
    error: str = ""

    @property
    def query(self) -> str:
        """Returns the parameter of links that keep the moment; it needs no escapes."""
        return f"at={self.at:.3f}" if math.isfinite(self.at) else ""

    @property
    def field(self) -> str:
        """Returns the moment as the picker shows it, in the reader's time zone."""
        return self._written("%Y-%m-%dT%H:%M:%S")

    @property
    def words(self) -> str:
        """Returns the moment with its date, in the reader's time zone, whose name follows."""
        return self._written("%Y-%m-%d %H:%M:%S %Z")

    def _written(self, form: str) -> str:
        if not math.isfinite(self.at):
            return ""
        return datetime.fromtimestamp(self.at, UTC).astimezone(timezone.get_current_timezone()).strftime(form)


def given_moment(request: HttpRequest) -> Moment | None:
    """Returns the moment that the address names; None if it names none."""
    text = request.GET.get("at", "").strip()[:TEXT_MAX]
    if not text:
        return None
    try:
        return Moment(moment_of(text), text)
    except ValueError as error:
        return Moment(math.nan, text, str(error))
