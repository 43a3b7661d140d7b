"""Where the page of this room is."""

from __future__ import annotations

from django.urls import path

from appliance.status import nodes_actions as actions
from appliance.status import nodes_views as views

app_name = "nodes"
urlpatterns = [
    path("", views.nodes, name="nodes"),
    path("shards/<str:name>/move/", actions.move, name="move"),
    path("<str:name>/drain/", actions.drain, name="drain"),
    path("<str:name>/resume/", actions.resume, name="resume"),
]
