"""What holds for the reports: the zone of their days, who gets them, how numbers are written. [reports], or what the portal
set.
"""

from __future__ import annotations

import zoneinfo
from dataclasses import asdict, dataclass
from datetime import date, datetime, timedelta
from typing import Any

from django import forms
from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import validate_email

from appliance.accounts.audited_admin import reason_field
from appliance.reports.models import Preferences

__all__ = ["NUMBERS", "InForce", "PreferencesForm", "in_force", "today", "yesterday"]

RECIPIENTS_MAX = 50
NUMBERS = {"en": "1,234.5", "de": "1.234,5", "fr": "1 234,5"}


@dataclass(frozen=True)
class InForce:
    zone: str
    recipients: tuple[str, ...]
    numbers: str

    @property
    def described(self) -> dict[str, Any]:
        return asdict(self) | {"recipients": list(self.recipients)}


def in_force() -> InForce:
    given = Preferences.objects.filter(pk=1).first() or Preferences()
    file = settings.REPORTS
    zone = given.zone if given.zone in zoneinfo.available_timezones() else file.zone
    recipients = file.recipients if given.recipients is None else tuple(given.recipients)
    return InForce(zone, recipients, given.numbers or file.numbers)


def today(zone: str) -> date:
    return datetime.now(zoneinfo.ZoneInfo(zone)).date()


def yesterday(zone: str) -> date:
    """The last whole day there."""
    return today(zone) - timedelta(days=1)


class PreferencesForm(forms.Form):
    zone = forms.CharField(
        label="Time zone of a day", max_length=64, help_text="A day begins at midnight there.",
        widget=forms.TextInput(attrs={"list": "zones"}),
    )  # fmt: skip
    recipients = forms.CharField(
        label="Mail it to", required=False, max_length=8_000, help_text="One address a line; none: no mail.",
        widget=forms.Textarea(attrs={"rows": 4, "spellcheck": "false"}),
    )  # fmt: skip
    numbers = forms.ChoiceField(label="Numbers in the mail", choices=list(NUMBERS.items()))
    why = reason_field()

    def clean_zone(self) -> str:
        given = str(self.cleaned_data["zone"])
        if given not in zoneinfo.available_timezones():
            raise ValidationError("There is no such time zone; Europe/Vienna is one.")
        return given

    def clean_recipients(self) -> list[str]:
        found = list(dict.fromkeys(str(self.cleaned_data["recipients"]).replace(",", "\n").split()))
        if len(found) > RECIPIENTS_MAX:
            raise ValidationError(f"These are {len(found)}; {RECIPIENTS_MAX} are allowed.")
        for each in found:
            try:
                validate_email(each)
            except ValidationError:
                raise ValidationError(f"{each[:100]!r} is no address.") from None
        return found

    def save(self) -> None:
        given = {name: self.cleaned_data[name] for name in ("zone", "recipients", "numbers")}
        Preferences.objects.update_or_create(pk=1, defaults=given)

    @classmethod
    def of(cls, given: Any = None) -> PreferencesForm:
        now = in_force()
        initial = {"zone": now.zone, "recipients": "\n".join(now.recipients), "numbers": now.numbers}
        return cls(given, initial=initial)
