"""Where the overview and its stream are."""

from __future__ import annotations

from django.urls import path

from appliance.status import overview_views as views

app_name = "status"
urlpatterns = [
    path("", views.overview, name="overview"),
    path("live/overview", views.stream, name="overview_stream"),
]
