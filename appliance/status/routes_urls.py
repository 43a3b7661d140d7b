"""Where the pages of this room are."""

from __future__ import annotations

from django.urls import path

from appliance.status import routes_views as views

app_name = "routes"
urlpatterns = [
    path("", views.routes, name="routes"),
    path("resolve/", views.resolve, name="resolve"),
]
