"""Where the page of this room is."""

from __future__ import annotations

from django.urls import path

from appliance.status import nodes_views as views

app_name = "nodes"
urlpatterns = [
    path("", views.nodes, name="nodes"),
]
