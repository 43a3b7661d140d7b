"""The preferences of reports: time zone, recipients, number format. The portal's settings override [reports]."""

from __future__ import annotations

import difflib
import zoneinfo
from dataclasses import asdict, dataclass
from datetime import date, datetime, timedelta
from typing import Any

from django import forms
from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import validate_email

from appliance.accounts.audited_admin import reason_field
from appliance.common.templatetags.waypost import plain
from appliance.reports.models import Preferences
from appliance.reports.writing import LANGUAGES, Writing
from mailcore.counted import counted

__all__ = ["NUMBERS", "InForce", "PreferencesForm", "in_force", "known_zone", "today", "yesterday"]

RECIPIENTS_MAX = 50
NUMBERS = {code: f"{words.name}: {Writing(code).example}" for code, words in LANGUAGES.items()}


@dataclass(frozen=True)
class InForce:
    """The preferences in force: the portal's where they are set, else those of the configuration file."""

    zone: str
    recipients: tuple[str, ...]
    numbers: str

    @property
    def writing(self) -> Writing:
        """Returns how numbers are written."""
        return Writing(self.numbers, zoneinfo.ZoneInfo(self.zone))

    @property
    def described(self) -> dict[str, Any]:
        """Returns the preferences, as the audit records them."""
        return asdict(self) | {"recipients": list(self.recipients)}


def in_force() -> InForce:
    """Returns the preferences in force."""
    given = Preferences.objects.filter(pk=1).first() or Preferences()
    file = settings.REPORTS
    zone = given.zone if given.zone in zoneinfo.available_timezones() else file.zone
    recipients = file.recipients if given.recipients is None else tuple(given.recipients)
    return InForce(zone, recipients, given.numbers if given.numbers in LANGUAGES else file.numbers)


def known_zone(given: str) -> str:
    """Returns the correct spelling of the time zone. Raises ValidationError, which names the nearest one."""
    zones = zoneinfo.available_timezones()
    folded = {each.casefold(): each for each in zones}
    found = given if given in zones else folded.get(given.strip().replace(" ", "_").casefold())
    if found is not None:
        return found
    last = {each.rpartition("/")[2].casefold(): each for each in sorted(zones, reverse=True)}
    near = difflib.get_close_matches(given[:64].rpartition("/")[2].casefold(), last, n=1)
    raise ValidationError(f"Unknown time zone; did you mean {last[near[0]] if near else 'Europe/Vienna'}?")


def _is_address(text: str) -> bool:
    try:
        validate_email(text)
    except ValidationError:
        return False
    return True


def today(zone: str) -> date:
    """Returns the current day in a time zone."""
    return datetime.now(zoneinfo.ZoneInfo(zone)).date()


def yesterday(zone: str) -> date:
    """Returns the last complete day in the time zone."""
    return today(zone) - timedelta(days=1)


class PreferencesForm(forms.Form):
    """The form of time zone, recipients and number format."""

    zone = forms.CharField(
        label="Time zone", max_length=64,
        help_text="A report covers a day from midnight to midnight in this zone. The times of the schedules are in it, too.",
        widget=forms.TextInput(attrs={"list": "zones"}),
    )  # fmt: skip
    recipients = forms.CharField(
        label="Recipients of the mail", required=False, max_length=8_000,
        help_text="One address per line. Leave empty to send no mail.",
        widget=forms.Textarea(attrs={"rows": 4, "spellcheck": "false"}),
    )  # fmt: skip
    numbers = forms.ChoiceField(
        label="Numbers", choices=list(NUMBERS.items()), help_text="Used on report pages and in the mail.",
        error_messages={"invalid_choice": f"Unknown language; available: {', '.join(LANGUAGES)}."},
    )  # fmt: skip
    why = reason_field()

    def clean_zone(self) -> str:
        """Returns the time zone. Raises ValidationError if it does not exist."""
        return known_zone(str(self.cleaned_data["zone"]))

    def clean_recipients(self) -> list[str]:
        """Returns the addresses, each once. Raises ValidationError for too many or an invalid one."""
        found = list(dict.fromkeys(str(self.cleaned_data["recipients"]).replace(",", "\n").split()))
        if len(found) > RECIPIENTS_MAX:
            raise ValidationError(f"{counted(len(found), 'address')}; at most {RECIPIENTS_MAX} are allowed.")
        wrong = [each for each in found if not _is_address(each)]
        if wrong:
            raise ValidationError(
                [f"{plain(each[:100])} is not a mail address (example: ops@example.org)." for each in wrong[:5]]
            )
        foreign = [each for each in found if not each.isascii()]
        if foreign:
            raise ValidationError(
                [f"{plain(each[:100])}: use ASCII only; write the domain as xn--…" for each in foreign[:5]]
            )
        return found

    def save(self) -> None:
        """Stores the preferences."""
        given = {name: self.cleaned_data[name] for name in ("zone", "recipients", "numbers")}
        Preferences.objects.update_or_create(pk=1, defaults=given)

    @classmethod
    def of(cls, given: Any = None) -> PreferencesForm:
        """Returns the form, filled with the preferences in force."""
        now = in_force()
        initial = {"zone": now.zone, "recipients": "\n".join(now.recipients), "numbers": now.numbers}
        return cls(given, initial=initial)
