"""The preferences of reports: time zone, recipients, number format, out of the settings that are in force ([reports]).

Earlier versions kept them in the portal's database. Such a value counts above the settings until it is changed in
the portal (``give_up``).
"""

from __future__ import annotations

import zoneinfo
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

from django.db import transaction

from appliance.common.current_settings import current_settings
from appliance.reports.models import Preferences
from appliance.reports.writing import LANGUAGES, Writing

__all__ = ["NUMBERS", "InForce", "give_up", "in_force", "own", "today", "yesterday"]

EMPTY: dict[str, Any] = {"zone": "", "recipients": None, "numbers": ""}  # of what an earlier version kept
NUMBERS = {code: f"{words.name}: {Writing(code).example}" for code, words in LANGUAGES.items()}


@dataclass(frozen=True)
class InForce:
    """The preferences in force."""

    zone: str
    recipients: tuple[str, ...]
    numbers: str

    @property
    def writing(self) -> Writing:
        """Returns how numbers are written."""
        return Writing(self.numbers, zoneinfo.ZoneInfo(self.zone))


def in_force() -> InForce:
    """Returns the preferences in force."""
    given = Preferences.objects.filter(pk=1).first() or Preferences()
    set_ = current_settings().reports
    zone = given.zone if given.zone in zoneinfo.available_timezones() else set_.zone
    recipients = set_.recipients if given.recipients is None else tuple(given.recipients)
    return InForce(zone, recipients, given.numbers if given.numbers in LANGUAGES else set_.numbers)


def own() -> dict[str, Any]:
    """Returns what an earlier version kept in the portal's database, by the names of [reports]."""
    given = Preferences.objects.filter(pk=1).first()
    found = {} if given is None else {name: getattr(given, name) for name in EMPTY}
    return {name: value for name, value in found.items() if value != EMPTY[name]}


def give_up(names: Iterable[str]) -> None:
    """Lets these settings of [reports] count again, which the portal's database has another value for."""
    with transaction.atomic():
        Preferences.objects.filter(pk=1).update(**{name: EMPTY[name] for name in names if name in EMPTY})
        Preferences.objects.filter(zone="", recipients__isnull=True, numbers="").delete()


def today(zone: str) -> date:
    """Returns the current day in a time zone."""
    return datetime.now(zoneinfo.ZoneInfo(zone)).date()


def yesterday(zone: str) -> date:
    """Returns the last complete day in the time zone."""
    return today(zone) - timedelta(days=1)
