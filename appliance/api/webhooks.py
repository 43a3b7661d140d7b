"""Webhooks: the list, one with its state, its failures; made, changed, moved, tested, paused, deleted.

Laws
- An administrator says where events go, an operator starts and stops it.
- The secret is in the first answer of its making, once; the whole address is for administrators: it may have a secret, too.

Keeps law: secrets-stay-out (docs/laws.md).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from django.http import Http404, HttpRequest
from ninja import Path
from pydantic import Field

from appliance.accounts.roles import Role, role_of
from appliance.api.bodies import Body, Why, optional
from appliance.api.errors import ApiError
from appliance.api.operation import operation
from appliance.api.scopes import Scope
from appliance.webhooks import changing
from appliance.webhooks.forms import PAST, WebhookForm
from appliance.webhooks.models import DOMAIN_MAX, LOGIN_MAX, NAME_MAX, URL_MAX, Failure, Webhook
from appliance.webhooks.sender import FAILURES_KEPT
from mailcore.control.protocol.events import KINDS, NOW, OLDEST
from mailcore.tag import TAG_CHARACTERS

__all__ = [
    "change_webhook", "delete_webhook", "make_webhook", "make_webhook_secret", "move_webhook", "pause_webhook",
    "resume_webhook", "test_webhook", "webhook", "webhook_failures", "webhooks",
]  # fmt: skip

F = TypeVar("F", bound=Callable[..., Any])
Number = Annotated[int, Field(ge=1, le=(1 << 31) - 1)]
Kinds = Annotated[
    list[str],
    Field(max_length=len(KINDS), json_schema_extra={"items": {"type": "string", "enum": list(KINDS)}}),
]


class WebhookShown(msgspec.Struct, kw_only=True):
    """A webhook. Times are wall clock, in seconds since 1970."""

    id: int
    name: str
    host: str
    url: str | None  # None: for administrators only
    kinds: list[str]  # empty: all
    tag: str
    sender_domain: str
    recipient_domain: str
    login: str
    state: str  # sending, failing, paused or events lost
    words: str  # the last answer of the receiver
    lost: str  # why it stands still; "": no events are gone
    lag_s: float | None  # age of the first event that was not taken; None: there is none
    failing_since: float | None
    next_try_at: float
    sent_events: int
    sent_requests: int
    failed_requests: int
    sent_at: float | None
    test_under_way: bool
    test_at: float | None  # None: the last test has no answer yet, or there was none
    test_good: bool
    test_words: str
    made_at: float
    made_by: str


class WebhookList(msgspec.Struct, kw_only=True):
    """All webhooks, by name."""

    webhooks: list[WebhookShown]


class WebhookMade(msgspec.Struct, kw_only=True):
    """A webhook, and the secret with which its requests are signed."""

    webhook: WebhookShown
    secret: str | None  # once; None: this is a repeated answer


class FailureShown(msgspec.Struct, kw_only=True):
    """A request that failed, or events that are gone."""

    at: float
    delivery: str
    attempt: int
    status: int  # of HTTP; 0: no answer
    duration_s: float
    words: str


class FailureList(msgspec.Struct, kw_only=True):
    """The last failures of a webhook, newest first."""

    failures: list[FailureShown]


class WebhookDeleted(msgspec.Struct, kw_only=True):
    """A webhook that is not there any more."""

    id: int


class NewWebhookBody(Body):
    """A new webhook. It begins with what happens from now on."""

    name: str = Field(min_length=1, max_length=NAME_MAX)
    url: str = Field(min_length=1, max_length=URL_MAX, description="https://host/path, without a user or a password")
    kinds: Kinds = Field(default_factory=list, description="empty: all")
    tag: str = Field(default="", max_length=TAG_CHARACTERS)
    sender_domain: str = Field(default="", max_length=DOMAIN_MAX)
    recipient_domain: str = Field(default="", max_length=DOMAIN_MAX)
    login: str = Field(default="", max_length=LOGIN_MAX)
    why: Why


class WebhookBody(Body):
    """Changes of a webhook; what is left out stays. It continues where it is."""

    name: str = optional(min_length=1, max_length=NAME_MAX)
    url: str = optional(min_length=1, max_length=URL_MAX)
    kinds: Kinds = optional(description="empty: all")
    tag: str = optional(max_length=TAG_CHARACTERS)
    sender_domain: str = optional(max_length=DOMAIN_MAX)
    recipient_domain: str = optional(max_length=DOMAIN_MAX)
    login: str = optional(max_length=LOGIN_MAX)
    why: Why


class MoveWebhookBody(Body):
    """From where a webhook continues."""

    place: Literal["past", "oldest", "now"] = Field(
        description="past: where it is, behind events that are gone; oldest: with the first event that is kept; now: skip "
        "what has happened"
    )
    why: Why


class WebhookWhyBody(Body):
    """The reason."""

    why: Why


def _look(path: str, answer: Any) -> Callable[[F], F]:
    return operation("GET", path, tag="Webhooks", scopes={Scope.READ, Scope.WEBHOOKS}, answer=answer)


def _change(
    path: str, answer: Any, least: Role, status: int = 200, told_once: tuple[str, ...] = ()
) -> Callable[[F], F]:
    return operation(
        "POST", path, tag="Webhooks", scopes={Scope.WEBHOOKS}, least=least, answer=answer, status=status,
        told_once=told_once,
    )  # fmt: skip


@_look("/webhooks", WebhookList)
def webhooks(request: HttpRequest) -> WebhookList:
    """Lists all webhooks with their state."""
    return WebhookList(webhooks=[_shown(request, each) for each in Webhook.objects.all()])


@_look("/webhooks/{number}", WebhookShown)
def webhook(request: HttpRequest, number: Path[Number]) -> WebhookShown:
    """Returns a webhook with its state, and the result of its last test."""
    return _shown(request, _of(number))


@_look("/webhooks/{number}/failures", FailureList)
def webhook_failures(
    request: HttpRequest, number: Path[Number], limit: Annotated[int, Field(ge=1, le=FAILURES_KEPT)] = FAILURES_KEPT
) -> FailureList:
    """Lists the last requests of a webhook that failed."""
    return FailureList(failures=[_failure(each) for each in _of(number).failures.all()[:limit]])


@_change("/webhooks", WebhookMade, Role.ADMINISTRATOR, 201, ("secret",))
def make_webhook(request: HttpRequest, body: NewWebhookBody) -> WebhookMade:
    """Makes a webhook. The answer has the secret that signs its requests, once."""
    form = WebhookForm(body.model_dump())
    _check(form)
    hook = changing.made(request, form)
    return WebhookMade(webhook=_shown(request, hook), secret=hook.secret)


@_change("/webhooks/{number}", WebhookShown, Role.ADMINISTRATOR)
def change_webhook(request: HttpRequest, number: Path[Number], body: WebhookBody) -> WebhookShown:
    """Changes a webhook. It continues where it is."""
    hook = _of(number)
    before = hook.described()
    now = {name: getattr(hook, name) for name in WebhookForm.Meta.fields}
    form = WebhookForm(now | body.model_dump(exclude_unset=True), instance=hook)
    _check(form)
    changing.changed(request, hook, form, before)
    return _shown(request, _of(number))


@_change("/webhooks/{number}/secret", WebhookMade, Role.ADMINISTRATOR, 200, ("secret",))
def make_webhook_secret(request: HttpRequest, number: Path[Number], body: WebhookWhyBody) -> WebhookMade:
    """Makes another secret, which the answer has, once. Requests are signed with it from now on."""
    hook = _of(number)
    changing.with_another_secret(request, hook, body.why)
    return WebhookMade(webhook=_shown(request, hook), secret=hook.secret)


@_change("/webhooks/{number}/delete", WebhookDeleted, Role.ADMINISTRATOR)
def delete_webhook(request: HttpRequest, number: Path[Number], body: WebhookWhyBody) -> WebhookDeleted:
    """Deletes a webhook."""
    changing.deleted(request, _of(number), body.why)
    return WebhookDeleted(id=number)


@_change("/webhooks/{number}/pause", WebhookShown, Role.OPERATOR)
def pause_webhook(request: HttpRequest, number: Path[Number], body: WebhookWhyBody) -> WebhookShown:
    """Stops sending. The webhook keeps its position."""
    changing.enabled(request, _of(number), on=False, why=body.why)
    return _shown(request, _of(number))


@_change("/webhooks/{number}/resume", WebhookShown, Role.OPERATOR)
def resume_webhook(request: HttpRequest, number: Path[Number], body: WebhookWhyBody) -> WebhookShown:
    """Sends on from where it was, at once."""
    changing.enabled(request, _of(number), on=True, why=body.why)
    return _shown(request, _of(number))


@_change("/webhooks/{number}/move", WebhookShown, Role.OPERATOR)
def move_webhook(request: HttpRequest, number: Path[Number], body: MoveWebhookBody) -> WebhookShown:
    """Sets the position from which a webhook continues."""
    changing.moved(request, _of(number), {"past": PAST, "oldest": OLDEST, "now": NOW}[body.place], body.why)
    return _shown(request, _of(number))


@_change("/webhooks/{number}/test", WebhookShown, Role.OPERATOR, 202)
def test_webhook(request: HttpRequest, number: Path[Number], body: WebhookWhyBody) -> WebhookShown:
    """Sends a test within seconds; the webhook then has its result in ``test_…``."""
    changing.ask_for_test(request, _of(number), body.why)
    return _shown(request, _of(number))


def _of(number: int) -> Webhook:
    """Returns the webhook. Raises Http404."""
    found = Webhook.objects.filter(pk=number).first()
    if found is None:
        raise Http404("There is no such webhook.")
    return found


def _check(form: WebhookForm) -> None:
    """Raises ApiError with the first error of the form, at its field."""
    if form.is_valid():
        return
    name, errors = next(iter(form.errors.items()))
    argument = "" if name == "__all__" else name
    raise ApiError(f"{argument}: {errors[0]}" if argument else str(errors[0]), argument=argument)


def _shown(request: HttpRequest, hook: Webhook) -> WebhookShown:
    may_administer = role_of(request.user) is Role.ADMINISTRATOR
    return WebhookShown(
        id=hook.pk,
        host=hook.host,
        url=hook.url if may_administer else None,
        kinds=list(hook.kinds),
        state=hook.state,
        lag_s=hook.lag_s,
        failing_since=_seconds(hook.failing_since),
        next_try_at=hook.next_try_at.timestamp(),
        sent_at=_seconds(hook.sent_at),
        test_under_way=bool(hook.test_asked_at or (hook.test_asked_by and not hook.test_at)),
        test_at=_seconds(hook.test_at),
        made_at=hook.made_at.timestamp(),
        **{
            name: getattr(hook, name)
            for name in (
                "name", "tag", "sender_domain", "recipient_domain", "login", "words", "lost", "sent_events",
                "sent_requests", "failed_requests", "test_good", "test_words", "made_by",
            )
        },
    )  # fmt: skip


def _failure(each: Failure) -> FailureShown:
    return FailureShown(
        at=each.at.timestamp(), delivery=each.delivery, attempt=each.attempt, status=each.status,
        duration_s=each.duration_s, words=each.words,
    )  # fmt: skip


def _seconds(at: datetime | None) -> float | None:
    return at.timestamp() if at is not None else None
