"""Where the streams are, and the values with which lines begin."""

from __future__ import annotations

from django.urls import path

from appliance.live import views

app_name = "live"
urlpatterns = [
    path("live/stream", views.stream, name="stream"),
    path("live/numbers", views.numbers, name="numbers"),
    path("live/history", views.history, name="history"),
]
