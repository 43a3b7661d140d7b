"""Changes webhooks: what the pages and the HTTP API do alike, each with its entry in the audit log.

Law: a request that is under way moves the cursor no more after a change of the position or the conditions
(``Webhook.moves``).

Keeps law: webhooks-miss-nothing (docs/laws.md).
"""

from __future__ import annotations

from typing import Any

from django.db.models import F
from django.http import HttpRequest
from django.utils import timezone

from appliance.audit.record import audited
from appliance.common.door import door
from appliance.webhooks.forms import PAST, WebhookForm
from appliance.webhooks.models import Webhook, new_salt
from mailcore.control.protocol.events import NOW, EventBatch

__all__ = ["ask_for_test", "changed", "deleted", "enabled", "made", "moved", "with_another_secret"]

STILL = {  # of what is being sent, when the position or the conditions are changed
    "sending": "", "sending_from": "", "sending_count": 0, "attempt": 0, "next_event_at": None, "lost": "",
}  # fmt: skip


def made(request: HttpRequest, form: WebhookForm) -> Webhook:
    """Stores the webhook of a form that is valid; it begins with what happens from now on. Raises ControlError."""
    hook: Webhook = form.save(commit=False)
    hook.cursor = _now(request)
    hook.made_by = request.user.get_username()[:150]
    with audited(request, "webhook.make", hook.name, after=hook.described(), why=form.cleaned_data["why"]):
        hook.save()
    return hook


def changed(request: HttpRequest, hook: Webhook, form: WebhookForm, before: dict[str, Any]) -> None:
    """Changes a webhook as its valid form says. ``before``: as it was described before the form was made."""
    given = {name: form.cleaned_data[name] for name in WebhookForm.Meta.fields}
    with audited(request, "webhook.change", hook.name, before=before, why=form.cleaned_data["why"]) as entry:
        _set(hook, **given)
        hook.refresh_from_db()
        entry.after = hook.described()


def with_another_secret(request: HttpRequest, hook: Webhook, why: str) -> None:
    """Makes another secret. Requests are signed with it from now on."""
    with audited(request, "webhook.secret", hook.name, why=why):
        hook.salt = new_salt()
        Webhook.objects.filter(pk=hook.pk).update(salt=hook.salt)


def deleted(request: HttpRequest, hook: Webhook, why: str) -> None:
    """Deletes a webhook."""
    with audited(request, "webhook.delete", hook.name, before=hook.described(), why=why):
        hook.delete()


def enabled(request: HttpRequest, hook: Webhook, *, on: bool, why: str) -> None:
    """Stops sending, or sends on from where it was, at once."""
    with audited(request, "webhook.resume" if on else "webhook.pause", hook.name, why=why):
        Webhook.objects.filter(pk=hook.pk).update(enabled=on, next_try_at=timezone.now())


def moved(request: HttpRequest, hook: Webhook, place: str, why: str) -> None:
    """Sets the position from which a webhook continues, one of PLACES. Raises ControlError."""
    cursor = hook.cursor if place == PAST else _now(request) if place == NOW else place
    with audited(request, "webhook.move", hook.name, after={"to": place}, why=why):
        _set(hook, cursor=cursor, past_lost=place != NOW, failing_since=None, next_try_at=timezone.now())


def ask_for_test(request: HttpRequest, hook: Webhook, why: str = "Send a test") -> None:
    """Leaves a test, which the process that sends webhooks posts within a second."""
    with audited(request, "webhook.test", hook.name, why=why):
        Webhook.objects.filter(pk=hook.pk).update(
            test_asked_at=timezone.now(), test_asked_by=request.user.get_username()[:150], test_at=None, test_words=""
        )


def _now(request: HttpRequest) -> str:
    """Returns the cursor behind all that has happened. Raises ControlError."""
    return door(request).ask("events", EventBatch, {"after": NOW, "limit": 1}).cursor


def _set(hook: Webhook, **values: object) -> None:
    """Changes a webhook; the batch that is being sent is read again, and a request that is under way moves nothing."""
    Webhook.objects.filter(pk=hook.pk).update(moves=F("moves") + 1, **STILL, **values)
