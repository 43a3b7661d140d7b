"""The forms of webhooks: what one is, and from where it continues."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

from django import forms

from appliance.accounts.audited_admin import reason_field
from appliance.webhooks.models import Webhook
from mailcore.control.protocol.events import KINDS, NOW, OLDEST

__all__ = ["PAST", "WEBHOOKS_MAX", "MoveForm", "ReasonForm", "WebhookForm"]

WEBHOOKS_MAX = 20  # each has a thread, and a connection to the core ([control] clients_max)
_URL = re.compile(r"https?://[^\s/?#@]+(?:[/?][^\s]*)?")  # as [alerts] webhook
_DOMAIN = re.compile(r"[^\s@]+")
PAST = "past"
PLACES = (
    (PAST, "where it is, behind events that are gone"),
    (OLDEST, "the first event that is kept: send all again"),
    (NOW, "now: skip what has happened"),
)


class ReasonForm(forms.Form):
    """Asks for a reason."""

    why = reason_field()

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **{"label_suffix": "", **named})


class MoveForm(ReasonForm):
    """Asks from where a webhook continues."""

    place = forms.ChoiceField(label="Continue from", choices=PLACES)
    field_order = ("place", "why")


class WebhookForm(forms.ModelForm):  # type: ignore[type-arg]  # it has no type arguments when it runs
    """Asks what a webhook is sent, and where to."""

    kinds = forms.MultipleChoiceField(
        label="Events",
        choices=[(kind, kind) for kind in KINDS],
        widget=forms.CheckboxSelectMultiple(),
        required=False,
        help_text="None selected: all.",
    )
    why = reason_field()

    class Meta:
        """Names the fields that a person gives."""

        model = Webhook
        fields = ("name", "url", "kinds", "tag", "sender_domain", "recipient_domain", "login")
        labels = {
            "url": "Address", "sender_domain": "Sender's domain", "recipient_domain": "Recipient's domain", "login": "Login",
        }  # fmt: skip
        help_texts = {
            "name": "The program that receives the events.",
            "url": "https://host/path. Events are posted to it as JSON. A redirection is not followed.",
            "tag": "Only of messages with this tag ([receiver] tag_header).",
            "sender_domain": "Only of messages whose sender is in this domain; subdomains do not count.",
            "recipient_domain": "Only of recipients in this domain; subdomains do not count.",
            "login": "Only of messages that this user handed in.",
        }

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **{"label_suffix": "", **named})

    def clean_name(self) -> str:
        """Refuses a control character: the name is in a header of each request, which could not be sent."""
        name = str(self.cleaned_data["name"])
        if not name.isprintable():
            raise forms.ValidationError("Must have no line end and no other control character.")
        return name

    def clean_url(self) -> str:
        """Refuses what is not an address of the web."""
        url = str(self.cleaned_data["url"]).strip()
        good = url.isascii() and _URL.fullmatch(url) is not None
        try:
            good = good and bool(urlsplit(url).hostname) and urlsplit(url).port != 0
        except ValueError:  # a port that is not a number
            good = False
        if not good:
            raise forms.ValidationError("Must be https://host/path or http://host/path, without a user or a password.")
        return url

    def clean_sender_domain(self) -> str:
        """Returns the domain in lower case."""
        return self._domain("sender_domain")

    def clean_recipient_domain(self) -> str:
        """Returns the domain in lower case."""
        return self._domain("recipient_domain")

    def _domain(self, name: str) -> str:
        domain = str(self.cleaned_data[name]).strip().lower()
        if domain and not _DOMAIN.fullmatch(domain):
            raise forms.ValidationError("Must be a domain, such as example.org.")
        return domain

    def clean(self) -> dict[str, Any]:
        """Refuses one webhook too many."""
        cleaned = super().clean() or self.cleaned_data
        if self.instance.pk is None and Webhook.objects.count() >= WEBHOOKS_MAX:
            raise forms.ValidationError(
                f"There are {WEBHOOKS_MAX} webhooks, as many as there may be. Delete one first."
            )
        return cleaned
