"""Where the overview and its stream are."""

from __future__ import annotations

from django.urls import path

from appliance.status import overview_views as views
from appliance.status import past_views

app_name = "status"
urlpatterns = [
    path("", views.overview, name="overview"),
    path("overview/then/", past_views.then, name="overview_then"),
    path("live/overview", views.stream, name="overview_stream"),
]
