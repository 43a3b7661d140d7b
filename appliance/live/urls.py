"""Where the overview and the stream are."""

from __future__ import annotations

from django.urls import path

from appliance.live import views

app_name = "live"
urlpatterns = [
    path("", views.overview, name="overview"),
    path("live/stream", views.stream, name="stream"),
    path("live/history", views.history, name="history"),
]
