"""The pages of webhooks: the list, one webhook with its failures, and what is done to it.

Law: an administrator says where events go, an operator starts and stops it; the secret is on the page that answers its making,
and nowhere else.
"""

from __future__ import annotations

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from appliance.accounts.roles import administrator, operator, viewer
from appliance.common.templatetags.waypost import visible
from appliance.webhooks import changing
from appliance.webhooks.forms import MoveForm, ReasonForm, WebhookForm
from appliance.webhooks.models import Webhook

__all__ = ["delete", "edit", "move", "new", "pause", "resume", "secret", "test", "webhook", "webhooks"]

FAILURES_SHOWN = 50


@viewer
@require_safe
@never_cache
def webhooks(request: HttpRequest) -> HttpResponse:
    """Renders all webhooks."""
    return render(request, "webhooks/webhooks.html", {"webhooks": Webhook.objects.all()})


@viewer
@require_safe
@never_cache
def webhook(request: HttpRequest, pk: int) -> HttpResponse:
    """Renders one webhook; for htmx its state, which refreshes while a test is under way."""
    hook = get_object_or_404(Webhook, pk=pk)
    if request.headers.get("HX-Request"):
        return render(request, "webhooks/state.html", {"hook": hook})
    return _page(request, hook)


def _page(
    request: HttpRequest, hook: Webhook, *, moving: forms.Form | None = None, acting: forms.Form | None = None
) -> HttpResponse:
    context = {
        "hook": hook,
        "failures": hook.failures.all()[:FAILURES_SHOWN],
        "moving": moving or MoveForm(prefix="move"),
        "acting": acting or ReasonForm(prefix="act"),
    }
    status = 422 if moving is not None or acting is not None else 200
    return render(request, "webhooks/webhook.html", context, status=status)


@administrator
@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
def new(request: HttpRequest) -> HttpResponse:
    """Renders the form of a new webhook; a POST makes it and shows its secret once. It begins with what happens from now on."""
    form = WebhookForm(request.POST if request.method == "POST" else None)
    if request.method == "POST" and form.is_valid():
        return render(request, "webhooks/made.html", {"hook": changing.made(request, form)})
    return render(request, "webhooks/form.html", {"form": form}, status=422 if form.is_bound else 200)


@administrator
@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
def edit(request: HttpRequest, pk: int) -> HttpResponse:
    """Renders the form of a webhook; a POST changes it. It continues where it is."""
    hook = get_object_or_404(Webhook, pk=pk)
    before = hook.described()
    form = WebhookForm(request.POST if request.method == "POST" else None, instance=hook)
    if request.method == "POST" and form.is_valid():
        changing.changed(request, hook, form, before)
        messages.success(request, f"{visible(hook.name)} is changed.")
        return redirect("webhooks:webhook", pk=pk)
    return render(request, "webhooks/form.html", {"form": form, "hook": hook}, status=422 if form.is_bound else 200)


@administrator
@require_POST
def secret(request: HttpRequest, pk: int) -> HttpResponse:
    """Makes another secret, and shows it once. Requests are signed with it from now on."""
    hook = get_object_or_404(Webhook, pk=pk)
    form = ReasonForm(request.POST, prefix="act")
    if not form.is_valid():
        return _page(request, hook, acting=form)
    changing.with_another_secret(request, hook, form.cleaned_data["why"])
    return render(request, "webhooks/made.html", {"hook": hook})


@administrator
@require_POST
def delete(request: HttpRequest, pk: int) -> HttpResponse:
    """Deletes a webhook."""
    hook = get_object_or_404(Webhook, pk=pk)
    form = ReasonForm(request.POST, prefix="act")
    if not form.is_valid():
        return _page(request, hook, acting=form)
    changing.deleted(request, hook, form.cleaned_data["why"])
    messages.success(request, f"{visible(hook.name)} is deleted.")
    return redirect("webhooks:webhooks")


@operator
@require_POST
def pause(request: HttpRequest, pk: int) -> HttpResponse:
    """Stops sending. The webhook keeps its position."""
    return _enable(request, pk, enabled=False)


@operator
@require_POST
def resume(request: HttpRequest, pk: int) -> HttpResponse:
    """Sends on from where it was, at once."""
    return _enable(request, pk, enabled=True)


def _enable(request: HttpRequest, pk: int, *, enabled: bool) -> HttpResponse:
    hook = get_object_or_404(Webhook, pk=pk)
    form = ReasonForm(request.POST, prefix="act")
    if not form.is_valid():
        return _page(request, hook, acting=form)
    changing.enabled(request, hook, on=enabled, why=form.cleaned_data["why"])
    messages.success(request, f"{visible(hook.name)} {'sends from where it was' if enabled else 'is paused'}.")
    return redirect("webhooks:webhook", pk=pk)


@operator
@require_POST
def move(request: HttpRequest, pk: int) -> HttpResponse:
    """Sets the position from which a webhook continues."""
    hook = get_object_or_404(Webhook, pk=pk)
    form = MoveForm(request.POST, prefix="move")
    if not form.is_valid():
        return _page(request, hook, moving=form)
    changing.moved(request, hook, form.cleaned_data["place"], form.cleaned_data["why"])
    messages.success(request, f"{visible(hook.name)} continues from there.")
    return redirect("webhooks:webhook", pk=pk)


@operator
@require_POST
def test(request: HttpRequest, pk: int) -> HttpResponse:
    """Leaves a test, which the process that sends webhooks posts within a second."""
    hook = get_object_or_404(Webhook, pk=pk)
    changing.ask_for_test(request, hook)
    messages.success(request, "The test is sent now; the answer is shown below.")
    return redirect("webhooks:webhook", pk=pk)
