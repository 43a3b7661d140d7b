"""The dialogs of the nodes: moving a shard, taking a node out of service, and letting it take shards again.

Each needs a reason. The nodes carry an order out; the page shows how far it is.
"""

from __future__ import annotations

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from appliance.accounts.roles import operator
from appliance.common.door import door
from appliance.common.templatetags.waypost import visible
from appliance.destinations.forms import ReasonForm
from appliance.status.node_orders import order_drain, order_move, order_resumption
from mailcore.control.protocol.nodes import Nodes

__all__ = ["drain", "move", "resume"]


class MoveForm(ReasonForm):
    """Asks which node is to have a shard."""

    node = forms.ChoiceField(label="To")
    field_order = ("node", "why")


@operator
@require_http_methods(["GET", "POST"])
def move(request: HttpRequest, name: str) -> HttpResponse:
    """Renders the dialog that moves a shard; a POST orders it."""
    answer = door(request).ask("nodes", Nodes)
    owner = next((each.node for each in answer.shards if each.name == name), "")
    form = MoveForm(request.POST or None)
    others = [each.name for each in answer.nodes if each.name != owner and each.alive and each.state == "open"]
    field = form.fields["node"]
    assert isinstance(field, forms.ChoiceField)
    field.choices = [(each, each) for each in others]
    if request.method == "POST" and form.is_valid():
        node = form.cleaned_data["node"]
        order_move(request, name, node, form.cleaned_data["why"])
        return _done(request, f"Shard {visible(name)} moves to {visible(node)}.")
    words = (
        "Its owner gives out nothing more, lets deliveries end, and hands the shard over; mail in it is delivered there"
        " within seconds. Clients of the shard are asked to come back later."
        if others
        else "There is no other node that lives and takes shards."
    )
    return _dialog(request, form, f"Move shard {visible(name)}", words, "Move")


@operator
@require_http_methods(["GET", "POST"])
def drain(request: HttpRequest, name: str) -> HttpResponse:
    """Renders the dialog that takes a node out of service; a POST orders it."""
    form = ReasonForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        order_drain(request, name, form.cleaned_data["why"])
        return _done(request, f"Node {visible(name)} moves its shards away, and takes no mail.")
    words = "All its shards go to other nodes, one after the other. It takes no shard and no mail until it is resumed."
    return _dialog(request, form, f"Drain node {visible(name)}", words, "Drain")


@operator
@require_http_methods(["GET", "POST"])
def resume(request: HttpRequest, name: str) -> HttpResponse:
    """Renders the dialog that lets a node take shards again; a POST orders it."""
    form = ReasonForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        order_resumption(request, name, form.cleaned_data["why"])
        return _done(request, f"Node {visible(name)} takes shards again.")
    words = "It asks for its own shard, and takes mail again when it has it."
    return _dialog(request, form, f"Resume node {visible(name)}", words, "Resume")


def _done(request: HttpRequest, words: str) -> HttpResponse:
    messages.success(request, words)
    place = reverse("nodes:nodes")
    if request.headers.get("HX-Request"):
        return HttpResponse(status=204, headers={"HX-Redirect": place})
    return redirect(place)


def _dialog(request: HttpRequest, form: forms.Form, title: str, words: str, deed: str) -> HttpResponse:
    context = {"form": form, "title": title, "words": words, "deed": deed}
    template = "destinations/dialog.html" if request.headers.get("HX-Request") else "status/nodes_dialog.html"
    return render(request, template, context, status=422 if form.is_bound else 200)
